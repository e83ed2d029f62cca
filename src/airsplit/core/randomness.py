"""Addressed randomness: one generator for each (seed, purpose, address).

Two parts of a program that ask for the same address draw the same numbers, regardless of earlier
draws. A column of K draws begins with the column of the first K' < K.
"""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, purpose: str, *address: int) -> np.random.Generator:
    """Return the generator of one address.

    Args:
        purpose: Name of the quantity that is drawn.
        address: Numbers that distinguish draws for one purpose, such as a device and a round.

    >>> bool((generator(0, "fading").random(3) == generator(0, "fading").random(9)[:3]).all())
    True
    >>> bool(generator(0, "fading").random() == generator(0, "distance").random())
    False
    """
    # A hash has a fixed length, so no purpose with an address can spell another purpose.
    purpose_key = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:16], "big")
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(purpose_key, *address))
    return np.random.default_rng(sequence)
