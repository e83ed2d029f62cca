"""A device: it joins a server, trains the front of the model on data of its own, and comes back when the connection breaks."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from airsplit.core.errors import AirsplitError, InvalidValue
from airsplit.core.lock import folder_lock
from airsplit.network.client.probe import (
    ComputeMeasurement,
    cache_key,
    cached_compute,
    measure_compute,
)
from airsplit.network.client.stream import Lost, Stream, measure_link
from airsplit.network.client.worker import Trainee, expected_answer
from airsplit.network.events import Tell, silent
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.transport import PROTOCOL, connect
from airsplit.planning.arguments import name_inputs
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import ACCURACY
from airsplit.system.profile import RawInputs

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 30.0
LOCK_S = 2.0


class Device:
    """One device of a networked run.

    Args:
        name: Name at the server; not needed if a certificate states it.
        folder: Folder for the device's checkpoint and measurements.
        data: Folder with data sets, of which the device uses its part, or "package.module:factory".
        model: "package.module:factory", if the scenario's model is not built in.
        weights: Initial weights, if the scenario's model starts from a file.
        partition: "package.module:function", if the server's data set is partitioned by user code.
        metric: "package.module:function", if the scenario's metric is not built in and the device
            evaluates.
        raw_inputs: Inputs of the model that may leave the device unchanged; "refuse" for none,
            "allow" for all.
        memory_bytes: Memory limit for training (0: none).
        probe_s: Seconds to measure the device for.
        patience_s: Seconds to retry before giving up on the server.
        tell: Called with each event.
    """

    def __init__(
        self,
        *,
        name: str,
        folder: Path,
        data: str | None = None,
        model: str | None = None,
        weights: str | None = None,
        partition: str | None = None,
        metric: str | None = None,
        raw_inputs: RawInputs = "refuse",
        memory_bytes: int = 0,
        probe_s: float = 3.0,
        patience_s: float = 600.0,
        tell: Tell = silent,
    ) -> None:
        self.name, self.folder, self._data, self._model, self._weights = (
            name,
            folder,
            data,
            model,
            weights,
        )
        self._partition = partition
        self._metric = metric
        self._memory_bytes, self._probe_s, self._patience_s, self._tell = (
            memory_bytes,
            probe_s,
            patience_s,
            tell,
        )
        self._raw_inputs = raw_inputs
        self._trainee: Trainee | None = None
        self._stopping = False
        self._heard = False  # whether the server has answered since the connection was last lost

    def stop(self) -> None:
        """Do not come back once the connection is gone; while it holds, the device goes on."""
        self._stopping = True

    def run(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> str:
        """Take part until the server says that it is over; what it said."""
        try:
            # A device that is started again waits a little for the one before it to end.
            with folder_lock(self.folder, "device's folder", timeout_s=LOCK_S):
                over = self._run(address, credentials)
        finally:
            self._leave_no_empty_folder()
        self._tell(over, folder=str(self.folder))
        return over

    def _leave_no_empty_folder(self) -> None:
        """A device that was never let in has nothing to keep."""
        with suppress(OSError):
            if [file.name for file in self.folder.iterdir()] == [".lock"]:
                (self.folder / ".lock").unlink()
                self.folder.rmdir()

    def _run(self, address: str, credentials: grpc.ChannelCredentials | None) -> str:
        pause, since, rng = FIRST_PAUSE_S, time.monotonic(), random.Random()  # noqa: S311 - jitter
        while True:
            stream = Stream(
                connect(address, credentials), address, is_secured=credentials is not None
            )
            try:
                return self._take_part(stream)
            except Lost as lost:
                if self._stopping:
                    return "stopped"
                if self._heard:
                    pause, since, self._heard = FIRST_PAUSE_S, time.monotonic(), False
                if time.monotonic() - since > self._patience_s:
                    raise Unreachable(
                        f"server {address} cannot be reached since {self._patience_s:g} s: {lost}"
                    ) from None
                wait = pause * rng.uniform(0.5, 1.5)
                self._tell(
                    "waiting", seconds=round(wait, 2), patience=self._patience_s, why=str(lost)
                )
                time.sleep(wait)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            finally:
                stream.close()

    def _take_part(self, stream: Stream) -> str:
        answer = stream.ask(pb.DeviceMessage(hello=pb.Hello(protocol=PROTOCOL, name=self.name)))
        self._heard = True
        welcome = expected_answer(answer, "welcome")
        trainee = self._prepared(welcome)
        measurement = self._measured(stream, trainee) if welcome.measure else None
        arrived = pb.Arrived(
            fingerprint=trainee.profile.fingerprint,
            samples=trainee.samples,
            test_samples=trainee.test_samples,
            versions=trainee.versions(),
            measurement=measurement,
            memory_bytes=self._memory_bytes,
        )
        self._tell("arrived", run=welcome.run, number=welcome.device, samples=trainee.samples)
        if trainee.may_move:
            self._tell("may move")
        return trainee.serve(stream, stream.ask(pb.DeviceMessage(arrived=arrived)))

    def _prepared(self, welcome: pb.Welcome) -> Trainee:
        """Model and data for a run; the same object when the device comes back."""
        if (
            self._trainee is None
            or self._trainee.run != welcome.run
            or self._trainee.number != welcome.device
        ):
            told = Scenario.from_toml(welcome.scenario)
            self._trainee = Trainee(
                self._own_scenario(told),
                welcome,
                self.folder,
                self._data,
                self._tell,
                self._raw_inputs,
            )
            if (
                ":" not in told.training.loss
            ):  # what a loss of the server's own takes only the server knows
                layout = self._trainee.require_labels()
                if layout is not None:
                    self._tell("layout", note=layout)
            names = self._trainee.inputs_that_may_leave()
            if names:
                self._tell(
                    "inputs",
                    note=f"{name_inputs(names)} of the model may be sent to the server unchanged",
                )
        return self._trainee

    def _own_scenario(self, told_by_server: Scenario) -> Scenario:
        """What the server says, but for what is the device's to name: code and data are never the server's choice."""
        changes: dict[str, Any] = {"model.weights": self._weights}
        if self._model is not None:
            changes["model.name"] = self._model
        elif ":" in told_by_server.model.name:
            raise InvalidValue(
                f"the server trains {told_by_server.model.name!r}, which is not one of airsplit's models; "
                "say which code to run by --model package.module:factory"
            )
        own = self._data is not None and ":" in self._data
        if own:
            changes |= {"training.dataset": self._data, "training.partition": "iid"}
        elif ":" in told_by_server.training.dataset:
            raise InvalidValue(
                f"the server's data set is {told_by_server.training.dataset!r}, which is not one of airsplit's; "
                "name the device's own by --data package.module:factory"
            )
        if not own and ":" in told_by_server.training.partition:
            if self._partition is None:
                raise InvalidValue(
                    f"the server divides its data set by {told_by_server.training.partition!r}, "
                    "which is not one of airsplit's partitions; say which code to run by "
                    "--partition package.module:function"
                )
            changes["training.partition"] = self._partition
        if ":" in told_by_server.training.loss and told_by_server.training.algorithm == "fedavg":
            raise InvalidValue(
                "federated averaging computes the loss on the device, which has only airsplit's own, cross-entropy"
            )
        if ":" in told_by_server.training.loss:
            changes["training.loss"] = (
                "cross-entropy"  # the server has the loss; the device never calls it
            )
        return told_by_server.replace(**changes | self._own_metric(told_by_server))

    def _own_metric(self, told_by_server: Scenario) -> dict[str, Any]:
        """What changes in the scenario so that the device runs no metric that it does not name itself."""
        training = told_by_server.training
        if training.metric == ACCURACY:
            return {}
        if training.algorithm != "fedavg":
            return {
                "training.metric": ACCURACY
            }  # the server has the metric; the device never calls it
        if self._metric is None:
            raise InvalidValue(
                f"the server judges models by {training.metric!r}, which is not one of airsplit's metrics, and with federated averaging "
                "the device evaluates; say which code to run by --metric package.module:function"
            )
        return {"training.metric": self._metric}

    def _measured(self, stream: Stream, trainee: Trainee) -> pb.Measurement:
        """What the device can do, from its cache where it has measured that before; and the link, which is always measured."""
        compute = cached_compute(
            self.folder,
            cache_key(trainee.profile, trainee.settings.batch_size),
            lambda: measure_compute(
                trainee.replica,
                trainee.profile,
                batch_size=trainee.settings.batch_size,
                seconds=self._probe_s,
            ),
        )
        link = measure_link(stream.ask)
        self._tell(
            "measured",
            seconds_per_mac=compute.seconds_per_mac,
            fluctuation=compute.fluctuation,
            **link,
        )
        return _measurement(compute, link)


class Unreachable(AirsplitError):
    """The server did not answer for too long."""


def _measurement(compute: ComputeMeasurement, link: dict[str, float]) -> pb.Measurement:
    fit = {"seconds_per_mac": compute.seconds_per_mac, "fluctuation": compute.fluctuation}
    return pb.Measurement(distance=compute.distance, samples=compute.samples, **fit, **link)
