"""The style sheet: one column of text, light and dark, on a telephone and on paper.  The colors are those of the figures."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --card: #f6f7f8; --ink: #222222; --faint: #5f6368; --rule: #dfe2e5;
  --blue: #0072B2; --orange: #c17d00; --green: #009E73; --red: #D55E00; --purple: #a3568a; --grey: #c3c8cd; --track: #eceef0; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #16191c; --card: #1f2327; --ink: #e6e8ea; --faint: #a2a9b0; --rule: #363c42;
    --blue: #56B4E9; --orange: #E69F00; --green: #2fc39a; --red: #ff8a4a; --purple: #d99bc4; --grey: #5c646c; --track: #262b30; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; overflow-wrap: anywhere; }
h1 { margin: 0; font-size: 1.75rem; line-height: 1.2; letter-spacing: -0.01em; }
h2 { margin: 2.6rem 0 0.6rem; padding-top: 0.9rem; border-top: 1px solid var(--rule); font-size: 1.2rem; line-height: 1.3; }
p { margin: 0.6rem 0; max-width: 46rem; }
.under { color: var(--faint); margin: 0.3rem 0 1.2rem; }
.lead { font-size: 1.1rem; }
.note, figcaption, .legend, summary { color: var(--faint); font-size: 0.875rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 0.75rem; margin: 1.25rem 0; padding: 0; }
.tiles div { background: var(--card); border-radius: 8px; padding: 0.7rem 0.9rem; }
.tiles dt { color: var(--faint); font-size: 0.8rem; }
.tiles dd { margin: 0; font-size: 1.45rem; font-weight: 600; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tiles dd small { display: block; font-size: 0.8rem; font-weight: 400; color: var(--faint); }
.facts { display: grid; grid-template-columns: 8rem 1fr; gap: 0.25rem 1rem; margin: 0.6rem 0; }
.facts dt { color: var(--faint); }
.facts dd { margin: 0; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: 0.75rem 1.5rem; }
figure { margin: 0; break-inside: avoid; }
figcaption { margin: 0.2rem 0; }
.panels figcaption { color: var(--ink); font-weight: 600; }
svg.chart { display: block; width: 100%; height: auto; }
svg text { font-size: 11px; fill: var(--faint); font-variant-numeric: tabular-nums; }
.grid { stroke: var(--rule); stroke-width: 0.7; }
.axis { stroke: var(--ink); stroke-width: 0.8; }
.line { fill: none; stroke-width: 1.7; stroke-linejoin: round; stroke-linecap: round; }
.band { opacity: 0.18; stroke: none; }
.line.blue { stroke: var(--blue); } .line.orange { stroke: var(--orange); stroke-width: 2.8; } .line.green { stroke: var(--green); }
.line.ink { stroke: var(--ink); } .dot.ink { fill: var(--ink); }
.line.red { stroke: var(--red); } .line.purple { stroke: var(--purple); }
.dot.red { fill: var(--red); } .dot.purple { fill: var(--purple); }
.line.dashed { stroke: var(--blue); stroke-width: 1.2; stroke-dasharray: 4 3; }
.band.blue, .dot.blue, .dot.dashed { fill: var(--blue); } .dot.orange { fill: var(--orange); } .dot.green { fill: var(--green); }
.legend { display: flex; flex-wrap: wrap; gap: 0.1rem 1.2rem; margin: 0.4rem 0; }
.key { width: 24px; height: 12px; vertical-align: -1px; }
.fill.compute { fill: var(--blue); } .fill.transmit { fill: var(--orange); } .fill.server { fill: var(--green); }
.fill.idle { fill: var(--grey); } .track, .fill.absent { fill: var(--track); }
.bars { display: grid; grid-template-columns: minmax(5.5rem, max-content) minmax(0, 1fr) max-content; gap: 0.15rem 0.8rem;
  align-items: center; margin: 0.5rem 0; padding: 0; list-style: none; font-size: 0.875rem; line-height: 1.35; }
.bars li { display: contents; }
.bars .who { max-width: 15rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.bars .who small { color: var(--faint); font-size: 0.875em; }
.bars .head { color: var(--faint); font-size: 0.8rem; }
.bars .number { text-align: right; color: var(--faint); font-variant-numeric: tabular-nums; white-space: nowrap; }
.bars .ends { display: flex; justify-content: space-between; color: var(--faint); font-size: 0.8rem; }
.fill.own { fill: var(--blue); } .fill.theirs { fill: var(--track); }
.plan { display: grid; grid-template-columns: minmax(4rem, max-content) minmax(0, 5fr) minmax(0, 2fr) minmax(0, 5fr); gap: 0.15rem 0.9rem;
  align-items: center; margin: 0.5rem 0; padding: 0; list-style: none; font-size: 0.875rem; line-height: 1.35; }
.plan li { display: contents; }
.plan li > span { min-width: 0; overflow: hidden; text-overflow: ellipsis; }
.plan li > span:nth-child(2):not(.head) { display: grid; grid-template-columns: minmax(0, 1fr) 4.5rem; gap: 0.5rem; align-items: center; }
.plan small, .plan .head { color: var(--faint); font-size: 0.8rem; }
svg.bar { display: block; width: 100%; height: 0.95rem; }
details { margin: 0.7rem 0; }
summary { cursor: pointer; width: fit-content; }
.scroll { overflow: auto; max-height: 30rem; margin: 0.8rem 0; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.22rem 0.8rem 0.22rem 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th { color: var(--faint); font-weight: 500; position: sticky; top: 0; background: var(--paper); }
.word { text-align: left; }
td.word { max-width: 14rem; overflow: hidden; text-overflow: ellipsis; }
pre { background: var(--card); border-radius: 8px; padding: 0.8rem 1rem; overflow-x: auto;
  font: 0.8rem/1.5 ui-monospace, Menlo, Consolas, monospace; }
footer { margin-top: 3rem; padding-top: 0.8rem; border-top: 1px solid var(--rule); color: var(--faint); font-size: 0.875rem; }
@media (max-width: 36rem) {
  body { padding: 1.25rem 1rem 2rem; }
  h1 { font-size: 1.4rem; }
  .facts { grid-template-columns: 1fr; gap: 0; }
  .facts dd { margin-bottom: 0.5rem; }
  .tiles { grid-template-columns: 1fr 1fr; }
  .tiles dd { font-size: 1.2rem; }
  .tiles div:last-child:nth-child(odd) { grid-column: 1 / -1; }
  th, td { padding-right: 0.55rem; }
  .bars { column-gap: 0.5rem; grid-template-columns: minmax(4rem, max-content) minmax(0, 1fr) max-content; }
  .bars .who { max-width: 7.5rem; }
  .plan { column-gap: 0.5rem; grid-template-columns: minmax(2rem, max-content) minmax(0, 4fr) minmax(0, 2fr) minmax(0, 4fr); }
  .plan li > span:nth-child(2):not(.head) { grid-template-columns: minmax(0, 1fr); gap: 0; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  details:not([open]) { display: none; }
  .scroll { max-height: none; overflow: visible; }
  th { position: static; }
  h2 { break-after: avoid; }
  .panels { grid-template-columns: 1fr 1fr; }
  .tiles { grid-template-columns: repeat(auto-fit, minmax(6rem, 1fr)); }
  .tiles dd { font-size: 1.2rem; }
  .tiles div, .fill, .band { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
