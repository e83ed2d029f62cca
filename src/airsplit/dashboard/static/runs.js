// Runs: a list that is always up to date, and those that are chosen side by side.  The address holds which and over what.
import { $, DASHES, color, digits, draw, element, fill, lineSample, percent, say, seconds, tick, wrapped } from "./common.js";

const given = new URLSearchParams(location.search);
const MOST = 8;
let chosen = given.getAll("run").slice(0, MOST);
let over = given.get("over") === "round" ? "round" : "time";
let automatic = !given.has("run");
let list = [], stream, later;
const shown = new Map();

function address() {
  const now = new URLSearchParams(chosen.map((name) => ["run", name]));
  if (over !== "time") now.set("over", over);
  history.replaceState(null, "", `${location.pathname}${now.size ? "?" : ""}${now}`);
}

/** One stream for the list and for all runs that are chosen; none while nobody looks, since a browser has few connections to a server. */
function listen() {
  clearTimeout(later);
  stream?.close();
  if (document.hidden) return;
  stream = new EventSource(`/api/events?${new URLSearchParams(chosen.map((name) => ["run", name]))}`);
  stream.addEventListener("runs", ({ data }) => { const told = JSON.parse(data); list = Array.isArray(told) ? told : []; if (!choseFirst()) showList(); });
  stream.addEventListener("run", ({ data }) => { const run = JSON.parse(data); shown.set(run.name, run); show(); });
  stream.addEventListener("error", () => {
    say($("state"), "The server does not answer; trying again …");
    if (stream.readyState === EventSource.CLOSED) later = setTimeout(listen, 5000);
  });
}
document.addEventListener("visibilitychange", () => (document.hidden ? stream?.close() : listen()));

function choseFirst() {
  const good = list.filter((run) => !run.problem);
  if (!automatic || !good.length) return false;
  automatic = false;
  choose([good[0].name]);
  return true;
}

function choose(names) {
  chosen = names.slice(-MOST);
  for (const name of shown.keys()) if (!chosen.includes(name)) shown.delete(name);
  address();
  listen();
  showList();
  show();
}

function toggle(name, on) {
  automatic = false;
  choose(on ? [...chosen, name] : chosen.filter((other) => other !== name));
}
const link = (name) => `/report?${new URLSearchParams({ run: name })}`;

function swatch(name) {
  const square = element("span", { class: "swatch", "aria-hidden": "true" });
  square.style.setProperty("--of-run", `var(--run-${chosen.indexOf(name)})`);
  return square;
}

const failure = (run) => `diverged in round ${run.diverged.round}`;

// ---- how good a run is: its accuracy, or a metric of the user's own -----------------------------------------------------------
const isAccuracy = (run) => run.metric.field === "test_accuracy";
const written = (run, value) => (isAccuracy(run) ? percent(value) : digits(value));
const score = (run) => (run[run.metric.field] === null ? "–" : written(run, run[run.metric.field]));
const scoreHeading = (runs) => [...new Set(runs.map((run) => run.metric.name))].join(" or ") || "accuracy";

function showList() {
  say($("state"), list.length ? `${list.length} ${list.length === 1 ? "run" : "runs, newest first"}${list.length > 10 ? " (the list scrolls)" : ""}; up to ${MOST} can be shown at once.` : "No run yet: airsplit run demo makes one in runs/demo. Runs below the folder that the dashboard looks at appear here.");
  fill($("list"), [["run", true], ["what", true], ["rounds", true], [scoreHeading(list.filter((run) => !run.problem))], ["time so far"], ["report", true]], list.map((run) => {
    const box = element("input", { type: "checkbox", "data-focus": `show ${run.name}`, checked: chosen.includes(run.name), disabled: Boolean(run.problem) && !chosen.includes(run.name), onchange: (event) => toggle(run.name, event.target.checked) });
    const named = element("label", {}, box, " ", ...(chosen.includes(run.name) ? [swatch(run.name), " "] : []), run.name === "." ? "(this folder)" : run.name);
    if (run.problem) return [named, element("span", { class: "error" }, run.problem), "", "", "", ""];
    const done = element("span", {}, element("progress", { max: run.of_rounds, value: run.rounds, "aria-label": `${run.rounds} of ${run.of_rounds} rounds` }), ` ${run.rounds} of ${run.of_rounds}`, ...(run.diverged ? [element("span", { class: "error", title: run.diverged.why }, `, ${failure(run)}`)] : []));
    return [named, run.title, done, score(run), `${seconds(run.time_s)}`, element("a", { href: link(run.name), "data-focus": `report ${run.name}` }, "report")];
  }));
  $("all").style.setProperty("--bar", `${$("all").offsetHeight - $("all").clientHeight}px`);
}

// ---- charts -------------------------------------------------------------------------------------------------------------------
function show() {
  const told = chosen.map((name) => shown.get(name)).filter((run) => run);
  const runs = told.filter((run) => !run.problem), bad = told.filter((run) => run.problem);
  $("problems").replaceChildren(...bad.map((run) => element("p", {}, `${run.name}: ${run.problem} `,
    element("button", { type: "button", onclick: () => toggle(run.name, false) }, "Leave it out"))));
  for (const place of document.querySelectorAll(".curves")) place.replaceChildren(...runs.map((run) => element("span", {}, lineSample(chosen.indexOf(run.name)), title(run, runs))));
  const judged = runs.filter((run) => run.metric.name === runs[0].metric.name);
  const accuracy = !runs.length || isAccuracy(runs[0]);
  say($("metric"), accuracy ? "Accuracy on the test set" : `${runs[0].metric.name} on the test set`);
  say($("metric-note"), `mean of the evaluated devices' models${judged.length < runs.length ? "; runs with another metric are left out" : ""}`);
  lines("accuracy", judged, accuracy ? "test_accuracy" : "test_metric", { formatter: accuracy ? (v) => `${tick(100 * v)} %` : tick }, accuracy ? percent : digits);
  lines("loss", runs, "train_loss", { formatter: tick }, digits);
  lines("latency", runs, "latency_s", { formatter: tick }, seconds);
  spent(runs);
  compare(runs);
}

/** A run by its name, and by its data where runs of other data are beside it. */
const title = (run, runs) => (datasets(runs).length > 1 ? `${run.name} (${run.dataset})` : run.name);
const datasets = (runs) => [...new Set(runs.map((run) => run.dataset))];

function lines(id, runs, key, axisLabel, say) {
  const x = over === "time" ? 1 : 0;
  const ends = runs.map((run) => [run.name, run.lines[key].at(-1)]).filter(([, end]) => end);
  draw(id, () => ({
    grid: { left: 56, right: 20, top: 14, bottom: 42 },
    xAxis: { type: "value", name: over === "time" ? "seconds" : "round", nameLocation: "middle", nameGap: 26, min: 0, axisLabel: { formatter: tick }, splitLine: { show: false } },
    yAxis: { type: "value", scale: key !== "test_accuracy", axisLabel },
    tooltip: { trigger: "axis", renderMode: "richText", formatter: (points) => points.map(({ seriesName, value }) => `${seriesName}: ${say(value[2])} in round ${value[0]}, after ${seconds(value[1])}`).join("\n") },
    series: runs.map((run) => ({
      name: run.name, type: "line", data: run.lines[key], encode: { x, y: 2 }, symbol: "circle", symbolSize: 4, showSymbol: run.lines[key].length < 40,
      lineStyle: { width: 2, type: DASHES[chosen.indexOf(run.name)] }, itemStyle: { color: color(`run-${chosen.indexOf(run.name)}`) },
    })),
  }), ends.length ? ends.map(([name, end]) => `${name}: ${say(end[2])} in round ${end[0]}`).join("; ") : "nothing yet");
}

const KINDS = [["computing", "compute_s", "compute"], ["on the air", "transmit_s", "transmit"], ["at the server", "server_s", "server"], ["waiting", "idle_s", "idle"]];

function spent(runs) {
  const parts = runs.map((run) => {
    const sums = KINDS.map(([, key]) => run.spent[key]), all = sums.reduce((a, b) => a + b, 0) || 1;
    return { name: run.name, shares: sums.map((sum) => (100 * sum) / all) };
  });
  const names = wrapped(parts.map(({ name }) => name), 140);
  draw("spent", () => ({
    grid: { left: names.width + 12, right: 24, top: 30, bottom: 24 }, legend: { top: 0, left: 0, textStyle: { color: color("faint") }, itemWidth: 12, itemHeight: 12 },
    yAxis: { type: "category", inverse: true, data: parts.map(({ name }) => name), axisLabel: names.axisLabel, splitLine: { show: false } },
    xAxis: { type: "value", max: 100, interval: 25, axisLabel: { formatter: "{value} %" } },
    tooltip: { trigger: "axis", renderMode: "richText", axisPointer: { type: "shadow" }, formatter: (points) => points.map(({ seriesName, value }) => `${seriesName}: ${value.toFixed(1)} %`).join("\n") },
    series: KINDS.map(([name, , shade], at) => ({ name, type: "bar", stack: "all", data: parts.map(({ shares }) => shares[at]), itemStyle: { color: color(shade) }, barMaxWidth: 26 })),
  }), parts.map(({ name, shares }) => `${name}: ${KINDS.map(([kind], at) => `${kind} ${shares[at].toFixed(0)} %`).join(", ")}`).join("; ") || "nothing yet", Math.max(160, Math.max(44, 16 * names.lines) * parts.length + 70));
}

// ---- side by side ---------------------------------------------------------------------------------------------------------------
/** The runs in a table, with the time at which each was as good as all that can be compared with it became. */
function compare(runs) {
  const groups = [...new Set(runs.map(comparable))].map((what) => [what, runs.filter((run) => comparable(run) === what)]);
  const targets = new Map(groups.map(([what, alike]) => [what, target(alike)]));
  const known = groups.filter(([what]) => targets.get(what) !== null).map(([what, [run]]) => [what, written(run, targets.get(what))]);
  const heading = groups.length === 1 && known.length ? `time to ${known[0][1]}` : "time to the target";
  say($("targets"), groups.length > 1 ? `Only runs on the same data have a target in common, the best that all of them reached: ${known.map(([what, value]) => `${value} on ${what}`).join(", ") || "none was tested yet"}.` : "");
  const reached = (run) => {
    const wanted = targets.get(comparable(run));
    return wanted === null ? undefined : scores(run).find(([, , value]) => (run.metric.goal === "max" ? value >= wanted : value <= wanted))?.[1];
  };
  fill($("compared"), [["run", true], ["algorithm", true], ["data", true], ["devices"], ["seconds a round"], [scoreHeading(runs)], [heading], ["plan above best, at most"]], runs.map((run) => [
    element("span", {}, swatch(run.name), " ", run.name), run.algorithm, `${run.dataset}, ${run.partition}`, run.devices, run.rounds ? seconds(run.time_s / run.rounds) : "–",
    run.diverged ? failure(run) : score(run), reached(run) === undefined ? "–" : seconds(reached(run)), ["fedavg", "split-learning"].includes(run.algorithm) ? "–" : `${run.at_most}${run.objective && ` (${run.objective})`}`,
  ]));
}

/** What runs must have in common for one to be better than another: the data, and the metric. */
const comparable = (run) => (isAccuracy(run) ? run.dataset : `${run.dataset} (${run.metric.name})`);
const scores = (run) => run.lines[run.metric.field];

/** The best that all of these runs reached; one that diverged or was never tested does not count. */
function target(runs) {
  const tested = runs.filter((run) => !run.diverged && scores(run).length);
  if (!tested.length) return null;
  const [best, worst] = tested[0].metric.goal === "max" ? [Math.max, Math.min] : [Math.min, Math.max];
  return worst(...tested.map((run) => best(...scores(run).map(([, , value]) => value))));
}

for (const radio of document.querySelectorAll('input[name="over"]')) {
  radio.checked = radio.value === over;
  radio.addEventListener("change", () => { over = radio.value; address(); show(); });
}
listen();
