"""Run folders of any size, written without training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from airsplit.runs.comparison import Comparison
from airsplit.runs.folder import RunFolder
from airsplit.runs.record import RoundRecord
from airsplit.runs.seeds import Trials
from airsplit.scenario.scenario import Scenario

SCENARIO = """
[model]
name = "alexnet32"
arguments = { width = 0.25, channels = 1 }

[training]
rounds = 4
iterations_per_round = 5
batch_size = 32
learning_rate = 0.05
"""


def a_scenario(devices: int = 3, **changes: Any) -> Scenario:
    """Return a scenario with changed settings: `training__rounds` is training.rounds."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return Scenario.from_toml(SCENARIO).replace(**{"fleet.devices": devices} | dotted)


def a_plan(devices: int = 3, **changes: Any) -> dict[str, Any]:
    """Return a plan that cuts the first device at pool1, the others at pool2."""
    rest = devices - 1
    columns = {
        "splits": [4, *[8] * rest],
        "split_names": ["pool1", *["pool2"] * rest],
        "shares": [1 / devices] * devices,
        "compute_s": [0.125] * devices,
        "transmit_s": [0.25] * devices,
        "server_s": [0.0] * devices,
        "device_names": [str(k) for k in range(devices)],
    }
    numbers = {
        "gap": 0.0003,
        "mean_latency_s": 0.375,
        "expected_latency_s": 0.5,
        "batch_size": 32,
        "averaged_parameters": 1234,
    }
    words = {
        "method": "exact",
        "status": "optimal over all splits and shares",
        "objective": "largest mean",
    }
    return (
        words
        | {"bound": "any splits and fixed shares within the limits; exact search"}
        | numbers
        | columns
        | changes
    )


def a_record(number: int, devices: int = 3, **changes: Any) -> RoundRecord:
    """Return a round of 4 s: each device computes 1 s, sends 2 s and waits 1 s."""
    tested = {
        "test_accuracy": min(0.1 * number, 1.0),
        "test_accuracy_spread": 0.02,
        "test_accuracy_worst": 0.05,
        "test_loss": 2.0 / number,
    }
    columns = {
        "compute_s": (1.0,),
        "transmit_s": (2.0,),
        "server_s": (0.0,),
        "idle_s": (1.0,),
        "energy_j": (0.5,),
    }
    counts = {"sent_bytes": (1000,), "received_bytes": (500,), "macs": (1e6,)}
    fields: dict[str, Any] = {
        "round": number,
        "virtual_time_s": 4.0 * number,
        "latency_s": 4.0,
        "train_loss": 2.1 / number,
        "participants": tuple(range(devices)),
        **tested,
        **{name: value * devices for name, value in (columns | counts).items()},
    }
    return RoundRecord(**fields | changes)


def a_run(
    folder: Path,
    records: list[RoundRecord],
    scenario: Scenario | None = None,
    plan: dict[str, Any] | None = None,
    devices: int = 3,
) -> Path:
    """Write a run folder as `airsplit run` does."""
    run = RunFolder(folder)
    run.begin((scenario or a_scenario(devices)).to_toml(), plan or a_plan(devices))
    if records:
        run.write_records(records)
    return folder


def a_long_run(folder: Path, rounds: int, devices: int) -> Path:
    """Write a run of many rounds and devices."""
    rng = np.random.default_rng(0)
    noise = rng.random((4, devices)).round(5)
    waits = tuple(noise[3].tolist())
    records = [
        a_record(n, devices, idle_s=waits, test_accuracy=float(1 - 1 / n), train_loss=float(2 / n))
        for n in range(1, rounds + 1)
    ]
    return a_run(
        folder, records, a_scenario(devices, training__rounds=rounds), a_plan(devices), devices
    )


def a_comparison(slower: float = 3.0, **record: object) -> Comparison:
    """Return SFL, and FedAvg as accurate but slower, with two seeds each."""
    runs = {
        algorithm: Trials(
            tuple(
                tuple(a_record(n, virtual_time_s=times * n, **record) for n in range(1, 5))
                for _ in range(2)
            )
        )
        for algorithm, times in (("sfl", 1.0), ("fedavg", slower))
    }
    return Comparison(
        a_scenario(), (0, 1), 0.4, runs, {algorithm: {} for algorithm in runs}, has_energy=False
    )
