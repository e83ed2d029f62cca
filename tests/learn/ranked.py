"""What processes do that torchrun has started: torchrun … -m learn.ranked FOLDER.

All scenarios in one launch, because each process takes two seconds to load torch.  Each process writes what it saw to FOLDER/seen-RANK.json.
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
from pathlib import Path
from typing import Any

import torch

import airsplit as air
from airsplit import AirsplitError
from airsplit.cli.app import main as command
from airsplit.scenario import Scenario

from . import killed, tiny

RANK = int(os.environ.get("RANK", "0"))
SPLITS = [1, 2, 3, 1, 2]


def scenario(**changes: Any) -> Scenario:
    """In double precision, so that what is the same but for rounding can be told from what is not."""
    return tiny.scenario(**{"splits": SPLITS, "kind": "float64", "momentum": 0.9, "rounds": 3} | changes)


def by_exact_plan(**changes: Any) -> Scenario:
    """Boundaries move, devices are absent or drop out."""
    return killed.scenario().replace(**{"training.rounds": 8, "model.arguments.kind": "float64", "model.input_dtype": "float64"} | changes)


FEW = {"data": "flat", "partition": "iid"}
TRAINED: dict[str, Callable[[], Scenario]] = {
    "one after the other": lambda: scenario(),
    "one batch": lambda: scenario(iterations_per_round=1),
    "one batch, by samples": lambda: scenario(iterations_per_round=1, weighting="samples", network__compression="none"),
    "one device a round": lambda: scenario(participation=0.2, rounds=5),
    "one device a round, one batch": lambda: scenario(participation=0.2, rounds=5, iterations_per_round=1),
    "nobody finishes": lambda: scenario(participation=0.4, dropout_probability=0.7, rounds=6),
    "one device": lambda: scenario(splits=[2], **FEW),
    "one device, one batch": lambda: scenario(splits=[2], iterations_per_round=1, average_fronts_every=1, **FEW),
    "two devices": lambda: scenario(splits=[2, 1], average_fronts_every=2, **FEW),
    "two devices, all averaged": lambda: scenario(splits=[2, 1], algorithm="fedavg", iterations_per_round=1, **FEW),
    "fronts averaged": lambda: scenario(average_fronts_every=2, weighting="samples", rounds=4),
    "counted batches": lambda: scenario(
        model="norm_mlp", data="parted_evenly", splits=[2, 1, 2, 3], participation=0.5, average_fronts_every=3, rounds=6
    ),
    "batch norm, all averaged": lambda: scenario(
        model="norm_mlp", data="parted_evenly", splits=[2, 1, 2, 3], algorithm="fedavg", participation=0.5
    ),
    "adam": lambda: scenario(optimiser="adam", momentum=None, learning_rate=0.03, weighting="samples", participation=0.6, rounds=4),
    "splitfed": lambda: scenario(algorithm="splitfed-v1"),
    "dropout": lambda: scenario(model="dropout_mlp", splits=[1, 3, 2, 1, 4], model__arguments={"front": 0.3, "back": 0.3}),
    "boundary moves": lambda: by_exact_plan(),
    "boundary moves, batch norm": lambda: by_exact_plan(
        **{"model.name": "learn.tiny:norm_mlp", "training.dataset": "learn.tiny:flat", "training.partition": "iid", "training.batch_size": 3}
    ),
    "boundary moves, one batch": lambda: by_exact_plan(**{"training.iterations_per_round": 1}),
    "some evaluated": lambda: scenario(evaluate_every=2, evaluate_devices=2, evaluate_samples=9, rounds=4),
    "numbers": lambda: scenario(model="line", data="numbers", splits=[2, 1], partition="iid", loss="learn.tiny:squared_error", learning_rate=0.01),
    "compressed": lambda: scenario(iterations_per_round=1, network__compression="fp16"),
    **{model: lambda model=model: scenario(model=model, splits=[1, 2, 1, 2, 1]) for model in ("unused", "scaled", "overlapping", "tied")},
    "expanded": lambda: scenario(model="expanded", splits=[1, 2, 1, 2, 1]),
    "bfloat16": lambda: scenario(kind="bfloat16", rounds=1),
}
"""What must come out the same, however many processes there are."""

RESUMED = {name: TRAINED[name] for name in ("one after the other", "boundary moves", "counted batches", "adam", "fronts averaged", "expanded")}
CUT_AFTER = 2


# ---- what a scenario can name ------------------------------------------------------------------------------------------------
def last_has_nan() -> Any:
    """What the last of five devices has is not finite."""
    parts, test = tiny.parted()
    parts[-1][0][:] = float("nan")
    return parts, test


def other_in_each() -> Any:
    """Data that are not the same in all processes."""
    (inputs, labels), test = tiny.flat()
    return (inputs + RANK, labels), test


def printing() -> Any:
    print("loading")
    warnings.warn("a factory warns", stacklevel=1)
    return tiny.flat()


_calls = 0


def deadly_loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Kills the last process once, in its twelfth step."""
    global _calls
    _calls += 1
    flag = Path(os.environ.get("AIRSPLIT_TEST_FLAG", os.devnull))
    if _calls == 24 and int(os.environ.get("WORLD_SIZE", "1")) - 1 == RANK and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.nn.functional.cross_entropy(output, labels)


# ---- what goes wrong, or stops early -----------------------------------------------------------------------------------------
def stopped_by(rank: int, folder: Path) -> list[int]:
    """A process has enough after two rounds; the others would go on."""
    seen = []
    for record in air.simulate(scenario(rounds=5, checkpoint_every=4), out=folder):
        seen.append(record.round)
        if record.round == 2 and rank in (RANK, -1):
            break
    return seen


def rounds_of(wanted: Scenario, folder: Path | None, *, resume: bool = False) -> list[int]:
    return [record.round for record in air.simulate(wanted, out=folder, resume=resume)]


OTHERS: dict[str, Callable[[Path], Any]] = {
    "diverges in the last": lambda out: rounds_of(scenario(data="parted").replace(**{"training.dataset": f"{__name__}:last_has_nan"}), out),
    "diverges in the last, one batch": lambda out: rounds_of(
        scenario(data="parted", iterations_per_round=1).replace(**{"training.dataset": f"{__name__}:last_has_nan"}), out
    ),
    "gradients that are not finite": lambda out: rounds_of(scenario(model="rooted", splits=[2] * 5, fast_paths=False), out),
    "in turns": lambda out: rounds_of(scenario(algorithm="split-learning"), out),
    "another scenario in each": lambda out: rounds_of(scenario(learning_rate=0.1 + RANK / 10), out),
    "other data in each": lambda out: rounds_of(scenario(**FEW).replace(**{"training.dataset": f"{__name__}:other_in_each"}), out),
    "a mistake in the first": lambda out: rounds_of(scenario(splits=[99] * 5) if RANK == 0 else scenario(), out),
    "a mistake in the second": lambda out: rounds_of(scenario(model="all_frozen") if RANK == 1 else scenario(), out),
    "begun": lambda out: rounds_of(scenario(), out),
    "begun, and again": lambda out: rounds_of(scenario(), out.parent / "begun"),
    "resumed with other settings": lambda out: rounds_of(scenario(learning_rate=0.1), out.parent / "begun", resume=True),
    "a folder that cannot be": lambda out: rounds_of(scenario(), out.parent / "begun/scenario.toml/run"),
    "no folder": lambda out: rounds_of(scenario(), None),
    "a folder for the first only": lambda out: rounds_of(scenario(), out if RANK == 0 else None),
    "the first has enough": lambda out: stopped_by(0, out),
    "the last has enough": lambda out: stopped_by(int(os.environ["WORLD_SIZE"]) - 1, out),
    "all have enough": lambda out: stopped_by(-1, out),
    "nobody begins": lambda out: (air.simulate(scenario(), out=out), None)[1],
}


def commands(out: Path) -> dict[str, Any]:
    """What a process prints to the words of a command line: exit code, stdout, stderr."""
    printed = f"training.dataset={__name__}:printing"
    file = out.parent / "scenario.toml"
    words = {
        "run": ["run", file, "--out", out / "run", "--set", printed, "--json"],
        "run again": ["run", file, "--out", out / "run"],
        "a setting": ["run", file, "--out", out / "other", "--set", "training.algorithm=split-learning"],
        "diverges": ["run", file, "--out", out / "diverged", "--set", f"training.dataset={__name__}:last_has_nan", "--set", "training.partition=given"],
        "no such option": ["run", file, "--no-such-option"],
        "no such file": ["run", out / "nothing.toml"],
        "another command": ["plan", file],
    }
    return {name: _said([str(word) for word in line]) for name, line in words.items()}


def _said(words: list[str]) -> tuple[int, str, str]:
    with contextlib.redirect_stdout(io.StringIO()) as stdout, contextlib.redirect_stderr(io.StringIO()) as stderr:
        code = command(words)
    return code, stdout.getvalue(), stderr.getvalue()


def seen(work: Callable[[], Any]) -> dict[str, Any]:
    import time
    t=time.time()
    try:
        return {"result": work(), "t": time.time()-t}
    except AirsplitError as error:
        return {"error": type(error).__name__, "message": str(error)}


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    found = {name: seen(lambda make=make, name=name: rounds_of(make(), folder / name)) for name, make in TRAINED.items()}
    for name, make in RESUMED.items():
        began = make().replace(**{"training.rounds": CUT_AFTER})
        cut = folder / f"cut {name}"
        found[cut.name] = seen(lambda make=make, began=began, cut=cut: rounds_of(make() if cut.exists() else began, cut, resume=True))
    found |= {name: seen(lambda work=work, name=name: work(folder / name)) for name, work in OTHERS.items()}
    found["commands"] = commands(folder / "commands")
    (folder / f"seen-{RANK}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
