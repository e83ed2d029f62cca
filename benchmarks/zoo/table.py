"""A row for every model, as Markdown."""

from __future__ import annotations

from dataclasses import dataclass

from zoo.cutting import Findings

COLUMNS = (
    "model",
    "splits",
    "matmul GMAC",
    "published",
    "parameters",
    "profile",
    "cuts checked",
    "outputs",
    "gradients, eval / train",
)


@dataclass
class Row:
    """What became of one model; an empty cell was not reached."""

    model: str
    family: str
    splits: str = ""
    matmul: str = ""
    published: str = ""
    parameters: str = ""
    seconds: str = ""
    findings: Findings | None = None
    refused: str = ""

    @property
    def problems(self) -> list[str]:
        return self.findings.problems if self.findings else []

    @property
    def is_cut(self) -> bool:
        """Whether there was something to cut, and nothing went wrong."""
        return not self.problems and not self.refused and self.splits not in ("", "1")

    def line(self) -> str:
        if self.refused:
            return (
                f"| {self.model} | refused: {self.refused.replace('|', '/')} "
                + "| " * (len(COLUMNS) - 2)
                + "|"
            )
        cells = [
            self.model,
            self.splits,
            self.matmul,
            self.published,
            self.parameters,
            self.seconds,
            *self._checked(),
        ]
        return f"| {' | '.join(cells)} |"

    def _checked(self) -> list[str]:
        if self.findings is None or not self.findings.splits:
            return ["", "", ""]
        wrong_outputs = any(p.startswith(("outputs", "cut")) for p in self.problems)
        wrong_gradients = any(p.startswith(("gradients", "cut")) for p in self.problems)
        eval_, train = (_shown(self.findings.gradients[mode]) for mode in ("eval", "train"))
        return [
            str(len(self.findings.splits)),
            "**wrong**" if wrong_outputs else _shown(self.findings.outputs),
            "**wrong**" if wrong_gradients else f"{eval_} / {train}",
        ]


def _shown(difference: float) -> str:
    """
    >>> _shown(0.0), _shown(3.21e-7)
    ('equal', '3e-07')
    """
    return f"{difference:.0e}" if difference else "equal"


def table(rows: list[Row], family: str) -> list[str]:
    """A heading and the rows of one family, by name."""
    own = sorted((row for row in rows if row.family == family), key=lambda row: row.model)
    if not own:
        return []
    refused, single = sum(bool(row.refused) for row in own), sum(row.splits == "1" for row in own)
    counts = f"{sum(row.is_cut for row in own)} of {len(own)} profiled and cut, {single} with one split only, {refused} refused"
    heading = [
        f"## {family}: {counts}",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|" + "---|" * len(COLUMNS),
    ]
    return [*heading, *(row.line() for row in own), ""]
