"""Words that the report, the terminal and the runs page share."""

from __future__ import annotations

# What devices spend their time with.
TIME_LABELS = {
    "compute": "computing",
    "transmit": "on the air",
    "server": "at the server",
    "idle": "waiting",
    "absent": "not taking part",
}

# Said of the energy of a fleet without joules_per_mac.
NO_ENERGY = "left out because computing would be missing from it; set fleet.joules_per_mac, or that column of a fleet's file"

# Titles and what they do; the training algorithms themselves need torch.
ALGORITHM_TEXTS = {
    "sfl": (
        "SFL",
        "a split for each device; layers behind the deepest split are averaged every round, the others stay personal",
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
        "one model on the server that every step updates; the devices' layers are averaged every round",
    ),
}


def format_algorithm(algorithm: str) -> str:
    """Return what an algorithm is called in a sentence: one by its path as it is.

    >>> format_algorithm("fedavg"), format_algorithm("median:MEDIAN")
    ('FedAvg', 'median:MEDIAN')
    """
    return ALGORITHM_TEXTS.get(algorithm, (algorithm, ""))[0]
