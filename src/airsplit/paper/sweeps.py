"""Sweeps over random fleets, and their statistics: medians and 10–90 % bands.

With Exp(1) fading E[1/rate] is infinite, so a mean latency over random fleets does not exist.
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
# The paper does not state it. Work and payload both scale with it, so optimal plans do not change.
BATCH_SIZE = 32
# Range of a, in s/MAC, as in the paper.
UNIFORM_PACE = (0.2e-9, 1e-9)
SIGNIFICANT_DIGITS = 9

# Seconds per MAC of all devices, or the range that they are drawn from.
Pace = float | tuple[float, float]
Progress = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """Effort spent on a figure.

    Attributes:
        name: "smoke" or "paper".
        fleets: Random fleets behind a figure of latency.
        certified_fleets: The same if each needs a certified bound on E[max].
        trainings: File with the trainings behind the figures of accuracy at the paper's scale.
        data: Folder with data sets; None for the default.
    """

    name: str
    fleets: int
    certified_fleets: int
    trainings: Path | None = None
    data: str | None = None


SCALES = {scale.name: scale for scale in (Scale("smoke", 20, 4), Scale("paper", 200, 200))}


def over_fleets(count: int, distance_m: float, pace: Pace, work: Callable[[Fleet], T]) -> list[T]:
    """Apply `work` to the fleets with seeds 0 … count - 1, all devices at one distance."""
    # The same seeds at each distance and pace: curves then differ by what is varied, not by luck.
    fleets = (
        Fleet.sample(DEVICES, seed=seed, mean_distance_m=distance_m, seconds_per_mac=pace)
        for seed in range(count)
    )
    return [work(fleet) for fleet in fleets]


def make_planner(
    profile: Profile, methods: Iterable[str], max_split: int | None
) -> Callable[[Fleet], dict[str, Plan]]:
    """Return a function that plans a fleet with several methods."""
    names = tuple(methods)

    def plan_fleet(fleet: Fleet) -> dict[str, Plan]:
        return {
            method: plan(profile, fleet, method=method, max_split=max_split, batch_size=BATCH_SIZE)
            for method in names
        }

    return plan_fleet


def select(points: Sequence[Sequence[Mapping[str, T]]], key: str) -> list[list[T]]:
    """Return one method's results of points × fleets × methods."""
    return [[results[key] for results in fleets] for fleets in points]


def band(values: ArrayLike) -> dict[str, list[float]]:
    """Return median and 10–90 % band over fleets (the last axis) at each point.

    >>> band([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    {'median': [2.0, 5.0], 'p10': [1.2, 5.0], 'p90': [2.8, 5.0]}
    """
    p10, median, p90 = np.quantile(np.asarray(values, dtype=np.float64), (0.1, 0.5, 0.9), axis=-1)
    return {"median": median.tolist(), "p10": p10.tolist(), "p90": p90.tolist()}


def describe_settings(fleets: int, profiles: Mapping[str, Profile], **extra: Any) -> dict[str, Any]:
    """Return everything that a figure's numbers depend on, plus the figure's own settings."""
    # Defaults of Fleet.sample and Cell are listed, too: a changed default must show in the file.
    common = {
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
    }
    return common | extra


def tidy(value: Any) -> Any:
    """Convert to plain JSON values, with numbers rounded to nine significant digits.

    Further digits are rounding errors that differ between machines.

    >>> tidy({"x": np.array([1 / 3]), "n": np.int64(4)})
    {'x': [0.333333333], 'n': 4}
    """
    # Before the other types, since tolist() returns lists, numbers and strings of Python.
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): tidy(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [tidy(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    return value
