"""Random fleets, what is done with each of them, and what is said of all: medians and 10–90 % bands.

Under Exp(1) fading E[1/rate] is infinite, so that a mean latency over random fleets does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from airsplit.planning.methods import plan
from airsplit.planning.plan import Plan
from airsplit.runs.provenance import VERSION
from airsplit.system.cell import Cell
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile

DEVICES = 20
BATCH_SIZE = 32
UNIFORM_PACE = (0.2e-9, 1e-9)
SIGNIFICANT_DIGITS = 9

Pace = float | tuple[float, float]
Progress = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """How many random fleets a figure is drawn from; `certified_fleets` where each needs a certificate of E[max].

    trainings   the file with the trainings behind the figures of accuracy at the scale of the paper
    data        the folder with data sets; None: the usual one
    """

    name: str
    fleets: int
    certified_fleets: int
    trainings: Path | None = None
    data: str | None = None


SCALES = {scale.name: scale for scale in (Scale("smoke", 20, 4), Scale("paper", 200, 200))}


def over_fleets(count: int, distance_m: float, pace: Pace, work: Callable[[Fleet], T]) -> list[T]:
    """What `work` makes of each of the fleets with seeds 0 … count - 1, all devices at one distance."""
    sampled = (
        Fleet.sample(DEVICES, seed=seed, mean_distance_m=distance_m, seconds_per_mac=pace)
        for seed in range(count)
    )
    return [work(fleet) for fleet in sampled]


def planner(
    profile: Profile, methods: Iterable[str], max_split: int | None
) -> Callable[[Fleet], dict[str, Plan]]:
    """A function that plans a fleet with several methods."""
    chosen = tuple(methods)

    def plans(fleet: Fleet) -> dict[str, Plan]:
        return {
            method: plan(profile, fleet, method=method, max_split=max_split, batch_size=BATCH_SIZE)
            for method in chosen
        }

    return plans


def picked(points: Sequence[Sequence[Mapping[str, T]]], key: str) -> list[list[T]]:
    """One method's results out of points × fleets of several."""
    return [[results[key] for results in fleets] for fleets in points]


def band(values: ArrayLike) -> dict[str, list[float]]:
    """Median and 10–90 % band over fleets, the last axis, at each point.

    >>> band([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    {'median': [2.0, 5.0], 'p10': [1.2, 5.0], 'p90': [2.8, 5.0]}
    """
    p10, median, p90 = np.quantile(np.asarray(values, dtype=np.float64), (0.1, 0.5, 0.9), axis=-1)
    return {"median": median.tolist(), "p10": p10.tolist(), "p90": p90.tolist()}


def settings(fleets: int, profiles: Mapping[str, Profile], **own: Any) -> dict[str, Any]:
    """What a figure's numbers depend on: this package, the models, the fleets, and the figure's own settings."""
    return {
        "airsplit_version": VERSION,
        "models": {model: profile.fingerprint for model, profile in profiles.items()},
        "devices": DEVICES,
        "fleets": fleets,
        "first_seed": 0,
        "last_seed": fleets - 1,
        "distance_spread": 0.0,
        "fluctuation_ratio": 2.0,
        "fading": "Exp(1), one draw a device and fleet",
        "cell": {k: v for k, v in asdict(Cell()).items() if v is not None},
        "element_bits": 32,
        "statistic": "median and 10-90 % band over fleets",
    } | own


def tidy(value: Any) -> Any:
    """Plain JSON values, numbers to nine significant digits: beyond them lies the rounding of the machine.

    >>> tidy({"x": np.array([1 / 3]), "n": np.int64(4)})
    {'x': [0.333333333], 'n': 4}
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): tidy(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [tidy(entry) for entry in value]
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if isinstance(value, float) else value
