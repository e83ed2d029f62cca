"""make_problem: check the arguments of `plan`, and put them together as a Problem."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.core.declared_settings import check_arguments, flag, number, whole_number
from airsplit.core.errors import Infeasible, InvalidValue, show
from airsplit.planning.options import AllowedOptions, Mask, tabulate_splits
from airsplit.planning.problem import MOST_S, Problem
from airsplit.system.clock import Clock
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile, RawInputs

BatchSize = Annotated[int, whole_number(low=1, high=10**9)]
ElementBits = Annotated[int, whole_number(low=1, high=64)]
OptimizerSlots = Annotated[int, whole_number(low=0, high=16)]
Quantile = Annotated[float | None, number(above=0, below=1)]
Certify = Annotated[bool, flag()]
Seed = Annotated[int, whole_number(low=0)]


@check_arguments("")
def make_problem(
    profile: Profile,
    fleet: Fleet,
    *,
    max_split: object = None,
    min_split: object = 1,
    batch_size: BatchSize = 1,
    element_bits: ElementBits = 32,
    clock: Clock | None = None,
    split: object = None,
    quantile: Quantile = None,
    device_quantile: Quantile = None,
    certify: Certify = True,
    optimizer_slots: OptimizerSlots = 0,
    raw_inputs: RawInputs = "refuse",
    seed: Seed = 0,
) -> Problem:
    """Return the problem that `plan` solves with these arguments; raise if one breaks its rule."""
    if not isinstance(profile, Profile):
        raise InvalidValue(
            f"profile must be an airsplit.Profile, got {show(profile)}; "
            "airsplit.profile(model) makes one"
        )
    if not isinstance(fleet, Fleet):
        raise InvalidValue(f"fleet must be an airsplit.Fleet, got {show(fleet)}")
    if clock is not None and not isinstance(clock, Clock):
        raise InvalidValue(f"clock must be an airsplit.Clock, got {show(clock)}")
    blocks = fleet.cell.resource_blocks
    if blocks is not None and blocks < len(fleet):
        raise Infeasible(
            f"cell.resource_blocks must be at least the number of devices, {len(fleet)}, "
            f"got {blocks}; each needs a block"
        )

    # From here on rows count from zero.
    options = tabulate_splits(
        profile,
        clock or Clock(),
        batch_size=batch_size,
        element_bits=element_bits,
        optimizer_slots=optimizer_slots,
    )
    first = profile.split_of(min_split, "min_split") - 1  # type: ignore[arg-type]
    last = _resolve_limits(profile, len(fleet), max_split, raw_inputs)
    if (last < first).any():
        k = int(np.flatnonzero(last < first)[0])
        raise InvalidValue(
            f"max_split of device {k} is {last[k] + 1}, below min_split {first + 1}; "
            "raise one or lower the other"
        )
    permitted = profile.permitted_splits(raw_inputs)
    first = _first_permitted(profile, permitted, first, last)
    if fleet.memory_bytes is not None:
        fits = profile.deepest_split_in_memory(fleet.memory_bytes, batch_size, optimizer_slots) - 1
        _require_memory(profile, fleet, fleet.memory_bytes, options.memory_bytes, first, fits)
        last = np.minimum(last, fits)

    problem = Problem(
        profile,
        fleet,
        clock or Clock(),
        batch_size,
        element_bits,
        options,
        # No row before the first permitted one, none that sends a raw input that must stay.
        AllowedOptions.up_to(last, permitted & (np.arange(len(profile)) >= first)),
        raw_inputs=raw_inputs,
        split=None if split is None else _resolve_splits(profile, len(fleet), "split", split),
        quantile=quantile,
        device_quantile=device_quantile,
        certify=certify,
        seed=seed,
    )
    _require_sane_times(problem)
    return problem


def _resolve_limits(
    profile: Profile, devices: int, max_split: object, raw_inputs: RawInputs
) -> Ints:
    """Return the deepest row of each device; without a limit, that of the profile's default."""
    default = profile.default_max_split(raw_inputs)
    if max_split is None:
        return np.full(devices, default - 1)
    rows = _resolve_splits(profile, devices, "max_split", max_split)
    deepest = int(rows.max()) + 1
    if profile.averaged_parameters(deepest) == 0:
        warnings.warn(
            f"max_split {deepest} lets devices keep every parameter: nothing is averaged and the "
            f"result is {devices} separate models; {default} is the deepest split that averages "
            "something",
            stacklevel=5,
        )
    return rows


def _resolve_splits(profile: Profile, devices: int, field: str, given: object) -> Ints:
    """Return rows from one split for all devices or one for each; numbers or names."""
    is_listed = isinstance(given, list | tuple | range) or (
        isinstance(given, np.ndarray) and given.ndim > 0
    )
    if not is_listed:
        return np.full(devices, profile.split_of(given, field) - 1)  # type: ignore[arg-type]

    entries = list(given)  # type: ignore[call-overload]
    if len(entries) != devices:
        raise InvalidValue(
            f"{field} has {len(entries)} entries for {devices} devices; "
            "give one split, or one for each device"
        )
    splits = [profile.split_of(entry, f"{field}[{k}]") for k, entry in enumerate(entries)]
    return np.array(splits) - 1


def _first_permitted(profile: Profile, permitted: Mask, start: int, last: Ints) -> int:
    """Return the first permitted row from `start` on; raise if a device may not go that deep."""
    candidates = start + np.flatnonzero(permitted[start:])
    if len(candidates) and (last >= candidates[0]).all():
        return int(candidates[0])

    ways = []
    short_of_it = np.arange(len(last))
    if len(candidates):
        first = int(candidates[0])
        short_of_it = np.flatnonzero(last < first)
        ways.append(f"raise max_split to {first + 1} ({profile.names[first]}) or more")
    k = int(short_of_it[0])
    names, _ = profile.inputs_sent(range(start + 1, last[k] + 2))
    ways += ["put a layer between the input and the cut", hint_permission(names)]
    limits = "the limits" if len(short_of_it) == len(last) else f"the limits of device {k}"
    span = f"{start + 1} to {last[k] + 1}" if last[k] > start else f"{start + 1}"
    raise Infeasible(
        f"every split within {limits}, {span}, would send {name_inputs(names)} of the model to the "
        f"server unchanged; {', or '.join(ways)}"
    )


def hint_permission(names: Sequence[str]) -> str:
    """Return how to let these inputs travel, as the last words of an error."""
    return f"allow it by raw_inputs = {json.dumps(names)}, in a scenario under [model]"


def name_inputs(names: Sequence[str]) -> str:
    """Return the names of a model's inputs as part of a sentence.

    >>> name_inputs(["context"]), name_inputs(["left", "right"])
    ("the input 'context'", "the inputs 'left' and 'right'")
    """
    noun = "input" if len(names) == 1 else "inputs"
    return f"the {noun} {' and '.join(map(repr, names))}"


def _require_memory(
    profile: Profile,
    fleet: Fleet,
    memory_bytes: Floats,
    needed_bytes: Ints,
    first: int,
    fits: Ints,
) -> None:
    """Raise if some device cannot train the first permitted split."""
    short_of_it = np.flatnonzero(fits < first)
    if not len(short_of_it):
        return
    k = int(short_of_it[0])
    raise Infeasible(
        f"device {fleet.device_name(k)} has {memory_bytes[k]:.0f} bytes of memory, but split "
        f"{first + 1} ({profile.names[first]}) needs {needed_bytes[first]} to train; "
        "use a smaller batch or leave it out"
    )


def _require_sane_times(problem: Problem) -> None:
    """Raise if a device's time is so far off that sums and products of such times overflow."""
    options = problem.options
    # An overflow gives infinity or NaN here, which the comparisons below catch.
    with np.errstate(all="ignore"):
        full_band = np.ones(problem.devices)
        air_s = problem.link.seconds(options.up_bits.max(), options.down_bits.max(), full_band)
        longest_s = options.work.max() * problem.pace(1.0) + air_s
        is_sane = (longest_s > 1 / MOST_S) & (longest_s < MOST_S)
    if not is_sane.all():
        k = int(np.flatnonzero(~is_sane)[0])
        raise InvalidValue(
            f"fleet device {k} would take {longest_s[k]:g} s for an iteration of the whole model "
            f"with the whole band, which must be between {1 / MOST_S:g} and {MOST_S:g} s; "
            "look at its seconds_per_mac, fluctuation and channel"
        )
