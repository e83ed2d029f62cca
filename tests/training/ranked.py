"""What processes do that torchrun has started: torchrun … -m training.ranked FOLDER.

Everything is in one launch, because each process takes seconds to load torch.  Each writes what it saw to FOLDER/seen-RANK.json.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import airsplit as air
from airsplit import AirsplitError
from airsplit.cli.app import main as command
from airsplit.scenario.scenario import Scenario
from airsplit.training import coordinator as engine
from airsplit.training.accelerator import Accelerator
from airsplit.training.ranks import Ranks, joined, ranks_of
from training import killed, tiny

RANK, SIZE = (
    int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"))
)
SPLITS = [1, 2, 3, 1, 2]


def scenario(**changes: Any) -> Scenario:
    """In double precision, so that what is the same but for rounding can be told from what is not."""
    return tiny.scenario(
        **{
            "splits": SPLITS,
            "kind": "float64",
            "momentum": 0.9,
            "rounds": 3,
            "checkpoint_every": 10,
        }
        | changes
    )


def moving(**changes: Any) -> Scenario:
    """The boundary moves, devices are absent or drop out."""
    wide = {"model.arguments.kind": "float64", "model.input_dtype": "float64", "training.rounds": 8}
    return killed.scenario().replace(
        **wide | {f"training.{key}": value for key, value in changes.items()}
    )


def moving_with_norm() -> Scenario:
    return moving(dataset="training.tiny:flat", partition="iid", batch_size=3).replace(
        **{"model.name": "training.tiny:norm_mlp"}
    )


ONE_BATCH = {"iterations_per_round": 1}
SHARED = {"data": "flat", "partition": "iid"}
NORM = {"model": "norm_mlp", "data": "parted_evenly", "splits": [2, 1, 2, 3], "participation": 0.5}
NUMBERS = {
    "model": "line",
    "data": "numbers",
    "partition": "iid",
    "loss": "training.tiny:squared_error",
    "learning_rate": 0.01,
}
ADAM = {
    "optimizer": "adam",
    "momentum": None,
    "learning_rate": 0.03,
    "weighting": "samples",
    "participation": 0.6,
}

FEWER = "fewer devices than processes"

IN_THREE: dict[str, Callable[[], Scenario]] = {
    "one batch": partial(scenario, **ONE_BATCH),
    "one device a round": partial(scenario, participation=0.2, rounds=5),
    "one device a round, one batch": partial(scenario, participation=0.2, rounds=5, **ONE_BATCH),
    "nobody finishes": partial(scenario, participation=0.4, dropout_probability=0.7, rounds=6),
    FEWER: partial(scenario, splits=[2], average_fronts_every=1, **SHARED),
    "fewer devices than processes, one batch": partial(
        scenario, splits=[2, 1], weighting="samples", **SHARED, **ONE_BATCH
    ),
    "fronts averaged": partial(scenario, average_fronts_every=2, weighting="samples", rounds=4),
    "whole numbers": partial(scenario, average_fronts_every=3, rounds=6, **NORM),
    "boundary moves": moving_with_norm,
    "many at once": partial(scenario, participation=0.4, rounds=4),
}
ERROR = {"metric": f"{tiny.__name__}:part_wrong", "metric_goal": "min"}
IN_TWO: dict[str, Callable[[], Scenario]] = {
    "everything averaged": partial(scenario, algorithm="fedavg", **NORM, **ERROR),
    "everything averaged, one batch": partial(
        scenario, algorithm="splitfed-v1", weighting="samples", **ONE_BATCH
    ),
    "dropout": partial(
        scenario,
        model="dropout_mlp",
        splits=[1, 3, 2, 1, 4],
        model__arguments={"front": 0.3, "back": 0.3},
    ),
    "adam, some evaluated": partial(
        scenario,
        rounds=4,
        evaluate_every=2,
        evaluate_devices=2,
        evaluate_samples=9,
        **ADAM,
        **ERROR,
    ),
    "boundary moves, one batch": partial(moving, **ONE_BATCH),
    "numbers": partial(scenario, splits=[2, 1], **NUMBERS),
    "unused": partial(scenario, model="unused", splits=[1, 2, 1, 2, 1], **ONE_BATCH),
    "scaled": partial(scenario, model="scaled", splits=[1, 2, 1, 2, 1]),
    "many at once, one batch": partial(scenario, **ONE_BATCH),
    "half precision": partial(scenario, kind="bfloat16", rounds=1),
}
TRAINED = {2: IN_TWO, 3: IN_THREE}
"""What must come out the same as in one process."""

AT_ONCE = "many at once"
"""Trained stacked, as on a GPU."""

CUT: dict[str, Callable[[], Scenario]] = {
    "cut": moving,
    "cut, whole numbers": partial(scenario, average_fronts_every=3, rounds=6, **NORM),
    "cut, constants": partial(scenario, model="expanded", splits=[1, 2, 1, 2, 1], rounds=4),
}
"""Three processes train two rounds of these, others the rest."""


# ---- what a scenario can name ------------------------------------------------------------------------------------------------
def other_in_each() -> Any:
    """Data that are not the same in all processes."""
    (inputs, labels), test = tiny.flat()
    return (inputs + RANK, labels), test


def talkative() -> Any:
    print("loading")
    warnings.warn("a factory warns", stacklevel=1)
    return tiny.flat()


class Step:
    count = 0
    dead: Path | None = None


def deadly(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A loss that kills the last process in the fourth round, unless that has happened."""
    Step.count += 1
    if Step.dead is not None and Step.count == 30 and RANK == SIZE - 1:
        Step.dead.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.nn.functional.cross_entropy(output, labels)


def deadly_scenario() -> Scenario:
    """Of six rounds, every second of which is kept."""
    return scenario(rounds=6, checkpoint_every=2, loss=f"{__name__}:deadly")


# ---- what goes wrong, or stops early -----------------------------------------------------------------------------------------
def records_of(wanted: Scenario, folder: Path) -> list[str]:
    return [record.to_json() for record in air.simulate(wanted, out=folder)]


def rounds_of(wanted: Scenario, folder: Path | None, *, resume: bool = False) -> list[int]:
    return [record.round for record in air.simulate(wanted, out=folder, resume=resume)]


def stopped_by(ranks: list[int], folder: Path) -> list[int]:
    """Some processes have enough after two rounds; the others would go on."""
    seen = []
    for record in air.simulate(scenario(rounds=5, checkpoint_every=4), out=folder):
        seen.append(record.round)
        if record.round == 2 and RANK in ranks:
            break
    return seen


def huge(**changes: Any) -> Scenario:
    """The second of two devices diverges."""
    return scenario(
        kind="float32", model="linear", data="parted_with_huge", splits=[3, 3], **changes
    )


OTHERS: dict[str, Callable[[Path], Any]] = {
    "the last diverges": lambda out: rounds_of(huge(**ONE_BATCH), out),
    "all diverge": lambda out: rounds_of(
        scenario(model="rooted", splits=[2] * 5, **ONE_BATCH, fast_paths=False), out
    ),
    "in turns": lambda out: rounds_of(scenario(algorithm="split-learning"), out),
    "other settings in each": lambda out: rounds_of(scenario(learning_rate=0.1 + RANK / 10), out),
    "other data in each": lambda out: rounds_of(
        scenario(**SHARED).replace(**{"training.dataset": f"{__name__}:other_in_each"}), out
    ),
    "a mistake in the last": lambda out: rounds_of(
        scenario(model="all_frozen") if RANK == SIZE - 1 else scenario(), out
    ),
    "begun": lambda out: rounds_of(scenario(), out),
    "begun again": lambda out: rounds_of(scenario(), out.parent / "begun"),
    "resumed with other settings": lambda out: rounds_of(
        scenario(learning_rate=0.1), out.parent / "begun", resume=True
    ),
    "a folder that cannot be": lambda out: rounds_of(
        scenario(), out.parent / "begun/scenario.toml/run"
    ),
    "no folder": lambda out: rounds_of(scenario(), None),
    "a folder in the first only": lambda out: rounds_of(scenario(), out if RANK == 0 else None),
    "the first has enough": lambda out: stopped_by([0], out),
    "the last has enough": lambda out: stopped_by([SIZE - 1], out),
    "all have enough": lambda out: stopped_by(list(range(SIZE)), out),
    "nobody begins": lambda out: air.simulate(scenario(), out=out) and None,
}


def taken_up(out: Path) -> list[list[int]]:
    """Two rounds of one device, and a third from where they stopped: two of three processes have nobody."""
    wanted = IN_THREE[FEWER]()
    return [
        rounds_of(wanted.replace(**{"training.rounds": 2}), out),
        rounds_of(wanted, out, resume=True),
    ]


def spoken() -> dict[str, Any]:
    """What processes send each other, besides what a training needs."""
    with joined(ranks_of()) as ranks:
        turned, row = torch.tensor([1.0 + RANK * 1j]), torch.full((2, 3), float(RANK)).t()
        ranks.add_up([turned])
        ranks.spread([row, torch.empty(0)], source=SIZE - 1)
        found: dict[str, Any] = {
            "sum": [turned.real.item(), turned.imag.item()],
            "spread": row.tolist(),
        }
        found["same"] = seen(partial(ranks.require_same, "the rank", str(RANK)))
        found["without a word"] = seen(partial(_fail_in_the_last, ranks))
        return found


def _fail_in_the_last(ranks: Ranks) -> None:
    with ranks.together():
        if RANK == SIZE - 1:
            raise AirsplitError("")


def commands(out: Path) -> dict[str, tuple[int, str, str]]:
    """What a process answers to the words of a command line: exit code, stdout, stderr."""
    file = out.parent / "scenario.toml"
    words = {
        "run": [
            "run",
            file,
            "--out",
            out / "run",
            "--set",
            f"training.dataset={__name__}:talkative",
            "--json",
        ],
        "run again": ["run", file, "--out", out / "run"],
        "the last diverges": ["run", out.parent / "huge.toml", "--out", out / "huge"],
        "no such option": ["run", file, "--no-such-option"],
        "another command": ["compare", file],
    }
    return {name: _said([str(word) for word in line]) for name, line in words.items()}


def _said(words: list[str]) -> tuple[int, str, str]:
    with (
        contextlib.redirect_stdout(io.StringIO()) as stdout,
        contextlib.redirect_stderr(io.StringIO()) as stderr,
    ):
        code = command(words)
    return code, stdout.getvalue(), stderr.getvalue()


def write_scenarios(folder: Path) -> None:
    """What `commands` runs."""
    (folder / "scenario.toml").write_text(scenario(**SHARED).to_toml())
    (folder / "huge.toml").write_text(huge(fast_paths=False).to_toml())
    (folder / "deadly.toml").write_text(
        deadly_scenario().to_toml().replace("training.ranked:", "__main__:")
    )


@contextlib.contextmanager
def as_on_a_gpu() -> Any:
    usual = engine.accelerator_of
    engine.accelerator_of = lambda settings, _=0: Accelerator(
        torch.device("cpu"), settings.precision, stacks=True
    )
    try:
        yield
    finally:
        engine.accelerator_of = usual


def seen(work: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"result": work()}
    except AirsplitError as error:
        return {"error": type(error).__name__, "message": str(error)}


def threads() -> int:
    """Of this process, those that Python does not know included; 0 where that is not to be seen."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else 0


def main(folder: Path) -> None:
    """All of it; then a process is killed, and in its place and the others' new ones go on."""
    dead = folder / "dead"
    if not dead.exists():
        train(folder)
        Step.dead = dead
    if SIZE == 2:
        last = _said(
            ["run", str(folder / "deadly.toml"), "--out", str(folder / "deadly"), "--json"]
        )
        (folder / f"last-{RANK}.json").write_text(json.dumps(last))


def train(folder: Path) -> None:
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"threads before": threads()}
    for name, make in TRAINED[SIZE].items():
        with as_on_a_gpu() if name.startswith(AT_ONCE) else contextlib.nullcontext():
            found[name] = seen(partial(records_of, make(), folder / name))
    for name, make in CUT.items():
        wanted = make().replace(**{"training.rounds": 2}) if SIZE == 3 else make()
        found[name] = seen(partial(rounds_of, wanted, folder / name, resume=True))
    if SIZE == 3:
        found |= {"taken up": seen(partial(taken_up, folder / "taken up")), "spoken": seen(spoken)}
    if SIZE == 2:
        found |= {name: seen(partial(work, folder / name)) for name, work in OTHERS.items()}
        found["commands"] = commands(folder / "commands")
    found["threads after"] = threads()
    (folder / f"seen-{RANK}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
