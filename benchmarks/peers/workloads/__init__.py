"""Scripts that run in the environment of a peer and print one line of JSON."""

from __future__ import annotations

import json
import os
from typing import Any


def get_arguments() -> dict[str, Any]:
    """Return the arguments that the driver has passed."""
    return dict(json.loads(os.environ["PEERS_ARGUMENTS"]))


def report(**values: Any) -> None:
    """Hand the result to the driver."""
    print(json.dumps(values), flush=True)
