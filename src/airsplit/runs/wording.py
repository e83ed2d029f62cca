"""Labels and descriptions that the report, the terminal and the dashboard share."""

from __future__ import annotations

# The kinds of time of a device.
TIME_LABELS = {
    "compute": "computing",
    "transmit": "on the air",
    "server": "at the server",
    "idle": "waiting",
    "absent": "not taking part",
}

# Completes "Energy is …", for fleets without joules_per_mac.
NO_ENERGY = (
    "left out because computing would be missing from it; set fleet.joules_per_mac, "
    "or that column of a fleet's file"
)

# Title and description of each built-in algorithm. They are not with the algorithms because
# those need torch, and pages are written without it.
ALGORITHM_TEXTS = {
    "sfl": (
        "SFL",
        "a split for each device; layers after the deepest split are averaged every round, "
        "the others stay personal",
    ),
    "fedavg": ("FedAvg", "every device trains the whole model; all of it is averaged every round"),
    "split-learning": (
        "split learning",
        "device after device trains one model, each with the whole band to itself",
    ),
    "splitfed-v1": (
        "SplitFed V1",
        "a split for each device; the whole model is averaged every round",
    ),
    "splitfed-v2": (
        "SplitFed V2",
        "one model on the server that every step updates; "
        "the devices' layers are averaged every round",
    ),
}


def format_algorithm(algorithm: str) -> str:
    """Return an algorithm's name for use in a sentence; a user's own keeps its path.

    >>> format_algorithm("fedavg"), format_algorithm("median:MEDIAN")
    ('FedAvg', 'median:MEDIAN')
    """
    if algorithm not in ALGORITHM_TEXTS:
        return algorithm
    title, _ = ALGORITHM_TEXTS[algorithm]
    return title
