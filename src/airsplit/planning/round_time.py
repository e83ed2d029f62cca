"""The time of a round in which every device works, then sends one payload, with the best shares.

Figures and the playground compare plans with it: FedAvg sends all parameters, and given splits send
their activations in every iteration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.planning.shares import allocate_shares
from airsplit.system.compute import mean_compute_s
from airsplit.system.fleet import Fleet
from airsplit.system.latency import Fluctuation, LatencyLaw
from airsplit.system.profile import Profile


@dataclass(frozen=True)
class Round:
    """The time of one round.

    In the mean all devices finish together, so mean compute and transmit time add up to `total_s`.

    Attributes:
        compute_s: Mean over devices.
        transmit_s: Mean over devices.
        air_time_s: Σ_k D_k / r_k: seconds of the full band that the payloads need, however shared.
        total_s: max_k E[τ_k].
        expected_max_s: E[max_k τ_k]: devices wait for the last one after each repetition.
    """

    compute_s: float
    transmit_s: float
    air_time_s: float
    total_s: float
    expected_max_s: float


def allocate_round(
    fleet: Fleet, macs: Floats, bits: Floats, *, times: int, draws: int = 1
) -> Round:
    """Return the time to compute, send and wait for the others, repeatedly.

    Args:
        macs: Work of each device in one repetition.
        bits: Payload of each device in one repetition.
        times: Number of repetitions.
        draws: Equal parts of the work whose times fluctuate independently.
    """
    link = fleet.link()
    a = fleet.seconds_per_mac
    eps = fleet.fluctuation
    no_bits = np.zeros(len(fleet))
    work = np.broadcast_to(macs, no_bits.shape)
    payload = np.broadcast_to(bits, no_bits.shape)

    compute_s = mean_compute_s(work, a, eps)
    allocation = allocate_shares(link, payload, no_bits, compute_s)
    transmit_s = link.seconds(payload, no_bits, allocation.shares)
    # x = a c + air time and β = c/ε.
    law = LatencyLaw(a * work + transmit_s, work / eps, Fluctuation(draws))
    full_band_s = link.seconds(payload, no_bits, np.ones(len(fleet)))
    return Round(
        compute_s=times * float(compute_s.mean()),
        transmit_s=times * float(transmit_s.mean()),
        air_time_s=times * float(full_band_s.sum()),
        total_s=times * float((compute_s + transmit_s).max()),
        expected_max_s=times * law.expected_max_s,
    )


def fedavg_round(
    profile: Profile, fleet: Fleet, *, iterations: int, batch_size: int, element_bits: int = 32
) -> Round:
    """Return the time of a FedAvg round: iterations of the whole model, then all its parameters."""
    work = float(profile.macs[-1]) * iterations * batch_size
    bits = float(profile.parameters.sum()) * element_bits
    return allocate_round(fleet, np.asarray(work), np.asarray(bits), times=1, draws=iterations)
