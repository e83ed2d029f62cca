"""Time of a round of split federated learning and of FedAvg, each with its own optimal shares.

A round is one pass over a device's samples.
"""

from __future__ import annotations

import numpy as np

from airsplit.core import palette
from airsplit.core.arrays import Ints
from airsplit.planning import round_time as rounds
from airsplit.planning.methods import plan
from airsplit.planning.round_time import Round, allocate_round
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile

# Samples of each device, as in the paper. It does not state the batch size; 30 divides 1,500.
SAMPLES = 1500
BATCH_SIZE = 30
ITERATIONS = SAMPLES // BATCH_SIZE
ELEMENT_BITS = 32

# Title and color of each scheme.
SCHEMES = {
    "sfl": ("SFL", palette.get_algorithm_color("sfl")),
    "fedavg": ("FedAvg", palette.get_algorithm_color("fedavg")),
}


def split_round(profile: Profile, fleet: Fleet, split: int | Ints) -> Round:
    """Return the time of a round in which each device is cut at its split, counted from one."""
    rows = np.asarray(split) - 1
    bits = profile.activation_elements[rows] * float(BATCH_SIZE * ELEMENT_BITS)
    return allocate_round(fleet, profile.macs[rows] * float(BATCH_SIZE), bits, times=ITERATIONS)


def sfl_round(profile: Profile, fleet: Fleet, max_split: int) -> Round:
    """Return the time of a round with the exact plan."""
    # Not the default method: the paper compares plans that minimize max E[τ].
    exact = plan(profile, fleet, method="exact", max_split=max_split, batch_size=BATCH_SIZE)
    return split_round(profile, fleet, exact.splits)


def fedavg_round(profile: Profile, fleet: Fleet) -> Round:
    """Return the time of a FedAvg round.

    Each device trains the whole model for all iterations, and then sends all parameters once.
    """
    return rounds.fedavg_round(
        profile, fleet, iterations=ITERATIONS, batch_size=BATCH_SIZE, element_bits=ELEMENT_BITS
    )
