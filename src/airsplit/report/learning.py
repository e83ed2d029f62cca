"""How the models got better: accuracy and loss over rounds and over virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.formatting import choose_time_unit, format_percent, format_seconds
from airsplit.report.charts import Axis, Band, Line, legend, line_chart
from airsplit.report.markup import Html, folded, table, tag, together
from airsplit.report.scales import (
    MOST_POINTS,
    loss_scale,
    span_scale,
    spread_rows,
    tick,
    value_scale,
)
from airsplit.runs.history import History

MOST_ROWS = 200


@dataclass(frozen=True, eq=False)
class Measure:
    """What is drawn twice, over rounds and over time: lines on one upright axis."""

    name: str
    up: Axis
    lines: Sequence[Line]
    band: Band | None = None


def learning(run: History) -> Html:
    """The section; without records there is none."""
    if not run.records:
        return Html()
    measures = [measure for measure in (_metric(run), _accuracy(run), _loss(run)) if measure.lines]
    return together(
        tag("h2", "How the models learned"),
        *(_drawn(run, measure) for measure in measures),
        _thinning(run),
        _numbers(run),
    )


def _drawn(run: History, measure: Measure) -> Html:
    """Legend and two panels."""
    unit_s, unit = choose_time_unit(run.virtual_time_s)
    number = np.array([record.round for record in run.records], dtype=np.float64)
    time = run.rounds["virtual_time_s"] / unit_s
    panels = [
        ("rounds", number, Axis(span_scale(number[-1], whole=True), "round", tick)),
        (
            run.time_name,
            time,
            Axis(span_scale(float(time[-1])), f"{run.time_name} in {unit}", tick),
        ),
    ]
    entries: list[Line | Band] = [*measure.lines, *([measure.band] if measure.band else [])]
    how = f" ({measure.up.label})" if measure.up.label else ""
    figures = [
        _panel(measure, f"{measure.name} over {over}{how}", number, x, axis)
        for over, x, axis in panels
    ]
    return together(tag("div", *figures, class_="panels"), legend(entries))


def _panel(measure: Measure, caption: str, number: Floats, x: Floats, across: Axis) -> Html:
    alt = f"{caption}. {_ends(measure, number)}"
    return tag(
        "figure",
        tag("figcaption", caption),
        line_chart(x, across, measure.up, measure.lines, measure.band, alt=alt),
    )


def _accuracy(run: History) -> Measure:
    mean, spread, worst, own = (
        run.rounds[key]
        for key in ("test_accuracy", "test_accuracy_spread", "test_accuracy_worst", "own_accuracy")
    )
    lines, band = [Line("mean of the devices' models", "blue", mean)], None
    if np.nanmax(spread, initial=0.0) > 0:
        lines.append(Line("worst model", "dashed", worst))
        band = Band(
            "mean ± standard deviation",
            "blue",
            np.maximum(mean - spread, 0),
            np.minimum(mean + spread, 1),
        )
    if run.scenario.training.partition != "iid":
        lines.append(Line("mean, classes weighted as each device has them", "green", own))
    known = [line for line in lines if np.isfinite(line.values).any()]
    tops = [*(line.values for line in known), *([band.high] if band else [])]
    greatest = max((float(np.nanmax(top)) for top in tops), default=1.0)
    return Measure(
        "Accuracy",
        Axis(value_scale(greatest, ceiling=1.0), "", lambda v: f"{100 * v:g} %"),
        known,
        band,
    )


def _metric(run: History) -> Measure:
    """The metric of the user's own; without one there are no lines."""
    mean, spread, worst = (
        run.rounds[key] for key in ("test_metric", "test_metric_spread", "test_metric_worst")
    )
    lines = [Line("mean of the devices' models", "blue", mean)]
    if np.nanmax(spread, initial=0.0) > 0:
        lines.append(Line("worst model", "dashed", worst))
    known = [line for line in lines if np.isfinite(line.values).any()]
    values = np.concatenate([line.values for line in lines])
    scale = loss_scale(values[np.isfinite(values)])
    return Measure(run.metric.name, Axis(scale, "logarithmic" if scale.log else "", tick), known)


def _loss(run: History) -> Measure:
    lines = [
        Line("training loss", "orange", run.rounds["train_loss"]),
        Line("test loss, mean of the models", "blue", run.rounds["test_loss"]),
    ]
    known = [line for line in lines if np.isfinite(line.values).any()]
    values = np.concatenate([line.values for line in lines])
    scale = loss_scale(values[np.isfinite(values)])
    return Measure("Loss", Axis(scale, "logarithmic" if scale.log else "", tick), known)


def _ends(measure: Measure, number: Floats) -> str:
    """Where each line begins and ends, for those who do not see it."""
    words = []
    for line in measure.lines:
        at = np.flatnonzero(np.isfinite(line.values))
        first, last = (
            f"{measure.up.form(float(f'{line.values[row]:.3g}'))} in round {number[row]:.0f}"
            for row in (at[0], at[-1])
        )
        words.append(f"{line.name}: {first}, {last}.")
    return " ".join(words)


def _thinning(run: History) -> Html:
    if len(run.records) <= MOST_POINTS:
        return Html()
    text = f"Of {len(run.records):,} rounds, the first, least, greatest and last values of neighbors are drawn."
    return tag("p", text, class_="note")


def _numbers(run: History) -> Html:
    """The table behind the charts."""
    rows = spread_rows(len(run.records), MOST_ROWS)
    some = (
        ""
        if len(rows) == len(run.records)
        else f" ({len(rows)} of {len(run.records):,} rounds; rounds.jsonl has all)"
    )
    named = {
        run.metric.name if head == "metric" else head: column for head, column in _COLUMNS.items()
    }
    columns = {
        head: column for head, column in named.items() if np.isfinite(run.rounds[column[0]]).any()
    }
    body = (
        [
            f"{run.records[row].round:,}",
            *(_cell(float(run.rounds[key][row]), form) for key, form in columns.values()),
        ]
        for row in rows
    )
    return folded(f"The numbers behind these charts{some}", table(["round", *columns], body))


def _cell(value: float, form: Callable[[float], str]) -> str:
    return form(value) if np.isfinite(value) else "–"


_COLUMNS: dict[str, tuple[str, Callable[[float], Any]]] = {
    "time so far": ("virtual_time_s", format_seconds),
    "of the round": ("latency_s", format_seconds),
    "training loss": ("train_loss", lambda v: f"{v:.4g}"),
    "test loss": ("test_loss", lambda v: f"{v:.4g}"),
    "metric": ("test_metric", lambda v: f"{v:.4g}"),
    "metric, std. dev.": ("test_metric_spread", lambda v: f"{v:.4g}"),
    "metric, worst": ("test_metric_worst", lambda v: f"{v:.4g}"),
    "accuracy": ("test_accuracy", format_percent),
    "std. dev.": ("test_accuracy_spread", format_percent),
    "worst": ("test_accuracy_worst", format_percent),
    "own classes": ("own_accuracy", format_percent),
    "worst, own": ("own_accuracy_worst", format_percent),
}
