"""The dashboard: how quickly it plans, how it serves a long run, and what many open pages cost.

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
from machine import describe_machine

DEVICES = 200
CLIENTS = 20
ROUNDS = 10_000
# Goal for the plans of the playground. The slowest method, expected-max, determines it.
PLANS_S = 1.0
REPEATS = 9
TRAINING_OPTIONS = ("--set", "training.rounds=12", "--set", "training.evaluate_devices=2")


class DashboardProcess:
    """A dashboard in a process of its own."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "airsplit", "dashboard", str(root), "--port", "0"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        address = self._process.stderr.readline().rstrip().rstrip("/")
        self.port = int(address.rpartition(":")[2])
        # A full pipe would block the dashboard.
        threading.Thread(target=self._process.stderr.read, daemon=True).start()

    def request(self, path: str, body: Any = None) -> bytes:
        """Get a path, or post JSON to it; return the body of the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        if body is None:
            connection.request("GET", path)
        else:
            headers = {"content-type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        content = response.read()
        assert response.status == 200, content
        connection.close()
        return content

    def listen(self, run: str, received_bytes: list[int]) -> None:
        """Receive the events of a run until the server stops, and append their sizes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", f"/api/events?run={run}")
        stream = connection.getresponse()
        while line := stream.readline():
            received_bytes.append(len(line))

    def cpu_s(self) -> float:
        """Return the CPU time that the process has used so far."""
        # The process name, in parentheses, may contain spaces.
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        user, system = int(fields[11]), int(fields[12])
        return (user + system) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait()


def measure_plans(dashboard: DashboardProcess) -> list[str]:
    """Time answers of the playground, each with a plan by every method."""
    slowest_s = 0.0
    for model in ("alexnet", "vgg16", "gpt"):
        settings = {"fleet.devices": DEVICES, "fleet.distance_spread": 0.9}
        times = []
        for seed in range(REPEATS):
            start = time.perf_counter()
            dashboard.request(
                "/api/plan", {"model": model, "settings": settings | {"fleet.seed": seed}}
            )
            times.append(time.perf_counter() - start)
        slowest_s = max(slowest_s, statistics.median(times))
    return [
        f"| plans of {DEVICES} devices by every method, the slowest of three models "
        f"| {1000 * slowest_s:.0f} ms | {1000 * PLANS_S:.0f} ms |"
    ]


def write_long_run(folder: Path) -> None:
    """Write a run folder with 10,000 rounds of 100 devices."""
    scenario = Scenario.load("demo").replace(**{"fleet.devices": 100, "training.rounds": ROUNDS})
    column = tuple(0.123456 + 0.001 * k for k in range(100))
    plan: dict[str, Any] = {
        "splits": [4] * 100,
        "split_names": ["pool1"] * 100,
        "shares": [0.01] * 100,
        "compute_s": list(column),
        "transmit_s": list(column),
        "server_s": list(column),
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
            compute_s=column,
            transmit_s=column,
            server_s=column,
            idle_s=column,
            energy_j=column,
            macs=column,
        )
        for number in range(1, ROUNDS + 1)
    )


def measure_long_run(dashboard: DashboardProcess) -> list[str]:
    """Time the first reading of a long run, and later requests."""
    start = time.perf_counter()
    answers = 0
    rounds = 0
    while rounds < ROUNDS:
        content = dashboard.request("/api/run?run=long")
        rounds = json.loads(content)["rounds"]
        answers += 1
    first_s = time.perf_counter() - start

    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        content = dashboard.request("/api/run?run=long")
        times.append(time.perf_counter() - start)
    return [
        f"| {ROUNDS:,} rounds × 100 devices: all records read for the first time, {answers} "
        f"answers on the way | {first_s:.1f} s | |",
        f"| the same, asked for again: {len(content) / 1000:.0f} kB "
        f"| {1000 * statistics.median(times):.0f} ms | |",
    ]


def measure_training(root: Path, *, clients: int) -> tuple[float, float, int]:
    """Train while some pages follow the run.

    Returns:
        CPU seconds of the training, those of the dashboard, and the bytes sent to the pages.
    """
    dashboard = DashboardProcess(root)
    received_bytes: list[int] = []
    name = f"with-{clients}"
    listeners = [
        threading.Thread(target=dashboard.listen, args=(name, received_bytes), daemon=True)
        for _ in range(clients)
    ]
    for listener in listeners:
        listener.start()
    time.sleep(2)

    dashboard_before_s = dashboard.cpu_s()
    command = [sys.executable, "-m", "airsplit", "run", "demo"]
    before = os.times()
    subprocess.run(
        [*command, "--out", str(root / name), *TRAINING_OPTIONS], check=True, capture_output=True
    )
    after = os.times()
    dashboard_s = dashboard.cpu_s() - dashboard_before_s
    dashboard.stop()
    training_s = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return training_s, dashboard_s, sum(received_bytes)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="also write the page to this file")
    out = parser.parse_args().out
    lines = [
        "# The dashboard",
        "",
        f"`python benchmarks/dashboard.py`. {describe_machine()}.",
        "",
        "| | | wanted |",
        "|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_long_run(root / "long")
        dashboard = DashboardProcess(root)
        lines += measure_plans(dashboard) + measure_long_run(dashboard)
        dashboard.stop()

        (root / "trained").mkdir()
        alone_s, _, _ = measure_training(root / "trained", clients=0)
        watched_s, dashboard_s, sent_bytes = measure_training(root / "trained", clients=CLIENTS)
    lines += [
        f"| CPU time of a training that nobody watches | {alone_s:.1f} s | |",
        f"| of the same with {CLIENTS} pages that follow it, sent {sent_bytes / 1e6:.1f} MB "
        f"| {watched_s:.1f} s, {watched_s / alone_s - 1:+.1%} | +2 % |",
        f"| of the dashboard meanwhile, a process of its own "
        f"| {dashboard_s:.1f} s, {dashboard_s / alone_s:.1%} of the training's | |",
    ]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if out is not None:
        out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
