"""Compare algorithms on the same data, seeds and virtual clock."""

import tempfile
from pathlib import Path

import airsplit as air
from airsplit.simulation.compare import compare

scenario = air.Scenario.load("demo").replace(
    **{"fleet.devices": 4, "training.rounds": 3, "training.iterations_per_round": 2}
)

if __name__ == "__main__":  # runs are trained in processes of their own, which import this file
    with tempfile.TemporaryDirectory() as folder:
        found = compare(scenario, out=folder, seeds=1, algorithms=("sfl", "fedavg"))
        for row in found.rows:
            accuracy = "" if row.accuracy is None else f"{row.accuracy.mean:.1%} right"
            print(
                f"{row.algorithm:7} {accuracy} after {row.virtual_time_s:.1f} s, {row.sent_bytes / 1e6:.1f} MB sent"
            )
        print(
            "pages:",
            sorted(
                file.relative_to(folder).as_posix() for file in Path(folder).rglob("report.html")
            ),
        )
