"""The optional parts of the package: which packages each extra brings, and an error that says how to get them."""

from __future__ import annotations

from importlib import util

from airsplit.core.errors import AirsplitError

EXTRAS = {
    "network": ("grpc", "google.protobuf", "cryptography"),
    "dashboard": ("starlette", "uvicorn"),
}
"""Each extra of the package, and the modules that it brings."""


class MissingExtra(AirsplitError, ImportError):
    """A part of the package that was not installed along."""


def find_missing_modules(extra: str) -> list[str]:
    """What of an extra is not installed; nothing is imported.

    >>> find_missing_modules("dashboard")
    []
    """
    return [name for name in EXTRAS[extra] if not _installed(name)]


def require_extra(extra: str) -> None:
    """Raise where an extra is not installed."""
    missing = find_missing_modules(extra)
    if missing:
        raise MissingExtra(
            f"this needs the extra [{extra}]; not installed: {', '.join(missing)}; pip install 'airsplit[{extra}]'"
        )


def _installed(name: str) -> bool:
    try:
        return util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False
