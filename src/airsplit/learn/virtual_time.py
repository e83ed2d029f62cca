"""The virtual clock: what a round costs each device in seconds, bytes and joules, and when they wait for each other.  Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airsplit.clock import Clock
from airsplit.fleet import Fleet
from airsplit.planning.bandwidth import allocate
from airsplit.planning.blocks import block_shares, blocks_needed
from airsplit.profiles import Profile
from airsplit.radio import Link
from airsplit.randomness import generator
from airsplit.units import Floats, Ints, bits_to_bytes, dbm_to_watts


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
    joules_per_mac, and transmitting: power × seconds on the air.
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


def split_charges(terms: Terms, *, weights_too: bool = False, turns: bool = False) -> Charges:
    """Iterations of split training.

    weights_too   the front's weights travel once a round, up and down
    turns         one device after the other, each with the whole band and the server to itself
    """
    profile, clock, rows, K = terms.profile, terms.clock, terms.splits - 1, len(terms.splits)
    bits = np.float64(terms.batch_size * terms.element_bits)
    work = terms.batch_size * clock.work(profile)
    fronts: Floats = np.cumsum(profile.parameters)[rows] * np.float64(terms.element_bits if weights_too else 0)
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
    link, blocks = fleet.link(downlink=clock.downlink), fleet.cell.resource_blocks
    shares = allocate(link, bits, bits, mean_s).shares if blocks is None else _whole_blocks(link, bits, mean_s, blocks)
    return Charges(work, nothing, nothing, bits, bits, shares, nothing, "round")


def _whole_blocks(link: Link, bits: Floats, busy_s: Floats, blocks: int) -> Floats:
    """Shares in whole blocks: what each device needs for the earliest finish, and what is left to whoever would be last."""

    def needed(finish_s: float) -> Floats:
        return blocks_needed(link.share(bits, bits, finish_s - busy_s), blocks)

    low = high = allocate(link, bits, bits, busy_s).finish_s
    while needed(high).sum() > blocks:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if needed(middle).sum() > blocks else (low, middle)
    counts = needed(high).astype(np.int64)
    for _ in range(blocks - int(counts.sum())):
        counts[int((busy_s + link.seconds(bits, bits, counts / blocks)).argmax())] += 1
    return block_shares(counts, blocks)


def draw_fluctuations(seed: int, round_number: int, iterations: int, devices: int) -> Floats:
    """X ~ Exp(1) of every iteration and device; device k draws the same in a fleet of 20 and of 100."""
    rows = [generator(seed, "compute time", round_number, e).exponential(size=devices) for e in range(iterations)]
    return np.stack(rows)


def time_round(charges: Charges, fleet: Fleet, clock: Clock, fluctuations: Floats, iterations: Ints) -> RoundCosts:
    """What a round costs.

    fluctuations  E × K draws of Exp(1)
    iterations    how many of them each device runs: all E, none where it does not take part, fewer where it drops out

    A device that drops out has spent its time, bytes and energy until then; nobody waits for it afterwards.

    >>> fleet = Fleet(seconds_per_mac=[1.0, 2.0], fluctuation=[1.0, 1.0], full_band_rate_bps=[8.0, 8.0])
    >>> two, none = np.ones(2), np.zeros(2)
    >>> charges = Charges(two, 8 * two, none, none, none, two / 2, none, "iteration")
    >>> costs = time_round(charges, fleet, Clock(), np.array([[0.5, 0.25]]), np.array([1, 1]))
    >>> costs.compute_s.tolist(), costs.transmit_s.tolist(), costs.latency_s, costs.idle_s.tolist()
    ([1.5, 2.25], [2.0, 2.0], 4.25, [0.75, 0.0])
    """
    E, link, c = len(fluctuations), fleet.link(downlink=clock.downlink), charges.work
    runs = np.arange(E)[:, None] < iterations  # E × K
    ends = iterations == E
    air = link.seconds(charges.up_bits, charges.down_bits, charges.shares)
    once = np.where(ends, link.seconds(charges.up_once_bits, charges.down_once_bits, charges.shares), 0.0)
    compute = (fleet.seconds_per_mac * c + c / fleet.fluctuation * fluctuations) * runs
    each = compute + (air + charges.server_s) * runs
    latency, idle = _waiting(charges.waits, each, once, runs, ends)
    return RoundCosts(
        latency_s=latency,
        compute_s=compute.sum(axis=0),
        transmit_s=air * iterations + once,
        server_s=charges.server_s * iterations,
        idle_s=idle,
        sent_bytes=_bytes(charges.up_bits * iterations + charges.up_once_bits * ends),
        received_bytes=_bytes(charges.down_bits * iterations + charges.down_once_bits * ends),
        macs=c * iterations,
        energy_j=_energy(charges, fleet, link, iterations, ends),
    )


def _waiting(waits: str, each: Floats, once: Floats, runs: NDArray[np.bool_], ends: NDArray[np.bool_]) -> tuple[float, Floats]:
    """How long the round takes, and how long each device waits in it."""
    busy = each.sum(axis=0) + once
    if waits == "turns":
        latency = float(busy.sum())
    elif waits == "round":
        latency = float(busy.max())
    else:
        steps = each.max(axis=1)
        waited = np.where(runs, steps[:, None] - each, 0.0).sum(axis=0)
        last = float(once.max())
        return float(steps.sum()) + last, waited + np.where(ends, last - once, 0.0)
    return latency, np.where(ends, latency - busy, 0.0)


def _energy(charges: Charges, fleet: Fleet, link: Link, iterations: Ints, ends: NDArray[np.bool_]) -> Floats:
    up = Link(link.up)
    nothing = np.zeros(len(fleet))
    bits = charges.up_bits * iterations + charges.up_once_bits * ends
    on_air = np.where(bits > 0, up.seconds(bits, nothing, charges.shares), 0.0)
    transmitting: Floats = dbm_to_watts(fleet.transmit_power_dbm) * on_air
    return transmitting if fleet.joules_per_mac is None else transmitting + fleet.joules_per_mac * charges.work * iterations


def _bytes(bits: Floats) -> Ints:
    whole: Ints = np.rint(bits_to_bytes(bits)).astype(np.int64)
    return whole
