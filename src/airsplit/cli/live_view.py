"""What a server and a device show while they work: a live table on a terminal, plain lines elsewhere, or events as JSON."""

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

from airsplit.cli.output import note, print_parts
from airsplit.cli.progress import line
from airsplit.cli.progress_view import Facts
from airsplit.cli.render import table
from airsplit.cli.run_tables import run_report, run_summary
from airsplit.core.addresses import is_loopback
from airsplit.core.formatting import format_seconds, pluralize
from airsplit.runs.metric import Metric, get_metric
from airsplit.runs.record import RoundRecord

if TYPE_CHECKING:
    from airsplit.network.server.serve import Serving

TOLD = {
    "connected": "{device} connects",
    "arrived": "{device} is here, with {samples} samples",
    "left": "{device} is gone",
    "refused": "{device} is refused: {why}",
    "begins anew": "{device} has not what it had after round {lost}, and begins anew",
    "dropped": "round {round} goes on without {device}: {why}",
    "short of samples": "note: {note}",
    "repeated": "round {round} is repeated: {finished} devices finished, {needed} are needed",
    "planned": "planned: a round takes about {latency_s:.3g} s",
    "replanned": "planned anew: a round takes about {latency_s:.3g} s, {gain:.0%} less",
    "stayed": "a new plan would save {gain:.0%}: not worth it",
}
"""What is said of events; of others nothing."""

TOLD_BY_DEVICE = {
    "arrived": "here as device {number} of run {run}, with {samples} samples",
    "layout": "note: {note}",
    "inputs": "note: {note}",
    "may move": "the server may move layers between rounds; those that it takes over are sent to it as weights",
    "measured": "measured: {seconds_per_mac:.3g} s a MAC, {up_bps:.3g} bit/s up, {down_bps:.3g} bit/s down",
    "trained": "round {round} is trained",
    "skipped": "left out of a round: {why}",
    "moved": "cut at split {split} from here on",
    "waiting": "the server cannot be reached ({why}); trying again in {seconds} s, until {patience:g} s have gone by",
    "stopped": "stopped; what this device keeps is in {folder}",
    "done": "the training is over; what this device keeps is in {folder}",
}


LONG_S = 60.0
"""Where the screen is none, the server says how far it is after so long without a word."""


def sentence(event: str, facts: dict[str, Any], told: dict[str, str]) -> str | None:
    """An event in words; None where nothing is said of it.

    >>> sentence("left", {"device": "pi"}, TOLD)
    'pi is gone'
    """
    return told[event].format(**{"device": "a device"} | facts) if event in told else None


class Board:
    """What happens at a server."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._live = as_json, False
        self._out = (
            sys.stdout
        )  # as it is now: while training, what users' code prints goes to stderr
        self._lock = threading.Lock()
        self._facts: Facts | None = None
        self._rounds, self._metric, self._lines = 0, Metric(), list[str]()
        self._said_s = time.monotonic()

    def told(self, event: str, **facts: Any) -> None:
        """An event, from any thread."""
        with self._lock:
            if self._as_json:
                _print_event(event, facts, self._out)
            elif (text := sentence(event, facts, TOLD)) is not None:
                self._lines = [*self._lines[-4:], text]
                if not self._live:
                    self._say(text)

    def recorded(self, record: RoundRecord) -> None:
        """A round is over."""
        with self._lock:
            if self._facts is not None:
                self._facts.add(record)
            if self._as_json:
                _print_event("round", json.loads(record.to_json()), self._out)
            elif not self._live:
                self._say(self._round_line(record))

    def _say(self, text: str) -> None:
        note(text)
        self._said_s = time.monotonic()

    def _round_line(self, record: RoundRecord) -> str:
        return line(record, self._rounds, self._metric, self._metric.of(record), None, "time")

    @contextmanager
    def showing(self, serving: Serving) -> Iterator[None]:
        """A live table, where stderr is a terminal."""
        from airsplit.network.identity.admission import join_address

        self._rounds, self._metric = (
            serving.server.settings.rounds,
            get_metric(serving.server.settings),
        )
        self._facts = Facts(self._rounds, self._metric, "training time")
        if not self._as_json:
            note(
                f"listening on port {serving.port} for {pluralize(len(serving.server.members), 'device')}, into {serving.folder.path}"
            )
            where = join_address(
                serving.host if is_loopback(serving.host) else "HOST", serving.port
            )
            note(f"each joins with: airsplit join {where}{_own_words(serving)}")
        else:
            self.told(
                "listening",
                port=serving.port,
                devices=len(serving.server.members),
                folder=str(serving.folder.path),
            )
        console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        if self._as_json:
            yield
            return
        if not console.is_terminal:
            with self._reminding(serving):
                yield
            return
        self._live = True
        with Live(
            console=console,
            transient=True,
            refresh_per_second=4,
            get_renderable=lambda: self._drawn(serving),
        ):
            yield
        self._live = False

    @contextmanager
    def _reminding(self, serving: Serving) -> Iterator[None]:
        """A context in which a sign of life comes where nothing else was said for a while."""
        over = threading.Event()

        def remind() -> None:
            while not over.wait(min(LONG_S, 1.0)):
                if time.monotonic() - self._said_s >= LONG_S:
                    text = how_far(
                        serving.server.state()
                    )  # before the lock: the server may hold its own while it tells something
                    with self._lock:
                        self._say(text)

        thread = threading.Thread(target=remind, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _drawn(self, serving: Serving) -> RenderableType:
        parts: list[RenderableType] = state_table(serving.server.state())
        if self._facts is not None:
            parts.append(self._facts.drawn())
        return Group(*parts, *(Text(text, style="dim") for text in self._lines))

    def finish(self, folder: Path) -> None:
        """All rounds are done."""
        summary = run_summary(folder)
        if self._as_json:
            _print_event("done", {"folder": str(folder)} | summary, self._out)
        else:
            print_parts(run_report(summary, folder, networked=True))


def _own_words(serving: Serving) -> str:
    """What a device must say besides where the server is."""
    scenario, code = serving.server.scenario, "package.module:factory"
    wanted = {"identity FOLDER": serving.is_secured, f"model {code}": ":" in scenario.model.name}
    wanted[f"data {code}"] = ":" in scenario.training.dataset
    wanted["metric package.module:function"] = (
        ":" in scenario.training.metric and scenario.training.algorithm == "fedavg"
    )
    return "".join(f" --{option}" for option, is_needed in wanted.items() if is_needed)


def how_far(state: dict[str, Any]) -> str:
    """A server's state in a line.

    >>> devices = [{"state": "training", "step": 3}, {"state": "training", "step": 4}, {"state": "trained", "step": 5}]
    >>> how_far({"round": 1, "rounds": 8, "devices": devices})
    'round 2 of 8: 2 training, at step 3 and later; 1 trained'
    """
    steps = [device["step"] for device in state["devices"] if device["state"] == "training"]
    places = (
        {"training": f", at step {min(steps)}{' and later' if max(steps) > min(steps) else ''}"}
        if steps
        else {}
    )
    counts = Counter(device["state"] for device in state["devices"])
    told = "; ".join(f"{count} {what}{places.get(what, '')}" for what, count in counts.items())
    return f"round {state['round'] + 1} of {state['rounds']}: {told}"


def state_table(state: dict[str, Any]) -> list[Any]:
    """How far a server is, and who is there."""
    rows = table(
        "device", "name", "state", "step", "samples", "kept", "heard", words=("name", "state")
    )
    for device in state["devices"]:
        heard = "" if device["last_seen_s"] is None else f"{device['last_seen_s']:.0f} s ago"
        kept = "" if not device["version"] else f"round {device['version']}"
        cells = (
            device["name"] or "-",
            device["state"],
            device["step"],
            device["samples"],
            kept,
            heard,
        )
        rows.add_row(str(device["number"]), *map(str, cells))
    planned = state.get("planned_latency_s")
    about = f"round {state['round']} of {state['rounds']} done, {format_seconds(state['time_s'])} of training"
    return [
        Text(about + ("" if planned is None else f", {format_seconds(planned)} planned for each")),
        rows,
    ]


def device_teller(as_json: bool) -> Callable[..., None]:
    """Tells what a device is at: lines on stderr, or events as JSON on stdout."""
    out = sys.stdout

    def tell(event: str, **facts: Any) -> None:
        if as_json:
            _print_event(event, facts, out)
        elif (text := sentence(event, facts, TOLD_BY_DEVICE)) is not None:
            note(text)

    return tell


def _print_event(event: str, facts: dict[str, Any], out: TextIO) -> None:
    print(json.dumps({"event": event} | facts, allow_nan=False), file=out, flush=True)
