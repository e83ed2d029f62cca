"""Progress of a training, on a terminal and in a log."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.live import Live

from airsplit.cli import progress
from airsplit.cli.progress import ProgressReporter
from airsplit.runs.metric import Metric
from airsplit.runs.record import RoundRecord
from report.run_folders import a_record


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(progress, "time", fake)
    return fake


def train_rounds(
    reporter: ProgressReporter, clock: Clock, *, steps: int, step_s: float, rounds: int
) -> Iterator[RoundRecord]:
    for number in range(1, rounds + 1):
        for step in range(1, steps + 1):
            clock.now_s += step_s
            reporter.on_step(f"round {number}: step {step}")
        yield a_record(number)


@pytest.mark.parametrize(
    ("step_s", "expected"),
    [
        (0.1, ["round 1 of 3", "round 3 of 3"]),
        (1.0, ["round 1 of 3", "round 2 of 3", "round 3 of 3"]),
        (
            8.0,
            [
                "round 1: step 3",
                "round 1 of 3",
                "round 2: step 3",
                "round 2 of 3",
                "round 3: step 3",
                "round 3 of 3",
            ],
        ),
        (
            30.0,
            [
                f"round {r}{at}"
                for r in (1, 2, 3)
                for at in (*(f": step {step}" for step in range(1, 6)), " of 3")
            ],
        ),
    ],
)
def test_a_log_has_some_short_rounds_and_the_progress_of_long_ones(
    clock: Clock, capsys: pytest.CaptureFixture[str], step_s: float, expected: list[str]
) -> None:
    reporter = ProgressReporter(3, Metric())
    records = list(reporter.follow(train_rounds(reporter, clock, steps=5, step_s=step_s, rounds=3)))
    lines = capsys.readouterr().err.splitlines()
    assert [record.round for record in records] == [1, 2, 3]
    assert [line.removeprefix("airsplit: ").split(" ·")[0] for line in lines] == expected
    assert lines[-1].endswith("0:00 left")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_current_round_is_the_last_line_until_it_is_over(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    rendered: list[str] = []

    def record(_: Live, text: Any) -> None:
        rendered.append("\n".join(map(str, getattr(text, "renderables", [text]))))

    monkeypatch.setattr(Live, "update", record)
    reporter = ProgressReporter(2, Metric())
    list(reporter.follow(train_rounds(reporter, clock, steps=3, step_s=0.4, rounds=2)))
    assert [text.splitlines()[-1].split()[0] for text in rendered] == [
        "round",
        "devices",
        "round",
        "devices",
    ]
    assert rendered[0] == "round 1: step 2"
    assert rendered[2].startswith("round  ")
    assert rendered[2].endswith("round 2: step 2")
    assert "airsplit:" not in screen.getvalue()
