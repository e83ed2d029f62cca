"""What a terminal shows of a training while it goes on: the facts of its report, in a few lines that change."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from airsplit.core.formatting import format_bar, format_percent, format_seconds
from airsplit.runs.metric import Metric
from airsplit.runs.record import RoundRecord
from airsplit.runs.wording import TIME_LABELS

LEVELS = "▁▂▃▄▅▆▇█"
COLORS = {"compute": "blue", "transmit": "yellow", "server": "green", "idle": "bright_black"}
KINDS = {f"{kind}_s": (TIME_LABELS[kind], color) for kind, color in COLORS.items()}
WIDTH = 30
LABEL = 10


class Facts:
    """What is known so far."""

    def __init__(self, rounds: int, metric: Metric, clock: str = "virtual time") -> None:
        """`clock` is what the run's seconds are; `now` is said of the round that goes on, until it is over."""
        self._rounds, self._metric, self._clock = rounds, metric, clock
        self._last: RoundRecord | None = None
        self._tested, self._losses = list[float](), list[float]()
        self._spent = dict.fromkeys(KINDS, 0.0)
        self.now = ""

    def add(self, record: RoundRecord) -> None:
        """A round is over."""
        self._last, self.now = record, ""
        tested = self._metric.of(record)
        if tested is not None:
            self._tested.append(tested)
        if record.train_loss is not None:
            self._losses.append(record.train_loss)
        for key in KINDS:
            self._spent[key] += sum(getattr(record, key))

    def drawn(self, left_s: float | None = None) -> RenderableType:
        """The lines; before the first round only what goes on now."""
        now = Text(self.now) if self.now else None
        if self._last is None:
            return now or Text("training …")
        lines = (self._progress(left_s), self._quality(), self._loss(), self._time(), now)
        return Group(*(line for line in lines if line is not None))

    def _progress(self, left_s: float | None) -> Text:
        assert self._last is not None  # noqa: S101 - the caller has looked
        done = self._last.round
        left = "" if left_s is None else f" · {time_left(left_s)}"
        text = Text(f"{'round':10}{format_bar(done / self._rounds, WIDTH):{WIDTH}}  ")
        return text.append(
            f"{done:,} of {self._rounds:,} · {self._clock} {format_seconds(self._last.virtual_time_s)}{left}"
        )

    def _quality(self) -> Text | None:
        """Accuracy, or the metric of the user's own between the least and the greatest that it was."""
        if not self._tested:
            return None
        name = self._metric.name if len(self._metric.name) < LABEL else "metric"
        low, high = (
            (0.0, 1.0) if self._metric.is_accuracy else (min(self._tested), max(self._tested))
        )
        return Text(
            f"{name:{LABEL}}{levels(self._tested, low, high, WIDTH):{WIDTH}}  {self._metric.show(self._tested[-1])}"
        )

    def _loss(self) -> Text | None:
        if not self._losses:
            return Text("no device has finished a round yet")
        return Text(
            f"{'loss':10}{levels(self._losses, 0.0, max(self._losses), WIDTH):{WIDTH}}  {self._losses[-1]:.3f}"
        )

    def _time(self) -> Text | None:
        """What the devices did, as one bar."""
        whole = sum(self._spent.values())
        if not whole:
            return None
        text, drawn = Text(f"{'devices':10}"), 0
        ends = [sum(list(self._spent.values())[: at + 1]) / whole for at in range(len(KINDS))]
        for (_, color), end in zip(KINDS.values(), ends, strict=True):
            cells = round(WIDTH * end) - drawn
            text.append("█" * cells, style=color)
            drawn += cells
        said = ", ".join(
            f"{format_percent(self._spent[key] / whole, 0)} {word}"
            for key, (word, _) in KINDS.items()
            if self._spent[key]
        )
        return text.append(f"  {said}")


def time_left(left_s: float) -> str:
    """
    >>> time_left(65.0)
    '1:05 left'
    """
    return f"{int(left_s) // 60}:{int(left_s) % 60:02d} left"


def levels(values: Sequence[float], low: float, high: float, width: int = WIDTH) -> str:
    """A line of text that rises and falls: the last values, or of many of them the last of neighbors.

    >>> levels([0.0, 0.5, 1.0], 0.0, 1.0), levels([1.0] * 100, 0.0, 1.0, 5), levels([2.0], 0.0, 0.0)
    ('▁▅█', '█████', '▁')
    """
    count = min(len(values), width)
    chosen = [values[(at + 1) * len(values) // count - 1] for at in range(count)]
    span = high - low
    return "".join(
        LEVELS[min(int((value - low) / span * len(LEVELS)), len(LEVELS) - 1) if span > 0 else 0]
        for value in chosen
    )
