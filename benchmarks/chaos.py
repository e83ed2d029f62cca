"""Chaos: servers and devices are killed, devices freeze, links are cut, at random.

Every run must end well.

python benchmarks/chaos.py                                   print
python benchmarks/chaos.py --out benchmarks/results/chaos.md also write
python benchmarks/chaos.py --quick                           two short runs
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch

from machine import describe_machine

# The tests' package of this name, not the benchmarks'.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from airsplit.core.errors import AirsplitError
from airsplit.network.client.checkpoint import Fronts
from airsplit.network.client.client import Device
from airsplit.network.server.checkpoint import read_kept
from airsplit.network.server.serve import Serving
from airsplit.runs.folder import RunFolder
from airsplit.scenario.scenario import Scenario
from airsplit.training.checkpoint import progress_of
from airsplit.training.setup import replica_of
from network import fleets

# A run that takes longer hangs.
LIMIT_S = 60.0
# Exit code of a server that has tried a round too often.
GAVE_UP = 3
POLL_S = 0.01
# Rounds and disasters of a run; there are more rounds if they are quick, or if any device will do.
ROUNDS, DISASTERS = 20, 8
QUICK_ROUNDS, QUICK_DISASTERS = 8, 3
# In every fifth run, disasters begin before the first round.
EARLY = 5


@dataclass(frozen=True)
class Case:
    """The scenario of a run, and whether all devices must take part.

    Attributes:
        strict: Every round needs all devices. Then the result must be that of the simulator, bit
            for bit.
    """

    seed: int
    strict: bool
    scenario: Scenario

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.scenario.make_fleet())

    @property
    def summary(self) -> str:
        """The case in a cell of the table."""
        settings = self.scenario.training
        return (
            f"{settings.algorithm}, K = {self.devices}, E = {settings.iterations_per_round}, "
            f"{'all' if self.strict else 'any'}"
        )


def make_case(seed: int, rounds: int) -> Case:
    """Return the case of a seed: even ones need all devices in every round."""
    rng = random.Random(seed)  # noqa: S311
    strict = seed % 2 == 0
    K = rng.choice((3, 4))
    algorithm = rng.choice(("sfl", "sfl", "sfl", "fedavg"))
    # Rounds without all devices, and those of FedAvg, are quick.
    if not strict:
        rounds *= 2
    if algorithm == "fedavg":
        rounds *= 3
    splits = [rng.choice((1, 2, 3)) for _ in range(K)]
    changes: dict[str, Any] = {
        "algorithm": algorithm,
        "iterations_per_round": rng.choice((1, 2, 3)),
        "momentum": rng.choice((0.0, 0.5)),
        "evaluate_every": rng.choice((1, 3)),
        "weighting": rng.choice(("uniform", "samples")),
        "participation": rng.choice((1.0, 1.0, 0.75)),
        "fast_paths": not strict,
        "learning_rate": 0.1,
        "rounds": rounds,
        "network__grace_s": 1.5,
        "network__min_devices": K if strict else 1,
    }
    data = {3: "three", 4: "four"}[K]
    return Case(seed, strict, fleets.scenario(splits=splits, data=data, **changes))


def fork(work: Callable[[], int | None], log: Path) -> int:
    """Run a function in a copy of this process, and return the number of that process.

    A fork has torch in memory already, and this process has no threads that it could break.
    """
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        with log.open("a") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        torch.set_num_threads(1)
        code = work() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        # Skip the clean-up of the parent, whose copy this process is.
        os._exit(code)


def poll(process: int) -> int | None:
    """Return the exit code of a process, or minus its signal; None while it runs."""
    pid, status = os.waitpid(process, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None


def kill(process: int) -> None:
    """Kill a process, and wait for its end."""
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def serve(case: Case, folder: Path, port: int, recorded: int) -> int:
    """Train, from the last round in the folder on; write a byte for each record."""
    with (folder / "events.jsonl").open("a", buffering=1) as events:

        def log_event(event: str, **values: Any) -> None:
            events.write(json.dumps({"event": event} | values) + "\n")

        try:
            serving = Serving(
                case.scenario,
                out=folder / "run",
                listen_on=f"127.0.0.1:{port}",
                resume=True,
                wait_s=LIMIT_S,
                tell=log_event,
            )
            for _ in serving:
                os.write(recorded, b".")
        except AirsplitError as error:
            print(error, flush=True)
            return GAVE_UP if "was tried" in str(error) else 1
    return 0


def join(case: Case, folder: Path, k: int, port: int) -> None:
    """Take part as one device."""
    device = Device(
        name=str(k),
        folder=folder / f"device-{k}",
        data=f"{case.scenario.training.dataset}_{k}",
        model=case.scenario.model.name,
        patience_s=LIMIT_S,
    )
    device.run(f"127.0.0.1:{port}")


def cut_links(port: int, own_port: int, seed: int, cuts: int) -> None:
    """Forward all traffic, and cut some of the links from time to time; write a byte for each."""
    proxy = fleets.Proxy(port, own_port)
    rng = random.Random(seed)  # noqa: S311
    for _ in range(8):
        time.sleep(rng.uniform(0.3, 1.0))
        os.write(cuts, b"." * proxy.cut(lambda: rng.random() < 0.4))
    time.sleep(LIMIT_S)


def find_free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    # All are held until the last is known, so that no two are the same.
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


class Pipe:
    """Count bytes that other processes write."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe()
        os.set_blocking(self._read, False)
        self._count = 0

    def count(self) -> int:
        """Return the number of bytes so far."""
        try:
            while data := os.read(self._read, 1 << 12):
                self._count += len(data)
        except BlockingIOError:
            pass
        return self._count

    def close(self) -> None:
        """Close both ends."""
        os.close(self._read)
        os.close(self.write)


class RunFailed(Exception):
    """A run has not ended well, and why."""


@dataclass
class Counts:
    """Disasters of a run, in the order of the table's columns."""

    server_kills: int = 0
    device_kills: int = 0
    frozen: int = 0
    links_cut: int = 0
    gave_up: int = 0


class ChaosRun:
    """One run, with all its processes."""

    def __init__(self, case: Case, folder: Path, disasters: int) -> None:
        self.case = case
        self.folder = folder
        self.counts = Counts()
        self._disasters = disasters
        self._rng = random.Random(case.seed + 1)  # noqa: S311
        self._port, self._proxy_port = find_free_ports(2)
        self._records = Pipe()
        self._cuts = Pipe()
        self._server: int | None = None
        self._devices: list[int | None] = [None] * case.devices
        self._proxy = fork(
            lambda: cut_links(self._port, self._proxy_port, case.seed, self._cuts.write),
            folder / "link.log",
        )
        self._scheduled: list[tuple[float, Callable[[], Any]]] = []

    def run(self) -> None:
        """Train from the first process to the last round."""
        try:
            self._start_server()
            for k in range(self.case.devices):
                self._start_device(k)
            end = time.monotonic() + LIMIT_S
            quiet = True
            while not self._is_done():
                if time.monotonic() > end:
                    raise RunFailed(f"not done after {LIMIT_S:g} s")
                if quiet and (self.case.seed % EARLY == 0 or self._records.count()):
                    quiet = False
                    self._schedule_disasters()
                self._run_scheduled()
                time.sleep(POLL_S)
            self.counts.links_cut = self._cuts.count()
        finally:
            self._close()

    def _close(self) -> None:
        for process in (self._server, self._proxy, *self._devices):
            if process is not None:
                kill(process)
        self._records.close()
        self._cuts.close()

    def _start_server(self) -> None:
        if self._server is None:
            self._require_little_lost()
            self._server = fork(
                lambda: serve(self.case, self.folder, self._port, self._records.write),
                self.folder / "server.log",
            )

    def _require_little_lost(self) -> None:
        """Require that every recorded round is in the checkpoint.

        So a restart loses at most the round in progress.
        """
        recorded = self._records.count()
        progress = progress_of(self.folder / "run/checkpoint")
        kept = 0 if progress is None else progress.round
        if kept < recorded:
            raise RunFailed(f"round {recorded} was recorded, but the checkpoint is of round {kept}")

    def _start_device(self, k: int) -> None:
        if self._devices[k] is None:
            self._devices[k] = fork(
                lambda: join(self.case, self.folder, k, self._proxy_port),
                self.folder / f"device-{k}.log",
            )

    def _is_done(self) -> bool:
        """Return whether the server has ended well; fail if a process has ended badly."""
        self._require_no_failed_device()
        code = None if self._server is None else poll(self._server)
        if code is None:
            return False

        self._server = None
        if code == GAVE_UP:
            self.counts.gave_up += 1
            self._start_server()
        elif code:
            raise RunFailed(
                f"the server ended with {code}: {last_line(self.folder / 'server.log')}"
            )
        return code == 0

    def _require_no_failed_device(self) -> None:
        for k, process in enumerate(self._devices):
            code = None if process is None else poll(process)
            if code is None:
                continue
            self._devices[k] = None
            if code:
                reason = last_line(self.folder / f"device-{k}.log")
                raise RunFailed(f"device {k} ended with {code}: {reason}")

    def _schedule_disasters(self) -> None:
        """Schedule one disaster after the other; the end of the run is quiet."""
        disasters = (self._kill_server, self._kill_device, self._kill_device, self._freeze_device)
        delay_s = 0.0
        for _ in range(self._disasters):
            delay_s += self._rng.uniform(0.05, 0.6)
            self._schedule(delay_s, self._rng.choice(disasters))

    def _schedule(self, delay_s: float, action: Callable[[], Any]) -> None:
        self._scheduled.append((time.monotonic() + delay_s, action))

    def _run_scheduled(self) -> None:
        now = time.monotonic()
        due = [action for moment, action in self._scheduled if moment <= now]
        # Before the actions run, since they schedule others.
        self._scheduled = [entry for entry in self._scheduled if entry[0] > now]
        for action in due:
            action()

    def _kill_server(self) -> None:
        if self._server is not None:
            kill(self._server)
            self._server = None
            self.counts.server_kills += 1
            self._schedule(self._rng.uniform(0.0, 0.6), self._start_server)

    def _kill_device(self) -> None:
        k = self._rng.randrange(self.case.devices)
        process = self._devices[k]
        if process is not None:
            kill(process)
            self._devices[k] = None
            self.counts.device_kills += 1
            self._schedule(self._rng.uniform(0.0, 0.6), lambda: self._start_device(k))

    def _freeze_device(self) -> None:
        """Stop a device; it resumes later as if nothing had happened."""
        k = self._rng.randrange(self.case.devices)
        process = self._devices[k]
        if process is None:
            return

        def thaw() -> None:
            # The device may have been killed meanwhile.
            if process == self._devices[k]:
                os.kill(process, signal.SIGCONT)

        os.kill(process, signal.SIGSTOP)
        self.counts.frozen += 1
        self._schedule(self._rng.uniform(0.2, 2.5), thaw)


def last_line(log: Path) -> str:
    """Return the last line of a log."""
    lines = log.read_text().strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "empty log"


def check_result(case: Case, folder: Path) -> None:
    """Check records, checkpoint and fronts, and every bit if all devices took part always.

    Raises:
        RunFailed: One of them is wrong.
    """
    rounds = [record.round for record in RunFolder(folder / "run").read_records()]
    require(
        rounds == list(range(1, case.scenario.training.rounds + 1)),
        f"the records are of rounds {rounds}",
    )
    events = (folder / "events.jsonl").read_text().splitlines()
    lost = [line for line in events if '"begins anew"' in line]
    require(not lost, f"a front was lost: {lost[:1]}")

    replica, profile = replica_of(case.scenario)
    checkpoint = read_kept(folder / "run/checkpoint", replica, profile.fingerprint)
    if checkpoint is None:
        raise RunFailed("there is no checkpoint")
    back_ends, progress, registry = checkpoint
    require(progress.round == rounds[-1], f"the checkpoint is of round {progress.round}")

    simulated = fleets.Simulated(case.scenario) if case.strict else None
    for k in range(case.devices):
        state = back_ends.of(k) if back_ends.splits else dict(back_ends.common)
        if back_ends.splits and registry.versions[k]:
            split = back_ends.splits[k]
            fronts = Fronts(folder / f"device-{k}", registry.run, k)
            like = replica.taken(replica.front_keys(split))
            state |= fronts.load(registry.versions[k], split, like)
        is_finite = all(bool(torch.isfinite(tensor).all()) for tensor in state.values())
        require(is_finite, f"the model of device {k} is not finite")
        if simulated is not None:
            fleets.assert_same_tensors(state, simulated.state.of(k))


def require(holds: bool, otherwise: str) -> None:
    """Fail the run unless a condition holds."""
    if not holds:
        raise RunFailed(otherwise)


def run_case(case: Case, folder: Path, disasters: int) -> tuple[Counts, str]:
    """Train a case; return its disasters, and the reason if it failed, else an empty text."""
    run = ChaosRun(case, folder, disasters)
    try:
        run.run()
    except RunFailed as failure:
        return run.counts, str(failure)
    # In a process of its own: threads of torch would break later forks.
    judge = fork(lambda: check_result(case, folder), folder / "judge.log")
    _, status = os.waitpid(judge, 0)
    return run.counts, last_line(folder / "judge.log") if status else ""


HEADS = (
    "seed",
    "run",
    "server kills",
    "device kills",
    "frozen",
    "links cut",
    "given up",
    "s",
    "result",
)


def main() -> None:
    """Run all cases, print the table, and exit with 1 unless all ended well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=50, help="number of runs (default 50)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run (default 0)")
    parser.add_argument("--quick", action="store_true", help="two short runs")
    parser.add_argument("--out", type=Path, help="also write the page to this file")
    parser.add_argument("--keep", type=Path, help="keep folders and logs of all runs in this one")
    options = parser.parse_args()
    count, rounds, disasters = options.runs, ROUNDS, DISASTERS
    if options.quick:
        count, rounds, disasters = 2, QUICK_ROUNDS, QUICK_DISASTERS

    # Import now what a replica needs; the forked processes then have it.
    replica_of(make_case(0, 1).scenario)

    rows = []
    good = 0
    total = Counts()
    for seed in range(options.seed, options.seed + count):
        case = make_case(seed, rounds)
        with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
            folder = Path(temporary) if options.keep is None else options.keep / f"chaos-{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            start = time.perf_counter()
            counts, failure = run_case(case, folder, disasters)
            run_s = time.perf_counter() - start
        good += not failure
        total = Counts(*(a + b for a, b in zip(astuple(total), astuple(counts), strict=True)))
        cells = [seed, case.summary, *astuple(counts), f"{run_s:.1f}", failure or "well"]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
        print(rows[-1], file=sys.stderr, flush=True)

    lines = [
        "# Chaos",
        "",
        f"`python benchmarks/chaos.py --runs {count} --seed {options.seed}` wrote this. "
        f"{describe_machine()}, torch {torch.__version__}.",
        "",
        f"{good} of {count} runs ended well, with {total.server_kills} kills of the server, "
        f"{total.device_kills} of devices, {total.frozen} devices frozen for a while and "
        f"{total.links_cut} links cut. To end well is: all rounds are recorded, once and in order; "
        "every restart of the server goes on from the last round that was seen; no device loses "
        "its front; every model is finite. Where a round needs all devices (all), every tensor of "
        "every device must have the bits that the simulator computes.",
        "",
        "| " + " | ".join(HEADS) + " |",
        "|---:|---|" + "---:|" * 6 + "---|",
        *rows,
        "",
    ]
    text = "\n".join(lines)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    sys.exit(good != count)


if __name__ == "__main__":
    main()
