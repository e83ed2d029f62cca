"""Names of devices: one rule, with certificates and without."""

from __future__ import annotations

import re

from airsplit.core.errors import InvalidValue, show


def require_name(field: str, value: str) -> str:
    """A device's name, which is also the name of its folder.

    >>> require_name("NAME", "pi-7.lab")
    'pi-7.lab'
    """
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
        return value
    rule = "1 to 64 letters, digits, '.', '_' or '-', the first a letter or a digit"
    raise InvalidValue(f"{field} must be {rule}, got {show(value)}")
