"""Run a workload in the environment of a peer, and measure the memory of all its processes."""

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
from typing import IO, Any

BENCHMARKS = Path(__file__).resolve().parent.parent
ROOT = BENCHMARKS.parent
ENVIRONMENTS = ROOT / "build" / "peers"
LIMIT_S = 300.0
MEMORY_INTERVAL_S = 0.25

LIST_VERSIONS = """
import sys
from importlib.metadata import version
print(", ".join(f"{package} {version(package)}" for package in sys.argv[1:]))
"""


@dataclass(frozen=True)
class Outcome:
    """The result of a workload, or why it could not be run.

    Attributes:
        values: What the workload has reported.
        reason: Why it failed; empty if it did not.
        peak_bytes: Peak memory of its processes together.
    """

    values: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    peak_bytes: int = 0

    @property
    def failure(self) -> str:
        """Text of the table in place of numbers; empty if there are numbers."""
        return f"could not be run: {self.reason}" if self.reason else ""


def run_workload(
    environment: str, workload: str, arguments: dict[str, Any], *, processes: int = 1
) -> Outcome:
    """Run a workload, in several processes by torchrun if there are to be more than one.

    Args:
        environment: Name of the peer's environment; empty for Airsplit's own.
    """
    python = _python(environment)
    if not python.exists():
        return Outcome(reason=_why_missing(environment))
    launcher = []
    if processes > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone"]
        launcher += ["--nproc-per-node", str(processes)]
    variables = os.environ | {
        "PEERS_ARGUMENTS": json.dumps(arguments),
        "PEERS_START": repr(time.time()),
        "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), str(ROOT / "src")]),
    }
    command = [str(python), *launcher, "-m", f"peers.workloads.{workload}"]
    with tempfile.TemporaryDirectory() as folder:
        return _run(command, variables, Path(folder))


def list_versions(environment: str, *packages: str) -> str:
    """Return packages with the versions that are installed in an environment."""
    missing = f"{', '.join(packages)} (not installed)"
    python = _python(environment)
    if not python.exists():
        return missing
    process = subprocess.run(
        [str(python), "-c", LIST_VERSIONS, *packages], capture_output=True, text=True, check=False
    )
    return process.stdout.strip() or missing


def _python(environment: str) -> Path:
    return ENVIRONMENTS / environment / "bin" / "python" if environment else Path(sys.executable)


def _why_missing(environment: str) -> str:
    # The Makefile deletes an environment that it could not fill, and keeps pip's log.
    log = ENVIRONMENTS / f"{environment}.log"
    if log.exists():
        errors = [line for line in log.read_text().splitlines() if line.startswith("ERROR")]
        if errors:
            return f"not installed: {_last_error(errors[-1], 1)}"
    return f"no environment {environment!r}; make bench-peers makes it"


def _run(command: list[str], variables: dict[str, str], folder: Path) -> Outcome:
    """Run a command that prints its result as the last line of JSON; end all that it started."""
    with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        process = subprocess.Popen(
            command, env=variables, cwd=folder, stdout=out, stderr=err, start_new_session=True
        )
        watch = _MemoryWatch(process.pid)
        is_late = False
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            is_late = True
        finally:
            peak_bytes = watch.stop()
            _kill_all(process, watch.pids)
        results = [line for line in _read(out).splitlines() if line.startswith("{")]
        if is_late:
            return Outcome(reason=f"not done in {LIMIT_S:.0f} s")
        if process.returncode or not results:
            return Outcome(reason=_last_error(_read(err) or _read(out), process.returncode))
        return Outcome(values=json.loads(results[-1]), peak_bytes=peak_bytes)


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _last_error(log: str, code: int) -> str:
    """Return the last error of a log, without paths."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [
        line
        for line in lines
        if re.match(r"[\w.]*(Error|Exception|Infeasible|InvalidValue)\b", line)
    ]
    # After a process has died, torchrun names its signal, and then raises an error of its own.
    signals = [line for line in lines if re.search(r"Signal \d+|exitcode *:", line)]
    own_errors = [line for line in errors if "ChildFailedError" not in line]
    candidates = own_errors or signals or errors or lines or [f"exit status {code}"]
    return re.sub(r"(/[\w.+-]+)+/", "", candidates[-1]).replace("|", "/")[:200]


def _kill_all(process: subprocess.Popen[bytes], pids: set[int]) -> None:
    """Kill a process, its descendants, and those of its session that have lost their parent."""
    for pid in _descendants(process.pid) | {pid for pid in pids if _session(pid) == process.pid}:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


class _MemoryWatch:
    """Poll the memory of a process and its descendants.

    Memory is the proportional set size, so that shared pages count once.

    Attributes:
        pids: Every process that was there at some time.
    """

    def __init__(self, pid: int) -> None:
        self.pids: set[int] = set()
        self._pid = pid
        self._peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.wait(MEMORY_INTERVAL_S):
            pids = _descendants(self._pid)
            self.pids |= pids
            self._peak_bytes = max(self._peak_bytes, sum(map(_memory_bytes, pids)))

    def stop(self) -> int:
        """Stop, and return the peak."""
        self._stop.set()
        self._thread.join()
        return self._peak_bytes


def _descendants(root: int) -> set[int]:
    """Return a process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            pid = int(entry.name)
            children.setdefault(_parent(pid), []).append(pid)
    pids: set[int] = set()
    queue = [root]
    while queue:
        pid = queue.pop()
        if pid not in pids:
            pids.add(pid)
            queue += children.get(pid, [])
    return pids


def _parent(pid: int) -> int:
    return _stat(pid)[0]


def _session(pid: int) -> int:
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[int, int]:
    """Return parent and session of a process, or zeros if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0, 0
    # The process name, in parentheses, may contain spaces.
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), int(fields[3])


def _memory_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return 1024 * int(line.split()[1])
    return 0
