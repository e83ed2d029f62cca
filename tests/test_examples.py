"""The examples run, and each is short enough to be read in a minute."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

# Each example, and something that it prints.
OUTPUT = {
    "plan_a_fleet": "expected-max",
    "own_model": "same: True",
    "compare_algorithms": "fedavg",
    "fading_and_replanning": "planned every 5 rounds",
    "networked": "splits:",
    "run_folder_in_pandas": "test_accuracy",
}


def test_all_examples_are_run() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == set(OUTPUT)


@pytest.mark.parametrize("name", OUTPUT)
def test_an_example_is_short_and_works(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = EXAMPLES / f"{name}.py"
    assert len(file.read_text().splitlines()) < 40

    runpy.run_path(str(file), run_name="__main__")

    printed = capsys.readouterr().out
    assert OUTPUT[name] in printed
    assert "same: False" not in printed
