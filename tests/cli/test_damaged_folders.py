"""With any damage to a file of a run folder, every command works or reports one line.

No command continues with, or exports, tensors other than those that were trained.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from airsplit.cli.app import main
from airsplit.dashboard.live_runs import LiveRuns
from cli.small_net import SCENARIO, write_small_net

Damage = Callable[[bytes, random.Random], bytes]

FILES = (
    "scenario.toml",
    "changes.json",
    "plan.json",
    "rounds.jsonl",
    "checkpoint/checkpoint.json",
    "checkpoint/round-000003.json",
    "checkpoint/round-000002.json",
    "checkpoint/round-000003.safetensors",
    "checkpoint/round-000002.safetensors",
    "checkpoint/fixed.safetensors",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Train a run of three rounds ("run"), the same with two ("two") and with four ("four")."""
    folder = tmp_path_factory.mktemp("damaged")
    # A frozen parameter, so that a checkpoint has a fixed.safetensors.
    scenario = SCENARIO.replace("small_net:mlp", "small_net:mlp_with_frozen_bias")
    write_small_net(folder, scenario=scenario)
    sys.modules.pop("small_net", None)
    sys.path.insert(0, str(folder))
    words = ["run", str(folder / "small.toml"), "--set", "training.learning_rate=0.2", "--out"]
    assert main([*words, str(folder / "run")]) == 0
    assert main([*words, str(folder / "two"), "--set", "training.rounds=2"]) == 0
    assert main([*words, str(folder / "four"), "--set", "training.rounds=4"]) == 0
    for name in ("run", "two", "four"):
        target = str(folder / f"{name}.safetensors")
        assert main(["export", str(folder / name), "--device", "1", "--out", target]) == 0
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("small_net", None)


def cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def nest(content: bytes, rng: random.Random) -> bytes:
    """Replace a value, or the whole file, by something deeply nested."""
    deep = rng.choice(
        [
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"[" * 900 + b"]" * 900,
            b'{"a":' * 100 + b"1" + b"}" * 100,
        ]
    )
    colons = [at + 1 for at, letter in enumerate(content) if letter in b":="]
    at = rng.choice([0, *colons])
    if at == 0:
        return deep
    return content[:at] + deep + content[at:].partition(b",")[2]


def inflate(content: bytes, rng: random.Random) -> bytes:
    """Replace a digit by a number that no reader can use."""
    digits = [at for at, letter in enumerate(content) if letter in b"0123456789"]
    if not digits:
        return b"9" * 4000
    at = rng.choice(digits)
    number = rng.choice(
        [b"9" * 400, b"9" * 5000, b"1e400", b"-1e999", b"NaN", b"99999999999999999999"]
    )
    return content[:at] + number + content[at + 1 :]


def empty(content: bytes, rng: random.Random) -> bytes:
    return rng.choice([b"", b"\0" * len(content), b"null", b"[]", b"{}", b'"x"', b"3", b"\xff\xfe"])


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run a command; return its exit code and stderr, where a mistake must be one line."""

    def call(*words: object) -> tuple[int, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        assert code in (0, 2), printed.err
        if code == 2:
            assert len(printed.err.splitlines()) == 1, printed.err
            assert printed.err.startswith("airsplit: ")
            assert printed.out == ""
        return code, printed.err

    return call


# Times that each kind of damage is done to each file; hundreds revealed nothing more.
TRIES = 2


@pytest.mark.parametrize("damage", [cut, flip, nest, inflate, empty])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_one_line_or_does_no_harm(
    folder: Path, tmp_path: Path, command: Callable[..., tuple[int, str]], name: str, damage: Damage
) -> None:
    trained = {name: load_file(folder / f"{name}.safetensors") for name in ("run", "two", "four")}
    exported = tmp_path / "exported.safetensors"
    for seed in range(TRIES):
        broken = tmp_path / f"run{seed}"
        shutil.copytree(folder / "run", broken)
        file = broken / name
        file.write_bytes(damage(file.read_bytes(), random.Random(f"{seed} {name}")))  # noqa: S311 - no secret

        command("report", broken)
        LiveRuns(tmp_path).overview()
        code, err = command("export", broken, "--device", 1, "--out", exported)
        if code == 0:
            expected = trained["two" if "the checkpoint of round 2 is used" in err else "run"]
            assert has_tensors(exported, expected), (seed, err)
        command("export", broken, "--average")

        words = ("--set", "training.rounds=4", "--set", "training.learning_rate=0.2")
        code, err = command("run", folder / "small.toml", "--out", broken, "--resume", *words)
        if code == 0:
            assert command("export", broken, "--device", 1, "--out", exported)[0] == 0
            assert has_tensors(exported, trained["four"]), (seed, err)
        shutil.rmtree(broken)


def has_tensors(file: Path, expected: dict[str, torch.Tensor]) -> bool:
    tensors = load_file(file)
    return tensors.keys() == expected.keys() and all(
        torch.equal(tensors[name], expected[name]) for name in expected
    )
