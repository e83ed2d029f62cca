"""Live output of a server and of a device: a table, plain lines, or JSON events."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from airsplit.cli.network_tables import state_table
from airsplit.cli.output import note, print_parts
from airsplit.cli.progress import format_round
from airsplit.cli.progress_view import ProgressView
from airsplit.cli.run_tables import run_report
from airsplit.core.addresses import is_loopback
from airsplit.core.formatting import pluralize
from airsplit.runs.metric import Metric, get_metric
from airsplit.runs.record import RoundRecord
from airsplit.runs.summary import summarize_run

if TYPE_CHECKING:
    from airsplit.network.server.serve import Serving

# Lines for the events of a server; other events get none. The names of the events are part of
# the JSON output, so they stay as they are.
SERVER_LINES = {
    "connected": "{device} connected",
    "arrived": "{device} has arrived, with {samples} samples",
    "left": "{device} disconnected",
    "refused": "{device} was rejected: {why}",
    "begins anew": "{device} has lost its state after round {lost} and starts over",
    "dropped": "round {round} continues without {device}: {why}",
    "short of samples": "note: {note}",
    "repeated": "round {round} is repeated: {finished} devices finished, {needed} are needed",
    "planned": "planned: a round takes about {latency_s:.3g} s",
    "replanned": "new plan: a round takes about {latency_s:.3g} s, {gain:.0%} less",
    "stayed": "plan kept: a new one would save only {gain:.0%}",
}

# Lines for the events of a device.
DEVICE_LINES = {
    "arrived": "joined run {run} as device {number}, with {samples} samples",
    "layout": "note: {note}",
    "inputs": "note: {note}",
    "may move": (
        "the server may move layers between rounds; "
        "this device sends it the weights of layers that it takes over"
    ),
    "measured": (
        "measured: {seconds_per_mac:.3g} s per MAC, "
        "{up_bps:.3g} bit/s up, {down_bps:.3g} bit/s down"
    ),
    "trained": "round {round} done",
    "skipped": "left out of a round: {why}",
    "moved": "split {split} from now on",
    "waiting": (
        "server unreachable ({why}); retrying in {seconds} s, for up to {patience:g} s in total"
    ),
    "stopped": "stopped; this device's checkpoint is in {folder}",
    "done": "training is over; this device's checkpoint is in {folder}",
}

# Log interval without a terminal, in seconds.
LOG_INTERVAL_S = 60.0

# Lines of events below the live table.
RECENT_LINES = 5


def describe_event(event: str, details: dict[str, Any], lines: dict[str, str]) -> str | None:
    """Return the line for an event, or None.

    >>> describe_event("left", {"device": "pi"}, SERVER_LINES)
    'pi disconnected'
    """
    if event not in lines:
        return None
    # A connection that is rejected before it identifies itself has no name.
    return lines[event].format(**{"device": "a device"} | details)


class LiveView:
    """Shows what happens at a server. Events may come from any thread."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._is_live = False
        # Training redirects the prints of user code to stderr, so keep stdout as it is now.
        self._out = sys.stdout
        self._lock = threading.Lock()
        self._progress: ProgressView | None = None
        self._rounds = 0
        self._metric = Metric()
        # The live table overwrites what is printed, so the last lines are drawn below it.
        self._recent_lines: list[str] = []
        self._reported_s = time.monotonic()

    def on_event(self, event: str, **details: Any) -> None:
        """Show an event of the server."""
        with self._lock:
            if self._as_json:
                _print_event(event, details, self._out)
                return
            line = describe_event(event, details, SERVER_LINES)
            if line is None:
                return
            # The new line and at most RECENT_LINES - 1 before it.
            self._recent_lines = [*self._recent_lines[1 - RECENT_LINES :], line]
            if not self._is_live:
                self._note(line)

    def on_record(self, record: RoundRecord) -> None:
        """Show a round that is over."""
        with self._lock:
            if self._progress is not None:
                self._progress.add(record)
            if self._as_json:
                _print_event("round", json.loads(record.to_json()), self._out)
            elif not self._is_live:
                score = self._metric.of(record)
                self._note(format_round(record, self._rounds, self._metric, score, None, "time"))

    def _note(self, text: str) -> None:
        note(text)
        self._reported_s = time.monotonic()

    @contextmanager
    def follow(self, serving: Serving) -> Iterator[None]:
        """Show a server while this block runs: live, if stderr is a terminal."""
        settings = serving.server.settings
        self._rounds = settings.rounds
        self._metric = get_metric(settings)
        self._progress = ProgressView(self._rounds, self._metric, "training time")
        self._announce(serving)

        console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        if self._as_json:
            yield
        elif console.is_terminal:
            self._is_live = True
            with Live(
                console=console,
                transient=True,
                refresh_per_second=4,
                # Called at every refresh, as devices change state within a round, too.
                get_renderable=lambda: self._render(serving),
            ):
                yield
            self._is_live = False
        else:
            with self._log_progress(serving):
                yield

    def _announce(self, serving: Serving) -> None:
        """Say where the server listens, and how to join it."""
        devices = len(serving.server.members)
        folder = serving.folder.path
        if self._as_json:
            self.on_event("listening", port=serving.port, devices=devices, folder=str(folder))
            return

        from airsplit.network.identity.admission import join_address

        note(f"listening on port {serving.port} for {pluralize(devices, 'device')}, into {folder}")
        # Nobody can connect to 0.0.0.0, and the server does not know its name in the network.
        host = serving.host if is_loopback(serving.host) else "HOST"
        words = [join_address(host, serving.port), *list_join_options(serving)]
        note(f"join each device with: airsplit join {' '.join(words)}")

    @contextmanager
    def _log_progress(self, serving: Serving) -> Iterator[None]:
        """Log progress whenever nothing else has been logged for a while."""
        is_over = threading.Event()

        def log() -> None:
            # Look every second, as any other line starts the interval again.
            while not is_over.wait(min(LOG_INTERVAL_S, 1.0)):
                # A log that stays silent looks like a server that hangs.
                if time.monotonic() - self._reported_s >= LOG_INTERVAL_S:
                    # Before the lock: the server holds its own lock while it reports events.
                    text = describe_progress(serving.server.state())
                    with self._lock:
                        self._note(text)

        thread = threading.Thread(target=log, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _render(self, serving: Serving) -> RenderableType:
        parts: list[RenderableType] = [*state_table(serving.server.state())]
        if self._progress is not None:
            parts.append(self._progress.render())
        return Group(*parts, *(Text(line, style="dim") for line in self._recent_lines))

    def finish(self, folder: Path) -> None:
        """Print the results of a run that is over."""
        summary = summarize_run(folder)
        if self._as_json:
            _print_event("done", {"folder": str(folder)} | summary, self._out)
        else:
            print_parts(run_report(summary, folder, networked=True))


def list_join_options(serving: Serving) -> list[str]:
    """Return the options that `airsplit join` needs for a server, besides its address."""
    scenario = serving.server.scenario
    options = []
    if serving.is_secured:
        options.append("--identity FOLDER")
    # A server sends no code, so a device names its own wherever the scenario does.
    if ":" in scenario.model.name:
        options.append("--model package.module:factory")
    if ":" in scenario.training.dataset:
        options.append("--data package.module:factory")
    if ":" in scenario.training.metric and scenario.training.algorithm == "fedavg":
        options.append("--metric package.module:function")
    return options


def describe_progress(state: dict[str, Any]) -> str:
    """Return a server's state in one line.

    >>> devices = [{"state": "training", "step": 3}, {"state": "training", "step": 4}]
    >>> devices.append({"state": "trained", "step": 5})
    >>> describe_progress({"round": 1, "rounds": 8, "devices": devices})
    'round 2 of 8: 2 training, from step 3 on; 1 trained'
    """
    steps = [device["step"] for device in state["devices"] if device["state"] == "training"]
    counts = Counter(device["state"] for device in state["devices"])
    parts = []
    for name, count in counts.items():
        part = f"{count} {name}"
        if name == "training":
            first = min(steps)
            if first == max(steps):
                part += f", at step {first}"
            else:
                part += f", from step {first} on"
        parts.append(part)
    return f"round {state['round'] + 1} of {state['rounds']}: {'; '.join(parts)}"


def make_device_reporter(as_json: bool) -> Callable[..., None]:
    """Return a function that reports a device's events: as notes, or as JSON on stdout."""
    out = sys.stdout

    def on_event(event: str, **details: Any) -> None:
        if as_json:
            _print_event(event, details, out)
            return
        line = describe_event(event, details, DEVICE_LINES)
        if line is not None:
            note(line)

    return on_event


def _print_event(event: str, details: dict[str, Any], out: TextIO) -> None:
    # Flush, as a program reads these lines while the run goes on; NaN is not JSON.
    print(json.dumps({"event": event} | details, allow_nan=False), file=out, flush=True)
