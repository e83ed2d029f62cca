"""Tables of plans: a row for each device, quantiles of a large fleet, or a row for each method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from airsplit.cli.scenario_plans import ScenarioPlan
from airsplit.cli.tables import make_list, make_table
from airsplit.core.arrays import Floats
from airsplit.core.formatting import (
    format_bar,
    format_digits,
    format_percent,
    format_percent_bound,
    format_seconds,
    pluralize,
)
from airsplit.planning.arguments import name_inputs
from airsplit.planning.plan import WORDS_OF_A_BOUND, Plan
from airsplit.scenario.scenario import Scenario
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile

# Fleets up to this size get a row for each device, larger ones quantiles.
MOST_ROWS = 40

# Devices that a sentence names before it counts the rest.
MOST_NAMES = 5

# Warn if a smaller fraction of the parameters is averaged.
LITTLE = 0.1

QUANTILES = {"min": 0.0, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "max": 1.0}


def plan_report(planned: ScenarioPlan) -> list[Text | Table]:
    """Return everything about one plan."""
    caption = f"Mean times for {_describe_iteration(planned.plan)}"
    if len(planned.plan) <= MOST_ROWS:
        tables = [device_table(planned)]
    else:
        caption += ", over the devices"
        tables = [quantile_table(planned.plan), split_table(planned)]
    return [_title(planned), Text(caption), *tables, make_list(_conclusions(planned))]


def _title(planned: ScenarioPlan) -> Text:
    """Return what was planned, on one line."""
    scenario = planned.scenario
    parts = [
        *describe_setup(scenario, planned.profile, planned.fleet),
        describe_split_limit(scenario, planned.profile),
        f"batch of {planned.plan.batch_size:,}",
        f"waiting after every {scenario.clock.barrier}",
    ]
    return Text(" · ".join(parts), style="bold")


def describe_setup(scenario: Scenario, profile: Profile, fleet: Fleet) -> list[str]:
    """Return the first parts of a headline: the model, the number of devices, their radio."""
    parts = [profile.model or scenario.model.name, pluralize(len(fleet), "device")]
    if fleet.distance_m is None:
        # Rates are given, so bandwidth and noise play no role.
        parts.append("measured rates" if fleet.trace is None else "replayed rates")
        return parts

    cell = fleet.cell
    parts.append(f"{cell.bandwidth_hz / 1e6:g} MHz")
    if cell.noise_dbm is not None:
        parts.append(f"noise {cell.noise_dbm:g} dBm")
    else:
        parts.append(f"noise {cell.noise_dbm_per_hz:g} dBm/Hz")
    return parts


def describe_split_limit(scenario: Scenario, profile: Profile) -> str:
    """Return the limit on the splits, in words."""
    limit = scenario.plan.max_split
    if isinstance(limit, tuple):
        return "a limit on each split"
    deepest = profile.resolve_max_split(limit, scenario.model.raw_inputs)
    return f"splits up to {deepest} ({profile.names[deepest - 1]})"


def _describe_iteration(plan: Plan) -> str:
    return f"an iteration of {pluralize(plan.batch_size, 'sample')}"


def _time_columns(plan: Plan) -> dict[str, Floats]:
    """Return the devices' mean times by heading; the server's only if it takes any."""
    columns = {"compute": plan.compute_s, "transmit": plan.transmit_s}
    if plan.server_s.any():
        columns["server"] = plan.server_s
    return columns | {"total": plan.latency_s}


def device_table(planned: ScenarioPlan) -> Table:
    """Return a row for each device: its split, its share, its mean times."""
    plan = planned.plan
    columns = _time_columns(plan)
    table = make_table("device", "split", "name", "share", *columns, words=("name",))
    for k in range(len(plan)):
        table.add_row(
            planned.fleet.device_name(k),
            str(plan.splits[k]),
            plan.split_names[k],
            format_percent(float(plan.shares[k]), 2),
            *(format_seconds(float(times_s[k])) for times_s in columns.values()),
        )
    return table


def quantile_table(plan: Plan) -> Table:
    """Return quantiles of shares and times over a large fleet."""
    levels = list(QUANTILES.values())
    # Digits that count, as a share of a large fleet is far below one percent.
    shares = np.quantile(plan.shares, levels)

    table = make_table("", *QUANTILES, words=("",))
    table.add_row("share", *(f"{format_digits(100 * float(share))} %" for share in shares))
    for heading, times_s in _time_columns(plan).items():
        quantiles_s = np.quantile(times_s, levels)
        table.add_row(heading, *(format_seconds(float(time_s)) for time_s in quantiles_s))
    return table


def split_table(planned: ScenarioPlan) -> Table:
    """Return the number of devices at each split."""
    splits, counts = np.unique(planned.plan.splits, return_counts=True)
    table = make_table("split", "name", "devices", "of the fleet", words=("name", "of the fleet"))
    # Splits are numbered from 1: split s runs the first s layers on the device.
    for split, count in zip(splits.tolist(), counts.tolist(), strict=True):
        share = count / len(planned.plan)
        table.add_row(
            str(split),
            planned.profile.names[split - 1],
            f"{count:,}",
            f"{format_percent(share):>6} {format_bar(share)}",
        )
    return table


def _conclusions(planned: ScenarioPlan) -> Iterator[tuple[str, str]]:
    plan = planned.plan
    iteration = _describe_iteration(plan)

    # Both, whatever was minimized: max E is the paper's latency, E[max] what an iteration takes.
    mean_s = format_seconds(plan.mean_latency_s)
    expected_s = format_seconds(plan.expected_latency_s)
    yield "slowest device", f"{mean_s} for {iteration}: largest mean, max E"
    yield "all devices", f"{expected_s} for {iteration}: mean of the largest, E[max]"
    yield from describe_quantiles(planned)
    yield "objective", f"{plan.objective}, {format_seconds(plan.objective_s)}"
    yield (
        "bound",
        f"at most {format_percent_bound(plan.gap)} longer than the best possible plan, "
        "in this objective",
    )
    yield "", f"It holds against {plan.bound}. {WORDS_OF_A_BOUND}"

    averaged = plan.averaged_parameters
    total = int(planned.profile.parameters.sum())
    if averaged == 0:
        text = f"none of the {total:,} parameters: each is personal to its device"
    else:
        # Layers are averaged only if no device has them, so the deepest split decides.
        deepest = planned.profile.names[int(plan.splits.max()) - 1]
        fraction = format_percent(averaged / total)
        text = f"{averaged:,} of {total:,} parameters ({fraction}), those after {deepest}"
    yield "averaged", text
    warning = warn_of_little_averaging(planned.scenario, averaged, total)
    if warning is not None:
        yield "", warning

    memory_limit = describe_memory_limit(planned)
    if memory_limit is not None:
        yield "memory", memory_limit
    excluded = describe_excluded_splits(planned)
    if excluded is not None:
        yield "raw inputs", excluded
    for sentence in describe_sent_inputs(plan.raw_inputs, plan.other_inputs):
        yield "inputs sent", sentence

    # Some methods have nothing to say about how their search ended.
    duration = f"planned in {format_seconds(planned.planning_s)}"
    yield plan.method, "; ".join(filter(None, [plan.status, duration]))


def describe_quantiles(planned: ScenarioPlan) -> Iterator[tuple[str, str]]:
    """Yield the quantiles that the scenario's settings ask for."""
    plan = planned.plan
    settings = planned.scenario.plan
    iteration = _describe_iteration(plan)
    if settings.quantile is not None:
        latency_s = format_seconds(plan.quantile_s(settings.quantile))
        yield (
            f"{100 * settings.quantile:g} % quantile",
            f"{latency_s} or less for {iteration}, all devices together",
        )
    # The largest of the devices' own quantiles: at most the quantile of their maximum.
    if settings.device_quantile is not None:
        slowest_s = float(plan.law.device_quantile_s(settings.device_quantile).max())
        yield (
            f"{100 * settings.device_quantile:g} % quantile",
            f"{format_seconds(slowest_s)} or less for {iteration}, each device by itself",
        )


def warn_of_little_averaging(scenario: Scenario, averaged: int, total: int) -> str | None:
    """Return a warning if hardly any parameters are averaged, unless none are meant to be."""
    training = scenario.training
    # Other algorithms average everything, or nothing by design.
    if training.algorithm != "sfl" or training.average_fronts_every is not None:
        return None
    # If nothing is averaged, the plan says so in its own line.
    if not 0 < averaged < LITTLE * total:
        return None
    return (
        f"only {format_percent(averaged / total)} of the parameters are averaged, so each device "
        "trains nearly a model of its own; a lower plan.max_split averages more, and "
        "training.average_fronts_every averages the rest from time to time"
    )


def describe_sent_inputs(raw_inputs: Sequence[str], other_inputs: Sequence[str]) -> Iterator[str]:
    """Yield a sentence about each kind of model input that reaches the server unchanged."""
    if raw_inputs:
        yield (
            f"devices send {name_inputs(raw_inputs)} of the model to the server unchanged, "
            "as model.raw_inputs allows"
        )
    if other_inputs:
        yield (
            f"devices send {name_inputs(other_inputs)} of the model to the server unchanged: "
            "neither floating-point numbers nor indices into a table, so always allowed"
        )


def describe_excluded_splits(planned: ScenarioPlan) -> str | None:
    """Return how many splits are left out because they send a raw input; None if there are none."""
    profile = planned.profile
    permitted = profile.permitted_splits(planned.scenario.model.raw_inputs)
    if permitted.all():
        return None
    # Row s - 1 of a profile is split s.
    excluded = np.flatnonzero(~permitted) + 1
    names, _ = profile.inputs_sent(excluded)
    return (
        f"{len(excluded)} of {pluralize(len(profile), 'split')} are left out: they "
        f"would send {name_inputs(names)} of the model to the server unchanged"
    )


def describe_memory_limit(planned: ScenarioPlan) -> str | None:
    """Return the devices whose memory, and nothing else, limits their split; None if none."""
    plan = planned.plan
    profile = planned.profile
    fleet = planned.fleet
    if fleet.memory_bytes is None:
        return None

    # Some optimizers, such as Adam, keep further tensors of the size of the weights.
    optimizer_slots = planned.scenario.plan_arguments()["optimizer_slots"]
    deepest = profile.deepest_split_in_memory(fleet.memory_bytes, plan.batch_size, optimizer_slots)
    max_split = planned.scenario.plan.max_split
    raw_inputs = planned.scenario.model.raw_inputs
    limits = max_split if isinstance(max_split, tuple) else (max_split,)
    allowed = [profile.resolve_max_split(limit, raw_inputs) for limit in limits]

    # A device may be limited by its own max_split, or by the one of all.
    limited = np.flatnonzero(deepest < np.array(allowed)).tolist()
    if not limited:
        return None
    names = [
        f"{fleet.device_name(k)} up to {profile.names[deepest[k] - 1]}"
        for k in limited[:MOST_NAMES]
    ]
    if len(limited) > MOST_NAMES:
        names.append(f"and {len(limited) - MOST_NAMES:,} more devices")
    return f"limits the splits of {', '.join(names)}"


def method_comparison(plans: Sequence[ScenarioPlan]) -> list[Text | Table]:
    """Return a row for each method, with the best of each latency in bold."""
    best_mean_s = min(planned.plan.mean_latency_s for planned in plans)
    best_expected_s = min(planned.plan.expected_latency_s for planned in plans)

    table = make_table(
        "method",
        "max E",
        "E[max]",
        "objective",
        "gap",
        "planned in",
        "splits used",
        words=("method", "objective"),
        prose=("splits used",),
    )
    for planned in plans:
        plan = planned.plan
        table.add_row(
            plan.method,
            _mark_best(plan.mean_latency_s, best_mean_s),
            _mark_best(plan.expected_latency_s, best_expected_s),
            plan.objective,
            format_percent_bound(plan.gap),
            format_seconds(planned.planning_s),
            describe_splits(planned),
        )

    first = plans[0]
    legend = (
        "* best of its column. max E: largest mean; E[max]: mean of the largest. gap: at most "
        "this much longer than the best possible plan in the method's objective, against "
        f"{first.plan.bound.partition(';')[0]}. {WORDS_OF_A_BOUND}"
    )
    return [
        _title(first),
        Text(f"Latencies of {_describe_iteration(first.plan)}"),
        table,
        Text(legend, style="dim"),
    ]


def _mark_best(value_s: float, best_s: float) -> Text:
    """Return a latency, starred and bold if it is the best up to rounding errors."""
    # A star besides the bold letters, which a pipe loses; blanks keep the digits aligned.
    is_best = value_s <= best_s * (1 + 1e-9)
    mark = " *" if is_best else "  "
    return Text(format_seconds(value_s) + mark, style="bold" if is_best else "")


def describe_splits(planned: ScenarioPlan) -> str:
    """Return the splits of a plan with their numbers of devices; of many, only the range."""
    splits, counts = np.unique(planned.plan.splits, return_counts=True)
    used = [
        f"{planned.profile.names[split - 1]} ×{count:,}"
        for split, count in zip(splits.tolist(), counts.tolist(), strict=True)
    ]
    # More would wrap in most terminals; the table of splits has them all.
    if len(used) <= 4:
        return ", ".join(used)
    return f"{len(used)}, from {used[0]} to {used[-1]}"
