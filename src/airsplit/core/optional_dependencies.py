"""Optional dependencies: the modules that each extra installs, and how to get them."""

from __future__ import annotations

from importlib import util

from airsplit.core.errors import AirsplitError

# The modules that each extra of the package installs.
EXTRAS = {
    "network": ("grpc", "google.protobuf", "cryptography"),
    "dashboard": ("starlette", "uvicorn"),
}


class MissingExtra(AirsplitError, ImportError):
    """An optional part of the package is not installed."""


def find_missing_modules(extra: str) -> list[str]:
    """Return the modules of an extra that are not installed; none of them is imported.

    >>> find_missing_modules("dashboard")
    []
    """
    return [name for name in EXTRAS[extra] if not _is_installed(name)]


def require_extra(extra: str) -> None:
    """Raise if an extra is not installed."""
    missing = find_missing_modules(extra)
    if missing:
        raise MissingExtra(
            f"this needs the extra [{extra}]; not installed: {', '.join(missing)}; "
            f"pip install 'airsplit[{extra}]'"
        )


def _is_installed(module: str) -> bool:
    try:
        return util.find_spec(module) is not None
    except ModuleNotFoundError:
        # find_spec imports parent packages, and not even that of a dotted name is installed.
        return False
