"""Many clients in one process, over real sockets: nothing is lost, and memory stays bounded.

python -m network.crowd [CLIENTS]
"""

from __future__ import annotations

import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

from airsplit.network.client.client import Device
from airsplit.network.server.serve import Serving
from airsplit.scenario.scenario import Scenario

CLIENTS, ROUNDS = 200, 10


def scenario(clients: int) -> Scenario:
    """FedAvg's MLP, 199,210 parameters, cut after its first layer; two iterations a round."""
    changes = {
        "model.name": "nets:mlp",
        "model.input_shape": [784],
        "training.dataset": "nets:pixels",
        "fleet.devices": clients,
    }
    changes |= {
        "plan.method": "fixed",
        "plan.split": 2,
        "training.iterations_per_round": 2,
        "training.rounds": ROUNDS,
    }
    changes |= {
        "training.batch_size": 10,
        "training.evaluate_every": 10**6,
        "training.evaluate_devices": 1,
    }
    return Scenario.from_toml('[model]\nname = "alexnet"\n').replace(
        **changes | {"network.measure": False, "network.pacing": False}
    )


def crowd(clients: int = CLIENTS) -> str:
    """Run it, and say what it took."""
    peak = [0.0] * (ROUNDS + 1)
    with tempfile.TemporaryDirectory() as folder:
        serving = Serving(scenario(clients), out=Path(folder) / "run", listen_on="127.0.0.1:0")
        devices = [_device(Path(folder), k) for k in range(clients)]
        threads = [
            threading.Thread(target=device.run, args=(f"127.0.0.1:{serving.port}",))
            for device in devices
        ]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        began, finished = 0.0, 0
        for record in serving:
            began = began or time.perf_counter() - record.latency_s
            finished += len(record.participants) - len(record.dropped)
            peak[record.round] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        took = time.perf_counter() - began
        for thread in threads:
            thread.join()
    lost = clients * ROUNDS - finished
    steps = clients * ROUNDS * 2
    return (
        f"{clients} clients in one process, {ROUNDS} rounds of 2 iterations: {lost} of {clients * ROUNDS} device rounds lost, "
        f"{steps / took:,.0f} steps a second, {began - start:.0f} s until all had arrived. "
        f"Peak memory {peak[1]:.2f} GiB after round 1, {peak[-1]:.2f} GiB after round {ROUNDS}."
    )


def _device(folder: Path, number: int) -> Device:
    return Device(
        name=str(number), folder=folder / f"device-{number}", data="nets:pixels", model="nets:mlp"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(crowd(*map(int, sys.argv[1:])))
