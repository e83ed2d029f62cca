"""How long the rounds of a run take, where the devices' time goes, and who the others wait for: for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table
from rich.text import Text

from airsplit.cli.plan_tables import little_averaged, split_limit, who_and_where
from airsplit.cli.render import facts, table
from airsplit.core.formatting import (
    format_bar,
    format_percent,
    format_quantity,
    format_seconds,
    pluralize,
)
from airsplit.data.batches import describe_short_devices
from airsplit.data.partition import sizes_without_data
from airsplit.runs.wording import NO_ENERGY, TIME_LABELS
from airsplit.simulation.clock_simulation import ClockRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_LAST = {"iteration": "last", "round": "last", "turns": "longest"}
WAITS = {
    "iteration": "waiting after every iteration",
    "round": "waiting after every round",
    "turns": "one device after the other",
}
MOST_ROWS = 5  # devices that are named
FEW_ROUNDS = 100  # with fewer, the outer quantiles are not worth much
QUIET_S = 2.0  # nobody needs to be told how far something quick is


def clock_report(found: ClockRun) -> list[Text | Table]:
    """Everything about a run that was not trained."""
    parts: list[Text | Table] = [
        Text(headline(found, f"batch of {found.batch_size:,}"), style="bold")
    ]
    parts += [
        Text(f"Latency of a round of {_content(found)}, over {pluralize(found.rounds, 'round')}"),
        latency_table(found),
    ]
    parts += [Text("Where the devices' time goes, mean over the devices"), time_table(found)]
    if len(found.devices) > 1 and found.devices.last.max() > 1:
        parts += [Text(_last_in_words(found)), last_table(found)]
    return [*parts, facts(_conclusions(found))]


def short_devices(found: ClockRun) -> str | None:
    """Return what is to be said of devices that hold less than a batch, as far as that is known without the data."""
    fleet = found.schedule.fleet
    held = sizes_without_data(found.schedule.settings, len(fleet))
    return (
        None if held is None else describe_short_devices(held, found.batch_size, fleet.device_name)
    )


def headline(found: ClockRun, what: str) -> str:
    """What was stepped through, on one line; `what` says how much of it."""
    schedule = found.schedule
    limit = (
        [] if found.algorithm == "fedavg" else [split_limit(schedule.scenario, schedule.profile)]
    )
    parts = [
        *who_and_where(schedule.scenario, schedule.profile, schedule.fleet),
        found.algorithm,
        *limit,
        what,
        WAITS[found.waits],
    ]
    return " · ".join(parts)


def _content(found: ClockRun) -> str:
    """What is in a round: without that, its latency says nothing."""
    return f"{pluralize(found.iterations_per_round, 'iteration')} of {pluralize(found.batch_size, 'sample')}"


def latency_table(found: ClockRun) -> Table:
    """The distribution of the round's latency."""
    levels = {
        "median" if level == 0.5 else f"{100 * level:g} %": latency
        for level, latency in found.latency_quantiles_s.items()
    }
    columns = {"min": found.latency_min_s} | levels | {"max": found.latency_max_s}
    made = table(*columns)
    made.add_row(*map(format_seconds, columns.values()))
    return made


def kinds_of_time(found: ClockRun) -> list[str]:
    """What the devices spend time with; what there is none of is left out."""
    return [
        kind
        for kind, share in found.mean_time_shares.items()
        if kind in ("compute", "idle") or share > 5e-4
    ]


def time_table(found: ClockRun) -> Table:
    made = table("", "of the time", words=("", "of the time"))
    for kind in kinds_of_time(found):
        share = found.mean_time_shares[kind]
        made.add_row(TIME_LABELS[kind], f"{format_percent(share):>7} {format_bar(share)}")
    return made


def last_table(found: ClockRun) -> Table:
    """The devices that were last most often, and what they were busy with."""
    kinds, schedule = kinds_of_time(found), found.schedule
    cut = found.algorithm != "fedavg" and schedule.settings.replan_every is None
    made = table(
        "device",
        *(["split", "name"] if cut else []),
        _LAST[found.waits],
        *(TIME_LABELS[kind] for kind in kinds),
        words=("name",),
    )
    for k in _last_most_often(found):
        split = int(schedule.agreed.splits[k])
        where = [str(split), schedule.profile.names[split - 1]] if cut else []
        shares = [format_percent(float(found.time_shares[kind][k])) for kind in kinds]
        made.add_row(
            schedule.fleet.device_name(k),
            *where,
            format_percent(found.devices.last[k] / found.steps),
            *shares,
        )
    return made


def _last_most_often(found: ClockRun) -> list[int]:
    """Devices from the one that was last most often on; where two are equal, the one that waits less."""
    some = np.flatnonzero(found.devices.last)
    order = np.lexsort((found.devices.idle_s[some], -found.devices.last[some]))
    first: list[int] = some[order[:MOST_ROWS]].tolist()
    return first


def _last_in_words(found: ClockRun) -> str:
    if found.waits == "turns":
        return f"Who takes longest: how often a device's turn is the longest, in {pluralize(found.steps, 'round')}"
    return f"Who the others wait for: how often a device is the last, in {pluralize(found.steps, found.waits)}"


def _conclusions(found: ClockRun) -> Iterator[tuple[str, str]]:
    totals = found.totals
    yield (
        "virtual time",
        f"{format_seconds(found.virtual_time_s)} for {pluralize(found.rounds, 'round')} of {_content(found)}",
    )
    yield (
        "mean",
        f"{format_seconds(found.latency_mean_s)} for a round of {_content(found)}; standard deviation {format_seconds(found.latency_spread_s)}",
    )
    yield from _planned(found)
    if found.steps and len(found.devices) > 1 and found.waits != "turns":
        late = int(np.count_nonzero(found.devices.last))
        yield (
            "last",
            f"{late:,} of {pluralize(len(found.devices), 'device')} at least once, in {pluralize(found.steps, found.waits)}",
        )
    yield (
        "sent",
        f"{format_quantity(totals['sent_bytes'], 'B')} up, {format_quantity(totals['received_bytes'], 'B')} down, by all devices",
    )
    yield "devices' work", format_quantity(totals["macs"], "MAC")
    whole = found.schedule.fleet.joules_per_mac is not None
    yield (
        "energy",
        f"{format_quantity(totals['energy_j'], 'J')}, of all devices" if whole else NO_ENERGY,
    )
    plan, profile = found.schedule.plan, found.schedule.profile
    little = little_averaged(
        found.schedule.scenario, plan.averaged_parameters, int(profile.parameters.sum())
    )
    if little is not None:
        yield "averaged", little
    if found.rounds < FEW_ROUNDS:
        yield (
            "note",
            f"{pluralize(found.rounds, 'round')} say little about the outer quantiles; --rounds 1000 says more",
        )


def _planned(found: ClockRun) -> Iterator[tuple[str, str]]:
    """What the plan said of a round, and how that compares."""
    mean_s, expected_s = found.planned_mean_latency_s, found.planned_expected_latency_s
    if mean_s is None:
        yield (
            "planned",
            f"nothing that could be compared: a plan is for sfl, and this is {found.algorithm}",
        )
        return
    if expected_s is not None:
        said = f"{format_seconds(expected_s)} for a round of {_content(found)}: the mean until the last device is done, E[max]"
        yield "planned", f"{said}; {_compared(found, expected_s)}"
    word = "planned" if expected_s is None else ""
    yield (
        word,
        f"{format_seconds(mean_s)} for a round of {_content(found)}: the slowest device's mean, max E",
    )
    if _differs_from_plan(found):
        yield (
            "",
            "a plan is for all devices and for the channels of its moment, and for rounds in which no fronts are averaged",
        )


def _compared(found: ClockRun, expected_s: float) -> str:
    """How much longer the rounds took, and how far that is chance: two standard errors."""
    more = format_percent(abs(found.latency_mean_s / expected_s - 1))
    chance = (
        f", give or take {format_percent(2 * found.latency_spread_s / found.rounds**0.5 / expected_s)}"
        if found.rounds > 1
        else ""
    )
    if more == format_percent(0):
        return "these rounds took as long"
    return f"these rounds took {more} {'more' if found.latency_mean_s > expected_s else 'less'}{chance}"


def _differs_from_plan(found: ClockRun) -> bool:
    """Whether rounds are not what was planned for."""
    schedule, training = found.schedule, found.schedule.settings
    moving = schedule.fleet.trace is not None or bool(schedule.scenario.fleet.redraw_fading)
    return (
        moving
        or training.participation < 1
        or training.dropout_probability > 0
        or training.average_fronts_every is not None
    )


def after_a_while(tell: Callable[[str], None]) -> Callable[[str], None]:
    """The same, but silent at first."""
    start = time.monotonic()
    return lambda text: tell(text) if time.monotonic() - start >= QUIET_S else None


def drawn(found: ClockRun) -> Canvas:
    """The picture of `--plot`."""
    from airsplit.plots.clock import draw_clock

    shares, fleet = (
        {kind: (TIME_LABELS[kind], found.time_shares[kind]) for kind in kinds_of_time(found)},
        found.schedule.fleet,
    )
    caption = headline(found, f"{pluralize(found.rounds, 'round')} of {_content(found)}")
    names = () if fleet.name is None else fleet.name
    return draw_clock(found.latency_s, _planned_mark(found), shares, caption, names)


def _planned_mark(found: ClockRun) -> tuple[str, float] | None:
    """What was planned for a round, and how that is called; None where a plan says nothing about it."""
    if found.planned_expected_latency_s is not None:
        return "planned mean", found.planned_expected_latency_s
    return (
        None
        if found.planned_mean_latency_s is None
        else ("planned mean of the slowest", found.planned_mean_latency_s)
    )
