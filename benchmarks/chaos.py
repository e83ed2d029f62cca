"""Chaos: servers and devices that are killed, devices that freeze and links that are cut, at random; every run must end well.

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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from machine import description

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

LIMIT_S = 60.0
"""A run that takes longer hangs."""
GAVE_UP = 3
"""How a server ends that has tried a round too often."""
LOOK_S = 0.01
ROUNDS, DISASTERS = 20, 8
"""Of a run; there are more rounds where they are quick, or any device will do."""
QUICK = 8, 3
EARLY = 5
"""In one of so many runs disasters begin before the first round."""


# ---- what is trained -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    """A run: what is trained, and who must take part.

    strict   every round needs all devices: then the result must be that of the simulator, bit for bit
    """

    seed: int
    strict: bool
    scenario: Scenario

    @property
    def devices(self) -> int:
        return len(self.scenario.make_fleet())

    @property
    def words(self) -> str:
        settings = self.scenario.training
        return f"{settings.algorithm}, K = {self.devices}, E = {settings.iterations_per_round}, {'all' if self.strict else 'any'}"


def case(seed: int, rounds: int) -> Case:
    """The case of a seed: even ones need all devices in every round."""
    rng, strict = random.Random(seed), seed % 2 == 0  # noqa: S311
    K, algorithm = rng.choice((3, 4)), rng.choice(("sfl", "sfl", "sfl", "fedavg"))
    rounds *= (1 if strict else 2) * (3 if algorithm == "fedavg" else 1)  # those are quick
    splits = [rng.choice((1, 2, 3)) for _ in range(K)]
    changes = {
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
    return Case(
        seed, strict, fleets.scenario(splits=splits, data={3: "three", 4: "four"}[K], **changes)
    )


# ---- processes -------------------------------------------------------------------------------------------------------------------
def forked(work: Callable[[], int | None], log: Path) -> int:
    """A process that does some work: its number.  It is a copy of this one, which has torch in memory and no threads."""
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
        os._exit(code)


def ended(process: int) -> int | None:
    """How a process ended: its code, or minus the signal; None while it runs."""
    done, status = os.waitpid(process, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def serve(chosen: Case, folder: Path, port: int, seen: int) -> int:
    """Train, from wherever the run in the folder is; a byte for each record, when it is seen."""
    with (folder / "events.jsonl").open("a", buffering=1) as events:

        def tell(event: str, **facts: Any) -> None:
            events.write(json.dumps({"event": event} | facts) + "\n")

        try:
            where = f"127.0.0.1:{port}"
            for _ in Serving(
                chosen.scenario,
                out=folder / "run",
                listen_on=where,
                resume=True,
                wait_s=LIMIT_S,
                tell=tell,
            ):
                os.write(seen, b".")
        except AirsplitError as error:
            print(error, flush=True)
            return GAVE_UP if "was tried" in str(error) else 1
    return 0


def join(chosen: Case, folder: Path, k: int, port: int) -> None:
    data = f"{chosen.scenario.training.dataset}_{k}"
    device = Device(
        name=str(k),
        folder=folder / f"device-{k}",
        data=data,
        model=chosen.scenario.model.name,
        patience_s=LIMIT_S,
    )
    device.run(f"127.0.0.1:{port}")


def cut_links(port: int, own_port: int, seed: int, counted: int) -> None:
    """Pass everything on, and cut some of the links now and then; a byte for each."""
    link, rng = fleets.Proxy(port, own_port), random.Random(seed)  # noqa: S311
    for _ in range(8):
        time.sleep(rng.uniform(0.3, 1.0))
        os.write(counted, b"." * link.cut(lambda: rng.random() < 0.4))
    time.sleep(LIMIT_S)


def free_ports(count: int) -> list[int]:
    found = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in found]
    for each in found:
        each.close()
    return ports


class Pipe:
    """Counts bytes that other processes write."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe()
        os.set_blocking(self._read, False)
        self.count = 0

    def look(self) -> int:
        try:
            while data := os.read(self._read, 1 << 12):
                self.count += len(data)
        except BlockingIOError:
            pass
        return self.count

    def close(self) -> None:
        os.close(self._read)
        os.close(self.write)


# ---- a run -----------------------------------------------------------------------------------------------------------------------
class Failed(Exception):
    """A run has not ended well, and why."""


@dataclass
class Count:
    """What has happened to a run."""

    server_kills: int = 0
    device_kills: int = 0
    frozen: int = 0
    links_cut: int = 0
    gave_up: int = 0


class Stage:
    """One run, with all its processes."""

    def __init__(self, case: Case, folder: Path, disasters: int) -> None:
        self.case, self.folder, self.count, self._disasters = case, folder, Count(), disasters
        self._rng = random.Random(case.seed + 1)  # noqa: S311
        self._port, self._link_port = free_ports(2)
        self._seen, self._cut = Pipe(), Pipe()
        self._server: int | None = None
        self._devices: list[int | None] = [None] * case.devices
        self._proxy = forked(
            lambda: cut_links(self._port, self._link_port, case.seed, self._cut.write),
            folder / "link.log",
        )
        self._later: list[tuple[float, Callable[[], Any]]] = []

    def play(self) -> None:
        """From the first process to the last round."""
        try:
            self._start_server()
            for k in range(self.case.devices):
                self._start_device(k)
            end, quiet = time.monotonic() + LIMIT_S, True
            while not self._is_done():
                if time.monotonic() > end:
                    raise Failed(f"it was not done after {LIMIT_S:g} s")
                if quiet and (self.case.seed % EARLY == 0 or self._seen.look()):
                    quiet = False
                    self._plan_disasters()
                self._act()
                time.sleep(LOOK_S)
            self.count.links_cut = self._cut.look()
        finally:
            self._end()

    def _end(self) -> None:
        for process in (self._server, self._proxy, *self._devices):
            if process is not None:
                kill(process)
        self._seen.close()
        self._cut.close()

    # ---- who is on it ------------------------------------------------------------------------------------------------------------
    def _start_server(self) -> None:
        if self._server is None:
            self._require_little_lost()
            self._server = forked(
                lambda: serve(self.case, self.folder, self._port, self._seen.write),
                self.folder / "server.log",
            )

    def _require_little_lost(self) -> None:
        """A restart loses at most the round in progress: every round that was seen is in the checkpoint."""
        seen, progress = self._seen.look(), progress_of(self.folder / "run/checkpoint")
        kept = 0 if progress is None else progress.round
        if kept < seen:
            raise Failed(f"round {seen} was seen, but the checkpoint is of round {kept}")

    def _start_device(self, k: int) -> None:
        if self._devices[k] is None:
            self._devices[k] = forked(
                lambda: join(self.case, self.folder, k, self._link_port),
                self.folder / f"device-{k}.log",
            )

    def _is_done(self) -> bool:
        """Whether the server has come to its end.  Devices must not come to a bad one."""
        self._require_well()
        code = None if self._server is None else ended(self._server)
        if code is None:
            return False
        self._server = None
        if code == GAVE_UP:
            self.count.gave_up += 1
            self._start_server()
        elif code:
            raise Failed(f"the server ended with {code}: {last_line(self.folder / 'server.log')}")
        return code == 0

    def _require_well(self) -> None:
        for k, process in enumerate(self._devices):
            code = None if process is None else ended(process)
            if code is not None:
                self._devices[k] = None
                if code:
                    raise Failed(
                        f"device {k} ended with {code}: {last_line(self.folder / f'device-{k}.log')}"
                    )

    # ---- what happens ------------------------------------------------------------------------------------------------------------
    def _plan_disasters(self) -> None:
        """One after the other; in the end all is quiet."""
        when = 0.0
        for _ in range(self._disasters):
            when += self._rng.uniform(0.05, 0.6)
            self._after(
                when,
                self._rng.choice(
                    (self._kill_server, self._kill_device, self._kill_device, self._freeze)
                ),
            )

    def _after(self, seconds: float, act: Callable[[], Any]) -> None:
        self._later.append((time.monotonic() + seconds, act))

    def _act(self) -> None:
        now = time.monotonic()
        due = [act for when, act in self._later if when <= now]
        self._later = [(when, act) for when, act in self._later if when > now]
        for act in due:
            act()

    def _kill_server(self) -> None:
        if self._server is not None:
            kill(self._server)
            self._server = None
            self.count.server_kills += 1
            self._after(self._rng.uniform(0.0, 0.6), self._start_server)

    def _kill_device(self) -> None:
        k = self._rng.randrange(self.case.devices)
        process = self._devices[k]
        if process is not None:
            kill(process)
            self._devices[k] = None
            self.count.device_kills += 1
            self._after(self._rng.uniform(0.0, 0.6), lambda: self._start_device(k))

    def _freeze(self) -> None:
        """A device stops, and goes on later as if nothing had happened."""
        k = self._rng.randrange(self.case.devices)
        process = self._devices[k]
        if process is not None:
            os.kill(process, signal.SIGSTOP)
            self.count.frozen += 1
            self._after(
                self._rng.uniform(0.2, 2.5),
                lambda: process == self._devices[k] and os.kill(process, signal.SIGCONT),
            )


def last_line(log: Path) -> str:
    lines = log.read_text().strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it said nothing"


# ---- what must have come of it ---------------------------------------------------------------------------------------------------
def judge(chosen: Case, folder: Path) -> None:
    """Raise where a run is not whole: records, checkpoint, fronts, and where all took part always, every bit."""
    rounds = [record.round for record in RunFolder(folder / "run").read_records()]
    require(
        rounds == list(range(1, chosen.scenario.training.rounds + 1)),
        f"the records are of rounds {rounds}",
    )
    anew = [
        line
        for line in (folder / "events.jsonl").read_text().splitlines()
        if '"begins anew"' in line
    ]
    require(not anew, f"a front was lost: {anew[:1]}")
    replica, profile = replica_of(chosen.scenario)
    kept = read_kept(folder / "run/checkpoint", replica, profile.fingerprint)
    require(kept is not None, "there is no checkpoint")
    back_ends, progress, who = kept  # type: ignore[misc]
    require(progress.round == rounds[-1], f"the checkpoint is of round {progress.round}")
    wanted = fleets.Simulated(chosen.scenario) if chosen.strict else None
    for k in range(chosen.devices):
        state = back_ends.of(k) if back_ends.splits else dict(back_ends.common)
        if back_ends.splits and who.versions[k]:
            like = replica.taken(replica.front_keys(back_ends.splits[k]))
            state |= Fronts(folder / f"device-{k}", who.run, k).load(
                who.versions[k], back_ends.splits[k], like
            )
        require(
            all(bool(torch.isfinite(tensor).all()) for tensor in state.values()),
            f"the model of device {k} is not finite",
        )
        if wanted is not None:
            fleets.assert_same_tensors(state, wanted.state.of(k))


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Failed(otherwise)


def run(seed: int, folder: Path, rounds: int, disasters: int) -> tuple[Case, Count, str]:
    """One run: the case, what happened to it, and why it failed; empty where it did not."""
    chosen = case(seed, rounds)
    stage = Stage(chosen, folder, disasters)
    try:
        stage.play()
    except Failed as failure:
        return chosen, stage.count, str(failure)
    verdict = forked(lambda: judge(chosen, folder), folder / "judge.log")
    _, status = os.waitpid(verdict, 0)
    return chosen, stage.count, last_line(folder / "judge.log") if status else ""


# ---- many ------------------------------------------------------------------------------------------------------------------------
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--quick", action="store_true", help="two short runs")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", type=Path, help="a folder for what the processes leave behind")
    arguments = parser.parse_args()
    lines, good, total = (
        ["| " + " | ".join(HEADS) + " |", "|---:|---|" + "---:|" * 6 + "---|"],
        0,
        Count(),
    )
    replica_of(case(0, 1).scenario)  # what that imports, the processes need not
    seeds = range(arguments.seed, arguments.seed + (2 if arguments.quick else arguments.runs))
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
            folder = Path(temporary) if arguments.keep is None else arguments.keep / f"chaos-{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            start = time.perf_counter()
            chosen, count, failure = run(
                seed, folder, *(QUICK if arguments.quick else (ROUNDS, DISASTERS))
            )
        good += not failure
        total = Count(
            *(a + b for a, b in zip(asdict(total).values(), asdict(count).values(), strict=True))
        )
        cells = [
            seed,
            chosen.words,
            *asdict(count).values(),
            f"{time.perf_counter() - start:.1f}",
            failure or "well",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join([
        "# Chaos", "",
        f"`python benchmarks/chaos.py --runs {len(seeds)} --seed {arguments.seed}` wrote this.  {description()}, "
        f"torch {torch.__version__}.", "",
        f"{good} of {len(seeds)} runs ended well, with {total.server_kills} kills of the server, {total.device_kills} of devices, "
        f"{total.frozen} devices frozen for a while and {total.links_cut} links cut. To end well is: all rounds are recorded, once and in "
        "order; every restart of the server goes on from the last round that was seen; no device loses its front; every model is finite. "
        "Where a round needs all devices (all), every tensor of every device must have the bits that the simulator computes.", "",
        *lines, "",
    ])  # fmt: skip
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")
    sys.exit(good != len(seeds))


if __name__ == "__main__":
    main()
