// The runs page: a list that is always up to date, and the chosen runs side by side.
// The address holds the chosen runs, and whether charts are over time or rounds.
import {
  $, DASHES, color, digits, draw, element, fill, lineSample, percent, seconds, setText, tick,
  wrapped,
} from "./common.js";

const MAX_CHOSEN = 8;
// Kinds of time, their fields, and their colors.
const KINDS = [
  ["computing", "compute_s", "compute"],
  ["on the air", "transmit_s", "transmit"],
  ["at the server", "server_s", "server"],
  ["waiting", "idle_s", "idle"]
];

const query = new URLSearchParams(location.search);
let chosen = query.getAll("run").slice(0, MAX_CHOSEN);
let over = query.get("over") === "round" ? "round" : "time";
// Until the user chooses, the newest run is shown.
let isAutomatic = !query.has("run");
let list = [];
let stream;
let retry;
// The latest series of each chosen run, or its problem, by name.
const loaded = new Map();

const runParameters = () => new URLSearchParams(chosen.map((name) => ["run", name]));

function updateAddress() {
  const parameters = runParameters();
  if (over !== "time") parameters.set("over", over);
  history.replaceState(null, "", `${location.pathname}${parameters.size ? "?" : ""}${parameters}`);
}

/**
 * Listen to the list and to the chosen runs with one stream. A hidden page has none, since a
 * browser allows few connections to a server.
 */
function listen() {
  clearTimeout(retry);
  stream?.close();
  if (document.hidden) return;
  stream = new EventSource(`/api/events?${runParameters()}`);
  stream.addEventListener("runs", ({ data }) => {
    const content = JSON.parse(data);
    list = Array.isArray(content) ? content : [];
    if (!chooseNewest()) showList();
  });
  stream.addEventListener("run", ({ data }) => {
    const run = JSON.parse(data);
    loaded.set(run.name, run);
    show();
  });
  stream.addEventListener("error", () => {
    setText($("state"), "The server does not respond; trying again …");
    // Otherwise the browser retries on its own.
    if (stream.readyState === EventSource.CLOSED) retry = setTimeout(listen, 5000);
  });
}
document.addEventListener("visibilitychange", () =>
  (document.hidden ? stream?.close() : listen()));

function chooseNewest() {
  const newest = list.find((run) => !run.problem);
  if (!isAutomatic || !newest) return false;
  isAutomatic = false;
  choose([newest.name]);
  return true;
}

function choose(names) {
  chosen = names.slice(-MAX_CHOSEN);
  for (const name of loaded.keys()) if (!chosen.includes(name)) loaded.delete(name);
  updateAddress();
  listen();
  showList();
  show();
}

function toggle(name, isOn) {
  isAutomatic = false;
  choose(isOn ? [...chosen, name] : chosen.filter((kept) => kept !== name));
}

function swatch(name) {
  const square = element("span", { class: "swatch", "aria-hidden": "true" });
  square.style.setProperty("--of-run", `var(--run-${chosen.indexOf(name)})`);
  return square;
}

// The score of a run: its accuracy, or a metric of the user's own.
const isAccuracy = (run) => run.metric.field === "test_accuracy";
const formatScore = (run, value) => (isAccuracy(run) ? percent(value) : digits(value));
const lastScore = (run) => {
  const value = run[run.metric.field];
  return value === null ? "–" : formatScore(run, value);
};
const scoreHeading = (runs) =>
  [...new Set(runs.map((run) => run.metric.name))].join(" or ") || "accuracy";

const divergence = (run) => `diverged in round ${run.diverged.round}`;

function showList() {
  setText($("state"), describeList());
  const readable = list.filter((run) => !run.problem);
  const columns = [
    ["run", true], ["description", true], ["rounds", true], [scoreHeading(readable)], ["time"],
    ["report", true],
  ];
  fill($("list"), columns, list.map(listRow));
  // The height of the horizontal scroll bar, for style.css.
  $("all").style.setProperty("--bar", `${$("all").offsetHeight - $("all").clientHeight}px`);
}

function describeList() {
  if (!list.length) {
    return "No run yet. Runs below the dashboard's folder appear here; "
      + "airsplit run demo writes one to runs/demo.";
  }
  const count = list.length === 1 ? "1 run" : `${list.length} runs, newest first`;
  const scrolls = list.length > 10 ? " (the list scrolls)" : "";
  return `${count}${scrolls}; up to ${MAX_CHOSEN} can be shown together.`;
}

function listRow(run) {
  const isChosen = chosen.includes(run.name);
  const box = element("input", {
    type: "checkbox",
    "data-focus": `show ${run.name}`,
    checked: isChosen,
    disabled: Boolean(run.problem) && !isChosen,
    onchange: (event) => toggle(run.name, event.target.checked),
  });
  const marker = isChosen ? [swatch(run.name), " "] : [];
  const name = run.name === "." ? "(this folder)" : run.name;
  const label = element("label", {}, box, " ", ...marker, name);
  if (run.problem) return [label, element("span", { class: "error" }, run.problem), "", "", "", ""];

  const description = `${run.rounds} of ${run.of_rounds} rounds`;
  const bar = { max: run.of_rounds, value: run.rounds, "aria-label": description };
  const progress = [element("progress", bar), ` ${run.rounds} of ${run.of_rounds}`];
  if (run.diverged) {
    const attributes = { class: "error", title: run.diverged.why };
    progress.push(element("span", attributes, `, ${divergence(run)}`));
  }
  const address = `/report?${new URLSearchParams({ run: run.name })}`;
  const link = element("a", { href: address, "data-focus": `report ${run.name}` }, "report");
  return [
    label, run.title, element("span", {}, ...progress), lastScore(run), seconds(run.time_s), link,
  ];
}

function show() {
  const known = chosen.map((name) => loaded.get(name)).filter((run) => run);
  const runs = known.filter((run) => !run.problem);
  showProblems(known.filter((run) => run.problem));
  for (const place of document.querySelectorAll(".curves")) {
    place.replaceChildren(...runs.map((run) =>
      element("span", {}, lineSample(chosen.indexOf(run.name)), title(run, runs))));
  }

  // One axis has one metric: that of the first run.
  const comparableRuns = runs.filter((run) => run.metric.name === runs[0].metric.name);
  const hasAccuracy = !runs.length || isAccuracy(runs[0]);
  const leftOut = comparableRuns.length < runs.length;
  setText($("metric"), `${hasAccuracy ? "Accuracy" : runs[0].metric.name} on the test set`);
  setText($("metric-note"), "mean of the evaluated devices' models"
    + (leftOut ? "; runs with another metric are left out" : ""));
  if (hasAccuracy) {
    drawLines("accuracy", comparableRuns, "test_accuracy", (v) => `${tick(100 * v)} %`, percent);
  } else {
    drawLines("accuracy", comparableRuns, "test_metric", tick, digits);
  }
  drawLines("loss", runs, "train_loss", tick, digits);
  drawLines("latency", runs, "latency_s", tick, seconds);
  drawTimes(runs);
  compare(runs);
}

function showProblems(runs) {
  $("problems").replaceChildren(...runs.map((run) => {
    const remove = () => toggle(run.name, false);
    const button = element("button", { type: "button", onclick: remove }, "Remove");
    return element("p", {}, `${run.name}: ${run.problem} `, button);
  }));
}

/** The name of a run, with its data set if others have another one. */
function title(run, runs) {
  const datasets = new Set(runs.map(({ dataset }) => dataset));
  return datasets.size > 1 ? `${run.name} (${run.dataset})` : run.name;
}

function drawLines(id, runs, key, formatTick, formatValue) {
  const ends = runs.map((run) => [run.name, run.lines[key].at(-1)]).filter(([, end]) => end);
  const description = ends
    .map(([name, end]) => `${name}: ${formatValue(end[2])} in round ${end[0]}`).join("; ");
  const describePoint = ({ seriesName, value: [round, time, value] }) =>
    `${seriesName}: ${formatValue(value)} in round ${round}, after ${seconds(time)}`;
  draw(id, () => ({
    grid: { left: 56, right: 20, top: 14, bottom: 42 },
    xAxis: {
      type: "value",
      name: over === "time" ? "seconds" : "round",
      nameLocation: "middle",
      nameGap: 26,
      min: 0,
      axisLabel: { formatter: tick },
      splitLine: { show: false },
    },
    // Only accuracy has a meaningful zero.
    yAxis: { type: "value", scale: key !== "test_accuracy", axisLabel: { formatter: formatTick } },
    tooltip: { formatter: (points) => points.map(describePoint).join("\n") },
    series: runs.map((run) => ({
      name: run.name,
      type: "line",
      data: run.lines[key],
      encode: { x: over === "time" ? 1 : 0, y: 2 },
      symbol: "circle",
      symbolSize: 4,
      showSymbol: run.lines[key].length < 40,
      lineStyle: { width: 2, type: DASHES[chosen.indexOf(run.name)] },
      itemStyle: { color: color(`run-${chosen.indexOf(run.name)}`) },
    })),
  }), description || "nothing yet");
}

/** Draw how the devices of each run spent their time, in percent. */
function drawTimes(runs) {
  const names = runs.map((run) => run.name);
  const shares = runs.map((run) => {
    const sums = KINDS.map(([, key]) => run.spent[key]);
    const total = sums.reduce((a, b) => a + b, 0) || 1;
    return sums.map((sum) => (100 * sum) / total);
  });
  const descriptions = names.map((name, at) => {
    const parts = KINDS.map(([kind], part) => `${kind} ${shares[at][part].toFixed(0)} %`);
    return `${name}: ${parts.join(", ")}`;
  });
  const describePart = ({ seriesName, value }) => `${seriesName}: ${value.toFixed(1)} %`;
  const labels = wrapped(names, 140);
  const height = Math.max(160, Math.max(44, 16 * labels.lines) * runs.length + 70);
  draw("spent", () => ({
    grid: { left: labels.width + 12, right: 24, top: 30, bottom: 24 },
    legend: {
      top: 0,
      left: 0,
      textStyle: { color: color("faint") },
      itemWidth: 12,
      itemHeight: 12,
    },
    yAxis: {
      type: "category",
      inverse: true,
      data: names,
      axisLabel: labels.axisLabel,
      splitLine: { show: false },
    },
    xAxis: { type: "value", max: 100, interval: 25, axisLabel: { formatter: "{value} %" } },
    tooltip: {
      axisPointer: { type: "shadow" },
      formatter: (points) => points.map(describePart).join("\n"),
    },
    series: KINDS.map(([name, , shade], part) => ({
      name,
      type: "bar",
      stack: "all",
      data: shares.map((parts) => parts[part]),
      itemStyle: { color: color(shade) },
      barMaxWidth: 26,
    })),
  }), descriptions.join("; ") || "nothing yet", height);
}

/**
 * Show the runs in a table, with the time at which each reached its target: the best score that
 * all runs comparable with it reached.
 */
function compare(runs) {
  const groups = new Map();
  for (const run of runs) groups.set(group(run), [...(groups.get(group(run)) ?? []), run]);
  const targets = new Map([...groups].map(([name, members]) => [name, target(members)]));
  const reached = [...groups]
    .filter(([name]) => targets.get(name) !== null)
    .map(([name, [run]]) => [name, formatScore(run, targets.get(name))]);
  const common = reached.map(([name, value]) => `${value} on ${name}`).join(", ");
  setText($("targets"), groups.size > 1
    ? "Only runs on the same data have a common target, the best score that all of them reached: "
      + `${common || "none was evaluated yet"}.`
    : "");

  const hasTarget = groups.size === 1 && reached.length;
  const columns = [
    ["run", true], ["algorithm", true], ["data", true], ["devices"], ["time per round"],
    [scoreHeading(runs)], [hasTarget ? `time to ${reached[0][1]}` : "time to the target"],
    ["plan gap, at most"],
  ];
  fill($("compared"), columns, runs.map((run) => [
    element("span", {}, swatch(run.name), " ", run.name),
    run.algorithm,
    `${run.dataset}, ${run.partition}`,
    run.devices,
    run.rounds ? seconds(run.time_s / run.rounds) : "–",
    run.diverged ? divergence(run) : lastScore(run),
    timeTo(run, targets.get(group(run))),
    planGap(run),
  ]));
}

/** What runs must have in common to be compared: the data and the metric. */
const group = (run) => (isAccuracy(run) ? run.dataset : `${run.dataset} (${run.metric.name})`);
const scores = (run) => run.lines[run.metric.field];

/** The best score that all of these runs reached, without those that diverged or have none. */
function target(runs) {
  const evaluated = runs.filter((run) => !run.diverged && scores(run).length);
  if (!evaluated.length) return null;
  const isMaximized = evaluated[0].metric.goal === "max";
  const [best, worst] = isMaximized ? [Math.max, Math.min] : [Math.min, Math.max];
  return worst(...evaluated.map((run) => best(...scores(run).map(([, , value]) => value))));
}

function timeTo(run, wanted) {
  if (wanted === null) return "–";
  const isMaximized = run.metric.goal === "max";
  const isReached = ([, , value]) => (isMaximized ? value >= wanted : value <= wanted);
  const point = scores(run).find(isReached);
  return point === undefined ? "–" : seconds(point[1]);
}

/** The gap of the plan; these algorithms do not use it. */
function planGap(run) {
  if (["fedavg", "split-learning"].includes(run.algorithm)) return "–";
  return run.objective ? `${run.at_most} (${run.objective})` : run.at_most;
}

for (const radio of document.querySelectorAll('input[name="over"]')) {
  radio.checked = radio.value === over;
  radio.addEventListener("change", () => {
    over = radio.value;
    updateAddress();
    show();
  });
}
listen();
