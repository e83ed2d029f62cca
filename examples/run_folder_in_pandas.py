"""Read a run folder into pandas: a table of rounds, and one of devices."""

import tempfile

import pandas as pd

import airsplit as air
from airsplit.runs.folder import RunFolder
from airsplit.runs.record import PER_DEVICE

scenario = air.Scenario.load("demo").replace(
    **{"fleet.devices": 3, "training.rounds": 3, "training.iterations_per_round": 1}
)
with tempfile.TemporaryDirectory() as folder:
    for _ in air.simulate(scenario, out=folder):
        pass
    run = RunFolder(folder)
    rounds = pd.read_json(run.rounds_file, lines=True).set_index("round")
    plan = run.read_plan()

print(rounds[["virtual_time_s", "latency_s", "train_loss", "test_accuracy"]])

# These columns hold a list for each round: sum them up for each device.
devices = pd.DataFrame({name: rounds[name].apply(pd.Series).sum() for name in PER_DEVICE})
devices.insert(0, "split", plan["split_names"])
print(devices[["split", "compute_s", "transmit_s", "idle_s", "sent_bytes"]])
