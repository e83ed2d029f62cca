"""Problem: everything that a planning method may look at, checked once, as arrays over devices and splits.

Inside `planning` a split is a row of the profile, counted from zero; the outside counts splits from one.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import Infeasible, InvalidValue, require_integer, require_number, show
from airsplit.planning.blocks import allocate
from airsplit.planning.pruning import lower_hull, pareto_front
from airsplit.system.clock import Clock
from airsplit.system.compute import mean_compute_s
from airsplit.system.fleet import Fleet
from airsplit.system.latency import Fluctuation, LatencyLaw
from airsplit.system.profile import Profile, RawInputs
from airsplit.system.radio import Link

MOST_S = 1e30
"""The most that an iteration of one device may take; the universe is 4e17 s old."""


@dataclass(frozen=True, eq=False)
class Problem:
    """One planning problem.  Build it with `make_problem`, which checks everything.

    deepest    the deepest row that each device may take, after max_split and its memory; shallowest: the least for all
    permitted  whether each row keeps the model's raw inputs on the device, or may send those that it sends; shallowest and
               deepest are such rows, but not all between them are: `allowed` says which a device may take
    split      the rows that the method "fixed" takes
    """

    profile: Profile
    fleet: Fleet
    clock: Clock
    batch_size: int
    element_bits: int
    shallowest: int
    deepest: Ints
    permitted: NDArray[np.bool_]
    split: Ints | None = None
    quantile: float | None = None
    device_quantile: float | None = None
    certify: bool = True
    seed: int = 0

    def copy(self) -> Problem:
        """Return the same problem with arrays of its own; those of profile and fleet cannot be written."""
        return replace(self, deepest=self.deepest.copy(), permitted=self.permitted.copy())

    @property
    def devices(self) -> int:
        return len(self.fleet)

    @property
    def min_split(self) -> int:
        """The shallowest split that a device may take."""
        return self.shallowest + 1

    @property
    def max_splits(self) -> Ints:
        """The deepest split that each device may take."""
        return self.deepest + 1

    @property
    def blocks(self) -> int | None:
        """How many equal blocks the band comes in; None: it divides at will."""
        return self.fleet.cell.resource_blocks

    # ---- per split -------------------------------------------------------------------------------------------------------
    @cached_property
    def work(self) -> Floats:
        """c_ℓ: MACs of one iteration on the device, its backward pass included."""
        return self.batch_size * self.clock.work(self.profile)

    @cached_property
    def up_bits(self) -> Floats:
        """D_ℓ: what one iteration sends."""
        return self.profile.activation_elements.astype(np.float64) * (
            self.batch_size * self.element_bits
        )

    @cached_property
    def down_bits(self) -> Floats:
        """What comes back, where the clock counts it: the gradients of what was sent."""
        bits = self.profile.gradient_elements.astype(np.float64) * (
            self.batch_size * self.element_bits
        )
        return bits if self.clock.downlink else np.zeros(len(self.profile))

    @cached_property
    def server_s(self) -> Floats:
        """The server's time for one back end."""
        behind: Floats = self.work[-1] - self.work
        return behind * self.clock.server_pace(self.devices)

    @cached_property
    def choices(self) -> Ints:
        """The rows that some device may take, in order."""
        inside = np.arange(self.shallowest, int(self.deepest.max()) + 1)
        return inside[self.permitted[inside]]

    @cached_property
    def rows(self) -> Ints:
        """The splits worth looking at: the Pareto front over work, server time and data, within the limits.

        A split is left out only for one that every device may take in its stead.
        """
        inside = self.choices
        costs = [self.work, self.up_bits, self.down_bits]
        if self.clock.server_pace(self.devices) > float(self.fleet.seconds_per_mac.min()):
            costs.append(self.server_s)
        return inside[
            pareto_front(np.stack(costs)[:, inside], always=inside <= int(self.deepest.min()))
        ]

    @cached_property
    def hull_rows(self) -> Ints:
        """The splits that can be best for a fixed risk: the lower convex hull of (work, data), where one limit holds for all."""
        simple = int(self.deepest.min()) == int(self.deepest.max()) and self.one_payload
        if not simple or self.clock.server_pace(self.devices) > float(
            self.fleet.seconds_per_mac.min()
        ):
            return self.rows
        return self.rows[lower_hull(self.work[self.rows], self.up_bits[self.rows])]

    @cached_property
    def one_payload(self) -> bool:
        """Whether data down is a fixed multiple of data up, so that one number says how large a split's payload is."""
        return bool(np.ptp(self.down_bits / self.up_bits) == 0)

    # ---- per device ------------------------------------------------------------------------------------------------------
    @cached_property
    def link(self) -> Link:
        return self.fleet.link(downlink=self.clock.downlink)

    @cached_property
    def fluctuation(self) -> Fluctuation:
        return Fluctuation(self.clock.draws)

    @property
    def risk(self) -> float:
        """s in κ = a + s/ε: 1 for the mean, the quantile of X for a device quantile."""
        return (
            1.0 if self.device_quantile is None else self.fluctuation.quantile(self.device_quantile)
        )

    def pace(self, risk: float) -> Floats:
        """κ_k = a_k + s/ε_k, seconds per MAC at a risk."""
        return self.fleet.seconds_per_mac + risk / self.fleet.fluctuation

    def allowed(self, rows: int | Ints) -> NDArray[np.bool_]:
        """Whether each device may take a row, or its row."""
        return (self.deepest >= rows) & (rows >= self.shallowest) & self.permitted[rows]

    # ---- per device, for chosen rows ---------------------------------------------------------------------------------------
    def busy_s(self, rows: Ints, risk: float) -> Floats:
        """Everything but the air time at a risk: κ_k c + server."""
        return self.pace(risk) * self.work[rows] + self.server_s[rows]

    def transmit_s(self, rows: Ints, shares: Floats) -> Floats:
        return self.link.seconds(self.up_bits[rows], self.down_bits[rows], shares)

    def compute_s(self, splits: Ints) -> Floats:
        """Return the mean compute time of each device at its split, counted from one."""
        return mean_compute_s(
            self.work[np.asarray(splits) - 1], self.fleet.seconds_per_mac, self.fleet.fluctuation
        )

    def best_shares(self, splits: Ints) -> Floats:
        """Return the shares that minimize max_k E[τ_k] for given splits, which count from one."""
        return self.allocate(np.asarray(splits) - 1, 1.0)

    def allocate(self, rows: Ints, risk: float) -> Floats:
        """Return the shares that minimize max_k (x_k + s β_k), in whole blocks if the band has them."""
        up, down = self.up_bits[rows], self.down_bits[rows]
        return allocate(self.link, up, down, self.busy_s(rows, risk), self.blocks)

    def law(self, rows: Ints, shares: Floats) -> LatencyLaw:
        """The law of an iteration's latency under a plan."""
        shift = (
            self.fleet.seconds_per_mac * self.work[rows]
            + self.server_s[rows]
            + self.transmit_s(rows, shares)
        )
        return LatencyLaw(shift, self.work[rows] / self.fleet.fluctuation, self.fluctuation)

    def worst_s(self, rows: Ints, shares: Floats, risk: float) -> float:
        """max_k (x_k + s β_k): the objective of `exact` and the baselines."""
        compute = self.pace(risk) * self.work[rows]
        return float((compute + self.transmit_s(rows, shares) + self.server_s[rows]).max())

    def max_s(self, rows: Ints, shares: Floats) -> float:
        """E[max_k τ_k] of a plan, or the quantile of max_k τ_k that was asked for: the objective of `expected-max`."""
        return self.objective_s(self.law(rows, shares))

    def objective_s(self, law: LatencyLaw) -> float:
        """Return E[max_k τ_k] of a law, or the quantile of max_k τ_k that was asked for."""
        return law.expected_max_s if self.quantile is None else law.max_quantile_s(self.quantile)


def make_problem(
    profile: Profile,
    fleet: Fleet,
    *,
    max_split: object = None,
    min_split: object = 1,
    batch_size: int = 1,
    element_bits: int = 32,
    clock: Clock | None = None,
    split: object = None,
    quantile: float | None = None,
    device_quantile: float | None = None,
    certify: bool = True,
    optimizer_slots: int = 0,
    raw_inputs: RawInputs = "refuse",
    seed: int = 0,
) -> Problem:
    """Check every argument of `plan` and put them together."""
    if not isinstance(profile, Profile):
        raise InvalidValue(
            f"profile must be an airsplit.Profile, got {show(profile)}; airsplit.profile(model) makes one"
        )
    if not isinstance(fleet, Fleet):
        raise InvalidValue(f"fleet must be an airsplit.Fleet, got {show(fleet)}")
    if clock is not None and not isinstance(clock, Clock):
        raise InvalidValue(f"clock must be an airsplit.Clock, got {show(clock)}")
    if not isinstance(certify, bool):
        raise InvalidValue(f"certify must be True or False, got {show(certify)}")
    require_integer("batch_size", batch_size, low=1, high=10**9)
    require_integer("element_bits", element_bits, low=1, high=64)
    require_integer("optimizer_slots", optimizer_slots, low=0, high=16)
    require_integer("seed", seed, low=0)
    for field, p in (("quantile", quantile), ("device_quantile", device_quantile)):
        if p is not None:
            require_number(field, p, above=0, below=1)
    blocks = fleet.cell.resource_blocks
    if blocks is not None and blocks < len(fleet):
        raise Infeasible(
            f"cell.resource_blocks must be at least the number of devices, {len(fleet)}, got {blocks}; each needs a block"
        )
    shallowest = profile.split_of(min_split, "min_split") - 1  # type: ignore[arg-type]
    limits = split_limits(profile, len(fleet), max_split, raw_inputs)
    if (limits < shallowest).any():
        k = int(np.flatnonzero(limits < shallowest)[0])
        raise InvalidValue(
            f"max_split of device {k} is {limits[k] + 1}, below min_split {shallowest + 1}; raise one or lower the other"
        )
    permitted = profile.permitted_splits(raw_inputs)
    shallowest = _first_permitted(profile, permitted, shallowest, limits)
    deepest = _memory_limits(profile, fleet, batch_size, optimizer_slots, shallowest, limits)
    # The last permitted row at or below each row. Up from `shallowest` there is one.
    last_permitted = np.maximum.accumulate(np.where(permitted, np.arange(len(profile)), 0))
    problem = Problem(
        profile,
        fleet,
        clock or Clock(),
        batch_size,
        element_bits,
        shallowest,
        last_permitted[deepest],
        permitted,
        None if split is None else _given_rows(profile, len(fleet), "split", split),
        quantile,
        device_quantile,
        certify,
        seed,
    )
    _require_times(problem)
    return problem


def _require_times(problem: Problem) -> None:
    """Raise where a device's time is beyond all sense, so that sums and products of such times would overflow."""
    with np.errstate(all="ignore"):
        every = np.ones(problem.devices)
        longest_s = problem.work.max() * problem.pace(1.0) + problem.link.seconds(
            problem.up_bits.max(), problem.down_bits.max(), every
        )
        beyond = ~((longest_s > 1 / MOST_S) & (longest_s < MOST_S))
    if beyond.any():
        k = int(np.flatnonzero(beyond)[0])
        raise InvalidValue(
            f"fleet device {k} would take {longest_s[k]:g} s for an iteration of the whole model with the whole band, which must be "
            f"between {1 / MOST_S:g} and {MOST_S:g} s; look at its seconds_per_mac, fluctuation and channel"
        )


def split_limits(profile: Profile, devices: int, max_split: object, raw_inputs: RawInputs) -> Ints:
    """Return the deepest row of each device; without a limit, that of the profile's default."""
    default = profile.default_max_split(raw_inputs)
    if max_split is None:
        return np.full(devices, default - 1)
    rows = _given_rows(profile, devices, "max_split", max_split)
    if profile.averaged_parameters(int(rows.max()) + 1) == 0:
        warnings.warn(
            f"max_split {int(rows.max()) + 1} lets devices keep every parameter: nothing is averaged and the result is "
            f"{devices} separate models; {default} is the deepest split that averages something",
            stacklevel=4,
        )
    return rows


def _first_permitted(
    profile: Profile, permitted: NDArray[np.bool_], shallowest: int, limits: Ints
) -> int:
    """Return the first permitted row from `shallowest` on; raise if a device may not go that deep."""
    behind = np.flatnonzero(permitted[shallowest:])
    first = shallowest + int(behind[0]) if len(behind) else None
    short = np.arange(len(limits)) if first is None else np.flatnonzero(limits < first)
    if first is not None and not len(short):
        return first

    k = int(short[0])
    names, _ = profile.inputs_sent(range(shallowest + 1, limits[k] + 2))
    whose = "" if len(short) == len(limits) else f" of device {k}"
    span = f"{shallowest + 1} to {limits[k] + 1}" if limits[k] > shallowest else f"{shallowest + 1}"
    ways = ["put a layer between the input and the cut", allowing(names)]
    if first is not None:
        ways.insert(0, f"raise max_split to {first + 1} ({profile.names[first]}) or more")
    raise Infeasible(
        f"every split within the limits{whose}, {span}, would send {name_inputs(names)} of the model to the server unchanged; "
        f"{', or '.join(ways)}"
    )


def allowing(names: Sequence[str]) -> str:
    """Return how to let these inputs travel, as the last words of an error."""
    return f"allow it by raw_inputs = {json.dumps(names)}, in a scenario under [model]"


def name_inputs(names: Sequence[str]) -> str:
    """
    >>> name_inputs(["context"]), name_inputs(["left", "right"])
    ("the input 'context'", "the inputs 'left' and 'right'")
    """
    return f"the input{'s' if len(names) > 1 else ''} {' and '.join(map(repr, names))}"


def _given_rows(profile: Profile, devices: int, field: str, given: object) -> Ints:
    """One split for all, or one for each device; numbers or names."""
    listed = isinstance(given, list | tuple | range) or (
        isinstance(given, np.ndarray) and given.ndim > 0
    )
    if not listed:
        return np.full(devices, profile.split_of(given, field) - 1)  # type: ignore[arg-type]
    entries = list(given)  # type: ignore[call-overload]
    if len(entries) != devices:
        raise InvalidValue(
            f"{field} has {len(entries)} entries for {devices} devices; give one split, or one for each device"
        )
    return np.array(
        [profile.split_of(entry, f"{field}[{k}]") - 1 for k, entry in enumerate(entries)]
    )


def _memory_limits(
    profile: Profile,
    fleet: Fleet,
    batch_size: int,
    optimizer_slots: int,
    shallowest: int,
    limits: Ints,
) -> Ints:
    """Lower each device's limit to the deepest split that it can hold."""
    if fleet.memory_bytes is None:
        return limits
    fits = profile.deepest_split_in_memory(fleet.memory_bytes, batch_size, optimizer_slots) - 1
    short = np.flatnonzero(fits < shallowest)
    if len(short):
        k = int(short[0])
        needed_bytes = profile.device_memory_bytes(batch_size, optimizer_slots)
        raise Infeasible(
            f"device {fleet.device_name(k)} has {fleet.memory_bytes[k]:.0f} bytes of memory, but split {shallowest + 1} "
            f"({profile.names[shallowest]}) needs {needed_bytes[shallowest]} to train; use a smaller batch or leave it out"
        )
    return np.minimum(limits, fits)
