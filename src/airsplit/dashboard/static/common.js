// What both pages share: talking to the server, numbers as people read them, tables and charts.
import * as echarts from "./vendor/echarts.mjs";

export const $ = (id) => document.getElementById(id);

/** The server's answer, or an Error with its message (and `line`, where it is about one line of a file). */
export async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options).catch(() => { throw new Error("the server does not answer; is airsplit dashboard still running?"); });
  const data = await answer.json().catch(() => ({ error: `the server failed (${answer.status})` }));
  if (!answer.ok) throw Object.assign(new Error(data.error), { line: data.line });
  return data;
}

// ---- numbers ----------------------------------------------------------------------------------------------------------------
const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];

export function digits(value) {
  if (value === 0) return "0";
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)) + 1e-12));
  return value.toLocaleString("en", { minimumFractionDigits: Math.min(decimals, 12), maximumFractionDigits: Math.min(decimals, 12) });
}

export function quantity(value, unit) {
  if (value === 0) return `0 ${unit}`;
  const [size, prefix] = PREFIXES.find(([least]) => Math.abs(value) >= least * 0.9995) ?? PREFIXES.at(-1);
  return `${digits(value / size)} ${prefix}${unit}`;
}

/** A number at an axis: as short as it can be. */
export const tick = (value) => value.toLocaleString("en", { maximumSignificantDigits: 6 });
export const seconds = (value) => (value >= 0.1 || value === 0 ? `${digits(value)} s` : quantity(value, "s"));
export const percent = (fraction, decimals = 1) => `${(100 * fraction).toFixed(decimals)} %`;

// ---- elements: text is always text --------------------------------------------------------------------------------------------
export function element(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...inside);
  return made;
}

/** Set a text, but only if it is another one: who listens to a page hears what changes. */
export function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/** Fill a table: `columns` are [heading, is a word], rows arrays of texts or elements.  Focus stays on what has the same data-focus. */
export function fill(table, columns, rows, marked = () => false) {
  const head = element("tr", {}, ...columns.map(([text, word]) => element("th", { scope: "col", class: word ? "word" : null }, text)));
  const body = rows.map((row, at) =>
    element("tr", { class: marked(at) ? "chosen" : null }, ...row.map((cell, column) => element("td", { class: columns[column][1] ? "word" : null }, cell))));
  const focused = table.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
  if (focused !== undefined) table.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

// ---- charts -------------------------------------------------------------------------------------------------------------------
const FONT = "system-ui, sans-serif";
const made = new Map();

/** Draw a chart, and again when the colors or the width change.  `describe` is for those who do not see it. */
export function draw(id, option, describe, height) {
  const place = $(id);
  place.setAttribute("aria-label", describe);
  if (height) place.style.height = `${height}px`;
  const known = made.get(id);
  const chart = known?.chart ?? echarts.init(place, null, { renderer: "canvas" });
  made.set(id, { chart, option });
  if (height) chart.resize();
  chart.setOption(base(option()), { notMerge: true });
  return chart;
}

export const chartOf = (id) => made.get(id)?.chart;

function again() {
  for (const { chart, option } of made.values()) {
    chart.resize();
    chart.setOption(base(option()), { notMerge: true });
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
new ResizeObserver(() => { for (const { chart } of made.values()) chart.resize(); }).observe(document.body);

export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const DASHES = ["solid", [8, 4], [2, 3], [8, 3, 2, 3], "solid", [8, 4], [2, 3], [8, 3, 2, 3]];

/** A sample of the line of this number, for a legend. */
export function lineSample(number) {
  const line = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  line.setAttribute("class", "line");
  line.style.setProperty("--of-run", `var(--run-${number})`);
  line.setAttribute("viewBox", "0 0 28 8");
  line.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", "M0 4 H28");
  if (DASHES[number] !== "solid") path.setAttribute("stroke-dasharray", DASHES[number].join(" "));
  line.append(path);
  return line;
}

const pen = document.createElement("canvas").getContext("2d");

/** The name of an axis, with its unit, in the middle of its side, that far from it. */
export const named = (name, nameGap) => ({ name, nameLocation: "middle", nameGap });

/** Labels of an axis that are written in full: what is wider than `most` pixels wraps.  Also how wide they are, in how many lines. */
export function wrapped(texts, most, fontSize = 11) {
  pen.font = `${fontSize}px ${FONT}`;
  const widest = Math.max(...texts.map((text) => pen.measureText(text).width), 0);
  const lines = widest <= most ? 1 : Math.ceil(widest / (0.8 * most)); // words leave lines unfilled
  const width = Math.min(most, Math.ceil(widest) + 1);
  return { width, lines, axisLabel: { width, overflow: "break", interval: 0, hideOverlap: false, fontSize, lineHeight: 1.3 * fontSize } };
}

/** What all charts have: no animation while sliders move, tooltips that are drawn and not HTML. */
function base(option) {
  const text = { color: color("faint"), fontSize: 11 };
  return {
    animation: false,
    textStyle: { fontFamily: FONT, color: color("faint") },
    tooltip: {
      trigger: "axis", renderMode: "richText", confine: true, backgroundColor: color("paper"), borderColor: color("rule"),
      textStyle: { color: color("ink"), fontSize: 12 }, axisPointer: { type: "line", lineStyle: { color: color("grey") } },
    },
    ...option,
    xAxis: axes(option.xAxis, text), yAxis: axes(option.yAxis, text),
  };
}

function axes(given, text) {
  const styled = (axis) => ({
    axisLine: { lineStyle: { color: color("grey") } }, axisTick: { show: false }, splitLine: { lineStyle: { color: color("rule") } },
    nameTextStyle: text, ...axis, axisLabel: { ...text, hideOverlap: true, ...axis.axisLabel },
  });
  return Array.isArray(given) ? given.map(styled) : styled(given ?? {});
}
