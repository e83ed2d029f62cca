"""The dashboard: how quickly plans are answered, how a long run is handed out, and what many pages cost a training.

python benchmarks/dashboard.py                                        print
python benchmarks/dashboard.py --out benchmarks/results/dashboard.md  also write
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from airsplit.runs.folder import RunFolder
from airsplit.runs.record import RoundRecord
from airsplit.scenario.scenario import Scenario
from machine import description

DEVICES, CLIENTS, ROUNDS = 200, 20, 10_000
# Seconds in which plans are to be answered: expected-max, which is among them, sets it.
PLANS_S = 1.0
REPEATS = 9
TRAINED = ("--set", "training.rounds=12", "--set", "training.evaluate_devices=2")


class Served:
    """A dashboard in a process of its own."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "airsplit", "dashboard", str(root), "--port", "0"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        self.port = int(self._process.stderr.readline().rstrip().rstrip("/").rpartition(":")[2])
        threading.Thread(target=self._process.stderr.read, daemon=True).start()

    def ask(self, path: str, body: Any = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        data, headers = (
            (None, {}) if body is None else (json.dumps(body), {"content-type": "application/json"})
        )
        connection.request("GET" if body is None else "POST", path, data, headers)
        answer = connection.getresponse()
        found = answer.read()
        assert answer.status == 200, found
        connection.close()
        return found

    def listen(self, run: str, told: list[int]) -> None:
        """Take events until the server goes; `told` counts their bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", f"/api/events?run={run}")
        stream = connection.getresponse()
        while line := stream.readline():
            told.append(len(line))

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def of_plans(served: Served) -> list[str]:
    """Time answers of the playground; each plans with every method."""
    slowest = 0.0
    for model in ("alexnet", "vgg16", "gpt"):
        settings = {"fleet.devices": DEVICES, "fleet.distance_spread": 0.9}
        times = []
        for seed in range(REPEATS):
            start = time.perf_counter()
            served.ask("/api/plan", {"model": model, "settings": settings | {"fleet.seed": seed}})
            times.append(time.perf_counter() - start)
        slowest = max(slowest, statistics.median(times))
    measured, wanted = 1000 * slowest, 1000 * PLANS_S
    return [
        f"| plans of {DEVICES} devices by every method, the slowest of three models | {measured:.0f} ms | {wanted:.0f} ms |"
    ]


def a_long_run(folder: Path) -> None:
    """10,000 rounds of 100 devices, as a run folder has them."""
    scenario = Scenario.load("demo").replace(**{"fleet.devices": 100, "training.rounds": ROUNDS})
    column = tuple(0.123456 + 0.001 * k for k in range(100))
    names = ("compute_s", "transmit_s", "server_s", "idle_s", "energy_j", "macs")
    plan: dict[str, Any] = {
        "splits": [4] * 100,
        "split_names": ["pool1"] * 100,
        "shares": [0.01] * 100,
    }
    plan |= {name: list(column) for name in names[:3]}
    plan |= {
        "method": "exact",
        "status": "optimal",
        "gap": 0.0,
        "mean_latency_s": 1.0,
        "expected_latency_s": 1.1,
        "batch_size": 16,
        "averaged_parameters": 1,
    }
    run = RunFolder(folder)
    run.begin(scenario.to_toml(), plan)
    run.write_records(
        RoundRecord(
            round=number,
            virtual_time_s=1.1 * number,
            latency_s=1.1,
            train_loss=2.0 / number,
            test_accuracy=1 - 0.9 / number,
            participants=tuple(range(100)),
            sent_bytes=(1000,) * 100,
            received_bytes=(1000,) * 100,
            **dict.fromkeys(names, column),
        )
        for number in range(1, ROUNDS + 1)
    )


def of_a_long_run(served: Served) -> list[str]:
    start = time.perf_counter()
    answers = []
    while not answers or json.loads(answers[-1])["rounds"] < ROUNDS:
        answers.append(served.ask("/api/run?run=long"))
    whole = time.perf_counter() - start
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        last = served.ask("/api/run?run=long")
        times.append(time.perf_counter() - start)
    return [
        f"| {ROUNDS:,} rounds × 100 devices: all records read for the first time, {len(answers)} answers on the way | {whole:.1f} s | |",
        f"| the same, asked for again: {len(last) / 1000:.0f} kB | {1000 * statistics.median(times):.0f} ms | |",
    ]


def of_a_training(root: Path, *, clients: int) -> tuple[float, float, int]:
    """CPU seconds of a training and of the dashboard that serves pages about it, and how many bytes those were told."""
    served, told = Served(root), list[int]()
    name = f"with-{clients}"
    listeners = [
        threading.Thread(target=served.listen, args=(name, told), daemon=True)
        for _ in range(clients)
    ]
    for listener in listeners:
        listener.start()
    time.sleep(2)
    before, start = served.cpu_s(), os.times()
    subprocess.run(
        [sys.executable, "-m", "airsplit", "run", "demo", "--out", str(root / name), *TRAINED],
        check=True,
        capture_output=True,
    )
    end = os.times()
    cost = served.cpu_s() - before
    served.stop()
    return (
        end.children_user + end.children_system - start.children_user - start.children_system,
        cost,
        sum(told),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = [
        "# The dashboard",
        "",
        f"`python benchmarks/dashboard.py`. {description()}.",
        "",
        "| | | wanted |",
        "|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        a_long_run(root / "long")
        served = Served(root)
        lines += of_plans(served) + of_a_long_run(served)
        served.stop()
        (root / "trained").mkdir()
        alone, _, _ = of_a_training(root / "trained", clients=0)
        watched, cost, told = of_a_training(root / "trained", clients=CLIENTS)
    more = f"{watched:.1f} s, {watched / alone - 1:+.1%}"
    lines += [
        f"| CPU time of a training that nobody watches | {alone:.1f} s | |",
        f"| of the same with {CLIENTS} pages that follow it, told {told / 1e6:.1f} MB | {more} | +2 % |",
        f"| of the dashboard meanwhile, a process of its own | {cost:.1f} s, {cost / alone:.1%} of the training's | |",
    ]
    print("\n".join(lines))
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
