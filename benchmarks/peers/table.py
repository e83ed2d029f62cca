"""The result of a comparison: a table, and every race that can be won or lost."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Race:
    """One number of ours beside a peer's; less is better.

    Attributes:
        measure: "time" in seconds, "memory" in bytes, or "error" as a fraction.
    """

    what: str
    measure: str
    ours: float
    peer: str
    theirs: float

    @property
    def is_lost(self) -> bool:
        """Whether the peer's number is less."""
        return self.theirs < self.ours

    def describe_loss(self) -> str:
        """Return a sentence with both numbers.

        >>> Race("a job", "time", 2.0, "other", 1.0).describe_loss()
        'a job: other takes 0.500 of our time (1 s against 2 s).'
        """
        show = {"time": format_duration, "memory": format_size, "error": format_percent}[
            self.measure
        ]
        numbers = f"({show(self.theirs)} against {show(self.ours)})"
        if self.measure == "error":
            return f"{self.what}: {self.peer} is nearer to the reference {numbers}."
        ratio = self.theirs / self.ours
        return f"{self.what}: {self.peer} takes {ratio:.3f} of our {self.measure} {numbers}."


@dataclass
class Section:
    """One comparison on the page."""

    title: str
    about: list[str]
    heads: list[str]
    rows: list[list[str]] = field(default_factory=list)
    races: list[Race] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    peers: list[str] = field(default_factory=list)

    def add_failure(self, name: str, reason: str) -> None:
        """Add a row for a peer that could not be run."""
        self.rows.append([name, reason, *[""] * (len(self.heads) - 2)])

    def lines(self) -> list[str]:
        """Return the section as Markdown."""
        table = ["| " + " | ".join(row) + " |" for row in [self.heads, *self.rows]]
        table.insert(1, "|---" + "|---:" * (len(self.heads) - 1) + "|")
        notes = ["", *self.notes] if self.notes else []
        return [
            f"## {self.title}",
            "",
            *self.about,
            "",
            *table,
            *notes,
            "",
            f"Peers: {'; '.join(self.peers)}.",
        ]


def format_duration(seconds: float) -> str:
    """Return three digits and a unit.

    >>> format_duration(2.5e-5), format_duration(0.0123), format_duration(4.0)
    ('25 µs', '12.3 ms', '4 s')
    """
    for unit, name in ((1, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-6:.3g} µs"


def format_size(count: float) -> str:
    """Return bytes in a larger unit.

    >>> format_size(3 * 2**30), format_size(2**28)
    ('3.00 GiB', '256 MiB')
    """
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def format_percent(fraction: float) -> str:
    """Return a difference in percent.

    >>> format_percent(0.1)
    '+10.00 %'
    """
    return f"{100 * fraction:+.2f} %"


def format_ratio(ratio: float) -> str:
    """Return two digits or more.

    >>> format_ratio(0.5), format_ratio(12.3), format_ratio(4321.0)
    ('0.50', '12', '4,321')
    """
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2f}"
