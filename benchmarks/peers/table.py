"""What a comparison found: a table, and every race that can be won or lost."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Race:
    """One number of ours beside a peer's; less is better."""

    what: str
    measure: str
    ours: float
    peer: str
    theirs: float

    @property
    def lost(self) -> bool:
        return self.theirs < self.ours

    def told(self) -> str:
        """
        >>> Race("a job", "time", 2.0, "other", 1.0).told()
        'a job: other takes 0.500 of our time (1 s against 2 s).'
        """
        show = size if self.measure == "memory" else duration if self.measure == "time" else percent
        against = f"({show(self.theirs)} against {show(self.ours)})"
        if self.measure == "error":
            return f"{self.what}: {self.peer} is nearer to the reference {against}."
        return f"{self.what}: {self.peer} takes {self.theirs / self.ours:.3f} of our {self.measure} {against}."


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

    def failed(self, first: str, reason: str) -> None:
        """A row for what could not be run."""
        self.rows.append([first, reason, *[""] * (len(self.heads) - 2)])

    def lines(self) -> list[str]:
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


def duration(seconds: float) -> str:
    """
    >>> duration(2.5e-5), duration(0.0123), duration(4.0)
    ('25 µs', '12.3 ms', '4 s')
    """
    for unit, name in ((1, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-6:.3g} µs"


def size(count: float) -> str:
    """
    >>> size(3 * 2**30), size(2**28)
    ('3.00 GiB', '256 MiB')
    """
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def percent(part: float) -> str:
    return f"{100 * part:+.2f} %"


def times(ratio: float) -> str:
    """
    >>> times(0.5), times(12.3), times(4321.0)
    ('0.50', '12', '4,321')
    """
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2f}"
