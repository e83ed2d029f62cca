// The playground: sliders in, a plan out.  The address holds what the sliders are set to.
import { $, ask, chartOf, color, digits, draw, element, fill, named, percent, quantity, say, seconds, tick, wrapped } from "./common.js";

const counting = (low, high) => Array.from({ length: high - low + 1 }, (_, at) => low + at);
const PACES = [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50]; // ns/MAC

/** What can be slid: its values, where it begins, and how it is written. */
const SLIDERS = {
  devices: { values: [...counting(1, 20), 25, 30, 40, 50, 60, 80, 100, 120, 150, 200], first: 20, say: (v) => v },
  distance: { values: [20, 30, 50, 75, 100, 150, 200, 300, 400, 500, 600, 800, 1000, 1500, 2000], first: 600, say: (v) => `${v} m` },
  spread: { values: [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], first: 0.9, say: (v) => `± ${Math.round(100 * v)} %` },
  fastest: { values: PACES, first: 0.2, say: (v) => `${digits(1 / v)} GMAC/s` },
  slowest: { values: PACES, first: 3, say: (v) => `${digits(1 / v)} GMAC/s` },
  seed: { values: counting(0, 50), first: 0, say: (v) => v },
  bandwidth: { values: [1, 2, 5, 10, 15, 20, 30, 40, 60, 80, 100, 160], first: 20, say: (v) => `${v} MHz` },
  batch: { values: [1, 2, 4, 8, 16, 32, 64, 128, 256], first: 32, say: (v) => v },
  iterations: { values: [1, 2, 5, 10, 20, 50, 100, 200], first: 50, say: (v) => v },
};
const FIRST = { model: "vgg16-3x32x32", method: "expected-max", order: "speed", limit: null, device: null };
const state = { ...FIRST };
const brought = { csv: null, profile: null };
let offered, latest, asking, again = false;

// ---- controls -----------------------------------------------------------------------------------------------------------------
async function begin() {
  offered = await ask("/api/choices");
  const given = new URLSearchParams(location.search);
  for (const [name, slider] of Object.entries(SLIDERS)) {
    const wanted = Number(given.get(name) ?? slider.first);
    state[name] = slider.values.includes(wanted) ? wanted : slider.first;
    Object.assign($(name), { min: 0, max: slider.values.length - 1, step: 1 });
    $(name).addEventListener("input", () => {
      state[name] = slider.values[Number($(name).value)];
      if (name === "fastest") state.slowest = Math.max(state.slowest, state.fastest);
      if (name === "slowest") state.fastest = Math.min(state.fastest, state.slowest);
      changed();
    });
  }
  if (offered.models.some(({ id }) => id === given.get("model"))) state.model = given.get("model");
  if (Object.hasOwn(offered.methods, given.get("method") ?? "")) state.method = given.get("method");
  if (["speed", "channel", "number"].includes(given.get("order"))) state.order = given.get("order");
  state.limit = whole(given.get("limit"), 1, model().deepest);
  state.device = whole(given.get("device"), 0, offered.most_devices);
  $("model").replaceChildren(...offered.models.map(({ id, title }) => element("option", { value: id }, title)));
  $("method").replaceChildren(...Object.entries(offered.methods).map(([value, title]) => element("option", { value }, title)));
  for (const name of ["model", "method", "order"]) $(name).addEventListener("change", () => { state[name] = $(name).value; if (name === "model") newModel(); changed(); });
  $("limit").addEventListener("input", () => { state.limit = Number($("limit").value); changed(); });
  $("csv").addEventListener("change", () => bringDevices($("csv").files[0]));
  $("profile").addEventListener("change", () => bringProfile($("profile").files[0]));
  for (const name of ["csv", "profile"]) $(name).addEventListener("click", () => { $(name).value = ""; }); // the same file again is news
  $("csv-away").addEventListener("click", () => { brought.csv = null; $("csv").value = ""; changed(); $("csv").focus(); });
  $("profile-away").addEventListener("click", () => { newModel(); changed(); $("profile").focus(); });
  $("device-away").addEventListener("click", () => { state.device = null; changed(); $("order").focus(); });
  $("copy").addEventListener("click", copy);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const event of ["dragover", "dragleave", "drop"]) $("drop").addEventListener(event, dragged);
  changed();
}

/** A whole number within its range, as an address has it; null where there is none. */
function whole(text, low, high) {
  const value = Number(text ?? NaN);
  return Number.isInteger(value) ? Math.min(Math.max(value, low), high) : null;
}

function newModel() {
  brought.profile = null;
  $("profile").value = "";
  state.limit = null;
}

async function copy() {
  try {
    await navigator.clipboard.writeText(location.href);
    say($("copied"), "copied");
  } catch {
    say($("copied"), `the browser does not allow it; it is ${location.href}`);
  }
}

const model = () => brought.profile?.layers ?? offered.models.find(({ id }) => id === state.model);

function dragged(event) {
  event.preventDefault();
  $("drop").classList.toggle("over", event.type === "dragover");
  if (event.type === "drop" && event.dataTransfer.files.length) bringDevices(event.dataTransfer.files[0]);
}

async function bringDevices(file) {
  if (!file) return;
  brought.csv = await file.text();
  state.device = null;
  changed();
}

async function bringProfile(file) {
  if (!file) return;
  const text = await file.text();
  try {
    const { names, parameters } = JSON.parse(text);
    brought.profile = { text, layers: { names, deepest: Math.max(parameters.findLastIndex((count) => count > 0), 1) } };
  } catch {
    say($("profile-error"), "That is not a profile: airsplit profile MODEL --json writes one.");
    return;
  }
  state.limit = null;
  changed();
}

/** Write what is set beside the sliders and into the address, and plan. */
function changed() {
  const { names, deepest } = model();
  const limit = Math.min(state.limit ?? deepest, deepest); // deeper than that, nothing is averaged
  if (brought.csv === null && state.device >= state.devices) state.device = null;
  Object.assign($("limit"), { min: 1, max: deepest, step: 1 });
  $("limit").value = limit;
  $("limit").setAttribute("aria-valuetext", names[limit - 1]);
  output("limit", `${names[limit - 1]} (${limit} of ${names.length})`);
  for (const [name, slider] of Object.entries(SLIDERS)) {
    $(name).value = slider.values.indexOf(state[name]);
    $(name).setAttribute("aria-valuetext", slider.say(state[name]));
    output(name, slider.say(state[name]));
  }
  for (const name of ["model", "method", "order"]) {
    $(name).value = state[name];
    say($(name).previousElementSibling, $(name).selectedOptions[0].textContent);
  }
  $("drawn").disabled = brought.csv !== null;
  $("csv-away").hidden = brought.csv === null;
  $("profile-away").hidden = brought.profile === null;
  say($("copied"), "");
  const address = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) if (value !== (SLIDERS[name]?.first ?? FIRST[name])) address.set(name, value);
  history.replaceState(null, "", `${location.pathname}${address.size ? "?" : ""}${address}`);
  replan();
}

function output(name, text) {
  say(document.querySelector(`output[for="${name}"]`), String(text));
}

function request() {
  const settings = {
    "fleet.devices": state.devices, "fleet.mean_distance_m": state.distance, "fleet.distance_spread": state.spread,
    "fleet.seconds_per_mac": [state.fastest * 1e-9, state.slowest * 1e-9], "fleet.seed": state.seed, "cell.bandwidth_hz": state.bandwidth * 1e6,
    "plan.method": state.method, "training.batch_size": state.batch, "training.iterations_per_round": state.iterations,
  };
  if (state.limit !== null) settings["plan.max_split"] = state.limit;
  return { model: state.model, settings, ...(brought.csv === null ? {} : { csv: brought.csv }), ...(brought.profile ? { profile: brought.profile.text } : {}) };
}

// ---- planning -----------------------------------------------------------------------------------------------------------------
/** One plan is asked for at a time: while one is on its way, only the newest settings wait. */
async function replan() {
  $("result").classList.add("outdated");
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  do {
    again = false;
    try {
      const found = await ask("/api/plan", { ...request(), device: state.device });
      if (!again) {
        latest = found;
        complain(null);
        show();
      }
    } catch (error) {
      if (!again) complain(error);
    }
  } while (again);
  asking = false;
}

/** Say what is wrong beside what it is about, or that nothing is. */
function complain(error) {
  const about = error === null ? null : error.line || (brought.csv !== null && /fleet|csv/i.test(error.message)) ? "csv-error" : brought.profile ? "profile-error" : "error";
  for (const place of ["error", "csv-error", "profile-error"]) say($(place), place === about ? (error.line ? "Your CSV has a mistake:" : error.message) : "");
  $("result").classList.toggle("outdated", error !== null);
  shownRows(error);
}

/** The lines of a CSV with an error under the one that it is about. */
function shownRows(error) {
  if (!error?.line) {
    const count = brought.csv === null || error ? [] : [element("li", {}, `${latest.devices.names.length} devices from your CSV`)];
    $("csv-rows").replaceChildren(...count);
    return;
  }
  const lines = brought.csv.split(/\r?\n/), from = Math.max(0, error.line - 3);
  $("csv-rows").replaceChildren(...lines.slice(from, error.line + 1).flatMap((line, at) => {
    const number = from + at + 1, bad = number === error.line;
    const row = element("li", { class: bad ? "bad" : null }, `${String(number).padStart(3)}  ${line}`);
    return bad ? [row, element("li", { class: "why error" }, error.message)] : [row];
  }));
}

// ---- what is shown --------------------------------------------------------------------------------------------------------------
const METHOD_NAMES = { exact: "exact", "expected-max": "expected-max", paper: "the paper's algorithm", equal: "equal shares", random: "random splits", fedavg: "FedAvg, no split" };

function show() {
  const { plan, best_possible: best, sentences, round_s, planning_s, export: exported } = latest;
  say($("said"), `${sentences.result} ${sentences.gain}`);
  $("bound").textContent = `${sentences.bound} Planned in ${seconds(planning_s)}: ${plan.status}.`;
  const tiles = [
    ["An iteration", seconds(plan.expected_latency_s), `of ${plan.batch_size} samples, on average until the last device is done; a device's own mean, as drawn, is shorter`],
    [`A round of ${state.iterations}`, seconds(round_s[plan.method]), `equal shares: ${seconds(round_s.equal)}`],
    ["FedAvg's round", seconds(round_s.fedavg), `${(round_s.fedavg / round_s[plan.method]).toFixed(1)} times as long`],
    ["Best possible", best.gap < 1e-6 ? "proven" : `within ${best.at_most}`, `of ${seconds(best.lower_bound_s)} an iteration, which no plan beats within the limits and with fixed shares`],
  ];
  $("tiles").replaceChildren(...tiles.map(([name, value, more]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, more)))));
  $("toml").textContent = exported.toml;
  $("command").textContent = exported.command;
  $("export-note").textContent = exported.note;
  $("download").hidden = !exported.toml;
  $("download").href = `data:application/toml;charset=utf-8,${encodeURIComponent(exported.toml)}`;
  showDevices();
  showDevice();
  showRounds();
}

function ordered() {
  const { seconds_per_mac: pace, full_band_rate_bps: rate, names } = latest.devices;
  const all = names.map((_, k) => k);
  if (state.order === "speed") all.sort((a, b) => pace[a] - pace[b]);
  if (state.order === "channel") all.sort((a, b) => rate[b] - rate[a]);
  return all;
}

function showDevices() {
  const { devices, layers } = latest, order = ordered(), few = order.length <= 40;
  const names = order.map((k) => devices.names[k]);
  const device = few ? wrapped(names, 110) : { width: 0, lines: 1, axisLabel: { show: false } };
  const layer = wrapped(layers.names, 120);
  const below = { seconds: 44, layers: 30 + Math.ceil(0.75 * (layer.width + 12 * layer.lines)) };
  const rows = Math.max(220, Math.min(order.length * 20, 620), few ? order.length * (15 * device.lines + 1) : 0);
  const height = rows + 26 + Math.max(below.seconds, below.layers);
  const grid = { left: device.width + (few ? 14 : 24), right: 18, top: 26, bottom: Math.max(below.seconds, below.layers) };
  const down = {
    type: "category", data: names, inverse: true, axisLabel: device.axisLabel, splitLine: { show: false },
    ...(few ? { name: "device", nameLocation: "start", nameGap: 8 } : named("devices", 8)),
  };
  const who = (at) => `device ${names[at]}`;
  const bar = (name, values, shade, stack) => ({
    name, type: "bar", stack, data: values.map((value, at) => (order[at] === state.device ? { value, itemStyle: { borderColor: color("ink"), borderWidth: 1.5 } } : value)),
    itemStyle: { color: color(shade) }, barCategoryGap: few ? "28%" : "5%",
  });
  const cut = order.map((k) => devices.splits[k]);
  draw("cuts", () => ({
    grid, yAxis: down,
    xAxis: { type: "value", min: 0, max: layers.names.length, interval: Math.max(1, Math.ceil(layers.names.length / 10)), ...named("cut after layer", below.layers - 16),
      axisLabel: { ...layer.axisLabel, hideOverlap: true, rotate: 45, formatter: (v) => (v > 0 ? layers.names[Math.round(v) - 1] : "") } },
    tooltip: { formatter: ([{ dataIndex: at }]) => `${who(at)} cuts after ${layers.names[cut[at] - 1]}, layer ${cut[at]}` , trigger: "axis", renderMode: "richText", axisPointer: { type: "shadow" } },
    series: [
      { ...bar("on the device", cut, "device-side", "model"), markLine: limitLine(layers) },
      bar("on the server", cut.map((split) => layers.names.length - split), "server-side", "model"),
    ],
  }), `Splits of ${names.length} devices: ${summary(cut.map((split) => layers.names[split - 1]))}.`, height);
  const compute = order.map((k) => devices.compute_s[k]), transmit = order.map((k) => devices.transmit_s[k]);
  draw("times", () => ({
    grid, yAxis: down, xAxis: { type: "value", ...named("seconds", 26), axisLabel: { formatter: tick }, splitNumber: 4 },
    tooltip: { formatter: ([{ dataIndex: at }]) => `${who(at)}: computes ${seconds(compute[at])},\nsends ${seconds(transmit[at])}`, trigger: "axis", renderMode: "richText", axisPointer: { type: "shadow" } },
    series: [
      { ...bar("computing", compute, "compute", "time"), markLine: finishLine() },
      bar("sending", transmit, "transmit", "time"),
    ],
  }), `Mean times of a batch: computing ${range(compute)}, sending ${range(transmit)}; the slowest device takes ${seconds(latest.plan.mean_latency_s)}.`, height);
  const share = order.map((k) => 100 * devices.shares[k]);
  draw("shares", () => ({
    grid, yAxis: down, xAxis: { type: "value", ...named("percent of the band", 26), axisLabel: { formatter: tick }, splitNumber: 3 },
    tooltip: { formatter: ([{ dataIndex: at }]) => `${who(at)}: ${share[at].toFixed(2)} % of the band`, trigger: "axis", renderMode: "richText", axisPointer: { type: "shadow" } },
    series: [bar("share", share, "transmit", "share")],
  }), `Shares of the band from ${Math.min(...share).toFixed(2)} to ${Math.max(...share).toFixed(2)} %.`, height);
  for (const id of ["cuts", "times", "shares"]) {
    const area = chartOf(id).getZr();
    area.off("click");
    area.on("click", ({ offsetX, offsetY }) => {
      const at = chartOf(id).convertFromPixel({ yAxisIndex: 0 }, offsetY) ?? chartOf(id).convertFromPixel({ gridIndex: 0 }, [offsetX, offsetY])?.[1];
      if (at >= 0 && at < order.length) choose(order[at]);
    });
  }
  fill($("devices-table"), [["device", true], ["cut after", true], ["share of the band"], ["computing"], ["sending"], ["in all"], ["speed"], ["channel, whole band"]],
    order.map((k) => [
      element("button", { type: "button", class: "plain", "data-focus": String(k), onclick: () => choose(k) }, devices.names[k]), layers.names[devices.splits[k] - 1], percent(devices.shares[k], 2),
      seconds(devices.compute_s[k]), seconds(devices.transmit_s[k]), seconds(devices.latency_s[k]), quantity(1 / devices.seconds_per_mac[k], "MAC/s"),
      quantity(devices.full_band_rate_bps[k], "bit/s"),
    ]), (at) => order[at] === state.device);
}

const dashed = (name, value) => ({
  silent: true, symbol: "none", lineStyle: { color: color("ink"), type: "dashed", width: 1 },
  label: { formatter: name, color: color("faint"), fontSize: 11, position: "start", rotate: 0, distance: 2 }, data: [{ xAxis: value }],
});
const limitLine = (layers) => dashed("L̂", layers.limit);
const finishLine = () => dashed("", latest.plan.mean_latency_s);
const range = (values) => `${seconds(Math.min(...values))} to ${seconds(Math.max(...values))}`;

function summary(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].map(([value, count]) => `${count} after ${value}`).join(", ");
}

function showRounds() {
  const { round_s, plan } = latest;
  const shown = ["expected-max", "exact", "paper", "equal", "random", "fedavg"].filter((name) => name in round_s).sort((a, b) => round_s[a] - round_s[b]);
  $("round-note").textContent = `mean seconds until the last of ${latest.devices.names.length} devices is done with ${state.iterations} iterations of ${plan.batch_size} samples; expected-max minimizes this (the mean of the largest), exact and the paper's algorithm the largest mean`;
  const longest = Math.max(...shown.map((name) => round_s[name])), log = longest > 30 * round_s[shown[0]];
  const ways = wrapped(shown.map((name) => METHOD_NAMES[name]), 130, 12);
  draw("rounds", () => ({
    grid: { left: ways.width + 12, right: 80, top: 4, bottom: 42 },
    yAxis: { type: "category", inverse: true, data: shown.map((name) => METHOD_NAMES[name]), axisLabel: { ...ways.axisLabel, color: color("ink") }, splitLine: { show: log, lineStyle: { color: color("rule") } } },
    xAxis: { type: log ? "log" : "value", ...named(log ? "seconds, on a logarithmic axis" : "seconds", 26), axisLabel: { formatter: tick }, splitNumber: 4 },
    tooltip: { show: false },
    series: [{
      ...(log ? { type: "scatter", symbolSize: 11 } : { type: "bar", barWidth: "60%" }), data: shown.map((name) => ({ value: round_s[name], itemStyle: { color: color(name === plan.method ? "blue" : name === "fedavg" ? "orange" : "grey") } })),
      label: { show: true, position: "right", color: color("ink"), formatter: ({ value }) => seconds(value) },
    }],
  }), shown.map((name) => `${METHOD_NAMES[name]}: ${seconds(round_s[name])}`).join("; "), Math.max(34, 17 * ways.lines) * shown.length + 58);
}

// ---- one device -----------------------------------------------------------------------------------------------------------------
function choose(k) {
  state.device = k;
  changed();
  $("device").hidden = false;
  $("device-name").focus();
}

function showDevice() {
  $("device").hidden = latest.device === null;
  if (latest.device === null) return;
  const { name, split, rows, explanation } = latest.device;
  $("device-name").textContent = `Why device ${name} cuts after ${rows.names[split - 1]}`;
  $("device-said").textContent = explanation;
  const totals = rows.compute_s.map((value, at) => value + rows.transmit_s[at]);
  const highest = 6 * Math.min(...totals);
  const beyond = totals.flatMap((total, at) => (total > highest ? [[at, highest]] : []));
  say($("device-cuts-note"), beyond.length ? "with a triangle: longer than the chart is high" : "");
  const layer = wrapped(rows.names, 120, 10);
  const below = 30 + Math.ceil(0.75 * (layer.width + 11 * layer.lines));
  draw("device-cuts", () => ({
    grid: { left: 58, right: 10, top: 14, bottom: below },
    xAxis: { type: "category", data: rows.names, ...named("cut after layer", below - 16), axisLabel: { ...layer.axisLabel, interval: "auto", hideOverlap: true, rotate: 45 }, splitLine: { show: false } },
    yAxis: { type: "value", ...named("seconds", 42), max: beyond.length ? highest : undefined, axisLabel: { formatter: tick, showMaxLabel: !beyond.length } },
    tooltip: { trigger: "axis", renderMode: "richText", axisPointer: { type: "shadow" }, formatter: ([{ dataIndex: at }]) => `cut after ${rows.names[at]}: computes ${seconds(rows.compute_s[at])},\nsends ${seconds(rows.transmit_s[at])}` },
    series: [
      ...[["computing", "compute_s", "compute"], ["sending", "transmit_s", "transmit"]].map(([title, key, shade]) => ({
        name: title, type: "bar", stack: "time", itemStyle: { color: color(shade) },
        data: rows[key].map((value, at) => (at === split - 1 ? { value, itemStyle: { borderColor: color("ink"), borderWidth: 2 } } : value)),
      })),
      { name: "beyond", type: "scatter", symbol: "triangle", symbolSize: 8, symbolOffset: [0, 6], silent: true, tooltip: { show: false }, itemStyle: { color: color("ink") }, data: beyond },
    ],
  }), rows.names.map((cut, at) => `${cut}: ${seconds(rows.compute_s[at] + rows.transmit_s[at])}`).join(", "), 260 + below);
  fill($("stopping"), [["after", true], ["threshold"], ["worth going on"], ["stops here"]],
    rows.names.map((cut, at) => [cut, stopsBelow(rows, at), seconds(rows.expected_s[at]), percent(rows.probabilities[at])]),
    (at) => at === split - 1);
}

const stopsBelow = ({ thresholds_s, probabilities }, at) => (thresholds_s[at] === null ? "always" : probabilities[at] === 0 ? "never" : seconds(thresholds_s[at]));

begin().catch((error) => { $("error").textContent = `The page could not start: ${error.message}`; });
