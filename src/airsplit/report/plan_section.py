"""The plan of a run: its bound, its splits, shares and times, and how it changed."""

from __future__ import annotations

from collections import Counter

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.formatting import (
    format_digits,
    format_interval,
    format_percent,
    format_percent_bound,
    format_seconds,
    pluralize,
)
from airsplit.planning.plan import WORDS_OF_A_BOUND
from airsplit.report.charts import bar, bar_legend
from airsplit.report.markup import Html, details, join, name, paragraph, table, tag
from airsplit.report.scales import choose_rows
from airsplit.runs.history import History, waiting_fraction
from airsplit.runs.wording import TIME_LABELS

# A larger fleet is shown in quantiles.
MOST_DEVICES = 40
MOST_ROWS = 200
QUANTILES = {"least": 0.0, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "greatest": 1.0}


def initial_plan(run: History) -> Html:
    """Return the section on the plan before the first round."""
    heading = tag("h2", "The plan of round 1" if run.replans else "The plan")
    sentences = (
        _unused_parts(run),
        describe_bound(run),
        describe_times(run),
        describe_averaging(run),
    )
    text = [paragraph(sentence) for sentence in sentences if sentence]
    rows = device_table(run, min(len(run), MOST_ROWS))
    if len(run) <= MOST_DEVICES:
        numbers = details("The numbers behind these bars", rows)
        return join(heading, *text, plan_figure(run), numbers)

    title = "The plan of each device"
    if len(run) > MOST_ROWS:
        title = f"The plan of the first {MOST_ROWS} devices; plan.json has all"
    tables = (split_table(run), quantile_table(run), details(title, rows))
    return join(heading, *text, *tables)


def _unused_parts(run: History) -> str:
    """Return what the algorithm does not take from the plan; empty if it follows it."""
    if run.scenario.training.algorithm == "fedavg":
        return (
            "FedAvg trains the whole model on each device, so this plan was not used: "
            "it shows what split training would have done."
        )
    if run.scenario.training.algorithm == "split-learning":
        return (
            "Split learning uses the plan's splits. Devices take turns with the whole band, "
            "so its shares and times were not used."
        )
    return ""


def describe_bound(run: History) -> str:
    """Return how the plan was made, and how far from the best possible one it is."""
    plan = run.plan
    method = f"Method {plan.get('method')}"
    # Plans of older versions may lack status, objective and bound.
    if plan.get("status"):
        method += f": {plan['status']}"
    gap = format_percent_bound(plan["gap"])
    objective = plan.get("objective", "what its method minimizes")
    limits = plan.get("bound", "any splits and fixed shares within the limits")
    return (
        f"{method}. "
        f"The plan takes at most {gap} longer than the best possible plan ({objective}). "
        f"The bound holds against {limits}. {WORDS_OF_A_BOUND}"
    )


def describe_times(run: History) -> str:
    """Return the mean time of the slowest device, and of all together."""
    samples = pluralize(run.plan["batch_size"], "sample")
    slowest = format_seconds(run.plan["mean_latency_s"])
    last = format_seconds(run.plan["expected_latency_s"])
    return (
        f"An iteration of {samples} takes {slowest} on average on the slowest device, "
        f"and {last} on average until the last device is done."
    )


def describe_averaging(run: History) -> str:
    """Return how much of the model SFL averages; empty for other algorithms."""
    if run.scenario.training.algorithm != "sfl":
        return ""
    count = run.plan["averaged_parameters"]
    if not count:
        return "No parameters are averaged."

    text = f"SFL averages {pluralize(count, 'parameter')}"
    total = run.plan.get("parameters")
    if isinstance(total, int) and total > 0:
        text += f" of {total:,} ({format_percent(count / total)})"
    return f"{text}: those after {run.split_name(max(run.plan['splits']))}, the deepest split."


def plan_figure(run: History) -> Html:
    """Return a row for each device: its cut along the model, its share, and its times.

    Times are relative to the mean time of the slowest device.
    """
    plan = run.plan
    # Without the names of all splits, the deepest one in use stands for the whole model.
    layers = max(len(plan.get("all_split_names", ())), *plan["splits"])
    slowest_s = plan["mean_latency_s"]
    widest = max(plan["shares"])
    times = _time_columns(run)
    head = (
        "device",
        "cut after",
        f"share, up to {format_percent(widest, 1)}",
        f"time, up to {format_seconds(slowest_s)}",
    )
    rows = [_figure_row(*head, kind="head")]
    for k, split in enumerate(plan["splits"]):
        # The bar counts layers, not their work.
        cut = bar({"device-side": split / layers, "server-side": 1 - split / layers})
        share = bar({"transmit": plan["shares"][k] / widest if widest else 0.0})
        spent = bar({key.removesuffix("_s"): plan[key][k] / slowest_s for key in times.values()})
        split_name = tag("small", name(plan["split_names"][k]))
        rows.append(_figure_row(name(run.names[k]), join(cut, split_name), share, spent))

    kinds = {"device-side": "layers on the device", "server-side": "layers on the server"}
    kinds |= {key.removesuffix("_s"): label for label, key in times.items()}
    caption = f"A full time bar is the mean of the slowest device, {format_seconds(slowest_s)}."
    return tag(
        "figure",
        bar_legend(kinds),
        tag("ul", *rows, class_="plan"),
        tag("figcaption", caption + describe_waiting(run)),
    )


def describe_waiting(run: History) -> str:
    """Return the fraction of their time that devices are expected to wait, as a sentence.

    Defined as for finished rounds, so that the two can be compared. Empty if it does not apply.
    """
    # A single device never waits, and some algorithms do not follow the plan.
    if len(run) == 1 or _unused_parts(run):
        return ""
    # All wait for the last one, so each is present for E[max], and waits when it is not busy.
    busy = {f"{kind}_s": sum(run.plan[f"{kind}_s"]) for kind in ("compute", "transmit", "server")}
    idle_s = max(len(run) * run.plan["expected_latency_s"] - sum(busy.values()), 0.0)
    waiting = format_percent(waiting_fraction(busy | {"idle_s": idle_s}), 0)
    return (
        f" Times vary, so the plan expects devices to wait {waiting} of their time"
        " for the slowest one."
    )


def _figure_row(*cells: object, kind: str | None = None) -> Html:
    return tag("li", *(tag("span", cell, class_=kind) for cell in cells))


def _time_columns(run: History) -> dict[str, str]:
    """Return labels and keys of the plan's times; the server's only if it takes any."""
    kinds = ["compute", "transmit"]
    if any(run.plan["server_s"]):
        kinds.append("server")
    return {TIME_LABELS[kind]: f"{kind}_s" for kind in kinds}


def device_table(run: History, count: int) -> Html:
    """Return split, share and times of the first `count` devices."""
    plan = run.plan
    times = _time_columns(run)
    body = (
        [
            name(run.names[k]),
            name(plan["split_names"][k]),
            format_percent(plan["shares"][k], 2),
            *(format_seconds(plan[key][k]) for key in times.values()),
            format_seconds(sum(plan[key][k] for key in times.values())),
        ]
        for k in range(count)
    )
    return table(["device", "split", "share", *times, "total"], body, words=("device", "split"))


def quantile_table(run: History) -> Html:
    """Return the distribution of shares and times over a large fleet."""
    levels = list(QUANTILES.values())
    shares = np.quantile(run.plan["shares"], levels).tolist()
    rows = [["share of the band", *(f"{format_digits(100 * share)} %" for share in shares)]]
    for label, key in _time_columns(run).items():
        times = np.quantile(run.plan[key], levels).tolist()
        rows.append([label, *map(format_seconds, times)])
    return table(["over the devices", *QUANTILES], rows, words=("over the devices",))


def split_table(run: History) -> Html:
    """Return how many devices have each split, without the rarest of very many splits."""
    # The most common ones, then in the order of the model.
    counts = Counter(run.plan["splits"]).most_common(MOST_DEVICES)
    body = (
        [name(run.split_name(split)), f"{count:,}", format_percent(count / len(run))]
        for split, count in sorted(counts)
    )
    return table(["split", "devices", "of the fleet"], body, words=("split",))


def measured_times(run: History) -> Html:
    """Return the section that compares planned with measured times.

    Empty for simulated runs, and for runs that changed their plan.
    """
    # Totals do not tell which part of the time belongs to which plan.
    if not run.is_measured or not run.records or run.replans:
        return Html()
    iterations = run.scenario.training.iterations_per_round
    planned_s = iterations * run.plan["expected_latency_s"]
    # Not the mean, which a single stalled round would dominate.
    median_s = float(np.median(run.rounds["latency_s"]))
    difference = format_percent(abs(median_s / planned_s - 1), 0)
    difference += " more" if median_s > planned_s else " less"
    sentence = (
        f"A round was planned to take {format_seconds(planned_s)} on average. "
        f"The median of {pluralize(len(run.records), 'round')} is {format_seconds(median_s)}, "
        f"{difference}."
    )

    # A device that drops out is not measured in that round.
    finished = np.maximum(run.rounds_finished, 1)
    keys = _time_columns(run).values()
    planned = {key: iterations * np.array(run.plan[key], dtype=np.float64) for key in keys}
    measured = {key: run.totals[key] / finished for key in keys}
    numbers = measured_table(run, planned, measured)
    return join(
        tag("h2", "Planned and measured times"),
        paragraph(sentence),
        measured_bars(run, planned, measured),
        details("Each device, time per round", numbers),
    )


def measured_table(run: History, planned: dict[str, Floats], measured: dict[str, Floats]) -> Html:
    """Return planned and measured seconds per round of each kind and device, side by side."""
    # In pairs, so that the two times of a kind are neighbors.
    columns = {
        f"{label}, {which}": times[key]
        for label, key in _time_columns(run).items()
        for which, times in (("planned", planned), ("measured", measured))
    }
    body = (
        [name(run.names[k]), *(format_seconds(float(times[k])) for times in columns.values())]
        for k in range(min(len(run), MOST_ROWS))
    )
    return table(["device", *columns], body, words=("device",))


def measured_bars(run: History, planned: dict[str, Floats], measured: dict[str, Floats]) -> Html:
    """Return two bars for each device, the planned one above; empty for a large fleet."""
    if len(run) > MOST_DEVICES:
        return Html()
    longest_s = max(
        float(np.sum(list(times.values()), axis=0).max()) for times in (planned, measured)
    )
    rows = []
    for k in range(len(run)):
        # The name stands before the first of a device's two bars.
        for device, which, times in (
            (name(run.names[k]), "planned", planned),
            ("", "measured", measured),
        ):
            parts = {key.removesuffix("_s"): float(times[key][k]) / longest_s for key in times}
            total_s = float(sum(column[k] for column in times.values()))
            label = tag("span", device, class_="who")
            number = tag("span", f"{which} {format_seconds(total_s)}", class_="number")
            rows.append(tag("li", label, bar(parts), number))

    kinds = {key.removesuffix("_s"): label for label, key in _time_columns(run).items()}
    caption = tag("figcaption", "Mean time per round of each device.")
    return tag("figure", bar_legend(kinds), tag("ul", *rows, class_="bars"), caption)


def replanning(run: History) -> Html:
    """Return the section on how the plan changed; empty if it did not."""
    if not run.replans:
        return Html()
    count = len(run.replans)
    splits = [run.plan["splits"], *(list(record.splits or ()) for record in run.replans)]
    rows = choose_rows(count, MOST_ROWS)
    body = []
    for row in rows:
        record = run.replans[row]
        # splits[0] is the initial plan, so splits[row] is what this one replaced.
        changed = sum(a != b for a, b in zip(splits[row], splits[row + 1], strict=True))
        shares = record.shares or run.plan["shares"]
        cells = (
            f"{record.round:,}",
            pluralize(changed, "device"),
            run.split_name(max(splits[row + 1])),
            f"{format_percent(min(shares), 2)} – {format_percent(max(shares), 2)}",
        )
        body.append(cells)

    sentence = f"The plan was updated {pluralize(count, 'time')}"
    every = run.scenario.training.replan_every
    if every:
        sentence += f", {format_interval(every, 'round')}"
    heading = "Each new plan"
    if len(rows) < count:
        heading += f", {len(rows)} of {count:,}"
    columns = ["round", "changed splits", "deepest split", "shares of the band"]
    numbers = details(heading, table(columns, body))
    return join(tag("h2", "Replanning"), paragraph(f"{sentence}."), numbers)
