"""Randomness is addressed, not consumed: a generator for each (seed, purpose, address).

Two parts of a program that ask for the same address draw the same numbers, whatever was drawn before, and a column of K
draws begins with the column of the first K' < K.
"""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, purpose: str, *address: int) -> np.random.Generator:
    """The generator of one purpose.

    >>> bool((generator(0, "fading").random(3) == generator(0, "fading").random(9)[:3]).all())
    True
    >>> bool(generator(0, "fading").random() == generator(0, "distance").random())
    False
    """
    # a hash of fixed length, so that no purpose with an address spells another purpose
    key = (int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:16], "big"), *address)
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=key))
