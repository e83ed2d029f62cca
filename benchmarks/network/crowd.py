"""Many clients in one process, over real sockets: no round is lost, and memory stays bounded.

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

CLIENTS = 200
ROUNDS = 10
ITERATIONS = 2


def make_scenario(clients: int) -> Scenario:
    """Return FedAvg's MLP, 199,210 parameters, cut after its first layer."""
    changes = {
        "model.name": "nets:mlp",
        "model.input_shape": [784],
        "training.dataset": "nets:pixels",
        "fleet.devices": clients,
        "plan.method": "fixed",
        "plan.split": 2,
        "training.iterations_per_round": ITERATIONS,
        "training.rounds": ROUNDS,
        "training.batch_size": 10,
        "training.evaluate_every": 10**6,
        "training.evaluate_devices": 1,
        "network.measure": False,
        "network.pacing": False,
    }
    return Scenario.from_toml('[model]\nname = "alexnet"\n').replace(**changes)


def measure_crowd(clients: int = CLIENTS) -> str:
    """Train with many clients, and return the sentences about it."""
    peak_gib = [0.0] * (ROUNDS + 1)
    finished = 0
    first_round = 0.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        serving = Serving(make_scenario(clients), out=folder / "run", listen_on="127.0.0.1:0")
        address = f"127.0.0.1:{serving.port}"
        threads = [
            threading.Thread(target=make_device(folder, number).run, args=(address,))
            for number in range(clients)
        ]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for record in serving:
            if not first_round:
                first_round = time.perf_counter() - record.latency_s
            finished += len(record.participants) - len(record.dropped)
            peak_gib[record.round] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        took_s = time.perf_counter() - first_round
        for thread in threads:
            thread.join()
    total = clients * ROUNDS
    return (
        f"{clients} clients in one process, {ROUNDS} rounds of {ITERATIONS} iterations: "
        f"{total - finished} of {total} device rounds lost, "
        f"{total * ITERATIONS / took_s:,.0f} steps a second, "
        f"{first_round - start:.0f} s until all had arrived. "
        f"Peak memory {peak_gib[1]:.2f} GiB after round 1, "
        f"{peak_gib[-1]:.2f} GiB after round {ROUNDS}."
    )


def make_device(folder: Path, number: int) -> Device:
    """Return a client with a folder of its own."""
    return Device(
        name=str(number), folder=folder / f"device-{number}", data="nets:pixels", model="nets:mlp"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(measure_crowd(*map(int, sys.argv[1:])))
