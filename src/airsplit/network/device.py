"""A device: it joins a server, trains the front of the model on data of its own, and comes back when the connection breaks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch
from torch import Tensor

from airsplit.errors import AirsplitError, Diverged, InvalidValue, show
from airsplit.learn.batches import Batches
from airsplit.learn.data import Dataset
from airsplit.learn.evaluation import Score, scores
from airsplit.learn.partition import label_counts
from airsplit.learn.preparation import dataset_of, inputs_to, parts_of, replica_of
from airsplit.learn.seeding import seeded
from airsplit.learn.state import State
from airsplit.learn.step import DEVICE_BACKWARD, DEVICE_FORWARD, NonFinite, device_backward, device_forward, require_finite
from airsplit.network import airsplit_pb2 as pb
from airsplit.network.codec import Incoming, Malformed, Outgoing, require_like
from airsplit.network.desk import Tell
from airsplit.network.fronts import Fronts
from airsplit.network.probe import ComputeMeasurement, cache_key, cached_compute, measure_compute
from airsplit.network.server import silent
from airsplit.network.streams import Lost, Stream, measure_link
from airsplit.network.transport import PROTOCOL, connect
from airsplit.scenario import Scenario
from airsplit.units import Ints

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 30.0


class Skipped(Exception):
    """The round goes on without this device."""


class Device:
    """One device of a run.

    name       how the server knows it; not needed where a certificate says it
    data       a folder with data sets, of which the device takes its part; or "package.module:factory", its own
    model      "package.module:factory", where the scenario's model is not one of airsplit's
    weights    what to begin with, where the scenario's model begins with weights from a file
    folder     for its checkpoint and measurements
    patience_s how long it tries to reach the server before it gives up
    """

    def __init__(
        self,
        *,
        name: str,
        folder: Path,
        data: str | None = None,
        model: str | None = None,
        weights: str | None = None,
        memory_bytes: int = 0,
        probe_s: float = 3.0,
        patience_s: float = 600.0,
        tell: Tell = silent,
    ) -> None:
        self.name, self.folder, self._data, self._model, self._weights = name, folder, data, model, weights
        self._memory_bytes, self._probe_s, self._patience_s, self._tell = memory_bytes, probe_s, patience_s, tell
        self._trainee: Trainee | None = None
        self._stopping = False

    def stop(self) -> None:
        """Ask the device to leave after what it is at."""
        self._stopping = True

    def run(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> str:
        """Take part until the server says that it is over; what it said."""
        pause, since, rng = FIRST_PAUSE_S, time.monotonic(), random.Random()  # noqa: S311 - jitter
        while True:
            stream = Stream(connect(address, credentials))
            try:
                return self._take_part(stream)
            except Lost as lost:
                if self._stopping:
                    return "stopped"
                if self._heard:
                    pause, since, self._heard = FIRST_PAUSE_S, time.monotonic(), False
                if time.monotonic() - since > self._patience_s:
                    raise Unreachable(f"server {address} cannot be reached since {self._patience_s:g} s: {lost}") from None
                wait = pause * rng.uniform(0.5, 1.5)
                self._tell("waiting", seconds=round(wait, 2), why=str(lost))
                time.sleep(wait)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            finally:
                stream.close()

    _heard = False

    def _take_part(self, stream: Stream) -> str:
        answer = stream.ask(pb.DeviceMessage(hello=pb.Hello(protocol=PROTOCOL, name=self.name)))
        self._heard = True
        welcome = _expected(answer, "welcome")
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
        return trainee.serve(stream, stream.ask(pb.DeviceMessage(arrived=arrived)))

    def _prepared(self, welcome: pb.Welcome) -> Trainee:
        """Model and data for a run; the same object when the device comes back."""
        if self._trainee is None or self._trainee.run != welcome.run or self._trainee.number != welcome.device:
            scenario = self._own_scenario(Scenario.from_toml(welcome.scenario))
            self._trainee = Trainee(scenario, welcome, self.folder, self._data, self._tell)
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
        if ":" in told_by_server.training.loss and told_by_server.training.algorithm == "fedavg":
            raise InvalidValue("federated averaging computes the loss on the device, which has only airsplit's own, cross-entropy")
        if ":" in told_by_server.training.loss:
            changes["training.loss"] = "cross-entropy"  # the server has the loss; the device never calls it
        return told_by_server.replace(**changes)

    def _measured(self, stream: Stream, trainee: Trainee) -> pb.Measurement:
        """What the device can do, from its cache where it has measured that before; and the link, which is always measured."""
        compute = cached_compute(
            self.folder,
            cache_key(trainee.profile, trainee.settings.batch_size),
            lambda: measure_compute(trainee.replica, trainee.profile, batch_size=trainee.settings.batch_size, seconds=self._probe_s),
        )
        link = measure_link(lambda probe: stream.ask(pb.DeviceMessage(probe=probe)))
        self._tell("measured", seconds_per_mac=compute.seconds_per_mac, fluctuation=compute.fluctuation, **link)
        return _measurement(compute, link)


class Unreachable(AirsplitError):
    """The server did not answer for too long."""


class Trainee:
    """What a device trains in one run: its part of the model, on its data."""

    def __init__(self, scenario: Scenario, welcome: pb.Welcome, folder: Path, data: str | None, tell: Tell) -> None:
        self.run, self.number, self.settings, self._tell = welcome.run, welcome.device, scenario.training, tell
        self._scenario, self._compression = scenario.replace(**{"model.fingerprint": None}), scenario.network.compression
        self.replica, self.profile = replica_of(self._scenario)
        own = data is not None and ":" in data
        dataset = dataset_of(self.settings, inputs_to(scenario, self.replica.model), None if own else data)
        rows = np.arange(len(dataset.train)) if own else parts_of(self.settings, dataset, welcome.devices)[self.number]
        self._dataset, self._rows = dataset, rows
        self._batches = Batches({self.number: rows}, self.settings.batch_size, self.settings.seed)
        self._mix = _mix(dataset, rows)
        self.samples, self.test_samples = len(rows), len(dataset.test)
        self.fronts = Fronts(folder, self.run, self.number)
        self._split, self._fresh = 0, True
        self._loaded: tuple[int, int] | None = None  # the version that the replica has, if it is one

    # ---- orders ----------------------------------------------------------------------------------------------------------------
    def serve(self, stream: Stream, answer: Incoming[pb.ServerMessage]) -> str:
        """Do what the server says until it says that it is over."""
        while True:
            kind = answer.message.WhichOneof("body")
            try:
                if kind == "round":
                    answer = self._round(stream, answer, answer.message.round)
                elif kind == "assess":
                    answer = self._assess(stream, answer, answer.message.assess)
                elif kind == "move":
                    answer = self._move(stream, answer, answer.message.move)
                else:
                    return self._done(_expected(answer, "done"))
            except Skipped as why:
                self._tell("skipped", why=str(why))
                self._loaded = None
                answer = stream.ask(pb.DeviceMessage(ready=pb.Ready(versions=self.versions())))

    def _done(self, done: pb.Done) -> str:
        if done.why:
            raise Lost(done.why)
        if (done.begin_from, self._split) in self.fronts.versions:
            self.fronts.keep_only(done.begin_from, self._split)
        return "done"

    def versions(self) -> list[pb.Version]:
        """What there is to begin from."""
        return [pb.Version(round=number, split=split) for number, split in self.fronts.versions]

    def _begin(self, version: int, split: int) -> None:
        """Become what the front was after a round; 0: as it was at first."""
        if self._loaded != (version, split):
            names = self.replica.front_keys(split)
            if (version, split) in self.fronts.versions:
                self.replica.load(self.fronts.load(version, split, self.replica.taken(names)))
            elif version:
                raise Malformed(f"the server must begin from a version that the device has, got round {version} at split {split}")
            elif not self._fresh:
                fresh, _ = replica_of(self._scenario)
                self.replica.load({name: fresh.tensors[name] for name in names})
        self._loaded, self._split = (version, split), split

    def _place(self, order: pb.Round | pb.Assess, step: int) -> pb.Place:
        number = order.number if isinstance(order, pb.Round) else order.round
        return pb.Place(run=self.run, round=number, order=order.order, step=step)

    # ---- training --------------------------------------------------------------------------------------------------------------
    def _round(self, stream: Stream, incoming: Incoming[pb.ServerMessage], order: pb.Round) -> Incoming[pb.ServerMessage]:
        """One round: E steps, or with federated averaging E whole iterations."""
        stream.pace(order.up_bps)
        if self.settings.algorithm == "fedavg":
            return stream.ask(self._whole_round(incoming, order))
        self._begin(order.begin_from, order.split)
        self.fronts.keep_only(order.begin_from, order.split)  # the server has this on its disk; before, it may still go back
        clock, self._loaded, self._fresh = _Stopwatch(), None, False
        for step in range(self.settings.iterations_per_round):
            self._step(stream, order, step, clock)
        names = self.replica.front_keys(self._split)
        self.fronts.keep(order.number, self._split, self.replica.taken(names))
        self._loaded = (order.number, self._split)
        self._tell("trained", round=order.number)
        return stream.ask(pb.DeviceMessage(finished=clock.finished(self._place(order, self.settings.iterations_per_round))))

    def _step(self, stream: Stream, order: pb.Round, step: int, clock: _Stopwatch) -> None:
        front, _ = self.replica.halves(self._split)
        chance = partial(self._chance, order.number, step)
        with clock.computing():
            inputs, labels = self._batch(order.number, step)
            with chance(DEVICE_FORWARD):
                crossing = device_forward(front, inputs)
            try:
                require_finite(crossing)
            except NonFinite:
                raise Diverged(f"training stopped in round {order.number}: the activations of this device are not finite") from None
            place = self._place(order, step)
            sent = Outgoing(pb.DeviceMessage(step=pb.Step(place=place)))
            for tensor in crossing:
                sent.put(sent.message.step.activations.add(), tensor, self._compression, wants_gradient=tensor.requires_grad)
            sent.put(sent.message.step.labels, labels)
        with clock.asking() as heard:
            answer = stream.ask(sent)
            heard(answer.message)
        with clock.computing():
            gradients = _gradients(answer, place, crossing)
            self.replica.clear()
            with chance(DEVICE_BACKWARD):
                device_backward(crossing, gradients)
            self.replica.descend()

    def _whole_round(self, incoming: Incoming[pb.ServerMessage], order: pb.Round) -> Outgoing[pb.DeviceMessage]:
        """Federated averaging: train the whole model, and send it back."""
        clock, whole = _Stopwatch(), len(self.replica.outline.splits)
        if order.model:
            self._model_now = incoming.named(order.model, self.replica.tensors)
        self.replica.load(self._model_now)
        losses = []
        for step in range(self.settings.iterations_per_round):
            with clock.computing():
                inputs, labels = self._batch(order.number, step)
                losses.append(self.replica.step(whole, inputs, labels, "none", partial(self._chance, order.number, step)))
        done = Outgoing(pb.DeviceMessage(finished=clock.finished(self._place(order, self.settings.iterations_per_round))))
        done.message.finished.train_loss = sum(losses) / len(losses)
        done.put_named(done.message.finished.model, self.replica.tensors)
        return done

    _model_now: dict[str, Tensor]

    def _chance(self, number: int, step: int, part: str) -> Any:
        return seeded(self.settings.seed, part, self.number, number, step)

    def _batch(self, number: int, step: int) -> tuple[tuple[Tensor, ...], Tensor]:
        rows = self._batches.rows(self.number, (number - 1) * self.settings.iterations_per_round + step)
        return self._dataset.train.batch(torch.as_tensor(rows))

    # ---- evaluation ------------------------------------------------------------------------------------------------------------
    def _assess(self, stream: Stream, incoming: Incoming[pb.ServerMessage], order: pb.Assess) -> Incoming[pb.ServerMessage]:
        """Evaluate this device's model on its test set: the front here, the rest on the server."""
        if self.settings.algorithm == "fedavg":
            self._model_now = incoming.named(order.model, self.replica.tensors)
            with seeded(self.settings.seed, "evaluation", order.round):
                found = scores(self.replica, State(self._model_now, {}, 0), [0], self._dataset.test, self._dataset.classes)[0]
        else:
            self._begin(order.begin_from, order.split)
            found = self._scored(stream, order)
        said = pb.Assessed(place=self._place(order, 0), test_loss=found.loss)
        if self._mix is not None and found.accuracy is not None:
            said.test_accuracy = found.accuracy
            own = found.accuracy_on(self._mix)
            if own is not None:
                said.own_accuracy = own
        return stream.ask(pb.DeviceMessage(assessed=said))

    def _scored(self, stream: Stream, order: pb.Assess) -> Score:
        front, _ = self.replica.halves(self._split)
        test, classes, size = self._dataset.test, self._dataset.classes or 0, self.settings.batch_size
        loss, right, present = 0.0, torch.zeros(classes), torch.zeros(classes)
        front.eval()
        try:
            for step, at in enumerate(range(0, len(test), size)):
                inputs, labels = test.batch(slice(at, at + size))
                with torch.no_grad(), seeded(self.settings.seed, "evaluation", order.round):
                    crossing = front(*inputs)
                sent = Outgoing(pb.DeviceMessage(evaluate=pb.Evaluate(place=self._place(order, step))))
                for tensor in crossing:
                    sent.put(sent.message.evaluate.activations.add(), tensor)
                sent.put(sent.message.evaluate.labels, labels)
                found = _expected(stream.ask(sent), "score")
                loss += found.loss * len(labels)
                if classes and len(found.right) == len(labels):
                    hit = torch.tensor(list(found.right), dtype=torch.bool)
                    right += torch.bincount(labels[hit], minlength=classes)
                    present += torch.bincount(labels, minlength=classes)
        finally:
            front.train()
        return Score(loss / len(test), right.double().numpy(), present.double().numpy())

    # ---- layers that move --------------------------------------------------------------------------------------------------------
    def _move(self, stream: Stream, incoming: Incoming[pb.ServerMessage], order: pb.Move) -> Incoming[pb.ServerMessage]:
        """Cut elsewhere: take over layers from the server, or hand them over."""
        self._begin(order.begin_from, order.from_split)
        wanted = {name: self.replica.tensors[name].clone() for name in order.wanted}
        names = set(self.replica.front_keys(order.split)) - set(self.replica.front_keys(self._split))
        self.replica.load(incoming.named(order.layers, self.replica.taken([name for name in self.replica.tensors if name in names])))
        self._split, self._fresh, self._loaded = order.split, False, (order.begin_from, order.split)
        self.fronts.keep(order.begin_from, order.split, self.replica.taken(self.replica.front_keys(order.split)))
        self._tell("moved", split=order.split)
        handed = Outgoing(pb.DeviceMessage(moved=pb.Moved(order=order.order)))
        handed.put_named(handed.message.moved.layers, wanted)
        return stream.ask(handed)


class _Stopwatch:
    """Where the time of a round goes: computing, the server, and the rest of each question, which is on the air."""

    def __init__(self) -> None:
        self._steps: list[float] = []
        self._compute_s = self._transmit_s = self._server_s = 0.0

    def computing(self) -> _Lap:
        return _Lap(self._computed)

    def asking(self) -> _Lap:
        return _Lap(self._asked)

    def _computed(self, seconds: float, _: pb.ServerMessage | None) -> None:
        self._compute_s += seconds
        self._steps.append(seconds)

    def _asked(self, seconds: float, answer: pb.ServerMessage | None) -> None:
        server_s = min(max(answer.gradient.server_s, 0.0), seconds) if answer is not None else 0.0
        self._server_s += server_s
        self._transmit_s += seconds - server_s

    def finished(self, place: pb.Place) -> pb.Finished:
        halves = self._steps
        steps = [a + b for a, b in zip(halves[::2], halves[1::2], strict=False)]
        return pb.Finished(
            place=place, compute_s=self._compute_s, transmit_s=self._transmit_s, server_s=self._server_s, step_compute_s=steps
        )


class _Lap:
    def __init__(self, done: Callable[[float, pb.ServerMessage | None], None]) -> None:
        self._done, self._answer = done, None

    def __enter__(self) -> Callable[[pb.ServerMessage], None]:
        self._start = time.perf_counter()
        return self._hear

    def _hear(self, answer: pb.ServerMessage) -> None:
        self._answer = answer  # type: ignore[assignment]

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._done(time.perf_counter() - self._start, self._answer)


def _expected(answer: Incoming[pb.ServerMessage], wanted: str) -> Any:
    message = answer.message
    kind = message.WhichOneof("body")
    if kind == "skip":
        raise Skipped(message.skip.why)
    if kind == "done" and message.done.why:
        raise Lost(message.done.why)
    if kind != wanted:
        raise Malformed(f"the server must answer with {wanted}, got {show(kind)}")
    return getattr(message, wanted)


def _gradients(answer: Incoming[pb.ServerMessage], place: pb.Place, crossing: tuple[Tensor, ...]) -> list[Tensor | None]:
    """The gradients of a step, each like the tensor that was sent."""
    message: pb.Gradient = _expected(answer, "gradient")
    if message.place != place:
        raise Malformed("the server's gradient is of another step")
    if len(message.gradients) != len(crossing):
        raise Malformed(f"the server must send a gradient for each of {len(crossing)} tensors, got {len(message.gradients)}")
    found = [answer.gradient(header) for header in message.gradients]
    return [None if g is None else require_like("a gradient", g, tensor) for g, tensor in zip(found, crossing, strict=True)]


def _measurement(compute: ComputeMeasurement, link: dict[str, float]) -> pb.Measurement:
    fit = {"seconds_per_mac": compute.seconds_per_mac, "fluctuation": compute.fluctuation}
    return pb.Measurement(distance=compute.distance, samples=compute.samples, **fit, **link)


def _mix(dataset: Dataset, rows: Ints) -> Any:
    """The share of each class in what the device holds; None where labels are no classes."""
    if dataset.classes is None:
        return None
    counts = label_counts(dataset.train.labels.numpy(), [rows], dataset.classes)[0].astype(np.float64)
    return counts / counts.sum()
