"""Plans as people read them: device by device, in quantiles, or method against method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from airsplit.cli.planned import Planned
from airsplit.cli.render import facts, table
from airsplit.core.arrays import Floats
from airsplit.core.formatting import (
    format_bar,
    format_digits,
    format_percent,
    format_percent_bound,
    format_seconds,
    pluralize,
)
from airsplit.planning.plan import WORDS_OF_A_BOUND, Plan
from airsplit.planning.problem import name_inputs
from airsplit.scenario.scenario import Scenario
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile

MOST_ROWS, MOST_NAMES = 40, 5
LITTLE = 0.1
"""Where less than this part of the parameters is averaged, somebody should know."""
QUANTILES = {"min": 0.0, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "max": 1.0}


def plan_report(planned: Planned) -> list[Text | Table]:
    """Everything about one plan."""
    few = len(planned.plan) <= MOST_ROWS
    caption = Text(
        f"Mean times for {_iteration(planned.plan)}{'' if few else ', over the devices'}"
    )
    tables = (
        [device_table(planned)] if few else [quantile_table(planned.plan), split_table(planned)]
    )
    return [_title(planned), caption, *tables, facts(_conclusions(planned))]


def _title(planned: Planned) -> Text:
    return Text(header(planned), style="bold")


def header(planned: Planned) -> str:
    """What was planned, on one line."""
    scenario, profile = planned.scenario, planned.profile
    rest = [
        split_limit(scenario, profile),
        _batch(planned.plan),
        "waiting after every " + scenario.clock.barrier,
    ]
    return " · ".join([*who_and_where(scenario, profile, planned.fleet), *rest])


def who_and_where(scenario: Scenario, profile: Profile, fleet: Fleet) -> list[str]:
    """The first words of a headline: the model, how many devices, and their radio."""
    return [profile.model or scenario.model.name, pluralize(len(fleet), "device"), *_radio(fleet)]


def _radio(fleet: Fleet) -> list[str]:
    cell = fleet.cell
    if fleet.distance_m is None:
        return ["replayed rates" if fleet.trace is not None else "measured rates"]
    noise = (
        f"{cell.noise_dbm:g} dBm"
        if cell.noise_dbm is not None
        else f"{cell.noise_dbm_per_hz:g} dBm/Hz"
    )
    return [f"{cell.bandwidth_hz / 1e6:g} MHz", f"noise {noise}"]


def split_limit(scenario: Scenario, profile: Profile) -> str:
    """How deep a device may be cut, in words."""
    limit = scenario.plan.max_split
    if isinstance(limit, tuple):
        return "a limit on each split"
    deepest = profile.resolve_max_split(limit, scenario.model.raw_inputs)
    return f"splits up to {deepest} ({profile.names[deepest - 1]})"


def _batch(plan: Plan) -> str:
    return f"batch of {plan.batch_size:,}"


def _iteration(plan: Plan) -> str:
    return f"an iteration of {pluralize(plan.batch_size, 'sample')}"


def _columns(plan: Plan) -> dict[str, Floats]:
    """The mean times of the devices; the server's only where it takes any."""
    server = {"server": plan.server_s} if plan.server_s.any() else {}
    return (
        {"compute": plan.compute_s, "transmit": plan.transmit_s}
        | server
        | {"total": plan.latency_s}
    )


def device_table(planned: Planned) -> Table:
    plan, times = planned.plan, _columns(planned.plan)
    made = table("device", "split", "name", "share", *times, words=("name",))
    for k in range(len(plan)):
        spent = (format_seconds(float(column[k])) for column in times.values())
        name = planned.fleet.device_name(k)
        made.add_row(
            name,
            str(plan.splits[k]),
            plan.split_names[k],
            format_percent(float(plan.shares[k]), 2),
            *spent,
        )
    return made


def quantile_table(plan: Plan) -> Table:
    """How shares and times are spread over a large fleet."""
    made = table("", *QUANTILES, words=("",))
    levels = list(QUANTILES.values())
    made.add_row(
        "share", *(f"{format_digits(100 * float(q))} %" for q in np.quantile(plan.shares, levels))
    )
    for name, column in _columns(plan).items():
        made.add_row(name, *(format_seconds(float(q)) for q in np.quantile(column, levels)))
    return made


def split_table(planned: Planned) -> Table:
    """How many devices take each split."""
    splits, counts = np.unique(planned.plan.splits, return_counts=True)
    made = table("split", "name", "devices", "of the fleet", words=("name", "of the fleet"))
    for split, count in zip(splits.tolist(), counts.tolist(), strict=True):
        share = count / len(planned.plan)
        made.add_row(
            str(split),
            planned.profile.names[split - 1],
            f"{count:,}",
            f"{format_percent(share):>6} {format_bar(share)}",
        )
    return made


def _conclusions(planned: Planned) -> Iterator[tuple[str, str]]:
    plan, settings = planned.plan, planned.scenario.plan
    each = _iteration(plan)
    yield "slowest device", f"{format_seconds(plan.mean_latency_s)} for {each}: largest mean, max E"
    yield (
        "all devices",
        f"{format_seconds(plan.expected_latency_s)} for {each}: mean of the largest, E[max]",
    )
    if settings.quantile is not None:
        kept = format_seconds(plan.quantile_s(settings.quantile))
        yield (
            f"{100 * settings.quantile:g} % quantile",
            f"{kept} or less for {each}, all devices together",
        )
    if settings.device_quantile is not None:
        kept = format_seconds(float(plan.law.device_quantile_s(settings.device_quantile).max()))
        yield (
            f"{100 * settings.device_quantile:g} % quantile",
            f"{kept} or less for {each}, each device by itself",
        )
    yield "objective", f"{plan.objective}, {format_seconds(plan.objective_s)}"
    yield (
        "bound",
        f"at most {format_percent_bound(plan.gap)} longer than the best possible plan, in this objective",
    )
    yield "", f"It holds against {plan.bound}. {WORDS_OF_A_BOUND}"
    yield "averaged", _averaged(planned)
    little = little_averaged(
        planned.scenario, plan.averaged_parameters, int(planned.profile.parameters.sum())
    )
    if little is not None:
        yield "", little
    if (held := _held_by_memory(planned)) is not None:
        yield "memory", held
    left_out = _splits_left_out(planned)
    if left_out is not None:
        yield "raw inputs", left_out
    for sent in inputs_sent(plan.raw_inputs, plan.other_inputs):
        yield "inputs sent", sent
    ended = f"{plan.status}; " if plan.status else ""
    yield plan.method, f"{ended}planned in {format_seconds(planned.planning_s)}"


def _averaged(planned: Planned) -> str:
    number, total = planned.plan.averaged_parameters, int(planned.profile.parameters.sum())
    if number == 0:
        return f"nothing: every one of the {total:,} parameters is personal to its device"
    return f"{number:,} of {total:,} parameters ({format_percent(number / total)}), those after {_deepest(planned)}"


def little_averaged(scenario: Scenario, averaged: int, total: int) -> str | None:
    """What is to be said where hardly anything is averaged; None where enough is, or nothing was meant to be."""
    training = scenario.training
    if (
        training.algorithm != "sfl"
        or training.average_fronts_every is not None
        or not 0 < averaged < LITTLE * total
    ):
        return None
    way = "a lower plan.max_split shares more, and training.average_fronts_every averages the rest now and then"
    return f"only {format_percent(averaged / total)} of the parameters are averaged, so that each device trains nearly a model of its own; {way}"


def inputs_sent(raw_inputs: Sequence[str], other_inputs: Sequence[str]) -> Iterator[str]:
    """What there is to know of inputs that reach the server as they are."""
    if raw_inputs:
        yield f"devices send {name_inputs(raw_inputs)} of the model to the server unchanged, as model.raw_inputs allows"
    if other_inputs:
        why = "no floating-point numbers and no integers that look up a table, so this is always allowed"
        yield f"devices send {name_inputs(other_inputs)} of the model to the server unchanged: {why}"


def _splits_left_out(planned: Planned) -> str | None:
    """How many splits would send a raw input; None where none does."""
    profile = planned.profile
    permitted = profile.permitted_splits(planned.scenario.model.raw_inputs)
    if permitted.all():
        return None
    names, _ = profile.inputs_sent(np.flatnonzero(~permitted) + 1)
    number = f"{np.count_nonzero(~permitted)} of {pluralize(len(profile), 'split')}"
    return f"{number} left out, which would send {name_inputs(names)} of the model to the server unchanged"


def _held_by_memory(planned: Planned) -> str | None:
    """Who would be offered deeper splits with more memory; None where nobody would."""
    plan, profile, fleet = planned.plan, planned.profile, planned.fleet
    if fleet.memory_bytes is None:
        return None
    optimizer_slots = planned.scenario.plan_arguments()["optimizer_slots"]
    fits = profile.deepest_split_in_memory(fleet.memory_bytes, plan.batch_size, optimizer_slots)
    limit = planned.scenario.plan.max_split
    limits = [
        profile.resolve_max_split(each, planned.scenario.model.raw_inputs)
        for each in (limit if isinstance(limit, tuple) else (limit,))
    ]
    held = np.flatnonzero(fits < np.array(limits))
    if not len(held):
        return None
    names = [
        f"{fleet.device_name(k)} up to {profile.names[fits[k] - 1]}"
        for k in held[:MOST_NAMES].tolist()
    ]
    more = f", and {len(held) - MOST_NAMES:,} devices more" if len(held) > MOST_NAMES else ""
    return f"limits how deep they can be cut: {', '.join(names)}{more}"


def _deepest(planned: Planned) -> str:
    return planned.profile.names[int(planned.plan.splits.max()) - 1]


def comparison(all_planned: Sequence[Planned]) -> list[Text | Table]:
    """One row a method; the best of each latency in bold."""
    plans = [planned.plan for planned in all_planned]
    caption = Text(f"Latencies of {_iteration(plans[0])}")
    made = table(
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
    best_mean, best_max = (
        min(p.mean_latency_s for p in plans),
        min(p.expected_latency_s for p in plans),
    )
    for planned, plan in zip(all_planned, plans, strict=True):
        made.add_row(
            plan.method,
            _marked(plan.mean_latency_s, best_mean),
            _marked(plan.expected_latency_s, best_max),
            plan.objective,
            format_percent_bound(plan.gap),
            format_seconds(planned.planning_s),
            _splits_used(planned),
        )
    return [
        _title(all_planned[0]),
        caption,
        made,
        Text(
            "* best of its column. max E: largest mean; E[max]: mean of the largest. gap: at most this much longer than the best possible "
            f"plan in the method's objective, against {plans[0].bound.partition(';')[0]}. {WORDS_OF_A_BOUND}",
            style="dim",
        ),
    ]


def _marked(value: float, best: float) -> Text:
    """A latency; starred and bold where it is the best but for rounding."""
    good = value <= best * (1 + 1e-9)
    return Text(format_seconds(value) + (" *" if good else "  "), style="bold" if good else "")


def _splits_used(planned: Planned) -> str:
    splits, counts = np.unique(planned.plan.splits, return_counts=True)
    used = [
        f"{planned.profile.names[s - 1]} ×{n:,}"
        for s, n in zip(splits.tolist(), counts.tolist(), strict=True)
    ]
    return ", ".join(used) if len(used) <= 4 else f"{len(used)}, from {used[0]} to {used[-1]}"
