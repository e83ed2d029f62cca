"""What a round takes that is not planned split by split: work, then a payload, then waiting; with the best shares for that.

So it is with FedAvg, and with splits that are given.
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
    """One round.  In the mean all devices finish together, so that mean compute and transmit time add up to `total_s`.

    compute_s, transmit_s   mean over devices
    air_time_s              Σ_k D_k / r_k: seconds of the whole band that the payloads need, however it is shared
    total_s                 max_k E[τ_k]
    expected_max_s          E[max_k τ_k], with the devices waiting for each other wherever the scheme makes them
    """

    compute_s: float
    transmit_s: float
    air_time_s: float
    total_s: float
    expected_max_s: float


def round_of(fleet: Fleet, macs: Floats, bits: Floats, *, times: int, draws: int = 1) -> Round:
    """`times` repetitions of: compute `macs` in `draws` equal parts, then send `bits`, then wait for the others."""
    link, a, eps = fleet.link(), fleet.seconds_per_mac, fleet.fluctuation
    nothing = np.zeros(len(fleet))
    work, payload = np.broadcast_to(macs, nothing.shape), np.broadcast_to(bits, nothing.shape)
    compute_s = mean_compute_s(work, a, eps)
    done = allocate_shares(link, payload, nothing, compute_s)
    transmit_s = link.seconds(payload, nothing, done.shares)
    law = LatencyLaw(a * work + transmit_s, work / eps, Fluctuation(draws))
    return Round(
        compute_s=times * float(compute_s.mean()),
        transmit_s=times * float(transmit_s.mean()),
        air_time_s=times * float(link.seconds(payload, nothing, np.ones(len(fleet))).sum()),
        total_s=times * float((compute_s + transmit_s).max()),
        expected_max_s=times * law.expected_max_s,
    )


def fedavg_round(
    profile: Profile, fleet: Fleet, *, iterations: int, batch_size: int, element_bits: int = 32
) -> Round:
    """One round of FedAvg: so many iterations with the whole model on the device, then all parameters once."""
    work = float(profile.macs[-1]) * iterations * batch_size
    bits = float(profile.parameters.sum()) * element_bits
    return round_of(fleet, np.asarray(work), np.asarray(bits), times=1, draws=iterations)
