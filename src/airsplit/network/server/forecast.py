"""What the server expects before a round: splits, rates, how long each device takes, when it is late; and what must fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import Infeasible, InvalidValue
from airsplit.core.formatting import format_quantity
from airsplit.network.server.back_ends import BackEnds, bytes_of, one_copy_is_enough
from airsplit.network.wire.codec import HEADER_BYTES
from airsplit.network.wire.transport import LARGEST_MESSAGE, LARGEST_PROBE
from airsplit.planning.arguments import make_problem
from airsplit.planning.methods import plan
from airsplit.planning.plan import Plan
from airsplit.planning.problem import Problem
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import NetworkSettings
from airsplit.system.clock import Clock
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile
from airsplit.training.memory import available_bytes
from airsplit.training.replica import Replica
from airsplit.training.virtual_time import Terms, whole_charges

LATE = 0.999
"""A device is given the time that it keeps with this probability, before the factor and the grace of the settings."""

LEAST_LIMIT = LARGEST_PROBE + (64 << 10)
LEAST_HEADER, BYTES_PER_TIME = 64 << 10, 8
LABEL_BYTES = 4 << 10  # of a sample, where the model puts out less
UNLIMITED_BYTES = float(
    1 << 60
)  # the memory of a device that does not say how much it has, beside others that do


@dataclass(frozen=True, eq=False)
class Forecast:
    """What one round asks of each device.

    up_bps, down_bps   the rates that devices are held to
    round_s            planned mean seconds of a round, without the waiting for others
    late_s             the seconds that each keeps with a probability of 0.999
    latency_s          planned mean seconds of a round of all of them: until the last has finished
    """

    fleet: Fleet
    clock: Clock
    plan: Plan | None
    splits: Ints
    shares: Floats
    up_bps: Floats
    down_bps: Floats
    round_s: Floats
    late_s: Floats
    latency_s: float

    def allowed_s(self, device: int, network: NetworkSettings) -> float:
        """Seconds after which a device is dropped from a round."""
        return min(
            network.deadline_factor * float(self.late_s[device]) + network.grace_s,
            network.longest_s,
        )


def measured_fleet(
    scenario: Scenario, names: Sequence[str], measured: Sequence[Mapping[str, float]]
) -> Fleet:
    """The fleet as it has measured itself: pace, fluctuation, and rates with the whole band to itself."""
    columns: dict[str, Any] = {
        key: np.array([each[key] for each in measured])
        for key in ("seconds_per_mac", "fluctuation")
    }
    memory = np.array([each["memory_bytes"] for each in measured])
    return Fleet(
        full_band_rate_bps=np.array([each["up_bps"] for each in measured]),
        full_band_downlink_bps=np.array([each["down_bps"] for each in measured]),
        memory_bytes=np.where(memory > 0, memory, UNLIMITED_BYTES) if (memory > 0).any() else None,
        name=tuple(names),
        cell=scenario.make_cell(),
        **columns,
    )


def real_clock(scenario: Scenario, server_seconds_per_mac: float) -> Clock:
    """What really takes time: also the way back, the backward pass and the server, which serves one device at a time.

    Devices wait for each other at the end of a round only.
    """
    return Clock(
        barrier="round",
        iterations_per_round=scenario.training.iterations_per_round,
        downlink=True,
        backward_macs_ratio="counted",
        server_seconds_per_mac=server_seconds_per_mac,
        server_parallel=1,
    )


def require_plannable(scenario: Scenario, profile: Profile, fleet: Fleet, clock: Clock) -> None:
    """Raise where no plan can be made whatever devices measure, before any of them is waited for."""
    _problem(profile, fleet, scenario.plan_arguments() | {"clock": clock})


def _problem(profile: Profile, fleet: Fleet, arguments: Mapping[str, Any]) -> Problem:
    """What `plan` would solve with these arguments."""
    of_the_method = ("method", "method_arguments")
    limits = {key: value for key, value in arguments.items() if key not in of_the_method}
    return make_problem(profile, fleet, **limits)


def forecast(scenario: Scenario, profile: Profile, fleet: Fleet, clock: Clock) -> Forecast:
    """Plan, and say what is to be expected."""
    made = plan(profile, fleet, **scenario.plan_arguments() | {"clock": clock})
    return expected(scenario, profile, fleet, clock, made.splits, made.shares, made)


def expected(
    scenario: Scenario,
    profile: Profile,
    fleet: Fleet,
    clock: Clock,
    splits: Ints,
    shares: Floats,
    made: Plan | None = None,
) -> Forecast:
    """What is to be expected of splits and shares."""
    E, batch = clock.iterations_per_round, scenario.training.batch_size
    link = fleet.link(downlink=True)
    if scenario.training.algorithm == "fedavg":
        charges = whole_charges(
            Terms(profile, fleet, clock, splits, shares, batch, scenario.element_bits)
        )
        shares = charges.shares
        air = link.seconds(charges.up_once_bits, charges.down_once_bits, shares)
        shift, scale = (
            E * fleet.seconds_per_mac * charges.work + air,
            E * charges.work / fleet.fluctuation,
        )
        last = float((shift + scale).max())
    else:
        chosen = scenario.plan_arguments("exact") | {
            "clock": clock,
            "min_split": int(splits.min()),
            "max_split": int(splits.max()),
        }
        law = _problem(profile, fleet, chosen).law(splits - 1, shares)
        shift, scale, last = E * law.shift_s, E * law.scale_s, E * law.expected_max_s
    down = link.down.rate_bps(shares) if link.down is not None else np.full(len(fleet), np.inf)
    late = shift + scale * -np.log1p(-LATE)
    return Forecast(
        fleet,
        clock,
        made,
        splits,
        shares,
        link.up.rate_bps(shares),
        down,
        shift + scale,
        late,
        last,
    )


# ---- what must fit -----------------------------------------------------------------------------------------------------------
def message_limit(scenario: Scenario, replica: Replica, profile: Profile) -> int:
    """The largest message that any plan can ask for, in bytes."""
    fedavg, batch, weights = scenario.training.algorithm == "fedavg", 0, 0
    if fedavg or scenario.network.replan:
        weights = bytes_of(replica.tensors) + HEADER_BYTES * len(replica.tensors)
    if not fedavg:
        splits = possible_splits(scenario, profile)
        widest = max(tensor.dtype.itemsize for tensor in replica.tensors.values())
        crossing = int(profile.activation_elements[splits - 1].max()) * widest
        labels = LABEL_BYTES + 8 * int(
            profile.activation_elements[-1]
        )  # at most a number for each that the model puts out
        batch = scenario.training.batch_size * (crossing + labels)
    limit = max(max(batch, weights) + (1 << 16), LEAST_LIMIT)
    if limit > LARGEST_MESSAGE:
        way = "lower training.batch_size" if batch > weights else "take a smaller model"
        raise InvalidValue(
            f"a message would have {format_quantity(limit, 'B')}, more than gRPC can carry; {way}"
        )
    return limit


def header_limit(scenario: Scenario, replica: Replica) -> int:
    """What a device's message may have besides numbers: a header for each tensor, and the time of each step."""
    return (
        LEAST_HEADER
        + HEADER_BYTES * len(replica.tensors)
        + BYTES_PER_TIME * scenario.training.iterations_per_round
    )


def possible_splits(scenario: Scenario, profile: Profile) -> Ints:
    """Return the splits that a plan may choose, in order; those that would send a raw input are not among them."""
    settings = scenario.plan
    if settings.method == "fixed" and settings.split is not None:
        given = settings.split if isinstance(settings.split, tuple) else (settings.split,)
        return np.unique([profile.split_of(each) for each in given])
    raw_inputs = scenario.model.raw_inputs
    limits = settings.max_split if isinstance(settings.max_split, tuple) else (settings.max_split,)
    low = profile.split_of(settings.min_split)
    high = max(profile.resolve_max_split(limit, raw_inputs) for limit in limits)
    within = np.arange(low, high + 1)
    permitted = profile.permitted_splits(raw_inputs)[within - 1]
    # Where none is permitted no plan can be made, which planning says better.
    return within[permitted] if permitted.any() else within


def server_memory_bytes(
    scenario: Scenario, replica: Replica, profile: Profile, devices: int
) -> int:
    """What the server needs for its tensors at most, whatever the plan: copies of back ends, one pass, and messages."""
    splits = possible_splits(scenario, profile)
    low, high = int(splits[0]), int(splits[-1])
    batch, fedavg = scenario.training.batch_size, scenario.training.algorithm == "fedavg"
    model = bytes_of(replica.tensors)
    if fedavg:
        return model * (2 + 2 * devices)
    front = {split: bytes_of(replica.taken(replica.front_keys(split))) for split in (low, high)}
    own = front[high] - front[low]
    if one_copy_is_enough(replica, BackEnds(replica, [high]).common_names(), scenario.training):
        copies = 3 * (model - front[high]) + 2 * devices * own
    else:
        copies = (model - front[high]) + devices * (model - front[low] + own)
    crossing = batch * int(profile.activation_elements[splits - 1].max()) * 4
    passing = 4 * batch * int(profile.stored_elements[-1])
    return model + copies + passing + devices * 4 * crossing


def require_memory(scenario: Scenario, replica: Replica, profile: Profile, devices: int) -> int:
    """Raise where the server would not fit into its memory; else what it needs."""
    needed, limit = (
        server_memory_bytes(scenario, replica, profile, devices),
        scenario.network.memory_bytes,
    )
    there = available_bytes() if limit is None else limit
    if there is not None and needed > there:
        why = "network.memory_bytes" if limit is not None else "the free memory of this machine"
        raise Infeasible(
            f"the server would need {format_quantity(needed, 'B')} for {devices} devices, more than {why}, {format_quantity(there, 'B')}; "
            "take fewer devices, a larger plan.min_split, or one iteration a round"
        )
    return needed


def least_device_bytes(scenario: Scenario, profile: Profile, device: int) -> int:
    """What a device must have at least, whatever is planned: the memory for the shallowest split that it may get."""
    planned = scenario.plan_arguments()
    given = scenario.plan.split
    if given is None:
        split = int(possible_splits(scenario, profile)[0])
    else:
        split = profile.split_of(given[device] if isinstance(given, tuple) else given)
    return int(
        profile.device_memory_bytes(planned["batch_size"], planned["optimizer_slots"])[split - 1]
    )
