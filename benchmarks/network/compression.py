"""What smaller messages cost in accuracy: the demo with each compression, in the simulator, which compresses as the network does.

python -m network.compression
"""

from __future__ import annotations

import numpy as np
import torch

from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import COMPRESSIONS
from airsplit.simulation.simulate import simulate

SEEDS = 3
CHANGES = {
    "fleet.devices": 8,
    "training.rounds": 15,
    "training.evaluate_every": 15,
    "plan.method": "fixed",
    "plan.split": "pool1",
}


def table() -> str:
    """Accuracy after the last round, over seeds; all with the same splits."""
    lines = [
        "| compression | bits | accuracy after 15 rounds | over the seeds | loss | bytes up |",
        "|---|---|---|---|---|---|",
    ]
    for name, bits in COMPRESSIONS.items():
        last = [_last(name, seed) for seed in range(SEEDS)]
        right = np.array([record.test_accuracy for record in last])
        loss = np.mean([record.test_loss for record in last])
        sent = sum(last[0].sent_bytes) / 2**20
        spread = f"{right.min():.1%} to {right.max():.1%}"
        lines.append(
            f"| {name} | {bits} | {right.mean():.1%} | {spread} | {loss:.3f} | {sent:.1f} MiB a round |"
        )
    return "\n".join(lines)


def _last(compression: str, seed: int):
    changes = CHANGES | {
        "network.compression": compression,
        "training.seed": seed,
        "training.fast_paths": False,
    }
    return list(simulate(Scenario.load("demo").replace(**changes)))[-1]


if __name__ == "__main__":
    torch.set_num_threads(2)
    print(table())
