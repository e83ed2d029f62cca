"""A few lines on a terminal that show a training: progress, scores, loss, and the devices' time."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from airsplit.core.formatting import format_bar, format_percent, format_seconds
from airsplit.runs.metric import Metric
from airsplit.runs.record import RoundRecord
from airsplit.runs.wording import TIME_LABELS

# Eighths of a cell, from low to high.
LEVELS = "▁▂▃▄▅▆▇█"
COLORS = {"compute": "blue", "transmit": "yellow", "server": "green", "idle": "bright_black"}

# The fields of a record that split up the devices' time, with the words and color of each.
KINDS = {f"{kind}_s": (TIME_LABELS[kind], color) for kind, color in COLORS.items()}

# Columns of a bar or a sparkline, and of the label before it.
WIDTH = 30
LABEL = 10


class ProgressView:
    """The state of a training, from the records of its rounds.

    Attributes:
        current: Progress within the round that is being trained; empty once it is over.
    """

    def __init__(self, rounds: int, metric: Metric, clock: str = "virtual time") -> None:
        """Start without records; `clock` names what the run's seconds are."""
        self._rounds = rounds
        self._metric = metric
        self._clock = clock
        self._last: RoundRecord | None = None
        self._scores: list[float] = []
        self._losses: list[float] = []
        self._spent_s = dict.fromkeys(KINDS, 0.0)
        self.current = ""

    def add(self, record: RoundRecord) -> None:
        """Add the record of a round that is over."""
        self._last = record
        self.current = ""
        score = self._metric.of(record)
        # Not every round is evaluated, and some are finished by no device.
        if score is not None:
            self._scores.append(score)
        if record.train_loss is not None:
            self._losses.append(record.train_loss)
        for key in KINDS:
            self._spent_s[key] += sum(getattr(record, key))

    def render(self, left_s: float | None = None) -> RenderableType:
        """Return the lines to show; `left_s` is the estimated time left."""
        last = self._last
        if last is None:
            return Text(self.current or "training …")

        done = format_bar(last.round / self._rounds, WIDTH)
        progress = (
            f"{'round':{LABEL}}{done:{WIDTH}}  {last.round:,} of {self._rounds:,} · "
            f"{self._clock} {format_seconds(last.virtual_time_s)}"
        )
        if left_s is not None:
            progress += f" · {format_time_left(left_s)}"
        lines = [Text(progress)]
        if self._scores:
            lines.append(self._render_scores())

        if self._losses:
            # From 0, so that a loss that hardly falls does not look as if it did.
            line = sparkline(self._losses, 0.0, max(self._losses))
            lines.append(Text(f"{'loss':{LABEL}}{line:{WIDTH}}  {self._losses[-1]:.3f}"))
        else:
            lines.append(Text("no device has finished a round yet"))
        if any(self._spent_s.values()):
            lines.append(self._render_time())
        if self.current:
            lines.append(Text(self.current))
        return Group(*lines)

    def _render_scores(self) -> Text:
        """Draw accuracy from 0 to 1, or another metric between its extremes so far."""
        low, high = 0.0, 1.0
        if not self._metric.is_accuracy:
            low = min(self._scores)
            high = max(self._scores)
        # The name of a custom metric may be too long to be a label.
        name = self._metric.name if len(self._metric.name) < LABEL else "metric"
        line = sparkline(self._scores, low, high)
        return Text(f"{name:{LABEL}}{line:{WIDTH}}  {self._metric.show(self._scores[-1])}")

    def _render_time(self) -> Text:
        """Draw what the devices spent their time with, as one stacked bar."""
        total_s = sum(self._spent_s.values())
        text = Text(f"{'devices':{LABEL}}")
        drawn = 0
        end_s = 0.0
        for key, (_, color) in KINDS.items():
            # Round the ends, not the widths, so that the widths sum to the whole bar.
            end_s += self._spent_s[key]
            cells = round(WIDTH * (end_s / total_s)) - drawn
            text.append("█" * cells, style=color)
            drawn += cells

        shares = [
            f"{format_percent(self._spent_s[key] / total_s, 0)} {words}"
            for key, (words, _) in KINDS.items()
            if self._spent_s[key]
        ]
        return text.append(f"  {', '.join(shares)}")


def format_time_left(left_s: float) -> str:
    """Return minutes and seconds.

    >>> format_time_left(65.0)
    '1:05 left'
    """
    minutes, seconds = divmod(int(left_s), 60)
    return f"{minutes}:{seconds:02d} left"


def sparkline(values: Sequence[float], low: float, high: float, width: int = WIDTH) -> str:
    """Draw values as a line of blocks; of more than `width` values, draw the last of each group.

    >>> sparkline([0.0, 0.5, 1.0], 0.0, 1.0), sparkline([1.0] * 100, 0.0, 1.0, 5)
    ('▁▅█', '█████')
    """
    count = min(len(values), width)
    last_of_groups = [values[(group + 1) * len(values) // count - 1] for group in range(count)]

    # Values that are all equal have no range to scale by.
    if high <= low:
        return LEVELS[0] * count
    # The highest value falls on the edge above the last level, so the level is capped below.
    scale = len(LEVELS) / (high - low)
    heights = (int((value - low) * scale) for value in last_of_groups)
    return "".join(LEVELS[min(height, len(LEVELS) - 1)] for height in heights)
