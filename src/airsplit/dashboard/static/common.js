// Shared by both pages: requests to the server, formats of numbers, tables and charts.
import * as echarts from "./vendor/echarts.mjs";

export const $ = (id) => document.getElementById(id);

/** Return the server's JSON, or throw its error (with `line` if it is about a line of a file). */
export async function ask(path, body) {
  let options = {};
  if (body !== undefined) {
    const headers = { "content-type": "application/json" };
    options = { method: "POST", headers, body: JSON.stringify(body) };
  }
  const response = await fetch(path, options).catch(() => {
    throw new Error("the server does not respond; is airsplit dashboard still running?");
  });
  const failure = { error: `the server failed (${response.status})` };
  const data = await response.json().catch(() => failure);
  if (!response.ok) throw Object.assign(new Error(data.error), { line: data.line });
  return data;
}

// Numbers, written as the report and the command line do.
const PREFIXES = [
  [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"],
];

/** Three significant digits. */
export function digits(value) {
  if (value === 0) return "0";
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)) + 1e-12));
  const shown = Math.min(decimals, 12);
  return value.toLocaleString("en", { minimumFractionDigits: shown, maximumFractionDigits: shown });
}

export function quantity(value, unit) {
  if (value === 0) return `0 ${unit}`;
  // 0.9995 would be written as 1.00 of the larger unit.
  const fits = ([least]) => Math.abs(value) >= least * 0.9995;
  const [size, prefix] = PREFIXES.find(fits) ?? PREFIXES.at(-1);
  return `${digits(value / size)} ${prefix}${unit}`;
}

export const seconds = (value) =>
  value >= 0.1 || value === 0 ? `${digits(value)} s` : quantity(value, "s");
export const percent = (fraction, decimals = 1) => `${(100 * fraction).toFixed(decimals)} %`;

/** A number at an axis, as short as it can be. */
export const tick = (value) => value.toLocaleString("en", { maximumSignificantDigits: 6 });

/** Return a new element. Strings inside it are text, never HTML. */
export function element(name, attributes = {}, ...inside) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) created.addEventListener(key.slice(2), value);
    else if (value === true) created.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) {
      created.setAttribute(key, value);
    }
  }
  created.append(...inside);
  return created;
}

/** Set a text only if it differs: screen readers announce every change. */
export function setText(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/**
 * Fill a table. `columns` are pairs of a heading and whether its cells are words; rows are arrays
 * of texts or elements. The focus stays on the element with the same data-focus.
 */
export function fill(table, columns, rows, isMarked = () => false) {
  const wordClass = (isWord) => (isWord ? "word" : null);
  const headings = columns.map(([text, isWord]) =>
    element("th", { scope: "col", class: wordClass(isWord) }, text));
  const body = rows.map((row, at) => {
    const cells = row.map((cell, column) =>
      element("td", { class: wordClass(columns[column][1]) }, cell));
    return element("tr", { class: isMarked(at) ? "chosen" : null }, ...cells);
  });

  const active = document.activeElement;
  const focused = table.contains(active) ? active.dataset.focus : undefined;
  const head = element("thead", {}, element("tr", {}, ...headings));
  table.replaceChildren(head, element("tbody", {}, ...body));
  if (focused !== undefined) {
    table.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }
}

const FONT = "system-ui, sans-serif";
const charts = new Map();

/**
 * Draw a chart, and draw it again when the colors or the width change. `option` is a function,
 * since it reads colors; `description` is for screen readers.
 */
export function draw(id, option, description, height) {
  const place = $(id);
  place.setAttribute("aria-label", description);
  if (height) place.style.height = `${height}px`;
  const chart = chartOf(id) ?? echarts.init(place, null, { renderer: "canvas" });
  charts.set(id, { chart, option });
  if (height) chart.resize();
  chart.setOption(addDefaults(option()), { notMerge: true });
}

export const chartOf = (id) => charts.get(id)?.chart;

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const { chart, option } of charts.values()) {
    chart.resize();
    chart.setOption(addDefaults(option()), { notMerge: true });
  }
});
new ResizeObserver(() => {
  for (const { chart } of charts.values()) chart.resize();
}).observe(document.body);

/** A color of /palette.css, for light or dark. */
export const color = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Runs differ in their dashes, too, for those who cannot tell the colors apart.
const PATTERNS = ["solid", [8, 4], [2, 3], [8, 3, 2, 3]];
export const DASHES = [...PATTERNS, ...PATTERNS];

/** A sample of the line of the run with this number, for a legend. */
export function lineSample(number) {
  const SVG = "http://www.w3.org/2000/svg";
  const line = document.createElementNS(SVG, "svg");
  line.setAttribute("class", "line");
  line.style.setProperty("--of-run", `var(--run-${number})`);
  line.setAttribute("viewBox", "0 0 28 8");
  line.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", "M0 4 H28");
  if (DASHES[number] !== "solid") path.setAttribute("stroke-dasharray", DASHES[number].join(" "));
  line.append(path);
  return line;
}

/** Options that name an axis in the middle of its side, at this distance. */
export const named = (name, nameGap) => ({ name, nameLocation: "middle", nameGap });

const pen = document.createElement("canvas").getContext("2d");

/**
 * Options for labels of an axis that wrap if they are wider than `most` pixels, and how wide and
 * how many lines they become.
 */
export function wrapped(texts, most, fontSize = 11) {
  pen.font = `${fontSize}px ${FONT}`;
  const widest = Math.max(...texts.map((text) => pen.measureText(text).width), 0);
  // Words do not fill their lines.
  const lines = widest <= most ? 1 : Math.ceil(widest / (0.8 * most));
  const width = Math.min(most, Math.ceil(widest) + 1);
  const lineHeight = 1.3 * fontSize;
  const wrapping = { width, overflow: "break", interval: 0, hideOverlap: false };
  return { width, lines, axisLabel: { ...wrapping, fontSize, lineHeight } };
}

/** Add what all charts share: no animation while sliders move, tooltips drawn on the canvas. */
function addDefaults(option) {
  const tooltip = {
    trigger: "axis",
    renderMode: "richText",
    confine: true,
    backgroundColor: color("paper"),
    borderColor: color("rule"),
    textStyle: { color: color("ink"), fontSize: 12 },
    axisPointer: { type: "line", lineStyle: { color: color("grey") } },
  };
  return {
    animation: false,
    textStyle: { fontFamily: FONT, color: color("faint") },
    ...option,
    tooltip: { ...tooltip, ...option.tooltip },
    xAxis: addAxisDefaults(option.xAxis),
    yAxis: addAxisDefaults(option.yAxis),
  };
}

function addAxisDefaults(axis) {
  const text = { color: color("faint"), fontSize: 11 };
  return {
    axisLine: { lineStyle: { color: color("grey") } },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: color("rule") } },
    nameTextStyle: text,
    ...axis,
    axisLabel: { ...text, hideOverlap: true, ...axis.axisLabel },
  };
}
