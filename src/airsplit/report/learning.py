"""Learning curves: accuracy and loss over rounds and over time, as charts and in a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.formatting import choose_time_unit, format_percent, format_seconds
from airsplit.report.charts import Axis, Band, Line, legend, line_chart, loss_axis
from airsplit.report.markup import Html, details, join, table, tag
from airsplit.report.scales import (
    MOST_POINTS,
    choose_rows,
    format_tick,
    span_scale,
    value_scale,
)
from airsplit.runs.history import History

# A longer table would be slow to open, and rounds.jsonl has everything.
MOST_ROWS = 200


@dataclass(frozen=True, eq=False)
class Measure:
    """A quantity that is drawn twice, over rounds and over time: lines on one vertical axis."""

    name: str
    vertical: Axis
    lines: Sequence[Line]
    band: Band | None = None


def learning_curves(run: History) -> Html:
    """Return the section; empty without records."""
    if not run.records:
        return Html()
    # A metric of the user's own comes first, as in the sentence and the tiles of the result.
    measures = (metric_measure(run), accuracy_measure(run), loss_measure(run))
    charts = [draw_measure(run, measure) for measure in measures if measure.lines]

    note = Html()
    if len(run.records) > MOST_POINTS:
        text = (
            f"Charts do not show all {len(run.records):,} rounds: of each group of neighbors, "
            "they show the first, the least, the greatest and the last value."
        )
        note = tag("p", text, class_="note")
    return join(tag("h2", "Learning curves"), *charts, note, numbers_table(run))


def draw_measure(run: History, measure: Measure) -> Html:
    """Return two panels, over rounds and over time, with their common legend."""
    unit_s, unit = choose_time_unit(run.virtual_time_s)
    rounds = np.array([record.round for record in run.records], dtype=np.float64)
    time = run.rounds["virtual_time_s"] / unit_s
    over_rounds = Axis(span_scale(rounds[-1], whole=True), "round", format_tick)
    over_time = Axis(span_scale(float(time[-1])), f"{run.time_name} in {unit}", format_tick)

    entries: list[Line | Band] = list(measure.lines)
    if measure.band is not None:
        entries.append(measure.band)
    panels = [
        _draw_panel(measure, "rounds", rounds, rounds, over_rounds),
        _draw_panel(measure, run.time_name, rounds, time, over_time),
    ]
    return join(tag("div", *panels, class_="panels"), legend(entries))


def _draw_panel(measure: Measure, x_name: str, rounds: Floats, x: Floats, horizontal: Axis) -> Html:
    caption = f"{measure.name} over {x_name}"
    if measure.vertical.label:
        caption += f" ({measure.vertical.label})"
    alt = f"{caption}. {describe_lines(measure, rounds)}"
    chart = line_chart(x, horizontal, measure.vertical, measure.lines, measure.band, alt=alt)
    return tag("figure", tag("figcaption", caption), chart)


def accuracy_measure(run: History) -> Measure:
    """Return the accuracy of the devices' models; without classes, no lines."""
    mean = run.rounds["test_accuracy"]
    spread = run.rounds["test_accuracy_spread"]
    lines = [Line("mean of the devices' models", "blue", mean)]
    band = None
    # Models that are all equal have no spread, and rounds without an evaluation have NaN.
    if np.nanmax(spread, initial=0.0) > 0:
        lines.append(Line("worst model", "dashed", run.rounds["test_accuracy_worst"]))
        # No accuracy is below 0 or above 1, even if the standard deviation reaches beyond.
        low = np.maximum(mean - spread, 0)
        high = np.minimum(mean + spread, 1)
        band = Band("mean ± standard deviation", "blue", low, high)
    # With one mix of classes for all, the weighted mean would be the plain one.
    if run.scenario.training.partition != "iid":
        own = run.rounds["own_accuracy"]
        lines.append(Line("mean, weighted by each device's own classes", "green", own))

    known = _drop_empty(lines)
    highest = [line.values for line in known]
    if band is not None:
        highest.append(band.high)
    greatest = max((float(np.nanmax(values)) for values in highest), default=1.0)
    scale = value_scale(greatest, ceiling=1.0)
    return Measure("Accuracy", Axis(scale, "", lambda v: f"{100 * v:g} %"), known, band)


def metric_measure(run: History) -> Measure:
    """Return the user's own metric; without one, no lines."""
    spread = run.rounds["test_metric_spread"]
    lines = [Line("mean of the devices' models", "blue", run.rounds["test_metric"])]
    if np.nanmax(spread, initial=0.0) > 0:
        lines.append(Line("worst model", "dashed", run.rounds["test_metric_worst"]))
    vertical = loss_axis(np.concatenate([line.values for line in lines]))
    return Measure(run.metric.name, vertical, _drop_empty(lines))


def loss_measure(run: History) -> Measure:
    """Return the training and the test loss, as far as they are known."""
    lines = [
        Line("training loss", "orange", run.rounds["train_loss"]),
        Line("test loss, mean of the models", "blue", run.rounds["test_loss"]),
    ]
    vertical = loss_axis(np.concatenate([line.values for line in lines]))
    return Measure("Loss", vertical, _drop_empty(lines))


def _drop_empty(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if np.isfinite(line.values).any()]


def describe_lines(measure: Measure, rounds: Floats) -> str:
    """Return the first and the last value of all lines in words, for screen readers."""
    texts = []
    for line in measure.lines:
        # Rounds without an evaluation have no value.
        known = np.flatnonzero(np.isfinite(line.values))
        first, last = (
            # Three digits are enough to listen to.
            f"{measure.vertical.format_tick(float(f'{line.values[row]:.3g}'))} "
            f"in round {rounds[row]:.0f}"
            for row in (known[0], known[-1])
        )
        texts.append(f"{line.name}: {first}, {last}.")
    return " ".join(texts)


def numbers_table(run: History) -> Html:
    """Return the table of the numbers in the charts, without columns that have none."""
    rows = choose_rows(len(run.records), MOST_ROWS)
    heading = "The numbers behind these charts"
    if len(rows) < len(run.records):
        heading += f" ({len(rows)} of {len(run.records):,} rounds; rounds.jsonl has all)"

    columns = {
        title.replace("metric", run.metric.name): (run.rounds[key], format_value)
        for title, (key, format_value) in _COLUMNS.items()
        if np.isfinite(run.rounds[key]).any()
    }
    body = []
    for row in rows:
        cells = [f"{run.records[row].round:,}"]
        for values, format_value in columns.values():
            value = float(values[row])
            cells.append(format_value(value) if np.isfinite(value) else "–")
        body.append(cells)
    return details(heading, table(["round", *columns], body))


def _format_loss(value: float) -> str:
    return f"{value:.4g}"


# Title, field of a record, and format; "metric" stands for the name of the user's own. Down here,
# because it names a function of this module.
_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "total time": ("virtual_time_s", format_seconds),
    "round time": ("latency_s", format_seconds),
    "training loss": ("train_loss", _format_loss),
    "test loss": ("test_loss", _format_loss),
    "metric": ("test_metric", _format_loss),
    "metric, std. dev.": ("test_metric_spread", _format_loss),
    "metric, worst": ("test_metric_worst", _format_loss),
    "accuracy": ("test_accuracy", format_percent),
    "std. dev.": ("test_accuracy_spread", format_percent),
    "worst": ("test_accuracy_worst", format_percent),
    "own classes": ("own_accuracy", format_percent),
    "own classes, worst": ("own_accuracy_worst", format_percent),
}
