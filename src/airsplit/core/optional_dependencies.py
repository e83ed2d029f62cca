"""Optional dependencies of the package, which pip installs as extras: airsplit[network]."""

from __future__ import annotations

from importlib import util

from airsplit.core.errors import AirsplitError

# The modules of each extra in pyproject.toml, by the names under which they are imported.
EXTRAS = {
    "network": ("grpc", "google.protobuf", "cryptography"),
    "dashboard": ("starlette", "uvicorn"),
}


class MissingExtra(AirsplitError, ImportError):
    """An optional part of the package is not installed."""


def find_missing_modules(extra: str) -> list[str]:
    """Return the modules of an extra that are not installed, without importing any.

    >>> find_missing_modules("dashboard")
    []
    """
    missing: list[str] = []
    for name in EXTRAS[extra]:
        try:
            spec = util.find_spec(name)
        except ModuleNotFoundError:
            # find_spec imports the parents of a dotted name, and here they are missing, too.
            spec = None
        if spec is None:
            missing.append(name)
    return missing


def require_extra(extra: str) -> None:
    """Raise if a module of an extra is not installed."""
    missing = find_missing_modules(extra)
    if missing:
        raise MissingExtra(
            f"this needs the extra [{extra}]; not installed: {', '.join(missing)}; "
            f"pip install 'airsplit[{extra}]'"
        )
