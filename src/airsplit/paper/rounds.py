"""What a round over a device's samples takes: split federated learning and FedAvg, each with its own optimal shares."""

from __future__ import annotations

import numpy as np

from airsplit.core.arrays import Ints
from airsplit.planning import round_time as rounds
from airsplit.planning.methods import plan
from airsplit.planning.round_time import Round, round_of
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile

SAMPLES = 1500
BATCH_SIZE = 30
ITERATIONS = SAMPLES // BATCH_SIZE
ELEMENT_BITS = 32


def split_round(profile: Profile, fleet: Fleet, split: int | Ints) -> Round:
    """One pass over the samples with every device cut at its split (from one), and the best shares for that."""
    rows = np.asarray(split) - 1
    bits = profile.activation_elements[rows] * float(BATCH_SIZE * ELEMENT_BITS)
    return round_of(fleet, profile.macs[rows] * float(BATCH_SIZE), bits, times=ITERATIONS)


def sfl_round(profile: Profile, fleet: Fleet, max_split: int) -> Round:
    """One pass over the samples with the exact plan."""
    return split_round(
        profile,
        fleet,
        plan(profile, fleet, method="exact", max_split=max_split, batch_size=BATCH_SIZE).splits,
    )


def fedavg_round(profile: Profile, fleet: Fleet) -> Round:
    """One pass over the samples with the whole model on the device, then all parameters once."""
    return rounds.fedavg_round(
        profile, fleet, iterations=ITERATIONS, batch_size=BATCH_SIZE, element_bits=ELEMENT_BITS
    )
