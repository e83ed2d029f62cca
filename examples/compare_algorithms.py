"""Compare algorithms on the same data, seeds and virtual clock."""

import tempfile
from pathlib import Path

import airsplit as air
from airsplit.simulation.compare import compare

scenario = air.Scenario.load("demo").replace(
    **{"fleet.devices": 4, "training.rounds": 3, "training.iterations_per_round": 2}
)

# Runs are trained in processes of their own, which import this file.
if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        comparison = compare(scenario, out=folder, seeds=1, algorithms=("sfl", "fedavg"))
        for row in comparison.rows:
            accuracy = "" if row.accuracy is None else f"{row.accuracy.mean:.1%} right"
            megabytes = row.sent_bytes / 1e6
            print(
                f"{row.algorithm:7} {accuracy} after {row.virtual_time_s:.1f} s, "
                f"{megabytes:.1f} MB sent"
            )
        pages = Path(folder).rglob("report.html")
        print("pages:", sorted(page.relative_to(folder).as_posix() for page in pages))
