"""Tables of a simulated clock: latencies, the devices' time, and who the others wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table
from rich.text import Text

from airsplit.cli.plan_tables import (
    describe_setup,
    describe_split_limit,
    warn_of_little_averaging,
)
from airsplit.cli.tables import make_list, make_table
from airsplit.core.formatting import (
    format_bar,
    format_percent,
    format_quantity,
    format_seconds,
    pluralize,
)
from airsplit.data.batches import describe_short_devices
from airsplit.data.partition import get_sizes_without_data
from airsplit.runs.wording import NO_ENERGY, TIME_LABELS
from airsplit.simulation.clock_simulation import ClockRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# By ClockRun.waits: the column that counts how often a device was the last, and the headline.
LAST_COLUMNS = {"iteration": "last", "round": "last", "turns": "longest"}
WAITS = {
    "iteration": "waiting after every iteration",
    "round": "waiting after every round",
    "turns": "one device after the other",
}

# Devices in the table of those that were last.
MOST_ROWS = 5

# With fewer rounds, the outer quantiles rest on single rounds.
FEW_ROUNDS = 100

# Kinds of time with a smaller share of the total are left out.
LEAST_SHARE = 5e-4


def clock_report(clock: ClockRun) -> list[Text | Table]:
    """Return everything about a run that was not trained."""
    rounds = pluralize(clock.rounds, "round")
    parts: list[Text | Table] = [
        Text(headline(clock, f"batch of {clock.batch_size:,}"), style="bold"),
        Text(f"Latency of a round of {_describe_round(clock)}, over {rounds}"),
        latency_table(clock),
        Text("Where the devices' time goes, mean over the devices"),
        time_table(clock),
    ]
    # If no device was last twice, there is no ranking to show.
    if len(clock.devices) > 1 and clock.devices.last.max() > 1:
        if clock.waits == "turns":
            steps = pluralize(clock.steps, "round")
            caption = f"The longest turns: how often a device's turn is the longest, in {steps}"
        else:
            steps = pluralize(clock.steps, clock.waits)
            caption = f"The stragglers: how often the others wait for a device, in {steps}"
        parts += [Text(caption), last_table(clock)]
    return [*parts, make_list(_conclusions(clock))]


def warn_of_short_devices(clock: ClockRun) -> str | None:
    """Return a warning if devices hold less than a batch, as far as known without the data."""
    fleet = clock.schedule.fleet
    sizes = get_sizes_without_data(clock.schedule.settings, len(fleet))
    if sizes is None:
        return None
    return describe_short_devices(sizes, clock.batch_size, fleet.device_name)


def headline(clock: ClockRun, amount: str) -> str:
    """Return what was simulated, on one line; `amount` says how much of it."""
    schedule = clock.schedule
    parts = describe_setup(schedule.scenario, schedule.profile, schedule.fleet)
    parts.append(clock.algorithm)
    if clock.algorithm != "fedavg":
        parts.append(describe_split_limit(schedule.scenario, schedule.profile))
    return " · ".join([*parts, amount, WAITS[clock.waits]])


def _describe_round(clock: ClockRun) -> str:
    """Return what a round consists of, without which its latency means nothing."""
    iterations = pluralize(clock.iterations_per_round, "iteration")
    return f"{iterations} of {pluralize(clock.batch_size, 'sample')}"


def latency_table(clock: ClockRun) -> Table:
    """Return the distribution of the rounds' latencies."""
    columns = {"min": clock.latency_min_s}
    for level, latency_s in clock.latency_quantiles_s.items():
        columns["median" if level == 0.5 else f"{100 * level:g} %"] = latency_s
    columns["max"] = clock.latency_max_s

    table = make_table(*columns)
    table.add_row(*map(format_seconds, columns.values()))
    return table


def _kinds_of_time(clock: ClockRun) -> list[str]:
    """Return the kinds of time to show: computing, waiting, and all that matter."""
    return [
        kind
        for kind, share in clock.mean_time_shares.items()
        if kind in ("compute", "idle") or share > LEAST_SHARE
    ]


def time_table(clock: ClockRun) -> Table:
    """Return the shares of the devices' time, as means over the devices."""
    table = make_table("", "of the time", words=("", "of the time"))
    for kind in _kinds_of_time(clock):
        share = clock.mean_time_shares[kind]
        table.add_row(TIME_LABELS[kind], f"{format_percent(share):>7} {format_bar(share)}")
    return table


def last_table(clock: ClockRun) -> Table:
    """Return the devices that were last most often, and what they spent their time with."""
    schedule = clock.schedule
    kinds = _kinds_of_time(clock)
    # Splits that change with every new plan are not a property of a device.
    has_splits = clock.algorithm != "fedavg" and schedule.settings.replan_every is None

    columns = ["device", LAST_COLUMNS[clock.waits], *(TIME_LABELS[kind] for kind in kinds)]
    if has_splits:
        columns[1:1] = ["split", "name"]
    table = make_table(*columns, words=("name",))

    # Most often last first; ties go to the device that waits less. lexsort takes the most
    # significant key last, and a fleet may have a million devices, so sort only the candidates.
    candidates = np.flatnonzero(clock.devices.last)
    order = np.lexsort((clock.devices.idle_s[candidates], -clock.devices.last[candidates]))
    for k in candidates[order[:MOST_ROWS]].tolist():
        row = [schedule.fleet.device_name(k)]
        if has_splits:
            # Splits count from 1: a device with split s runs the first s layers.
            split = int(schedule.agreed.splits[k])
            row += [str(split), schedule.profile.names[split - 1]]
        row.append(format_percent(clock.devices.last[k] / clock.steps))
        row += [format_percent(float(clock.time_shares[kind][k])) for kind in kinds]
        table.add_row(*row)
    return table


def _conclusions(clock: ClockRun) -> Iterator[tuple[str, str]]:
    totals = clock.totals
    content = _describe_round(clock)
    yield (
        "virtual time",
        f"{format_seconds(clock.virtual_time_s)} for {pluralize(clock.rounds, 'round')} "
        f"of {content}",
    )
    yield (
        "mean",
        f"{format_seconds(clock.latency_mean_s)} for a round of {content}; "
        f"standard deviation {format_seconds(clock.latency_spread_s)}",
    )
    yield from compare_with_plan(clock)

    # In turns, a device waits for all others, so none of them is the last.
    if clock.steps and len(clock.devices) > 1 and clock.waits != "turns":
        stragglers = int(np.count_nonzero(clock.devices.last))
        devices = pluralize(len(clock.devices), "device")
        steps = pluralize(clock.steps, clock.waits)
        yield "last", f"{stragglers:,} of {devices} at least once, in {steps}"

    sent = format_quantity(totals["sent_bytes"], "B")
    received = format_quantity(totals["received_bytes"], "B")
    yield "sent", f"{sent} up, {received} down, by all devices"
    yield "devices' work", format_quantity(totals["macs"], "MAC")
    # Without joules_per_mac, the sum would be that of the radios alone.
    if clock.schedule.fleet.joules_per_mac is None:
        yield "energy", NO_ENERGY
    else:
        yield "energy", f"{format_quantity(totals['energy_j'], 'J')}, of all devices"

    warning = warn_of_little_averaging(
        clock.schedule.scenario,
        clock.schedule.plan.averaged_parameters,
        int(clock.schedule.profile.parameters.sum()),
    )
    if warning is not None:
        yield "averaged", warning
    if clock.rounds < FEW_ROUNDS:
        yield (
            "note",
            f"{pluralize(clock.rounds, 'round')} say little about the outer quantiles; "
            "try --rounds 1000",
        )


def compare_with_plan(clock: ClockRun) -> Iterator[tuple[str, str]]:
    """Yield the planned latency of a round, and how the rounds compare with it."""
    content = _describe_round(clock)
    mean_s = clock.planned_mean_latency_s
    expected_s = clock.planned_expected_latency_s
    # A plan is made for rounds of SFL; other algorithms split, send or wait differently.
    if mean_s is None:
        yield (
            "planned",
            f"nothing to compare with: a plan is for sfl, and this is {clock.algorithm}",
        )
        return

    mean = f"{format_seconds(mean_s)} for a round of {content}: the slowest device's mean, max E"
    if expected_s is None:
        yield "planned", mean
    else:
        yield (
            "planned",
            f"{format_seconds(expected_s)} for a round of {content}: "
            f"the mean until the last device is done, E[max]; {_compare(clock, expected_s)}",
        )
        yield "", mean
    if deviates_from_plan(clock):
        yield (
            "",
            "a plan is for all devices, for the channels when it was made, and for rounds that "
            "average no fronts",
        )


def _compare(clock: ClockRun, expected_s: float) -> str:
    """Return how much longer the rounds took than planned, with two standard errors."""
    # Compare as printed: a difference that rounds to zero is none.
    difference = format_percent(abs(clock.latency_mean_s / expected_s - 1))
    if difference == format_percent(0):
        return "these rounds took as long"
    direction = "less"
    if clock.latency_mean_s > expected_s:
        direction = "more"
    text = f"these rounds took {difference} {direction}"
    if clock.rounds > 1:
        # Of the mean, as if rounds were independent; two of them cover about 95 %.
        standard_error_s = clock.latency_spread_s / clock.rounds**0.5
        text += f", ± {format_percent(2 * standard_error_s / expected_s)} by chance"
    return text


def deviates_from_plan(clock: ClockRun) -> bool:
    """Return whether rounds differ from what the plan assumes."""
    schedule = clock.schedule
    training = schedule.settings
    # A plan is for the channels when it was made, ...
    is_replayed = schedule.fleet.trace is not None
    is_fading = bool(schedule.scenario.fleet.redraw_fading)
    # ... for all devices in every round, and without the traffic of averaged fronts.
    has_absences = training.participation < 1 or training.dropout_probability > 0
    averages_fronts = training.average_fronts_every is not None
    return is_replayed or is_fading or has_absences or averages_fronts


def plot_clock(clock: ClockRun) -> Figure:
    """Return the plot of `--plot`."""
    from airsplit.plots.clock import draw_clock

    fleet = clock.schedule.fleet
    shares = {kind: (TIME_LABELS[kind], clock.time_shares[kind]) for kind in _kinds_of_time(clock)}
    caption = headline(clock, f"{pluralize(clock.rounds, 'round')} of {_describe_round(clock)}")

    planned = None
    if clock.planned_expected_latency_s is not None:
        planned = ("planned mean", clock.planned_expected_latency_s)
    elif clock.planned_mean_latency_s is not None:
        planned = ("planned mean of the slowest", clock.planned_mean_latency_s)
    return draw_clock(clock.latency_s, planned, shares, caption, fleet.name or ())
