"""A row for every model, as Markdown."""

from __future__ import annotations

from dataclasses import dataclass, field

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
    """The result of one model; an empty cell was not reached."""

    model: str
    family: str
    splits: str = ""
    matmul: str = ""
    published: str = ""
    parameters: str = ""
    seconds: str = ""
    findings: Findings = field(default_factory=Findings)
    refused: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether there was something to cut, and nothing went wrong."""
        return not self.findings.problems and not self.refused and self.splits not in ("", "1")

    def line(self) -> str:
        """Return the row."""
        if self.refused:
            message = self.refused.replace("|", "/")
            empty = "| " * (len(COLUMNS) - 2)
            return f"| {self.model} | refused: {message} {empty}|"
        cells = [
            self.model,
            self.splits,
            self.matmul,
            self.published,
            self.parameters,
            self.seconds,
            *self._cut_cells(),
        ]
        return f"| {' | '.join(cells)} |"

    def _cut_cells(self) -> list[str]:
        findings = self.findings
        if not findings.splits:
            return ["", "", ""]

        outputs = _format_difference(findings.outputs)
        if any(problem.startswith(("outputs", "cut")) for problem in findings.problems):
            outputs = "**wrong**"
        evaluation, training = (
            _format_difference(findings.gradients[mode]) for mode in ("eval", "train")
        )
        gradients = f"{evaluation} / {training}"
        if any(problem.startswith(("gradients", "cut")) for problem in findings.problems):
            gradients = "**wrong**"
        return [str(len(findings.splits)), outputs, gradients]


def _format_difference(difference: float) -> str:
    """Return one digit.

    >>> _format_difference(0.0), _format_difference(3.21e-7)
    ('equal', '3e-07')
    """
    return f"{difference:.0e}" if difference else "equal"


def tabulate(rows: list[Row], family: str) -> list[str]:
    """Return a heading and the rows of one family, by name."""
    rows = sorted((row for row in rows if row.family == family), key=lambda row: row.model)
    if not rows:
        return []
    cut = sum(row.is_cut for row in rows)
    single = sum(row.splits == "1" for row in rows)
    refused = sum(bool(row.refused) for row in rows)
    return [
        f"## {family}: {cut} of {len(rows)} profiled and cut, {single} with one split only, "
        f"{refused} refused",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|" + "---|" * len(COLUMNS),
        *(row.line() for row in rows),
        "",
    ]
