"""Run a workload in the environment of a peer, watch the memory of all its processes, and take what it prints."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parent.parent
ROOT = BENCHMARKS.parent
ENVIRONMENTS = ROOT / "build" / "peers"
LONGEST_S = 300.0
LOOK_EVERY_S = 0.25


@dataclass(frozen=True)
class Outcome:
    """What a workload found, or why it could not be run; and the most memory that its processes held together."""

    found: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    peak_bytes: int = 0

    @property
    def failed(self) -> str:
        """What the table says in place of numbers."""
        return f"could not be run: {self.reason}" if self.reason else ""


def python_of(environment: str) -> Path:
    """The interpreter of a peer; of Airsplit itself where there is no name."""
    return ENVIRONMENTS / environment / "bin" / "python" if environment else Path(sys.executable)


def run(environment: str, workload: str, given: dict[str, Any], *, processes: int = 1) -> Outcome:
    """Run a workload, in several processes by torchrun where it is said."""
    python = python_of(environment)
    if not python.exists():
        return Outcome(reason=_missing(environment))
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        if processes > 1
        else []
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python), *launcher, "-m", f"peers.workloads.{workload}"]
        return _watched(command, _variables(given), Path(folder))


def versions(environment: str, *packages: str) -> str:
    """Packages with their versions, as they are installed there."""
    python = python_of(environment)
    if not python.exists():
        return f"{', '.join(packages)} (not installed)"
    code = "import sys; from importlib.metadata import version; print(', '.join(f'{p} {version(p)}' for p in sys.argv[1:]))"
    done = subprocess.run(
        [str(python), "-c", code, *packages], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or f"{', '.join(packages)} (not installed)"


def _missing(environment: str) -> str:
    """Why there is no such environment."""
    log = ENVIRONMENTS / f"{environment}.log"
    errors = (
        [line for line in log.read_text().splitlines() if line.startswith("ERROR")]
        if log.exists()
        else []
    )
    return (
        f"not installed: {_in_words(errors[-1], 1)}"
        if errors
        else f"no environment {environment!r}; make bench-peers makes it"
    )


def _variables(given: dict[str, Any]) -> dict[str, str]:
    path = os.pathsep.join([str(BENCHMARKS), str(ROOT / "src")])
    told = {
        "PEERS_GIVEN": json.dumps(given),
        "PEERS_STARTED": repr(time.time()),
        "PYTHONPATH": path,
    }
    return os.environ | told


def _watched(command: list[str], variables: dict[str, str], folder: Path) -> Outcome:
    """Its answer is the last line of JSON; whatever it leaves running is ended."""
    with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        started = subprocess.Popen(
            command, env=variables, cwd=folder, stdout=out, stderr=err, start_new_session=True
        )
        watch = _Watch(started.pid)
        late = False
        try:
            started.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            peak = watch.end()
            _end(started, watch.seen)
        told = [line for line in _text(out).splitlines() if line.startswith("{")]
        if late:
            return Outcome(reason=f"not done in {LONGEST_S:.0f} s")
        if started.returncode or not told:
            return Outcome(reason=_in_words(_text(err) or _text(out), started.returncode))
        return Outcome(found=json.loads(told[-1]), peak_bytes=peak)


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read())


def _in_words(text: str, code: int) -> str:
    """The error in a log, without paths."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [
        line
        for line in lines
        if re.match(r"[\w.]*(Error|Exception|Infeasible|InvalidValue)\b", line)
    ]
    signals = [
        line for line in lines if re.search(r"Signal \d+|exitcode *:", line)
    ]  # what torchrun says of a process that died
    errors = [line for line in errors if "ChildFailedError" not in line] or signals or errors
    said = (errors or lines or [f"exit status {code}"])[-1]
    return re.sub(r"(/[\w.+-]+)+/", "", said).replace("|", "/")[:200]


def _end(started: subprocess.Popen[bytes], seen: set[int]) -> None:
    """End the workload and what is left of its processes."""
    for pid in _tree(started.pid) | {pid for pid in seen if _session(pid) == started.pid}:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    started.wait()


class _Watch:
    """The proportional set size of a process and all that it started, added up every quarter of a second; shared pages count once."""

    def __init__(self, pid: int) -> None:
        self.seen: set[int] = set()
        self._pid, self._peak, self._over = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            pids = _tree(self._pid)
            self.seen |= pids
            self._peak = max(self._peak, sum(map(_memory, pids)))

    def end(self) -> int:
        self._over.set()
        self._thread.join()
        return self._peak


def _tree(root: int) -> set[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_stat(int(entry.name))[0], []).append(int(entry.name))
    found, left = set[int](), [root]
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children.get(pid, [])
    return found


def _session(pid: int) -> int:
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[int, int]:
    """Parent and session; zeros where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0, 0
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), int(fields[3])


def _memory(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next(
        (1024 * int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0
    )
