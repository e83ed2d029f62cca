"""What each peer is given to do: scripts that run in an environment of their own and print one line of JSON."""

from __future__ import annotations

import json
import os
from typing import Any


def given() -> dict[str, Any]:
    """What the driver asks for."""
    return dict(json.loads(os.environ["PEERS_GIVEN"]))


def tell(**found: Any) -> None:
    """Hand the result to the driver."""
    print(json.dumps(found), flush=True)
