"""The plan, how good it can be at best, and the plans that followed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

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
from airsplit.report.charts import bar, swatches
from airsplit.report.markup import Html, folded, name, prose, table, tag, together
from airsplit.report.scales import spread_rows
from airsplit.runs.history import History, waiting_fraction
from airsplit.runs.wording import TIME_LABELS

MOST_SHOWN = 40  # devices; a larger fleet is shown in quantiles first
MOST_ROWS = 200
QUANTILES = {"least": 0.0, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "greatest": 1.0}


def the_plan(run: History) -> Html:
    """What was planned before the first round."""
    first = " of round 1" if run.replans else ""
    said = [
        prose(text) for text in (*_not_used(run), _bound(run), _times(run), *_averaged(run)) if text
    ]
    few = len(run) <= MOST_SHOWN
    rows = _device_table(run, min(len(run), MOST_ROWS))
    some = (
        f"the first {MOST_ROWS} devices; plan.json has all"
        if len(run) > MOST_ROWS
        else "each device"
    )
    tables = (
        [folded("The numbers behind this picture", rows)]
        if few
        else [_quantile_table(run), folded(f"The plan, {some}", rows)]
    )
    return together(
        tag("h2", f"The plan{first}"), *said, picture(run) if few else _split_table(run), *tables
    )


def _not_used(run: History) -> Iterator[str]:
    """What the algorithm does not take from the plan."""
    if run.scenario.training.algorithm == "fedavg":
        yield "FedAvg trains the whole model on each device, so this plan was not used: it is what split training would have done."
    elif run.scenario.training.algorithm == "split-learning":
        yield "Split learning takes the plan's splits; devices take turns with the whole band, so its shares and times were not used."


def _bound(run: History) -> str:
    """Return how the plan was made, and how far from the best possible it is."""
    plan = run.plan
    status = f": {plan['status']}" if plan.get("status") else ""
    objective = plan.get("objective", "what its method minimizes")
    against = plan.get("bound", "any splits and fixed shares within the limits")
    longer = f"{format_percent_bound(plan['gap'])} longer than the best possible plan in its objective, {objective}"
    return f"Method {plan.get('method')}{status}. It takes at most {longer}. The bound holds against {against}. {WORDS_OF_A_BOUND}"


def _times(run: History) -> str:
    slowest, last = (
        format_seconds(run.plan[key]) for key in ("mean_latency_s", "expected_latency_s")
    )
    samples = pluralize(run.plan["batch_size"], "sample")
    return f"An iteration of {samples} takes {slowest} on average on the slowest device, and {last} until the last device is done."


def _averaged(run: History) -> Iterator[str]:
    if run.scenario.training.algorithm == "sfl":
        number, deepest = run.plan["averaged_parameters"], run.split_name(max(run.plan["splits"]))
        total = run.plan.get("parameters")
        part = (
            f" of {total:,} ({format_percent(number / total)})"
            if isinstance(total, int) and total > 0
            else ""
        )
        behind = f"those behind {deepest}, the deepest split"
        yield (
            f"Averaged are {pluralize(number, 'parameter')}{part}, {behind}."
            if number
            else "Nothing is averaged."
        )


def picture(run: History) -> Html:
    """For each device a row: how far along the model it is cut, its share of the band, and its times against the slowest device's."""
    layers = max(len(run.plan.get("all_split_names", ())), *run.plan["splits"])
    times = _columns(run)
    slowest, widest = run.plan["mean_latency_s"], max(run.plan["shares"])
    kinds = {key.removesuffix("_s"): word for word, key in times.items()}
    rows = [
        _picture_row(
            "device",
            "cut after",
            f"share, up to {format_percent(widest, 1)}",
            f"time, up to {format_seconds(slowest)}",
            kind="head",
        )
    ]
    for k, (split, share) in enumerate(zip(run.plan["splits"], run.plan["shares"], strict=True)):
        cut = together(
            bar({"device-side": split / layers, "server-side": 1 - split / layers}),
            tag("small", name(run.plan["split_names"][k])),
        )
        spent = {key.removesuffix("_s"): run.plan[key][k] / slowest for key in times.values()}
        rows.append(
            _picture_row(
                name(run.names[k]),
                cut,
                bar({"transmit": share / widest if widest else 0.0}),
                bar(spent),
            )
        )
    caption = f"Full bars take as long as the slowest device, {format_seconds(slowest)} on average. {_planned_waiting(run)}"
    legend = swatches(
        {"device-side": "layers on the device", "server-side": "on the server"} | kinds
    )
    return tag("figure", legend, tag("ul", *rows, class_="plan"), tag("figcaption", caption))


def _planned_waiting(run: History) -> str:
    """Return how much of their time the plan expects the devices to wait, as `waiting_fraction` counts it in the rounds."""
    devices, last_s = len(run), run.plan["expected_latency_s"]
    busy = {f"{kind}_s": sum(run.plan[f"{kind}_s"]) for kind in ("compute", "transmit", "server")}
    share = waiting_fraction(busy | {"idle_s": max(devices * last_s - sum(busy.values()), 0.0)})
    expected = f"the plan expects the devices to wait {format_percent(share, 0)} of their time until the last of them is done"
    is_followed = not list(_not_used(run))
    return f"Times vary, and {expected}." if devices > 1 and is_followed else ""


def _picture_row(*cells: object, kind: str | None = None) -> Html:
    return tag("li", *(tag("span", cell, class_=kind) for cell in cells))


def _columns(run: History) -> dict[str, str]:
    """Times of the plan; the server's only where it takes any."""
    kinds = ("compute", "transmit", *(["server"] if any(run.plan["server_s"]) else []))
    return {TIME_LABELS[kind]: f"{kind}_s" for kind in kinds}


def _device_table(run: History, count: int) -> Html:
    plan, times = run.plan, _columns(run)
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
    return table(["device", "split", "share", *times, "in all"], body, words=("device", "split"))


def _quantile_table(run: History) -> Html:
    """How shares and times are spread over a large fleet."""
    levels = list(QUANTILES.values())
    shares = [
        "share of the band",
        *(f"{format_digits(100 * q)} %" for q in np.quantile(run.plan["shares"], levels).tolist()),
    ]
    times = (
        [word, *map(format_seconds, np.quantile(run.plan[key], levels).tolist())]
        for word, key in _columns(run).items()
    )
    return table(["over the devices", *QUANTILES], [shares, *times], words=("over the devices",))


def _split_table(run: History) -> Html:
    """How many devices take each split; the rarest are left out where there are too many."""
    counts = Counter(run.plan["splits"]).most_common(MOST_SHOWN)
    body = (
        [name(run.split_name(split)), f"{count:,}", format_percent(count / len(run))]
        for split, count in sorted(counts)
    )
    return table(["split", "devices", "of the fleet"], body, words=("split",))


# ---- what was measured ---------------------------------------------------------------------------------------------------
def measured(run: History) -> Html:
    """Planned against measured: rounds and devices; nothing where nothing was measured, or where plans changed on the way."""
    if not run.is_measured or not run.records or run.replans:
        return Html()
    iterations, rounds = run.scenario.training.iterations_per_round, len(run.records)
    planned, found = (
        iterations * run.plan["expected_latency_s"],
        float(np.median(run.rounds["latency_s"])),
    )
    said = (
        f"A round was planned to take {format_seconds(planned)} on average; it took {format_seconds(found)}, the median of "
        f"{pluralize(rounds, 'round')}: {format_percent(abs(found / planned - 1), 0)} {'more' if found > planned else 'less'}."
    )
    finished = np.maximum(run.rounds_finished, 1)  # nothing is measured of a device that drops out
    columns = {word: (key, run.totals[key] / finished) for word, key in _columns(run).items()}
    heads = [f"{word}, {what}" for word in columns for what in ("planned", "measured")]
    body = (
        [
            name(run.names[k]),
            *(
                format_seconds(float(v))
                for key, means in columns.values()
                for v in (iterations * run.plan[key][k], means[k])
            ),
        ]
        for k in range(min(len(run), MOST_ROWS))
    )
    rows = folded(
        "Each device, seconds a round", table(["device", *heads], body, words=("device",))
    )
    return together(
        tag("h2", "Planned and measured"),
        prose(said),
        _measured_bars(run, columns, iterations),
        rows,
    )


def _measured_bars(run: History, columns: dict[str, tuple[str, Floats]], iterations: int) -> Html:
    """Two bars for each device, the planned one above."""
    if len(run) > MOST_SHOWN:
        return Html()
    planned = {key: iterations * np.array(run.plan[key]) for key, _ in columns.values()}
    found = dict(columns.values())
    longest = max(float(sum(parts.values()).max()) for parts in (planned, found))  # type: ignore[union-attr]
    rows = [
        tag("li", tag("span", who, class_="who"), bar({key.removesuffix("_s"): float(parts[key][k]) / longest for key in parts}),
            tag("span", f"{what} {format_seconds(float(sum(column[k] for column in parts.values())))}", class_="number"))
        for k in range(len(run))
        for who, what, parts in ((name(run.names[k]), "planned", planned), ("", "measured", found))
    ]  # fmt: skip
    legend = swatches({key.removesuffix("_s"): word for word, (key, _) in columns.items()})
    return tag(
        "figure",
        legend,
        tag("ul", *rows, class_="bars"),
        tag("figcaption", "Of each device, mean seconds of a round."),
    )


# ---- the plans that followed ---------------------------------------------------------------------------------------------
def new_plans(run: History) -> Html:
    """What changed from plan to plan; nothing where there was one."""
    made = run.replans
    if not made:
        return Html()
    splits = [run.plan["splits"], *(list(record.splits or ()) for record in made)]
    shares = [run.plan["shares"], *(list(record.shares or run.plan["shares"]) for record in made)]
    rows = spread_rows(len(made), MOST_ROWS)
    body = (
        [
            f"{made[row].round:,}",
            pluralize(
                sum(a != b for a, b in zip(splits[row], splits[row + 1], strict=True)), "device"
            ),
            run.split_name(max(splits[row + 1])),
            f"{format_percent(min(shares[row + 1]), 2)} – {format_percent(max(shares[row + 1]), 2)}",
        ]
        for row in rows
    )
    every = run.scenario.training.replan_every
    said = f"The plan was made anew {pluralize(len(made), 'time')}" + (
        f", {format_interval(every, 'round')}." if every else "."
    )
    columns = ["round", "another split", "deepest split", "shares of the band"]
    some = "" if len(rows) == len(made) else f", {len(rows)} of {len(made):,}"
    return together(
        tag("h2", "New plans"), prose(said), folded(f"Each new plan{some}", table(columns, body))
    )
