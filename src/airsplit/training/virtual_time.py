"""The virtual clock: what a round costs each device in seconds, bytes and joules, and when they wait for each other.  Pure numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from airsplit.core.arrays import Floats, Ints
from airsplit.core.randomness import generator
from airsplit.core.units import bits_to_bytes, dbm_to_watts
from airsplit.planning.blocks import allocate
from airsplit.system.clock import Clock
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile
from airsplit.system.radio import Link

MOST_NUMBERS = 1 << 20
"""Of a matrix of iterations × devices, so many at a time, and at least one iteration."""


@dataclass(frozen=True, eq=False)
class Terms:
    """What charges follow from: the model, the devices with the channels that were planned for, their splits and shares.

    fronts_averaged   whether the round ends with the personal layers of SFL being averaged
    """

    profile: Profile
    fleet: Fleet
    clock: Clock
    splits: Ints
    shares: Floats
    batch_size: int
    element_bits: int
    fronts_averaged: bool = False


@dataclass(frozen=True, eq=False)
class Charges:
    """What an algorithm asks of each of K devices: in every iteration, and once a round.

    work            MACs of an iteration on the device, its backward pass included where the clock counts it
    up_bits, down_bits              sent and received in an iteration
    up_once_bits, down_once_bits    sent and received at the end of a round: weights
    shares          of the band
    server_s        the server's time for an iteration of the device
    waits           "iteration": all wait after each; "round": after their last; "turns": one device after the other
    """

    work: Floats
    up_bits: Floats
    down_bits: Floats
    up_once_bits: Floats
    down_once_bits: Floats
    shares: Floats
    server_s: Floats
    waits: str


@dataclass(frozen=True, eq=False)
class RoundCosts:
    """What one round took: of each device, and `latency_s` of all together.

    idle_s is the time in which a device that takes part waits for others.  energy_j counts computing where the fleet has
    joules_per_mac, and transmitting: power × seconds on the air.  last are the numbers of the devices that were done last: in each
    iteration where all wait after each, else in the round; where devices take turns, of the one whose turn was the longest.
    """

    latency_s: float
    compute_s: Floats
    transmit_s: Floats
    server_s: Floats
    idle_s: Floats
    sent_bytes: Ints
    received_bytes: Ints
    macs: Floats
    energy_j: Floats
    last: Ints


def split_charges(terms: Terms, *, weights_too: bool = False, turns: bool = False) -> Charges:
    """Iterations of split training.

    weights_too   the front's weights travel once a round, up and down
    turns         one device after the other, each with the whole band and the server to itself
    """
    profile, clock, rows, K = terms.profile, terms.clock, terms.splits - 1, len(terms.splits)
    bits = np.float64(terms.batch_size * terms.element_bits)
    work = terms.batch_size * clock.work(profile)
    fronts: Floats = np.cumsum(profile.parameters)[rows] * np.float64(
        terms.element_bits if weights_too else 0
    )
    return Charges(
        work=work[rows],
        up_bits=profile.activation_elements[rows] * bits,
        down_bits=profile.gradient_elements[rows] * bits,
        up_once_bits=fronts,
        down_once_bits=fronts,
        shares=np.ones(K) if turns else terms.shares,
        server_s=(work[-1] - work[rows]) * clock.server_pace(1 if turns else K),
        waits="turns" if turns else clock.barrier,
    )


def whole_charges(terms: Terms) -> Charges:
    """The whole model on the device, then all its weights, with the shares that let everybody finish together."""
    fleet, clock = terms.fleet, terms.clock
    K, nothing = len(fleet), np.zeros(len(fleet))
    work = np.full(K, terms.batch_size * clock.work(terms.profile)[-1])
    bits = np.full(K, float(terms.profile.parameters.sum()) * terms.element_bits)
    mean_s = clock.iterations_per_round * work * (fleet.seconds_per_mac + 1 / fleet.fluctuation)
    link = fleet.link(downlink=clock.downlink)
    shares = allocate(link, bits, bits, mean_s, fleet.cell.resource_blocks)
    return Charges(work, nothing, nothing, bits, bits, shares, nothing, "round")


def sfl_charges(terms: Terms) -> Charges:
    """E iterations; where fronts are averaged, their weights too."""
    return split_charges(terms, weights_too=terms.fronts_averaged)


def splitfed_charges(terms: Terms) -> Charges:
    """As SFL, and the front's weights once a round."""
    return split_charges(terms, weights_too=True)


def sequential_charges(terms: Terms) -> Charges:
    """The sum over devices, each alone with the whole band, and the front handed over."""
    return split_charges(terms, weights_too=True, turns=True)


CHARGES: dict[str, Callable[[Terms], Charges]] = {
    "sfl": sfl_charges,
    "fedavg": whole_charges,
    "split-learning": sequential_charges,
    "splitfed-v1": splitfed_charges,
    "splitfed-v2": splitfed_charges,
}
"""What a round of each algorithm asks of the devices."""


def draw_fluctuations(seed: int, round_number: int, iterations: int, devices: int) -> Floats:
    """X ~ Exp(1) of every iteration and device; device k draws the same in a fleet of 20 and of 100."""
    return Draws(seed, round_number, iterations, devices)[:]


class Rows(Protocol):
    """E × K numbers of which a few rows are looked at at a time: an array, or something that makes them when they are asked for."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice, /) -> Floats: ...


@dataclass(frozen=True)
class Draws:
    """What `draw_fluctuations` gives, drawn when it is asked for: a million devices fit, however many the iterations."""

    seed: int
    round_number: int
    iterations: int
    devices: int

    def __len__(self) -> int:
        return self.iterations

    def __getitem__(self, rows: slice, /) -> Floats:
        numbers = range(*rows.indices(self.iterations))
        made = np.empty((len(numbers), self.devices))
        for row, e in zip(made, numbers, strict=True):
            generator(self.seed, "compute time", self.round_number, e).standard_exponential(out=row)
        return made


def time_round(
    charges: Charges, fleet: Fleet, clock: Clock, fluctuations: Rows, iterations: Ints
) -> RoundCosts:
    """What a round costs.

    fluctuations  E × K draws of Exp(1)
    iterations    how many of them each device runs: all E, none where it does not take part, fewer where it drops out

    A device that drops out has spent its time, bytes and energy until then; nobody waits for it afterwards.

    >>> fleet = Fleet(seconds_per_mac=[1.0, 2.0], fluctuation=[1.0, 1.0], full_band_rate_bps=[8.0, 8.0])
    >>> two, none = np.ones(2), np.zeros(2)
    >>> charges = Charges(two, 8 * two, none, none, none, two / 2, none, "iteration")
    >>> costs = time_round(charges, fleet, Clock(), np.array([[0.5, 0.25]]), np.array([1, 1]))
    >>> costs.compute_s.tolist(), costs.transmit_s.tolist(), costs.latency_s, costs.idle_s.tolist(), costs.last.tolist()
    ([1.5, 2.25], [2.0, 2.0], 4.25, [0.75, 0.0], [1])
    """
    E, link, c = len(fluctuations), fleet.link(downlink=clock.downlink), charges.work
    ends = iterations == E
    air = link.seconds(charges.up_bits, charges.down_bits, charges.shares)
    once = np.where(
        ends, link.seconds(charges.up_once_bits, charges.down_once_bits, charges.shares), 0.0
    )
    steps = _Steps(
        fleet.seconds_per_mac * c, c / fleet.fluctuation, air + charges.server_s, iterations
    )
    at_once = max(1, MOST_NUMBERS // len(fleet))
    for first in range(0, E, at_once):
        steps.add(first, fluctuations[first : first + at_once])
    latency, idle, last = _waiting(charges.waits, steps, once, ends)
    return RoundCosts(
        latency_s=latency,
        compute_s=steps.compute_s,
        transmit_s=air * iterations + once,
        server_s=charges.server_s * iterations,
        idle_s=idle,
        sent_bytes=_bytes(charges.up_bits * iterations + charges.up_once_bits * ends),
        received_bytes=_bytes(charges.down_bits * iterations + charges.down_once_bits * ends),
        macs=c * iterations,
        energy_j=_energy(charges, fleet, link, iterations, ends),
        last=last,
    )


class _Steps:
    """The iterations of a round, added up a few at a time.

    least_s, more_s, beside_s      of each device: computing without fluctuation, with each unit of it more, and not computing
    compute_s, busy_s, waited_s    of each device: in all; waited is for the last after every iteration
    slowest_s, slowest             of each iteration: how long the last device took, and which one that is
    """

    def __init__(self, least_s: Floats, more_s: Floats, beside_s: Floats, iterations: Ints) -> None:
        self.least_s, self.more_s, self.beside_s, self.iterations = (
            least_s,
            more_s,
            beside_s,
            iterations,
        )
        self.compute_s, self.busy_s, self.waited_s = (np.zeros(len(iterations)) for _ in range(3))
        self.slowest_s, self.slowest = np.zeros(0), np.zeros(0, dtype=np.int64)

    def add(self, first: int, fluctuations: Floats) -> None:
        """Some iterations from the `first` on."""
        rows = np.arange(len(fluctuations))
        runs = first + rows[:, None] < self.iterations
        compute = (self.least_s + self.more_s * fluctuations) * runs
        each = compute + self.beside_s * runs
        slowest = each.argmax(axis=1)
        slowest_s = each[rows, slowest]
        self.compute_s += compute.sum(axis=0)
        self.busy_s += each.sum(axis=0)
        self.waited_s += np.where(runs, slowest_s[:, None] - each, 0.0).sum(axis=0)
        self.slowest_s, self.slowest = (
            np.append(self.slowest_s, slowest_s),
            np.append(self.slowest, slowest),
        )


def _waiting(
    waits: str, steps: _Steps, once: Floats, ends: NDArray[np.bool_]
) -> tuple[float, Floats, Ints]:
    """How long the round takes, how long each device waits in it, and who is last."""
    longest = int(steps.iterations.max())  # of the iterations after these nobody runs one
    if waits == "iteration":
        last_s = float(once.max())
        return (
            float(steps.slowest_s.sum()) + last_s,
            steps.waited_s + np.where(ends, last_s - once, 0.0),
            steps.slowest[:longest],
        )
    busy = steps.busy_s + once
    latency = float(busy.sum() if waits == "turns" else busy.max())
    return (
        latency,
        np.where(ends, latency - busy, 0.0),
        np.array([busy.argmax()] if longest else [], dtype=np.int64),
    )


def _energy(
    charges: Charges, fleet: Fleet, link: Link, iterations: Ints, ends: NDArray[np.bool_]
) -> Floats:
    up = Link(link.up)
    nothing = np.zeros(len(fleet))
    bits = charges.up_bits * iterations + charges.up_once_bits * ends
    on_air = np.where(bits > 0, up.seconds(bits, nothing, charges.shares), 0.0)
    transmitting: Floats = dbm_to_watts(fleet.transmit_power_dbm) * on_air
    return (
        transmitting
        if fleet.joules_per_mac is None
        else transmitting + fleet.joules_per_mac * charges.work * iterations
    )


def _bytes(bits: Floats) -> Ints:
    whole: Ints = np.rint(bits_to_bytes(bits)).astype(np.int64)
    return whole
