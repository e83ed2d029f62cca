"""Probe: how fast a machine computes, measured on the model that it is to train."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import (
    Diverged,
    FileProblem,
    InvalidValue,
    require_integer,
    require_number,
    require_numbers,
    show,
    unknown_name,
)
from airsplit.core.files import read_text, write_text
from airsplit.core.parsing import parse_json
from airsplit.system.clock import COUNTED, Clock
from airsplit.system.compute import ComputeFit, fit_compute, mean_compute_s
from airsplit.system.profile import Profile
from airsplit.training.losses import logits_of
from airsplit.training.replica import Replica
from airsplit.training.seeding import seeded
from airsplit.training.step import (
    NonFinite,
    Tensors,
    device_backward,
    device_forward,
    sent,
    server_step,
)

MOST_SPLITS = 6
LEAST_REPETITIONS = 5
STEADY = 1e6
"""A device that fluctuates by less than this part of its best case, or not at all, counts as one that fluctuates by so much."""

MOST = 2**31 - 1  # far beyond what anybody has, and within what a message carries

Now = Callable[[], float]


# ---- what was measured -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SplitTimes:
    """Measured times at one split; `macs` is the work of one repetition."""

    split: int
    macs: float
    repetitions: int
    median_s: float
    mean_s: float

    def __post_init__(self) -> None:
        require_integer("probe.rows.split", self.split, low=1)
        require_integer("probe.rows.repetitions", self.repetitions, low=1)
        for name in ("macs", "median_s", "mean_s"):
            require_number(f"probe.rows.{name}", getattr(self, name), above=0)


@dataclass(frozen=True, kw_only=True)
class ComputeMeasurement:
    """The shifted exponential behind measured times, and how well it holds.

    distance  Kolmogorov–Smirnov's, to be held against the yardstick; zero where nothing fluctuates
    samples   how many times were measured
    threads   torch's, while they were
    rows      what was measured, split by split

    >>> rows = (SplitTimes(1, 1e9, 5, 1.2, 1.5), SplitTimes(3, 4e9, 5, 6.0, 8.0))
    >>> probe = ComputeMeasurement(seconds_per_mac=1e-9, fluctuation=1e9, distance=0.1, samples=10, threads=1, rows=rows)
    >>> [round(each, 3) for each in probe.relative_errors], round(probe.yardstick, 3)
    ([0.333, 0.0], 0.43)
    """

    seconds_per_mac: float
    fluctuation: float
    distance: float
    samples: int
    threads: int
    rows: tuple[SplitTimes, ...]

    def __post_init__(self) -> None:
        require_number("probe.seconds_per_mac", self.seconds_per_mac, above=0)
        require_number("probe.fluctuation", self.fluctuation, above=0)
        require_number("probe.distance", self.distance, low=0, high=1)
        require_integer("probe.threads", self.threads, low=1, high=MOST)
        if require_integer("probe.samples", self.samples, low=1, high=MOST) != sum(
            row.repetitions for row in self.rows
        ):
            raise InvalidValue(
                f"probe.samples must be the sum of the repetitions of its rows, got {show(self.samples)}"
            )

    @property
    def yardstick(self) -> float:
        """1.36/√n: where the law is right, the distance is below it in at least 95 % of cases."""
        return 1.36 / math.sqrt(self.samples)

    @property
    def relative_errors(self) -> tuple[float, ...]:
        """For each row how far the law's mean is from the measured one: 0.1 where it is a tenth too long."""
        law = (
            mean_compute_s(row.macs, self.seconds_per_mac, self.fluctuation) for row in self.rows
        )
        return tuple(
            predicted_s / row.mean_s - 1 for predicted_s, row in zip(law, self.rows, strict=True)
        )

    def to_json(self) -> str:
        """The measurement as JSON; keys are the names of the fields."""
        return json.dumps(asdict(self), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> ComputeMeasurement:
        """Read what `to_json` wrote; anything else is an error."""
        data = parse_json(text, "probe")
        table = _table("probe", data, cls)
        if not isinstance(table["rows"], list):
            raise FileProblem(f"probe.rows must be a list, got {show(table['rows'])}")
        rows = (
            SplitTimes(**_table(f"probe.rows[{at}]", row, SplitTimes))
            for at, row in enumerate(table["rows"])
        )
        return cls(**table | {"rows": tuple(rows)})


def _table(field: str, data: Any, kind: type[SplitTimes | ComputeMeasurement]) -> dict[str, Any]:
    """A JSON object that has the fields of a class, all of them and no others."""
    names = [each.name for each in fields(kind)]
    missing = [name for name in names if name not in data] if isinstance(data, dict) else names
    if missing:
        raise FileProblem(f"{field} lacks {', '.join(missing)}; write it with to_json()")
    for key in data.keys() - set(names):
        raise unknown_name(f"{field} key", key, names)
    return dict(data)


# ---- measuring ---------------------------------------------------------------------------------------------------------------
def measure_compute(
    replica: Replica,
    profile: Profile,
    *,
    batch_size: int,
    splits: Sequence[int] | None = None,
    seconds: float = 3.0,
    work: Floats | None = None,
    now: Now = time.perf_counter,
) -> ComputeMeasurement:
    r"""A device's a and ε, from running the first layers forward and backward on noise, as it does in training.

    splits   where to cut; when not given, up to six that `spread_splits` chooses
    seconds  how long to measure; longer where five repetitions of each split take longer
    work     MACs of a sample at each split, as the planner charges them; when not given, those of both passes as counted
    now      the clock, read before and after each repetition

    Splits take turns, so that a machine which slows down does so for all of them; the first turn is for warming up and does not
    count.  The optimizer's step is not timed.  The replica, its gradients and torch's random state are left as they were.

    The fit is that of maximum likelihood over all times: each says its seconds per MAC, τ/c, whatever its c.  But a step also
    costs time that no MAC stands for, calls and memory, and with few layers that is most of it.  The law cannot say so: such a
    split only raises 1/ε, and with it what is charged for all others; one among six made the built-in transformer's deep splits
    40 % too slow.  What matters to a plan is an error in seconds, and an error of the pace becomes seconds in proportion to c.
    Hence splits are spread evenly over the work and not over the layers, and those with less than a sixth of it are left out:
    they are charged too little, by milliseconds.  Where a plan is bound to stay shallow, give the splits that it may choose.
    Rows show what the law makes of each.
    """
    c = _checked(batch_size) * _work(replica, profile, work)
    chosen = _chosen(profile, splits, c)
    with _untouched(replica):
        inputs = _noise(replica, batch_size)
        times = _times(
            replica, [_device_turn(replica, split, inputs) for split in chosen], seconds, now
        )
    return _measurement(chosen, [float(c[split - 1]) for split in chosen], times)


def measure_server(
    replica: Replica,
    profile: Profile,
    *,
    batch_size: int,
    splits: Sequence[int] | None = None,
    seconds: float = 3.0,
    work: Floats | None = None,
    now: Now = time.perf_counter,
) -> float:
    """The server's seconds per MAC: the time of its back ends, forward and backward, over the work behind the splits.

    Arguments are those of `measure_compute`.  There are no labels here, so the mean of the scores takes the place of the loss.
    """
    total = _checked(batch_size) * _work(replica, profile, work)
    behind = total[-1] - total
    chosen = _chosen(profile, splits, behind)
    with _untouched(replica):
        inputs = _noise(replica, batch_size)
        times = _times(
            replica, [_server_turn(replica, split, inputs) for split in chosen], seconds, now
        )
    macs = sum(len(taken) * behind[split - 1] for split, taken in zip(chosen, times, strict=True))
    return require_number("seconds_per_mac", sum(map(sum, times)) / macs, above=0)


def spread_splits(work: Floats | Ints, most: int = MOST_SPLITS) -> list[int]:
    """Splits that are spread evenly over the work: the first to reach each sixth of it.

    >>> spread_splits(np.array([1, 10, 10, 50, 55, 60])), spread_splits(np.array([0, 1, 60, 60]))
    ([2, 4, 6], [3])
    """
    levels, first = np.unique(work, return_index=True)
    reached = np.searchsorted(
        levels, levels[-1] / most * np.arange(1, most) if levels[-1] > 0 else []
    )
    return sorted({int(first[at]) + 1 for at in (*reached, len(levels) - 1)})


def _checked(batch_size: int) -> int:
    return require_integer("batch_size", batch_size, low=1)


def _work(replica: Replica, profile: Profile, work: Floats | None) -> Floats:
    """MACs of a sample at each split."""
    if len(profile) != len(replica.outline.splits):
        rows = len(replica.outline.splits)
        raise InvalidValue(
            f"profile must be that of the replica's model, with {rows} splits, got one with {len(profile)}"
        )
    macs = require_numbers(
        "work", Clock(backward_macs_ratio=COUNTED).work(profile) if work is None else work, low=0
    )
    if macs.shape != (len(profile),) or (np.diff(macs) < 0).any():
        raise InvalidValue(
            f"work must be {len(profile)} numbers, one a split, that do not fall, got {show(work)}"
        )
    return macs


def _chosen(profile: Profile, splits: Sequence[int] | None, macs: Floats) -> list[int]:
    """The splits to measure, each once; those without work say nothing of a pace."""
    wanted = (
        spread_splits(macs)
        if splits is None
        else [profile.split_of(each, f"splits[{at}]") for at, each in enumerate(splits)]
    )
    chosen = [split for split in dict.fromkeys(wanted) if macs[split - 1] > 0]
    if not chosen:
        raise InvalidValue(
            f"splits must have one with work to measure, got {show(wanted)}; give others"
        )
    return chosen


@contextmanager
def _untouched(replica: Replica) -> Iterator[None]:
    """A context after which the replica is as it was, with its gradients, and so are torch's generators."""
    before = {each: tensor.clone() for each, tensor in replica.tensors.items()}
    gradients = [(parameter, parameter.grad) for parameter in replica.model.parameters()]
    try:
        with torch.enable_grad(), seeded(0, "probe"):
            yield
    finally:
        replica.load(before)
        for parameter, gradient in gradients:
            parameter.grad = gradient


def _noise(replica: Replica, batch_size: int) -> Tensors:
    """Inputs of the right shapes: random numbers, and zeros where whole numbers are wanted, which are valid indices."""
    graph, device = replica.outline.training.graph, next(replica.model.parameters()).device
    return tuple(
        (torch.randn if meta.dtype.is_floating_point else torch.zeros)(
            meta.shape_at(batch_size), dtype=meta.dtype, device=device
        )
        for meta in graph.specs[: graph.input_count]
    )


def _device_turn(replica: Replica, split: int, inputs: Tensors) -> Callable[[], None]:
    """What the device does in one iteration; the gradients that come back are random, and the same each time."""
    front, _ = replica.halves(split)
    gradients = [
        torch.randn_like(tensor) if tensor.requires_grad else None
        for tensor in device_forward(front, inputs)
    ]
    return lambda: device_backward(device_forward(front, inputs), gradients)


def _server_turn(replica: Replica, split: int, inputs: Tensors) -> Callable[[], None]:
    """What the server does in one iteration, with what the device would have sent."""
    front, back = replica.halves(split)
    arrived, no_labels = sent(device_forward(front, inputs)), torch.empty(0)

    def turn() -> None:
        for tensor in arrived:
            tensor.grad = None
        try:
            server_step(back, _mean_score, arrived, no_labels)
        except NonFinite as where:
            raise Diverged(
                f"the model at split {split} has {where} that are not finite, for noise; measure with other weights"
            ) from None

    return turn


def _mean_score(output: Any, _: Tensor) -> Tensor:
    return logits_of(output).mean()


def _times(
    replica: Replica, turns: Sequence[Callable[[], None]], seconds: float, now: Now
) -> list[list[float]]:
    """How long each took, again and again in turns, without the first time."""
    budget_s, spent_s = require_number("seconds", seconds, low=0), 0.0
    times: list[list[float]] = [[] for _ in turns]
    while len(times[0]) <= LEAST_REPETITIONS or spent_s < budget_s:
        for turn, taken in zip(turns, times, strict=True):
            replica.clear()
            began_s = now()
            turn()
            taken.append(now() - began_s)
            spent_s += taken[-1]
    return [taken[1:] for taken in times]


def _measurement(
    splits: list[int], macs: list[float], times: list[list[float]]
) -> ComputeMeasurement:
    fit = _fit(np.repeat(macs, [len(taken) for taken in times]), np.concatenate(times))
    rows = (
        SplitTimes(split, c, len(taken), float(np.median(taken)), float(np.mean(taken)))
        for split, c, taken in zip(splits, macs, times, strict=True)
    )
    return ComputeMeasurement(**asdict(fit), threads=torch.get_num_threads(), rows=tuple(rows))


def _fit(macs: Floats, seconds: Floats) -> ComputeFit:
    """The most likely law; for times of one pace, which have none, ε = 10⁶/a: a mean that is a millionth above the best case."""
    pace = (
        require_numbers(
            "seconds", seconds, above=0, hint="; is the clock too coarse? take a larger batch"
        )
        / macs
    )
    a = float(pace.min())
    if float(pace.mean()) - a <= a / STEADY:
        return ComputeFit(a, STEADY / a, 0.0, len(pace))
    return fit_compute(macs, seconds)


# ---- measuring once ----------------------------------------------------------------------------------------------------------
def cache_key(profile: Profile, batch_size: int, work: Floats | None = None) -> str:
    """What a measurement depends on: model, batch size, torch's threads and, where it is not the counted one, the work."""
    key = f"{profile.fingerprint}-{_checked(batch_size)}-{torch.get_num_threads()}"
    return (
        key
        if work is None
        else f"{key}-{hashlib.sha256(np.asarray(work, dtype=np.float64).tobytes()).hexdigest()[:8]}"
    )


def cached_compute(
    folder: Path, key: str, measure: Callable[[], ComputeMeasurement]
) -> ComputeMeasurement:
    """What was measured under this key before; where nothing was, it is measured and kept."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", key):
        raise InvalidValue(f"key must be letters, digits, - and _, got {show(key)}")
    file = folder / f"probe-{key}.json"
    if file.exists():
        try:
            return ComputeMeasurement.from_json(read_text(file, what="probe"))
        except (FileProblem, InvalidValue) as error:
            raise FileProblem(f"{str(file)!r}: {error}; delete it to measure again") from None
    measured = measure()
    write_text(file, measured.to_json())
    return measured
