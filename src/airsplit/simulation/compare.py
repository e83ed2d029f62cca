"""compare: the algorithms on the same data, with the same seeds and the same clock."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from airsplit.core.errors import Diverged, InvalidValue, require_integer, require_number
from airsplit.core.files import write_text
from airsplit.core.formatting import format_seconds
from airsplit.core.plugins import require_choice_or_path
from airsplit.data.batches import describe_short_devices_in
from airsplit.runs.comparison import Comparison, load_comparison, name_run_folder
from airsplit.runs.folder import RunFolder
from airsplit.runs.metric import get_metric
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import ALGORITHMS
from airsplit.simulation.simulate import simulate
from airsplit.training.parallel import in_parallel


def compare(
    scenario: Scenario,
    *,
    out: str | os.PathLike[str],
    seeds: int = 3,
    algorithms: Sequence[str] = ALGORITHMS,
    target: float | None = None,
    resume: bool = False,
    jobs: int | None = None,
    data: str | os.PathLike[str] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Train a scenario with several algorithms and seeds, each run in its own folder of `out`.

    Args:
        scenario: What to train; its first seed is training.seed.
        out: Folder of the runs and of comparison.json.
        seeds: Number of seeds.
        algorithms: Names, or paths of your own algorithms.
        target: A test accuracy, or a value of training.metric. None: the best round number (whole
            percent of accuracy) that all runs reach which do not diverge.
        resume: Continue the runs in `out`.
        jobs: Runs in parallel (default: number of cores).
        data: Folder with data sets.
        tell: Called now and then with a line of progress.
    """
    require_integer("seeds", seeds, low=1, high=1000)
    if jobs is not None:
        require_integer("jobs", jobs, low=1)
    if target is not None:
        low, high = (0, 1) if get_metric(scenario.training).is_accuracy else (None, None)
        require_number("target", target, above=low, high=high)
    chosen = [
        require_choice_or_path("algorithm", algorithm, ALGORITHMS)
        for algorithm in dict.fromkeys(algorithms)
    ]
    if not chosen:
        raise InvalidValue("algorithms must name at least one, got none")
    numbers = tuple(range(scenario.training.seed, scenario.training.seed + seeds))
    runs = [(algorithm, seed) for algorithm in chosen for seed in numbers]
    pieces = [
        _Piece(
            _variant(scenario, a, s),
            Path(out) / name_run_folder(a, s),
            resume,
            data,
            (a, s) == runs[0],
        )
        for a, s in runs
    ]
    if not resume:
        for piece in pieces:
            RunFolder(piece.out).require_new()
    start_s, before, whole = (
        time.monotonic(),
        _rounds_in(pieces),
        len(pieces) * scenario.training.rounds,
    )
    for done in in_parallel(_train, pieces, jobs=jobs):
        rounds = _rounds_in(pieces)
        pace_s = (time.monotonic() - start_s) / (rounds - before) if rounds > before else None
        left = "" if pace_s is None else f", about {format_seconds(pace_s * (whole - rounds))} left"
        tell(f"{len(done)} of {len(pieces)} runs, {rounds} of {whole} rounds{left}")
    found = load_comparison(out, scenario, chosen, numbers, target)
    write_text(
        Path(out) / "comparison.json", json.dumps(found.to_dict(), indent=1, allow_nan=False) + "\n"
    )
    return found


@dataclass(frozen=True)
class _Piece:
    scenario: Scenario
    out: Path
    resume: bool
    data: str | os.PathLike[str] | None
    is_first: bool


def _variant(scenario: Scenario, algorithm: str, seed: int) -> Scenario:
    return scenario.replace(**{"training.algorithm": algorithm, "training.seed": seed})


def _train(piece: _Piece) -> None:
    """Train a run into its folder; where it diverges, the folder says so, and the others go on."""
    with suppress(Diverged):
        records = simulate(piece.scenario, out=piece.out, resume=piece.resume, data=piece.data)
        if piece.is_first:
            _warn_of_short_devices(piece.out)
        for _ in records:
            pass


def _warn_of_short_devices(folder: Path) -> None:
    """Warn of devices that hold less than a batch: the data are loaded, and nothing is charged yet."""
    short = describe_short_devices_in(RunFolder(folder).read_plan())
    if short is not None:
        warnings.warn(short, stacklevel=2)


def _rounds_in(pieces: Sequence[_Piece]) -> int:
    """How many rounds there are of all of them."""
    return sum(_lines_in(RunFolder(piece.out).rounds_file) for piece in pieces)


def _lines_in(file: Path) -> int:
    """Return the number of lines of a file, zero where there is none."""
    if not file.is_file():
        return 0
    with file.open("rb") as stream:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))
