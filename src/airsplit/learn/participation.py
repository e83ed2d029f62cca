"""Which devices take part in a round, and which are evaluated after it: the same in the simulator and over a network."""

from __future__ import annotations

import math

from airsplit.randomness import generator
from airsplit.settings import TrainingSettings


def participants(settings: TrainingSettings, round_number: int, devices: int) -> list[int]:
    """Who is asked to take part in a round, in order.

    >>> len(participants(TrainingSettings(participation=0.5), 1, 4)), participants(TrainingSettings(), 1, 3)
    (2, [0, 1, 2])
    """
    wanted = max(1, math.ceil(settings.participation * devices - 1e-9))
    return sorted(generator(settings.seed, "participation", round_number).permutation(devices)[:wanted].tolist())


def is_evaluated(settings: TrainingSettings, round_number: int) -> bool:
    """Whether models are evaluated after a round; after the last they always are."""
    return round_number % settings.evaluate_every == 0 or round_number == settings.rounds


def evaluated_devices(settings: TrainingSettings, devices: int) -> list[int]:
    """Whose models are evaluated: of all devices, or of some that stay the same."""
    wanted = settings.evaluate_devices
    if wanted is None or wanted >= devices:
        return list(range(devices))
    return sorted(generator(settings.seed, "evaluated devices").permutation(devices)[:wanted].tolist())
