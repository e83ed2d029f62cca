"""Compare algorithms on the same data, seeds and virtual clock."""

import tempfile

import airsplit as air
from airsplit.simulation.compare import compare

scenario = air.Scenario.load("demo").replace(
    **{"fleet.devices": 4, "training.rounds": 3, "training.iterations_per_round": 2}
)

# Runs are trained in processes of their own, which import this file.
if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        comparison = compare(scenario, out=folder, seeds=1, algorithms=("sfl", "fedavg"))

    print("algorithm  accuracy  virtual time  sent")
    for row in comparison.rows:
        accuracy = row.accuracy.mean if row.accuracy else float("nan")
        sent_mb = row.sent_bytes / 1e6
        print(f"{row.algorithm:9}  {accuracy:8.1%}  {row.virtual_time_s:10.1f} s  {sent_mb:.1f} MB")
    print(comparison.headline)
