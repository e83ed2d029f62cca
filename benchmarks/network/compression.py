"""The accuracy that smaller messages cost: the demo with each compression, in the simulator.

The simulator compresses as the network does.

python -m network.compression
"""

from __future__ import annotations

import numpy as np
import torch

from airsplit.runs.record import RoundRecord
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import COMPRESSIONS
from airsplit.simulation.simulate import simulate

SEEDS = 3
# A fixed split: a plan would answer smaller messages with other splits.
CHANGES = {
    "fleet.devices": 8,
    "training.rounds": 15,
    "training.evaluate_every": 15,
    "plan.method": "fixed",
    "plan.split": "pool1",
}


def tabulate() -> str:
    """Return the accuracy after the last round, over seeds, with each compression."""
    lines = [
        "| compression | bits | accuracy after 15 rounds | over the seeds | loss | bytes up |",
        "|---|---|---|---|---|---|",
    ]
    for name, bits in COMPRESSIONS.items():
        records = [train(name, seed) for seed in range(SEEDS)]
        accuracy = np.array([record.test_accuracy for record in records])
        loss = np.mean([record.test_loss for record in records])
        sent_mib = sum(records[0].sent_bytes) / 2**20
        lines.append(
            f"| {name} | {bits} | {accuracy.mean():.1%} "
            f"| {accuracy.min():.1%} to {accuracy.max():.1%} | {loss:.3f} "
            f"| {sent_mib:.1f} MiB a round |"
        )
    return "\n".join(lines)


def train(compression: str, seed: int) -> RoundRecord:
    """Train the demo, and return the record of the last round."""
    changes = CHANGES | {
        "network.compression": compression,
        "training.seed": seed,
        "training.fast_paths": False,
    }
    return list(simulate(Scenario.load("demo").replace(**changes)))[-1]


if __name__ == "__main__":
    torch.set_num_threads(2)
    print(tabulate())
