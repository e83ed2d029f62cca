"""serve: train a scenario with real devices over a network, and keep what comes of it in a run folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import grpc

from airsplit.core.errors import Diverged, InvalidValue, show
from airsplit.network.events import Tell, silent
from airsplit.network.identity.admission import Admission, split_address
from airsplit.network.server.server import Server
from airsplit.network.wire.transport import listen
from airsplit.runs.folder import Divergence, RunFolder
from airsplit.runs.provenance import describe_provenance
from airsplit.runs.record import RoundRecord
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import TrainingSettings
from airsplit.system.fleet import Fleet

LAST_WORDS_S = 2.0
"""How long the server waits for devices to hear that it is over."""


class Serving:
    """A listening server and its run folder.

    Iterating over it waits for the devices, plans, and trains; each record is on disk before it is
    yielded.

    Args:
        scenario: What to train.
        out: Folder of the run.
        devices: Number of devices (default: size of the scenario's fleet; when resuming, as before).
        listen_on: HOST:PORT.
        resume: Continue the run in `out`.
        wait_s: Seconds to wait for devices.
        credentials: Server credentials for TLS; None means plain text.
        admission: Which certificates may join. Without it, a client may use any name.
        tell: Called with each event.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        out: str | os.PathLike[str],
        devices: int | None = None,
        listen_on: str = "127.0.0.1:7070",
        resume: bool = False,
        wait_s: float = 3600.0,
        credentials: grpc.ServerCredentials | None = None,
        admission: Admission | None = None,
        tell: Tell = silent,
    ) -> None:
        _require_possible(scenario.training)
        self.folder = RunFolder(out)
        self.host, self.is_secured = split_address(listen_on)[0], credentials is not None
        self.resuming = resume and self.folder.has_rounds
        if not resume:
            self.folder.require_new()  # before anything slow
        if self.resuming and devices is None:
            devices = Scenario.from_toml(self.folder.read_scenario()).fleet.devices
        scenario = _with_devices(scenario, devices)
        self.server = Server(
            scenario, devices=_count(scenario), wait_s=wait_s, admission=admission, tell=tell
        )
        with ExitStack() as stack:
            stack.enter_context(self.folder.lock())
            if self.resuming:
                self._take_up()
            transport, self.port = listen(
                listen_on,
                self.server.join,
                {"Status": self.server.status, "Measure": self.server.measure},
                devices=len(self.server.members),
                limit_bytes=self.server.desk.limit_bytes,
                credentials=credentials,
            )
            stack.callback(lambda: transport.stop(LAST_WORDS_S).wait())
            self._open = stack.pop_all()

    def _take_up(self) -> None:
        """Bring the server to where the run in the folder stopped."""
        self.folder.require_same_scenario(self.server.scenario)
        fleet_file = self.folder.path / "fleet.csv"
        fleet = (
            Fleet.read(fleet_file, cell=self.server.scenario.make_cell())
            if fleet_file.exists()
            else None
        )
        self.resuming = self.server.restore(self.folder.checkpoint, fleet)
        self.folder.drop_records_after(self.server.round)
        self.folder.clear_divergence()
        self.folder.rewrite_scenario(self.server.scenario.to_toml())

    def __iter__(self) -> Iterator[RoundRecord]:
        """Wait for the devices, plan, and train."""
        why = "the server stops; it may come back"
        with self._open:
            try:
                self.server.prepare()
                if not self.resuming:
                    self._begin()
                self.server.keep = lambda: self.server.save(self.folder.checkpoint)
                for record in self.server.rounds():
                    self.folder.append(record)
                    self.server.save(self.folder.checkpoint)
                    yield record
                self.server.orders.wait(
                    self.server.all_here, LAST_WORDS_S
                )  # who is on the way back is to hear that it is over
                why = ""
            except Diverged as error:
                self.folder.write_divergence(Divergence(self.server.round + 1, str(error)))
                raise
            finally:
                self.server.orders.end(why)

    def _begin(self) -> None:
        self.folder.begin(
            self.server.scenario.to_toml(), self.server.plan_document() | describe_provenance()
        )
        if self.server.network.measure and self.server.forecast is not None:
            self.server.forecast.fleet.write(self.folder.path / "fleet.csv")

    def stop(self, why: str) -> None:
        """Ask the training to end after what it is at."""
        self.server.stop(why)


def _require_possible(settings: TrainingSettings) -> None:
    """Raise where a setting is only for the simulator."""
    for key, only in (("device", "cpu"), ("precision", "fp32"), ("evaluate_samples", None)):
        given = getattr(settings, key)
        if given != only:
            way = "leave it out" if only is None else f'set it to "{only}"'
            raise InvalidValue(
                f"training.{key} is for airsplit run, not for a network of devices, got {show(given)}; {way}"
            )


def _with_devices(scenario: Scenario, devices: int | None) -> Scenario:
    """The scenario for as many devices as were asked for."""
    if devices is None:
        return scenario
    if scenario.fleet.file is None:
        return scenario.replace(**{"fleet.devices": devices})
    if devices != (there := _count(scenario)):
        raise InvalidValue(
            f"--devices must be as many as fleet.file has, {there}, got {devices}; leave it out"
        )
    return scenario


def _count(scenario: Scenario) -> int:
    return len(scenario.make_fleet())
