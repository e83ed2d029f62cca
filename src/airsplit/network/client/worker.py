"""What a device trains in one run: its part of the model, on its data, at the server's orders."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from airsplit.core.arrays import Ints
from airsplit.core.errors import Diverged, InvalidValue, show
from airsplit.core.plugins import user_code
from airsplit.data.batches import Batches
from airsplit.data.datasets import Dataset
from airsplit.data.partition import count_labels
from airsplit.network.client.checkpoint import Fronts
from airsplit.network.client.stopwatch import Stopwatch
from airsplit.network.client.stream import Lost, Stream, in_words
from airsplit.network.events import Tell
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import Incoming, Malformed, Outgoing, require_like
from airsplit.planning.arguments import name_inputs
from airsplit.scenario.scenario import Scenario
from airsplit.system.profile import RawInputs
from airsplit.training.evaluation import Score, label_kinds, scores
from airsplit.training.seeding import seeded
from airsplit.training.setup import dataset_of, inputs_to, parts_of, replica_of, require_labels
from airsplit.training.state import State
from airsplit.training.step import (
    DEVICE_BACKWARD,
    DEVICE_FORWARD,
    NonFinite,
    device_backward,
    device_forward,
    require_finite,
)


class Skipped(Exception):
    """The round goes on without this device."""


class Trainee:
    """What a device trains in one run: its part of the model, on its data.

    raw_inputs  which inputs of the model the device lets travel as they are, whatever the server's scenario says
    """

    def __init__(
        self,
        scenario: Scenario,
        welcome: pb.Welcome,
        folder: Path,
        data: str | None,
        tell: Tell,
        raw_inputs: RawInputs = "refuse",
    ) -> None:
        self.run, self.number, self.settings, self._tell = (
            welcome.run,
            welcome.device,
            scenario.training,
            tell,
        )
        self._scenario, self._compression = (
            scenario.replace(**{"model.fingerprint": None}),
            scenario.network.compression,
        )
        if self.number >= welcome.devices:
            raise Malformed(
                f"the server must give a device a number below that of its devices, {welcome.devices}, got {self.number}"
            )
        self.replica, self.profile = replica_of(self._scenario)
        self._permitted = self.profile.permitted_splits(raw_inputs)
        self._require_same_policy()
        own = data is not None and ":" in data
        dataset = dataset_of(
            self.settings, inputs_to(scenario, self.replica.model), None if own else data
        )
        rows = (
            np.arange(len(dataset.train))
            if own
            else parts_of(self.settings, dataset, welcome.devices)[self.number]
        )
        self._dataset = dataset
        self._batches = Batches(
            {self.number: rows},
            self.settings.batch_size,
            self.settings.seed,
            self.settings.iterations_per_round,
        )
        self._mix = _mix(dataset, rows)
        self.samples, self.test_samples = len(rows), len(dataset.test)
        self.fronts = Fronts(folder, self.run, self.number)
        self.may_move = scenario.network.replan
        self._split, self._fresh = 0, True
        self._loaded: tuple[int, int] | None = (
            None  # the version that the replica has, if it is one
        )
        self._model_now: dict[
            str, Tensor
        ] = {}  # with federated averaging: the average, as the server last sent it

    def inputs_that_may_leave(self) -> list[str]:
        """Return the inputs of the model that some cut sends unchanged which both the server and this device allow."""
        if self.settings.algorithm == "fedavg":
            return []
        raw_inputs, other_inputs = self.profile.inputs_sent(
            np.flatnonzero(self._allowed_by_server & self._permitted) + 1
        )
        return [*raw_inputs, *other_inputs]

    @property
    def _allowed_by_server(self) -> NDArray[np.bool_]:
        return self.profile.permitted_splits(self._scenario.model.raw_inputs)

    def _require_same_policy(self) -> None:
        """Raise if the server may cut the model where it would send an input that this device keeps."""
        if self.settings.algorithm == "fedavg":  # nothing is cut
            return
        refused = self._allowed_by_server & ~self._permitted
        if refused.any():
            names, _ = self.profile.inputs_sent(np.flatnonzero(refused) + 1)
            raise InvalidValue(
                f"the server's scenario lets {name_inputs(names)} of the model leave this device unchanged (model.raw_inputs); "
                f"join with --raw-inputs {','.join(names)} to agree, or ask for a scenario that does not"
            )

    def require_labels(self) -> str | None:
        """Raise where cross-entropy cannot compare the device's labels with what the model returns.

        Returns what is to be said where two axes of that could be the classes.
        """
        layouts = [
            require_labels(self.replica, samples, self.settings.dataset)
            for samples in (self._dataset.train, self._dataset.test)
        ]
        return layouts[0]

    # ---- orders ----------------------------------------------------------------------------------------------------------------
    def serve(self, stream: Stream, answer: Incoming[pb.ServerMessage]) -> str:
        """Do what the server says until it says that it is over."""
        while True:
            kind = answer.message.WhichOneof("body")
            try:
                with user_code(
                    "the model",
                    at="training stopped on this device",
                    passing=(Lost, NonFinite, Skipped),
                ):
                    if kind == "round":
                        answer = self._round(stream, answer, answer.message.round)
                    elif kind == "assess":
                        answer = self._assess(stream, answer, answer.message.assess)
                    elif kind == "move":
                        answer = self._move(stream, answer, answer.message.move)
                    else:
                        return self._done(expected_answer(answer, "done"))
            except NonFinite as seen:
                raise Diverged(
                    f"training stopped: the {seen} of this device {'is' if str(seen) == 'loss' else 'are'} not finite"
                ) from None
            except Skipped as why:
                self._tell("skipped", why=str(why))
                self._loaded = None
                answer = stream.ask(pb.DeviceMessage(ready=pb.Ready(versions=self.versions())))

    def _done(self, done: pb.Done) -> str:
        if (done.begin_from, self._split) in self.fronts.versions:
            self.fronts.keep_only(done.begin_from, self._split)
        return "done"

    def versions(self) -> list[pb.Version]:
        """What there is to begin from."""
        return [pb.Version(round=number, split=split) for number, split in self.fronts.versions]

    def _begin(self, version: int, split: int) -> None:
        """Become what the front was after a round; 0: as it was at first."""
        self._require_split(split)
        if self._loaded != (version, split):
            names = self.replica.front_keys(split)
            if (version, split) in self.fronts.versions:
                self.replica.load(self.fronts.load(version, split, self.replica.taken(names)))
            elif version:
                raise Malformed(
                    f"the server must begin from a version that the device has, got round {version} at split {split}"
                )
            elif not self._fresh:
                fresh, _ = replica_of(self._scenario)
                self.replica.load({name: fresh.tensors[name] for name in names})
        self._loaded, self._split = (version, split), split

    def _require_split(self, split: int) -> None:
        if not 1 <= split <= len(self.profile):
            raise Malformed(
                f"the server must cut the model at a split from 1 to {len(self.profile)}, got {split}"
            )
        if not self._permitted[split - 1]:
            names = name_inputs(self.profile.raw_inputs[split - 1])
            raise Malformed(
                f"the server must not cut the model at split {split}, which would send {names} unchanged"
            )

    def _place(self, order: pb.Round | pb.Assess, step: int) -> pb.Place:
        number = order.number if isinstance(order, pb.Round) else order.round
        return pb.Place(run=self.run, round=number, order=order.order, step=step)

    # ---- training --------------------------------------------------------------------------------------------------------------
    def _round(
        self, stream: Stream, incoming: Incoming[pb.ServerMessage], order: pb.Round
    ) -> Incoming[pb.ServerMessage]:
        """One round: E steps, or with federated averaging E whole iterations."""
        stream.pace(order.up_bps)
        if self.settings.algorithm == "fedavg":
            return stream.ask(self._whole_round(incoming, order))
        self._begin(order.begin_from, order.split)
        self.fronts.keep_only(
            order.begin_from, order.split
        )  # the server has this on its disk; before, it may still go back
        clock, self._loaded, self._fresh = Stopwatch(), None, False
        for step in range(self.settings.iterations_per_round):
            self._step(stream, order, step, clock)
        names = self.replica.front_keys(self._split)
        self.fronts.keep(order.number, self._split, self.replica.taken(names))
        self._loaded = (order.number, self._split)
        self._tell("trained", round=order.number)
        return stream.ask(
            pb.DeviceMessage(
                finished=clock.finished(self._place(order, self.settings.iterations_per_round))
            )
        )

    def _step(self, stream: Stream, order: pb.Round, step: int, clock: Stopwatch) -> None:
        front, _ = self.replica.halves(self._split)
        chance = partial(self._chance, order.number, step)
        with clock.computing():
            inputs, labels = self._batch(order.number, step)
            with chance(DEVICE_FORWARD):
                crossing = device_forward(front, inputs)
            require_finite(crossing)
            place = self._place(order, step)
            sent = Outgoing(pb.DeviceMessage(step=pb.Step(place=place)))
            for tensor in crossing:
                sent.put(
                    sent.message.step.activations.add(),
                    tensor,
                    self._compression,
                    wants_gradient=tensor.requires_grad,
                )
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

    def _whole_round(
        self, incoming: Incoming[pb.ServerMessage], order: pb.Round
    ) -> Outgoing[pb.DeviceMessage]:
        """Federated averaging: train the whole model, and send it back."""
        clock, whole = Stopwatch(laps=1), len(self.replica.outline.splits)
        if order.model:
            self._model_now = incoming.named(order.model, self.replica.tensors)
        elif not self._model_now:
            raise Malformed("the server must send the model with the first round, got none")
        self.replica.load(self._model_now)
        losses = []
        for step in range(self.settings.iterations_per_round):
            with clock.computing():
                inputs, labels = self._batch(order.number, step)
                losses.append(
                    self.replica.step(
                        whole, inputs, labels, "none", partial(self._chance, order.number, step)
                    )
                )
        done = Outgoing(
            pb.DeviceMessage(
                finished=clock.finished(self._place(order, self.settings.iterations_per_round))
            )
        )
        done.message.finished.train_loss = sum(losses) / len(losses)
        done.put_named(done.message.finished.model, self.replica.tensors)
        return done

    def _chance(self, number: int, step: int, part: str) -> Any:
        return seeded(self.settings.seed, part, self.number, number, step)

    def _batch(self, number: int, step: int) -> tuple[tuple[Tensor, ...], Tensor]:
        rows = self._batches.rows_in_round(self.number, number, step)
        return self._dataset.train.batch(torch.as_tensor(rows))

    # ---- evaluation ------------------------------------------------------------------------------------------------------------
    def _assess(
        self, stream: Stream, incoming: Incoming[pb.ServerMessage], order: pb.Assess
    ) -> Incoming[pb.ServerMessage]:
        """Evaluate this device's model on its test set: the front here, the rest on the server."""
        if self.settings.algorithm == "fedavg":
            self._model_now = incoming.named(order.model, self.replica.tensors)
            with seeded(self.settings.seed, "evaluation", order.round):
                found = scores(
                    self.replica,
                    State(self._model_now, {}, 0, range(1)),
                    [0],
                    self._dataset.test,
                    self._dataset.classes,
                )[0]
        else:
            self._begin(order.begin_from, order.split)
            found = self._scored(stream, order)
        said = pb.Assessed(
            place=self._place(order, 0),
            test_loss=found.loss,
            test_accuracy=found.accuracy,
            own_accuracy=None if self._mix is None else found.accuracy_on(self._mix),
            test_metric=found.metric,
        )
        return stream.ask(pb.DeviceMessage(assessed=said))

    def _scored(self, stream: Stream, order: pb.Assess) -> Score:
        front, _ = self.replica.halves(self._split)
        test, size = self._dataset.test, self.settings.batch_size
        kinds = label_kinds(test.labels, self._dataset.classes)
        loss, right, present = 0.0, torch.zeros(kinds), torch.zeros(kinds)
        metric: float | None = None
        front.eval()
        try:
            for step, at in enumerate(range(0, len(test), size)):
                inputs, labels = test.batch(slice(at, at + size))
                with torch.no_grad(), seeded(self.settings.seed, "evaluation", order.round):
                    crossing = front(*inputs)
                sent = Outgoing(
                    pb.DeviceMessage(evaluate=pb.Evaluate(place=self._place(order, step)))
                )
                for tensor in crossing:
                    sent.put(sent.message.evaluate.activations.add(), tensor)
                sent.put(sent.message.evaluate.labels, labels)
                found = expected_answer(stream.ask(sent), "score")
                loss += found.loss * len(labels)
                if found.HasField("metric"):
                    metric = (metric or 0.0) + found.metric * len(labels)
                if kinds and labels.dim() > 1:
                    right += found.right_labels
                    present += found.counted_labels
                elif kinds and len(found.right) == len(labels):
                    hit = torch.tensor(list(found.right), dtype=torch.bool)
                    right += torch.bincount(labels[hit], minlength=kinds)
                    present += torch.bincount(labels, minlength=kinds)
        finally:
            front.train()
        mean_metric = None if metric is None else metric / len(test)
        return Score(
            loss / len(test), right.double().numpy(), present.double().numpy(), mean_metric
        )

    # ---- layers that move --------------------------------------------------------------------------------------------------------
    def _move(
        self, stream: Stream, incoming: Incoming[pb.ServerMessage], order: pb.Move
    ) -> Incoming[pb.ServerMessage]:
        """Cut elsewhere: take over layers from the server, or hand them over."""
        if not self.may_move:
            raise Malformed(
                "a server must not move layers that did not say so when the device joined"
            )
        self._require_split(order.split)
        self._begin(order.begin_from, order.from_split)
        had, has = self.replica.front_keys(order.from_split), self.replica.front_keys(order.split)
        wanted = {name: self.replica.tensors[name].clone() for name in had if name not in has}
        self.replica.load(
            incoming.named(
                order.layers, self.replica.taken([name for name in has if name not in had])
            )
        )
        self._split, self._fresh, self._loaded = order.split, False, (order.begin_from, order.split)
        self.fronts.keep(
            order.begin_from, order.split, self.replica.taken(self.replica.front_keys(order.split))
        )
        self._tell("moved", split=order.split)
        handed = Outgoing(pb.DeviceMessage(moved=pb.Moved(order=order.order)))
        handed.put_named(handed.message.moved.layers, wanted)
        return stream.ask(handed)


def expected_answer(answer: Incoming[pb.ServerMessage], wanted: str) -> Any:
    """What an answer says, if it is of the kind that was wanted; before a round there is nothing to skip."""
    message = answer.message
    kind = message.WhichOneof("body")
    if kind == "skip" and wanted != "welcome":
        raise Skipped(in_words(message.skip.why))
    if kind == "done" and message.done.why:
        raise Lost(in_words(message.done.why))
    if kind != wanted:
        raise Malformed(f"the server must answer with {wanted}, got {show(kind)}")
    return getattr(message, wanted)


def _gradients(
    answer: Incoming[pb.ServerMessage], place: pb.Place, crossing: tuple[Tensor, ...]
) -> list[Tensor | None]:
    """The gradients of a step, each like the tensor that was sent."""
    message: pb.Gradient = expected_answer(answer, "gradient")
    if message.place != place:
        raise Malformed("the server's gradient is of another step")
    if len(message.gradients) != len(crossing):
        raise Malformed(
            f"the server must send a gradient for each of {len(crossing)} tensors, got {len(message.gradients)}"
        )
    found = [answer.gradient(header) for header in message.gradients]
    return [
        None if g is None else require_like("a gradient", g, tensor)
        for g, tensor in zip(found, crossing, strict=True)
    ]


def _mix(dataset: Dataset, rows: Ints) -> Any:
    """The share of each class in what the device holds; None where labels are no classes."""
    if dataset.classes is None:
        return None
    counts = count_labels(dataset.train.labels.numpy(), [rows], dataset.classes)[0].astype(
        np.float64
    )
    return counts / counts.sum()
