"""Fence doctests, which mkdocstrings would otherwise show as quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe


class FenceDoctests(griffe.Extension):
    """Put a code block around each doctest of a docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence_doctests(obj.docstring.value)


def fence_doctests(text: str) -> str:
    """
    >>> fence_doctests("Add.\\n\\n>>> 1 + 1\\n2").splitlines()[2:]
    ['```pycon', '>>> 1 + 1', '2', '```']
    """
    blocks = re.split(r"\n\s*\n", text.strip("\n"))
    return "\n\n".join(
        f"```pycon\n{block}\n```" if block.startswith(">>>") else block for block in blocks
    )
