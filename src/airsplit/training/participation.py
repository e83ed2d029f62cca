"""Which devices take part in a round, which are evaluated after it, and what it ends with: the same in the simulator and over a network."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from airsplit.core.arrays import Ints
from airsplit.core.randomness import generator
from airsplit.scenario.settings import TrainingSettings


def participants(settings: TrainingSettings, round_number: int, devices: int) -> list[int]:
    """Who is asked to take part in a round, in order.

    >>> len(participants(TrainingSettings(participation=0.5), 1, 4)), participants(TrainingSettings(), 1, 3)
    (2, [0, 1, 2])
    """
    asked: list[int] = np.flatnonzero(are_asked(settings, round_number, devices)).tolist()
    return asked


def are_asked(settings: TrainingSettings, round_number: int, devices: int) -> NDArray[np.bool_]:
    """Whether each device is asked to take part in a round."""
    wanted = max(1, math.ceil(settings.participation * devices - 1e-9))
    if wanted >= devices:
        return np.ones(devices, dtype=bool)
    asked = np.zeros(devices, dtype=bool)
    asked[generator(settings.seed, "participation", round_number).permutation(devices)[:wanted]] = (
        True
    )
    return asked


def averages_fronts(every: int | None, round_number: int) -> bool:
    """Whether a round of SFL ends with the personal layers being averaged."""
    return every is not None and round_number % every == 0


def is_evaluated(settings: TrainingSettings, round_number: int) -> bool:
    """Whether models are evaluated after a round; after the last they always are."""
    return round_number % settings.evaluate_every == 0 or round_number == settings.rounds


def evaluated_devices(settings: TrainingSettings, devices: int, round_number: int) -> list[int]:
    """Whose models are evaluated after a round: of all devices, or of some that stay the same."""
    wanted = None if _is_thorough(settings, round_number) else settings.evaluate_devices
    chosen: list[int] = _some(settings.seed, "evaluated devices", devices, wanted).tolist()
    return chosen


def evaluated_samples(settings: TrainingSettings, samples: int, round_number: int) -> Ints:
    """Which rows of the test set models are evaluated on after a round: all, or some that stay the same."""
    wanted = None if _is_thorough(settings, round_number) else settings.evaluate_samples
    return _some(settings.seed, "evaluated samples", samples, wanted)


def _is_thorough(settings: TrainingSettings, round_number: int) -> bool:
    return settings.evaluate_all_at_end and round_number == settings.rounds


def _some(seed: int, purpose: str, count: int, wanted: int | None) -> Ints:
    """So many of a number of things, in order."""
    if wanted is None or wanted >= count:
        return np.arange(count)
    return np.sort(generator(seed, purpose).permutation(count)[:wanted])
