"""Docstrings as Markdown: arguments that stand in columns become a list, and what follows >>> becomes code."""

from __future__ import annotations

import re
from typing import Any

import griffe

COLUMN = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)\s{2,}(\S.*)$")


class Markdown(griffe.Extension):
    """Rewrites every docstring that is loaded."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """
    >>> print(markdown("Add.\\n\\na, b  numbers\\n      of one kind\\n\\n>>> 1 + 1\\n2"))
    Add.
    <BLANKLINE>
    - **`a, b`**: numbers of one kind
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return "\n\n".join(_block(block) for block in re.split(r"\n\s*\n", text.strip("\n")))


def _block(block: str) -> str:
    lines = block.split("\n")
    if lines[0].startswith(">>>"):
        return "```pycon\n" + block + "\n```"
    if COLUMN.match(lines[0]) and all(
        COLUMN.match(line) or line.startswith("  ") for line in lines
    ):
        return "\n".join(_rows(lines))
    return block


def _rows(lines: list[str]) -> list[str]:
    rows: list[str] = []
    for line in lines:
        column = COLUMN.match(line)
        if column is not None and not line.startswith(" "):
            rows.append(f"- **`{column[1]}`**: {column[2]}")
        else:
            rows[-1] += " " + line.strip()
    return rows
