"""What happens, told to whoever wants to know: the name of an event, and facts about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Tell = Callable[..., None]
"""Called with the name of an event, and facts about it by name."""


def silent(event: str, **facts: Any) -> None:
    """Tell nobody."""
