"""How far a training is, on a terminal and elsewhere."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from airsplit.cli import progress
from airsplit.cli.progress import ProgressReporter
from airsplit.runs.metric import Metric
from airsplit.runs.record import RoundRecord
from report.run_folders import a_record


class Clock:
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def rounds_of(
    follower: ProgressReporter, clock: Clock, *, steps: int, step_s: float, rounds: int
) -> Iterator[RoundRecord]:
    for number in range(1, rounds + 1):
        for step in range(1, steps + 1):
            clock.now_s += step_s
            follower.on_step(f"round {number}: step {step}")
        yield a_record(number)


@pytest.mark.parametrize(
    ("step_s", "told"),
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
def test_elsewhere_short_rounds_are_told_of_now_and_then_and_long_ones_say_how_far_they_are(
    clock: Clock, capsys: pytest.CaptureFixture[str], step_s: float, told: list[str]
) -> None:
    follower = ProgressReporter(3, Metric())
    records = list(follower.follow(rounds_of(follower, clock, steps=5, step_s=step_s, rounds=3)))
    lines = capsys.readouterr().err.splitlines()
    assert [record.round for record in records] == [1, 2, 3]
    assert [line.removeprefix("airsplit: ").split(" ·")[0] for line in lines] == told
    assert lines[-1].endswith("0:00 left")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_round_that_goes_on_is_the_last_line_until_it_is_over(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    follower = ProgressReporter(2, Metric())
    drawn = list[str]()
    assert follower._live is not None
    monkeypatch.setattr(
        follower._live,
        "update",
        lambda text: drawn.append("\n".join(map(str, getattr(text, "renderables", [text])))),
    )
    list(follower.follow(rounds_of(follower, clock, steps=3, step_s=0.4, rounds=2)))
    assert [text.splitlines()[-1].split()[0] for text in drawn] == [
        "round",
        "devices",
        "round",
        "devices",
    ]
    assert drawn[0] == "round 1: step 2"
    assert drawn[2].startswith("round  ")
    assert drawn[2].endswith("round 2: step 2")
    assert "airsplit:" not in screen.getvalue()
