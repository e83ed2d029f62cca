// The playground: settings in, a plan out. The address holds the settings.
import {
  $, ask, chartOf, color, digits, draw, element, fill, named, percent, quantity, seconds, setText,
  tick, wrapped,
} from "./common.js";

const integers = (low, high) => Array.from({ length: high - low + 1 }, (_, at) => low + at);
// In ns/MAC.
const PACES = [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50];
const DISTANCES = [20, 30, 50, 75, 100, 150, 200, 300, 400, 500, 600, 800, 1000, 1500, 2000];
const formatPace = (pace) => `${digits(1 / pace)} GMAC/s`;

// Each slider's values, its first value, and how a value is written if it is more than a number.
const SLIDERS = {
  devices: { values: [...integers(1, 20), 25, 30, 40, 50, 60, 80, 100, 120, 150, 200], first: 20 },
  distance: { values: DISTANCES, first: 600, format: (v) => `${v} m` },
  spread: {
    values: [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9],
    first: 0.9,
    format: (v) => `± ${Math.round(100 * v)} %`,
  },
  fastest: { values: PACES, first: 0.2, format: formatPace },
  slowest: { values: PACES, first: 3, format: formatPace },
  seed: { values: integers(0, 50), first: 0 },
  bandwidth: {
    values: [1, 2, 5, 10, 15, 20, 30, 40, 60, 80, 100, 160],
    first: 20,
    format: (v) => `${v} MHz`,
  },
  batch: { values: [1, 2, 4, 8, 16, 32, 64, 128, 256], first: 32 },
  iterations: { values: [1, 2, 5, 10, 20, 50, 100, 200], first: 50 },
};
const MENUS = ["model", "method", "order"];
const FIRST = {
  model: "vgg16-3x32x32", method: "expected-max", order: "speed", limit: null, device: null,
};
const METHOD_NAMES = {
  exact: "exact",
  "expected-max": "expected-max",
  paper: "the paper's algorithm",
  equal: "equal shares",
  random: "random splits",
  fedavg: "FedAvg, no split",
};

const state = { ...FIRST };
// Texts of the user's files, and the layers of the profile.
const files = { csv: null, profile: null };
let choices;
let latest;
let isAsking = false;
let isOutdated = false;

async function start() {
  choices = await ask("/api/choices");
  const query = new URLSearchParams(location.search);
  for (const name of Object.keys(SLIDERS)) startSlider(name, query.get(name));

  // An address may hold anything, so unknown values are ignored.
  if (choices.models.some(({ id }) => id === query.get("model"))) state.model = query.get("model");
  if (Object.hasOwn(choices.methods, query.get("method") ?? "")) {
    state.method = query.get("method");
  }
  if (["speed", "channel", "number"].includes(query.get("order"))) state.order = query.get("order");
  state.limit = parseInteger(query.get("limit"), 1, layersOfModel().deepest);
  state.device = parseInteger(query.get("device"), 0, choices.most_devices);

  const option = (value, text) => element("option", { value }, text);
  const methods = Object.entries(choices.methods);
  $("model").replaceChildren(...choices.models.map(({ id, title }) => option(id, title)));
  $("method").replaceChildren(...methods.map(([value, text]) => option(value, text)));
  for (const name of MENUS) {
    $(name).addEventListener("change", () => {
      state[name] = $(name).value;
      if (name === "model") forgetProfile();
      update();
    });
  }
  $("limit").addEventListener("input", () => {
    state.limit = Number($("limit").value);
    update();
  });
  startFiles();
  $("device-close").addEventListener("click", () => {
    state.device = null;
    update();
    $("order").focus();
  });
  $("copy").addEventListener("click", copyAddress);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  update();
}

function startSlider(name, value) {
  const { values, first } = SLIDERS[name];
  const wanted = Number(value ?? first);
  state[name] = values.includes(wanted) ? wanted : first;
  Object.assign($(name), { min: 0, max: values.length - 1, step: 1 });
  $(name).addEventListener("input", () => {
    state[name] = values[Number($(name).value)];
    // One of the two pushes the other.
    if (name === "fastest") state.slowest = Math.max(state.slowest, state.fastest);
    if (name === "slowest") state.fastest = Math.min(state.fastest, state.slowest);
    update();
  });
}

function startFiles() {
  $("csv").addEventListener("change", () => loadDevices($("csv").files[0]));
  $("profile").addEventListener("change", () => loadProfile($("profile").files[0]));
  for (const name of ["csv", "profile"]) {
    // Otherwise the same file, edited, would be no change.
    $(name).addEventListener("click", () => { $(name).value = ""; });
  }
  $("csv-clear").addEventListener("click", () => {
    files.csv = null;
    $("csv").value = "";
    update();
    $("csv").focus();
  });
  $("profile-clear").addEventListener("click", () => {
    forgetProfile();
    update();
    $("profile").focus();
  });
  for (const event of ["dragover", "dragleave", "drop"]) {
    $("drop").addEventListener(event, handleDrag);
  }
}

/** An integer of the address, moved into its range; null if it is none. */
function parseInteger(text, low, high) {
  const value = Number(text ?? NaN);
  return Number.isInteger(value) ? Math.min(Math.max(value, low), high) : null;
}

function forgetProfile() {
  files.profile = null;
  $("profile").value = "";
  state.limit = null;
}

async function copyAddress() {
  try {
    await navigator.clipboard.writeText(location.href);
    setText($("copied"), "copied");
  } catch {
    setText($("copied"), `the browser does not allow it; the address is ${location.href}`);
  }
}

const layersOfModel = () =>
  files.profile?.layers ?? choices.models.find(({ id }) => id === state.model);

function handleDrag(event) {
  event.preventDefault();
  $("drop").classList.toggle("over", event.type === "dragover");
  if (event.type === "drop" && event.dataTransfer.files.length) {
    loadDevices(event.dataTransfer.files[0]);
  }
}

async function loadDevices(file) {
  if (!file) return;
  files.csv = await file.text();
  state.device = null;
  update();
}

async function loadProfile(file) {
  if (!file) return;
  const text = await file.text();
  try {
    const { names, parameters } = JSON.parse(text);
    // Behind the last layer with parameters there is nothing to average.
    const deepest = Math.max(parameters.findLastIndex((count) => count > 0), 1);
    files.profile = { text, layers: { names, deepest } };
  } catch {
    setText($("profile-error"), "This is not a profile; airsplit profile MODEL --json writes one.");
    return;
  }
  state.limit = null;
  update();
}

/** Show the settings beside the sliders and in the address, and plan. */
function update() {
  const { names, deepest } = layersOfModel();
  const limit = Math.min(state.limit ?? deepest, deepest);
  if (files.csv === null && state.device >= state.devices) state.device = null;
  Object.assign($("limit"), { min: 1, max: deepest, step: 1 });
  $("limit").value = limit;
  $("limit").setAttribute("aria-valuetext", names[limit - 1]);
  setOutput("limit", `${names[limit - 1]} (${limit} of ${names.length})`);
  for (const [name, { values, format = String }] of Object.entries(SLIDERS)) {
    const text = format(state[name]);
    $(name).value = values.indexOf(state[name]);
    $(name).setAttribute("aria-valuetext", text);
    setOutput(name, text);
  }
  for (const name of MENUS) {
    $(name).value = state[name];
    setText($(name).previousElementSibling, $(name).selectedOptions[0].textContent);
  }
  $("sampled").disabled = files.csv !== null;
  $("csv-clear").hidden = files.csv === null;
  $("profile-clear").hidden = files.profile === null;
  setText($("copied"), "");
  updateAddress();
  replan();
}

function setOutput(name, text) {
  setText(document.querySelector(`output[for="${name}"]`), text);
}

function updateAddress() {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    const first = SLIDERS[name]?.first ?? FIRST[name];
    if (value !== first) parameters.set(name, value);
  }
  history.replaceState(null, "", `${location.pathname}${parameters.size ? "?" : ""}${parameters}`);
}

function makeRequest() {
  const settings = {
    "fleet.devices": state.devices,
    "fleet.mean_distance_m": state.distance,
    "fleet.distance_spread": state.spread,
    "fleet.seconds_per_mac": [state.fastest * 1e-9, state.slowest * 1e-9],
    "fleet.seed": state.seed,
    "cell.bandwidth_hz": state.bandwidth * 1e6,
    "plan.method": state.method,
    "training.batch_size": state.batch,
    "training.iterations_per_round": state.iterations,
  };
  if (state.limit !== null) settings["plan.max_split"] = state.limit;
  const request = { model: state.model, settings, device: state.device };
  if (files.csv !== null) request.csv = files.csv;
  if (files.profile !== null) request.profile = files.profile.text;
  return request;
}

/** Ask for one plan at a time; of settings that change meanwhile, only the last are planned. */
async function replan() {
  $("result").classList.add("outdated");
  isOutdated = true;
  if (isAsking) return;
  isAsking = true;
  while (isOutdated) {
    isOutdated = false;
    try {
      const answer = await ask("/api/plan", makeRequest());
      if (!isOutdated) {
        latest = answer;
        showError(null);
        show();
      }
    } catch (error) {
      if (!isOutdated) showError(error);
    }
  }
  isAsking = false;
}

/** Show an error beside the file that it is about, or remove it. */
function showError(error) {
  const place = error === null ? null : placeOf(error);
  for (const id of ["error", "csv-error", "profile-error"]) {
    const text = error?.line ? "Your CSV has an error:" : error?.message;
    setText($(id), id === place ? text : "");
  }
  $("result").classList.toggle("outdated", error !== null);
  showRows(error);
}

function placeOf(error) {
  const isAboutFleet = files.csv !== null && /fleet|csv/i.test(error.message);
  if (error.line || isAboutFleet) return "csv-error";
  return files.profile ? "profile-error" : "error";
}

/** Show the lines of the CSV around an error, and the error below its line. */
function showRows(error) {
  if (!error?.line) {
    const isPlanned = files.csv !== null && !error;
    const text = isPlanned ? `${latest.devices.names.length} devices from your CSV` : null;
    $("csv-rows").replaceChildren(...(text ? [element("li", {}, text)] : []));
    return;
  }
  const start = Math.max(0, error.line - 3);
  const lines = files.csv.split(/\r?\n/).slice(start, error.line + 1);
  $("csv-rows").replaceChildren(...lines.flatMap((line, at) => {
    const number = start + at + 1;
    const text = `${String(number).padStart(3)}  ${line}`;
    if (number !== error.line) return [element("li", {}, text)];
    const reason = element("li", { class: "why error" }, error.message);
    return [element("li", { class: "bad" }, text), reason];
  }));
}

function show() {
  const { plan, sentences, planning_s, export: exported } = latest;
  setText($("sentences"), `${sentences.result} ${sentences.gain}`);
  $("bound").textContent =
    `${sentences.bound} Planned in ${seconds(planning_s)}: ${plan.status}.`;
  showTiles();
  $("toml").textContent = exported.toml;
  $("command").textContent = exported.command;
  $("export-note").textContent = exported.note;
  $("download").hidden = !exported.toml;
  const content = encodeURIComponent(exported.toml);
  $("download").href = `data:application/toml;charset=utf-8,${content}`;
  showDevices();
  showDevice();
  showRounds();
}

function showTiles() {
  const { plan, best_possible: best, round_s } = latest;
  const fedavgRatio = (round_s.fedavg / round_s[plan.method]).toFixed(1);
  const tiles = [
    ["Iteration", seconds(plan.expected_latency_s),
      `of ${plan.batch_size} samples, mean until the last device is done; `
      + "the mean of each device, as drawn, is shorter"],
    [`Round of ${state.iterations}`, seconds(round_s[plan.method]),
      `equal shares: ${seconds(round_s.equal)}`],
    ["FedAvg round", seconds(round_s.fedavg), `${fedavgRatio} times as long`],
    ["Best possible", best.gap < 1e-6 ? "proven" : `within ${best.at_most}`,
      `of ${seconds(best.lower_bound_s)} per iteration, which no plan beats within the limits `
      + "and with fixed shares"],
  ];
  $("tiles").replaceChildren(...tiles.map(([name, value, note]) => {
    const number = element("dd", {}, value, element("small", {}, note));
    return element("div", {}, element("dt", {}, name), number);
  }));
}

/** The devices in the chosen order. */
function orderDevices() {
  const { seconds_per_mac: pace, full_band_rate_bps: rate, names } = latest.devices;
  const order = names.map((_, k) => k);
  if (state.order === "speed") order.sort((a, b) => pace[a] - pace[b]);
  if (state.order === "channel") order.sort((a, b) => rate[b] - rate[a]);
  return order;
}

/** Draw cuts, times and shares: one row per device, the same in all three charts. */
function showDevices() {
  const { devices, layers, plan } = latest;
  const order = orderDevices();
  const isFew = order.length <= 40;
  const names = order.map((k) => devices.names[k]);
  const isChosen = (at) => order[at] === state.device;

  // All three charts have the same height, so that their rows are level.
  const hidden = { width: 0, lines: 1, axisLabel: { show: false } };
  const deviceLabels = isFew ? wrapped(names, 110) : hidden;
  const layerLabels = wrapped(layers.names, 120);
  // Labels of layers are turned by 45°.
  const layersBelow = 30 + Math.ceil(0.75 * (layerLabels.width + 12 * layerLabels.lines));
  const below = Math.max(44, layersBelow);
  const rows = Math.max(
    220,
    Math.min(order.length * 20, 620),
    isFew ? order.length * (15 * deviceLabels.lines + 1) : 0,
  );
  const height = rows + 26 + below;
  const grid = { left: deviceLabels.width + (isFew ? 14 : 24), right: 18, top: 26, bottom: below };
  const yAxis = {
    type: "category",
    data: names,
    inverse: true,
    axisLabel: deviceLabels.axisLabel,
    splitLine: { show: false },
    ...(isFew ? { name: "device", nameLocation: "start", nameGap: 8 } : named("devices", 8)),
  };
  const valueAxis = (name, splitNumber) =>
    ({ type: "value", ...named(name, 26), axisLabel: { formatter: tick }, splitNumber });
  const tooltip = (describe) => ({
    axisPointer: { type: "shadow" },
    formatter: ([{ dataIndex: at }]) => `device ${names[at]}${describe(at)}`,
  });
  const bar = (name, values, shade) => ({
    name,
    type: "bar",
    stack: "all",
    data: values.map((value, at) => (isChosen(at) ? outlined(value, 1.5) : value)),
    itemStyle: { color: color(shade) },
    barCategoryGap: isFew ? "28%" : "5%",
  });

  const splits = order.map((k) => devices.splits[k]);
  const cutNames = splits.map((split) => layers.names[split - 1]);
  draw("cuts", () => ({
    grid,
    yAxis,
    xAxis: {
      type: "value",
      min: 0,
      max: layers.names.length,
      interval: Math.max(1, Math.ceil(layers.names.length / 10)),
      ...named("cut after layer", layersBelow - 16),
      axisLabel: {
        ...layerLabels.axisLabel,
        hideOverlap: true,
        rotate: 45,
        formatter: (v) => (v > 0 ? layers.names[Math.round(v) - 1] : ""),
      },
    },
    tooltip: tooltip((at) => ` cuts after ${cutNames[at]}, layer ${splits[at]}`),
    series: [
      { ...bar("on the device", splits, "device-side"), markLine: dashed("L̂", layers.limit) },
      bar("on the server", splits.map((split) => layers.names.length - split), "server-side"),
    ],
  }), `Splits of ${names.length} devices: ${countValues(cutNames)}.`, height);

  const compute = order.map((k) => devices.compute_s[k]);
  const transmit = order.map((k) => devices.transmit_s[k]);
  draw("times", () => ({
    grid,
    yAxis,
    xAxis: valueAxis("seconds", 4),
    tooltip: tooltip((at) =>
      `: computes ${seconds(compute[at])},\nsends ${seconds(transmit[at])}`),
    series: [
      { ...bar("computing", compute, "compute"), markLine: dashed("", plan.mean_latency_s) },
      bar("sending", transmit, "transmit"),
    ],
  }), `Mean times of a batch: computing ${range(compute)}, sending ${range(transmit)}; `
    + `the slowest device takes ${seconds(plan.mean_latency_s)}.`, height);

  const share = order.map((k) => 100 * devices.shares[k]);
  const least = Math.min(...share).toFixed(2);
  const greatest = Math.max(...share).toFixed(2);
  draw("shares", () => ({
    grid,
    yAxis,
    xAxis: valueAxis("percent of the band", 3),
    tooltip: tooltip((at) => `: ${share[at].toFixed(2)} % of the band`),
    series: [bar("share", share, "transmit")],
  }), `Shares of the band from ${least} to ${greatest} %.`, height);

  for (const id of ["cuts", "times", "shares"]) chooseByClick(id, order);
  fillDevices(order);
}

const outlined = (value, borderWidth) =>
  ({ value, itemStyle: { borderColor: color("ink"), borderWidth } });

/** Choose the device of a row by a click anywhere in it, not only on its bar. */
function chooseByClick(id, order) {
  const area = chartOf(id).getZr();
  area.off("click");
  area.on("click", ({ offsetX, offsetY }) => {
    const at = chartOf(id).convertFromPixel({ yAxisIndex: 0 }, offsetY)
      ?? chartOf(id).convertFromPixel({ gridIndex: 0 }, [offsetX, offsetY])?.[1];
    if (at >= 0 && at < order.length) choose(order[at]);
  });
}

function fillDevices(order) {
  const { devices, layers } = latest;
  const columns = [
    ["device", true], ["cut after", true], ["share of the band"], ["computing"], ["sending"],
    ["total"], ["speed"], ["channel, whole band"],
  ];
  const row = (k) => {
    const attributes = { type: "button", class: "plain", "data-focus": String(k) };
    return [
      element("button", { ...attributes, onclick: () => choose(k) }, devices.names[k]),
      layers.names[devices.splits[k] - 1],
      percent(devices.shares[k], 2),
      seconds(devices.compute_s[k]),
      seconds(devices.transmit_s[k]),
      seconds(devices.latency_s[k]),
      quantity(1 / devices.seconds_per_mac[k], "MAC/s"),
      quantity(devices.full_band_rate_bps[k], "bit/s"),
    ];
  };
  fill($("devices-table"), columns, order.map(row), (at) => order[at] === state.device);
}

/** A dashed line across the bars. */
const dashed = (name, value) => ({
  silent: true,
  symbol: "none",
  lineStyle: { color: color("ink"), type: "dashed", width: 1 },
  label: {
    formatter: name, color: color("faint"), fontSize: 11, position: "start", rotate: 0, distance: 2,
  },
  data: [{ xAxis: value }],
});
const range = (values) => `${seconds(Math.min(...values))} to ${seconds(Math.max(...values))}`;

function countValues(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].map(([value, count]) => `${count} after ${value}`).join(", ");
}

function showRounds() {
  const { round_s, plan, devices } = latest;
  const methods = ["expected-max", "exact", "paper", "equal", "random", "fedavg"]
    .filter((name) => name in round_s)
    .sort((a, b) => round_s[a] - round_s[b]);
  const names = methods.map((method) => METHOD_NAMES[method]);
  $("round-note").textContent =
    `mean seconds until the last of ${devices.names.length} devices is done with `
    + `${state.iterations} iterations of ${plan.batch_size} samples; expected-max minimizes this, `
    + "exact and the paper's algorithm minimize the mean of the slowest device";

  const shortest = round_s[methods[0]];
  const longest = round_s[methods.at(-1)];
  const isLog = longest > 30 * shortest;
  const labels = wrapped(names, 130, 12);
  const shade = (method) => {
    if (method === plan.method) return "sfl";
    return method === "fedavg" ? "fedavg" : "grey";
  };
  // The length of a bar on a logarithmic axis would mean nothing.
  const shape = isLog ? { type: "scatter", symbolSize: 11 } : { type: "bar", barWidth: "60%" };
  const height = Math.max(34, 17 * labels.lines) * methods.length + 58;
  draw("rounds", () => ({
    grid: { left: labels.width + 12, right: 80, top: 4, bottom: 42 },
    yAxis: {
      type: "category",
      inverse: true,
      data: names,
      axisLabel: { ...labels.axisLabel, color: color("ink") },
      splitLine: { show: isLog, lineStyle: { color: color("rule") } },
    },
    xAxis: {
      type: isLog ? "log" : "value",
      ...named(isLog ? "seconds, on a logarithmic axis" : "seconds", 26),
      axisLabel: { formatter: tick },
      splitNumber: 4,
    },
    tooltip: { show: false },
    series: [{
      ...shape,
      data: methods.map((method) =>
        ({ value: round_s[method], itemStyle: { color: color(shade(method)) } })),
      label: {
        show: true,
        position: "right",
        color: color("ink"),
        formatter: ({ value }) => seconds(value),
      },
    }],
  }), methods.map((m) => `${METHOD_NAMES[m]}: ${seconds(round_s[m])}`).join("; "), height);
}

function choose(k) {
  state.device = k;
  update();
  $("device").hidden = false;
  $("device-name").focus();
}

/** Explain the cut of the chosen device. */
function showDevice() {
  $("device").hidden = latest.device === null;
  if (latest.device === null) return;
  const { name, split, rows, explanation } = latest.device;
  $("device-name").textContent = `Why device ${name} cuts after ${rows.names[split - 1]}`;
  $("explanation").textContent = explanation;

  // A few first layers can take so long that all others would be too short to see.
  const totals = rows.compute_s.map((value, at) => value + rows.transmit_s[at]);
  const highest = 6 * Math.min(...totals);
  const beyond = totals.flatMap((total, at) => (total > highest ? [[at, highest]] : []));
  setText($("device-cuts-note"), beyond.length ? "triangle: longer than the chart is high" : "");
  const layerLabels = wrapped(rows.names, 120, 10);
  const below = 30 + Math.ceil(0.75 * (layerLabels.width + 11 * layerLabels.lines));
  const bar = (title, key, shade) => ({
    name: title,
    type: "bar",
    stack: "time",
    itemStyle: { color: color(shade) },
    data: rows[key].map((value, at) => (at === split - 1 ? outlined(value, 2) : value)),
  });
  draw("device-cuts", () => ({
    grid: { left: 58, right: 10, top: 14, bottom: below },
    xAxis: {
      type: "category",
      data: rows.names,
      ...named("cut after layer", below - 16),
      axisLabel: { ...layerLabels.axisLabel, interval: "auto", hideOverlap: true, rotate: 45 },
      splitLine: { show: false },
    },
    yAxis: {
      type: "value",
      ...named("seconds", 42),
      max: beyond.length ? highest : undefined,
      axisLabel: { formatter: tick, showMaxLabel: !beyond.length },
    },
    tooltip: {
      axisPointer: { type: "shadow" },
      formatter: ([{ dataIndex: at }]) => `cut after ${rows.names[at]}: `
        + `computes ${seconds(rows.compute_s[at])},\nsends ${seconds(rows.transmit_s[at])}`,
    },
    series: [
      bar("computing", "compute_s", "compute"),
      bar("sending", "transmit_s", "transmit"),
      {
        name: "beyond",
        type: "scatter",
        symbol: "triangle",
        symbolSize: 8,
        symbolOffset: [0, 6],
        silent: true,
        tooltip: { show: false },
        itemStyle: { color: color("ink") },
        data: beyond,
      },
    ],
  }), rows.names.map((cut, at) => `${cut}: ${seconds(totals[at])}`).join(", "), 260 + below);

  const columns = [["after", true], ["threshold"], ["expected time"], ["stops here"]];
  const row = (cut, at) => [
    cut,
    formatThreshold(rows, at),
    seconds(rows.expected_s[at]),
    percent(rows.probabilities[at]),
  ];
  fill($("stopping"), columns, rows.names.map(row), (at) => at === split - 1);
}

function formatThreshold({ thresholds_s, probabilities }, at) {
  if (thresholds_s[at] === null) return "always";
  return probabilities[at] === 0 ? "never" : seconds(thresholds_s[at]);
}

start().catch((error) => {
  $("error").textContent = `The page could not start: ${error.message}`;
});
