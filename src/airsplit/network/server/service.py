"""The server's desk: what it answers to each message of each device.

Every device's stream has a thread; what they share is changed under `changed`, and the model is used by one of them at a time
under `compute`, while the others' messages arrive.  Messages are recognized by run, order and step, so that what is late,
repeated or out of turn is never applied.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import grpc
import torch

from airsplit.core.errors import AirsplitError, UserCodeError, show
from airsplit.core.plugins import user_code
from airsplit.models.cut import get_subgraph
from airsplit.models.tracing.graph import TensorSpec
from airsplit.network.events import Tell
from airsplit.network.identity.admission import Admission
from airsplit.network.names import require_name
from airsplit.network.server.back_ends import BackEnds, BatchScore, SharingBackEnd, score
from airsplit.network.server.device_registry import (
    ASSESSED,
    ASSESSING,
    AT_WORK,
    DROPPED,
    MOVED,
    MOVING,
    TRAINED,
    TRAINING,
    Member,
    Unwelcome,
    Work,
    skip,
)
from airsplit.network.server.forecast import header_limit, least_device_bytes
from airsplit.network.server.stream import Session
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import MAX_DIMS, NAMES, Incoming, Malformed, Outgoing
from airsplit.network.wire.transport import LARGEST_PROBE
from airsplit.scenario.scenario import Scenario
from airsplit.system.profile import Profile
from airsplit.training.losses import IGNORED_LABEL
from airsplit.training.replica import Replica
from airsplit.training.seeding import seeded
from airsplit.training.step import SERVER_STEP, NonFinite, Tensors, is_finite

MOST_VERSIONS = 16
SLACK_S = 1.0
MOST_SAMPLES = 10**9
MEASURED = {
    "seconds_per_mac": (1e-18, 1.0),
    "fluctuation": (1e-3, 1e30),
    "up_bps": (1e3, 1e13),
    "down_bps": (1e3, 1e13),
    "round_trip_s": (0.0, 1e3),
    "distance": (0.0, 1.0),
}
"""What a device measures of itself, and what can be believed."""


class Desk:
    """What all streams share.

    preferred     numbers that are kept for devices of certain names
    limit_bytes   of a message
    header_limit  of what it has besides numbers
    """

    def __init__(
        self,
        scenario: Scenario,
        replica: Replica,
        profile: Profile,
        devices: int,
        admission: Admission | None,
        tell: Tell,
    ) -> None:
        self.scenario, self.replica, self.profile, self.tell = scenario, replica, profile, tell
        self.run = ""
        self.members = [Member(k) for k in range(devices)]
        self.preferred: dict[str, int] = {}
        self.limit_bytes, self.header_limit = 0, header_limit(scenario, replica)
        self.back_ends = BackEnds(replica, [])
        self.changed, self.compute = threading.Condition(), threading.Lock()
        self.probing = (
            threading.Semaphore()
        )  # one device at a time measures the link that it may share with others
        self._admission = admission
        self._settings = scenario.training

    def require_admitted(self, context: grpc.ServicerContext) -> None:
        """Raise where the peer's certificate is not admitted."""
        if self._admission is not None:
            self._admission.admitted(context)

    # ---- coming and going ----------------------------------------------------------------------------------------------------
    def greet(self, session: Session, claimed: str) -> Member:
        """The member that a device is: by its certificate where there is one, else by the name that it gives."""
        certified = None if self._admission is None else self._admission.admitted(session.context)
        if certified is not None and claimed not in ("", certified):
            raise Unwelcome(
                f"a device can only act as itself: its certificate is of {show(certified)}, it says {show(claimed)}"
            )
        name = require_name("a device's name", certified or claimed)
        with self.changed:
            member = self._member(name)
            old, member.session, member.arrived, member.has_model = (
                member.session,
                session,
                False,
                -1,
            )
            if member.work is not None and member.work.state in AT_WORK:
                member.work.drop("it connected anew")
            self.changed.notify_all()
        if old is not None:
            old.replace()
        self.tell("connected", device=name, number=member.number)
        return member

    def _member(self, name: str) -> Member:
        """The member of a name; a new one takes the number that is kept for it, or the first that is free."""
        for member in self.members:
            if member.name == name:
                return member
        free = [
            member
            for member in self.members
            if not member.name and member.number not in self.preferred.values()
        ]
        if name in self.preferred and not self.members[self.preferred[name]].name:
            free = [self.members[self.preferred[name]]]
        if not free:
            known = ", ".join(
                dict.fromkeys(
                    (*(member.name for member in self.members if member.name), *self.preferred)
                )
            )
            raise Unwelcome(
                f"this run has its {len(self.members)} devices: {known}; {show(name)} is not one of them"
            )
        free[0].name = name
        return free[0]

    def welcome(self, member: Member) -> pb.Welcome:
        """Who the device is in this run, and what it is to train."""
        return pb.Welcome(
            run=self.run,
            device=member.number,
            devices=len(self.members),
            scenario=told_scenario(self.scenario).to_toml(),
            fingerprint=self.profile.fingerprint,
            measure=self.scenario.network.measure,
        )

    def probed(self, probe: pb.Probe) -> Outgoing[pb.ServerMessage]:
        """An answer to a measurement of the link: as many bytes as were asked for."""
        if probe.answer_bytes > LARGEST_PROBE:
            raise Malformed(
                f"a probe may ask for at most {LARGEST_PROBE} bytes, got {probe.answer_bytes}"
            )
        answer = Outgoing(pb.ServerMessage(probe=pb.Probe()))
        answer.put(answer.message.probe.payload, torch.zeros(probe.answer_bytes, dtype=torch.uint8))
        return answer

    def arrived(self, member: Member, session: Session, message: pb.Arrived) -> None:
        """A device has its model and data, and has measured itself."""
        if message.fingerprint != self.profile.fingerprint:
            raise Unwelcome(
                f"the device's model must be the server's: its profile has the fingerprint {show(message.fingerprint)}, "
                f"the server's {self.profile.fingerprint}; install the same code, or join with the right --model"
            )
        if not 1 <= message.samples <= MOST_SAMPLES or message.test_samples > MOST_SAMPLES:
            got = f"{message.samples} and {message.test_samples}"
            raise Unwelcome(
                f"a device must have 1 to {MOST_SAMPLES} samples to train on, and as many to test on, got {got}"
            )
        measured = _measured(message) if self.scenario.network.measure else {}
        self._require_room(member, message.memory_bytes)
        versions = _versions(
            message.versions
        )  # all that can be wrong with it is found before it counts as here
        with self.changed:
            if member.session is not session:
                return
            member.arrived, member.samples, member.test_samples = (
                True,
                message.samples,
                message.test_samples,
            )
            member.versions, member.last_seen = versions, time.monotonic()
            member.measurement = measured
            self.changed.notify_all()
        self.tell(
            "arrived", device=member.name, number=member.number, samples=message.samples, **measured
        )

    def _require_room(self, member: Member, memory_bytes: int) -> None:
        """Raise where a device has no room for any split: else no plan could be made, and that would be the end for all."""
        if memory_bytes and self.scenario.network.measure:
            needed = least_device_bytes(self.scenario, self.profile, member.number)
            if memory_bytes < needed:
                raise Unwelcome(
                    f"a device must have {needed} bytes of memory for the shallowest split that it may get, got {memory_bytes}; "
                    "it can join with more --memory, or the server can take a smaller training.batch_size"
                )

    def left(self, member: Member, session: Session) -> None:
        """A stream has ended."""
        with self.changed:
            if member.session is not session:
                return
            member.session, name = None, member.name
            if member.work is not None and member.work.state in AT_WORK:
                member.work.drop("its connection broke")
            if not member.samples:  # it never arrived: its place is free again
                member.name = ""
            self.changed.notify_all()
        self.tell("left", device=name, number=member.number)

    def refused(self, member: Member, session: Session, error: AirsplitError) -> None:
        """A device said what it must not, or the user's code at the server fails on what it sent."""
        why = str(error)
        with self.changed:
            if (
                member.session is session
                and member.work is not None
                and member.work.state in AT_WORK
            ):
                member.work.drop(why)
                if isinstance(error, UserCodeError):
                    member.work.failure = error
        self.tell("refused", device=member.name, number=member.number, why=why)

    def ready(self, member: Member, message: pb.Ready) -> None:
        """A device that was skipped is back where it began."""
        with self.changed:
            member.versions = _versions(message.versions)
            self.changed.notify_all()

    # ---- training --------------------------------------------------------------------------------------------------------------
    def _current(self, member: Member, place: pb.Place) -> Work | None:
        """The work that a message is about; None where that is over."""
        work = member.work
        if (
            work is None
            or place.run != self.run
            or place.order != work.order
            or place.round != work.round
            or work.state == DROPPED
        ):
            return None
        return work

    def _over(self, member: Member, place: pb.Place) -> Outgoing[pb.ServerMessage]:
        work = member.work
        why = work.why if work is not None and work.state == DROPPED else "that order is over"
        self.tell("skipped", device=member.name, number=member.number, round=place.round, why=why)
        return skip(place.order, why)

    def step(
        self, member: Member, incoming: Incoming[pb.DeviceMessage], step: pb.Step
    ) -> Iterator[Outgoing[pb.ServerMessage]]:
        """Activations and labels in, the gradient out."""
        start, work = time.monotonic(), self._current(member, step.place)
        if work is None:
            yield self._over(member, step.place)
            return
        if not self.back_ends.splits:
            raise Malformed("with federated averaging a device trains the model by itself")
        if step.place.step < work.step:
            self.tell(
                "ignored",
                device=member.name,
                number=member.number,
                round=work.round,
                step=step.place.step,
            )
            return
        if step.place.step > work.step or work.step >= self._settings.iterations_per_round:
            raise Malformed(
                f"step {work.step} of round {work.round} was expected, got step {step.place.step}"
            )
        arrived, labels = self._batch(
            member, incoming, step.activations, step.labels, training=True
        )
        with self.compute:
            found = self._trained(member, work, arrived, labels)
        if found is None:
            yield self._over(member, step.place)
            return
        compression = self.scenario.network.compression
        answer = Outgoing(pb.ServerMessage(gradient=pb.Gradient(place=step.place)))
        headers = answer.message.gradient.gradients
        for gradient in found:
            if gradient is None:
                headers.add(absent=True)
            else:
                answer.put(headers.add(), gradient, compression)
        answer.message.gradient.server_s = time.monotonic() - start
        yield answer

    def _trained(
        self, member: Member, work: Work, arrived: Tensors, labels: torch.Tensor
    ) -> list[torch.Tensor | None] | None:
        """One step of a device's back end: the gradients; None where the round goes on without the device."""
        back = work.back
        if back is None or work.state != TRAINING:
            return None
        try:
            with (
                _model_or_loss(),
                seeded(self._settings.seed, SERVER_STEP, member.number, work.round, work.step),
            ):
                loss, gradients = back.step(arrived, labels)
        except NonFinite as seen:
            if str(seen) != "loss":
                raise Malformed(f"the {seen} that were sent are not finite") from None
            self._diverged(member, work, "the loss is not finite")
            return None
        if isinstance(back, SharingBackEnd) and work.one_copy is not None:
            if not all(map(is_finite, back.gradients.values())):
                self._diverged(member, work, "the gradient is not finite")
                return None
            work.one_copy.add(back.gradients, self.weight(member))
            back.gradients = {}
        work.losses.append(loss)
        work.step += 1
        return gradients

    def _diverged(self, member: Member, work: Work, why: str) -> None:
        """It is the training that went wrong, not the device: the round goes on without it, and the server sees why."""
        with self.changed:
            work.drop(why)
            work.diverged = True
            self.changed.notify_all()
        self.tell(
            "dropped", device=member.name, number=member.number, round=work.round, why=work.why
        )

    def weight(self, member: Member) -> float:
        """A device's part in the average, before it is divided by that of all."""
        return 1.0 if self._settings.weighting == "uniform" else float(member.samples)

    def _batch(
        self,
        member: Member,
        incoming: Incoming[pb.DeviceMessage],
        activations: Sequence[pb.Tensor],
        labels: pb.Tensor,
        *,
        training: bool,
    ) -> tuple[Tensors, torch.Tensor]:
        """What a device sent, as tensors: of the types and shapes that cross the cut, for as many samples as there are labels."""
        wanted = incoming.tensor(labels)
        if wanted.dim() == 0 or not 1 <= len(wanted) <= self._settings.batch_size:
            raise Malformed(
                f"a batch must have 1 to {self._settings.batch_size} labels, got shape {show(tuple(wanted.shape))}"
            )
        subgraph = get_subgraph(
            self.replica.halves(self.back_ends.splits[member.number])[1], training
        )
        metas = [subgraph.graph.specs[slot] for slot in subgraph.inputs]
        if len(activations) != len(metas):
            raise Malformed(f"{len(metas)} tensors cross the cut, got {len(activations)}")
        return tuple(
            _activation(incoming, *each, len(wanted))
            for each in zip(activations, metas, strict=True)
        ), wanted

    def finished(
        self, member: Member, incoming: Incoming[pb.DeviceMessage], message: pb.Finished
    ) -> bool:
        """A device has made all its steps; False where nobody waits for that any more."""
        work = self._current(member, message.place)
        if work is None or work.state != TRAINING:
            return False
        E, fedavg = self._settings.iterations_per_round, self._settings.algorithm == "fedavg"
        if not fedavg and work.step != E:
            raise Malformed(f"a round has {E} steps, the device finished after {work.step}")
        elapsed_s, back = time.monotonic() - work.began, work.back
        _require_times(message, elapsed_s)
        if fedavg:
            message.transmit_s = max(
                0.0, elapsed_s - message.compute_s
            )  # there and back: the device cannot know
            work.received = incoming.named(message.model, self.replica.tensors)
            work.losses = [message.train_loss]
        elif back is not None and not all(map(is_finite, back.trained().values())):
            self._diverged(member, work, "its weights on the server are not finite")
            return False
        with self.changed:
            if work.state != TRAINING:
                return False
            work.finished, work.state, work.ended = message, TRAINED, time.monotonic()
            if not fedavg:
                member.versions |= {(work.round, self.back_ends.splits[member.number])}
            self.changed.notify_all()
        self.tell("finished", device=member.name, number=member.number, round=work.round)
        return True

    # ---- evaluation ------------------------------------------------------------------------------------------------------------
    def evaluate(
        self, member: Member, incoming: Incoming[pb.DeviceMessage], message: pb.Evaluate
    ) -> Iterator[Outgoing[pb.ServerMessage]]:
        """Activations of test samples in, how good the answers are out."""
        work = self._current(member, message.place)
        if work is None or work.state != ASSESSING:
            yield self._over(member, message.place)
            return
        if not self.back_ends.splits:
            raise Malformed("with federated averaging a device evaluates the model by itself")
        work.evaluated += 1
        if work.evaluated > math.ceil(member.test_samples / self._settings.batch_size):
            raise Malformed(f"a device with {member.test_samples} test samples sent more of them")
        work.deadline = min(time.monotonic() + work.allowed_s, work.assess_until)
        split = self.back_ends.splits[member.number]
        arrived, labels = self._batch(
            member, incoming, message.activations, message.labels, training=False
        )
        if not all(map(is_finite, arrived)):
            raise Malformed("the activations that were sent are not finite")
        with self.compute, _model_or_loss(), seeded(self._settings.seed, "evaluation", work.round):
            found = score(self.replica, split, self.back_ends.of(member.number), arrived, labels)
        if not math.isfinite(found.loss):
            self._diverged(member, work, "the test loss is not finite")
            yield self._over(member, message.place)
            return
        yield Outgoing(pb.ServerMessage(score=_score_message(message.place, found, labels)))

    def assessed(self, member: Member, message: pb.Assessed) -> None:
        """A device has evaluated its model."""
        work = self._current(member, message.place)
        accuracies = (message.test_accuracy, message.own_accuracy)  # 0 where they are not said
        finite = math.isfinite(message.test_loss) and math.isfinite(message.test_metric)
        if not finite or not all(0 <= accuracy <= 1 for accuracy in accuracies):
            got = f"{message.test_loss:g}, {message.test_metric:g}, {accuracies[0]:g} and {accuracies[1]:g}"
            raise Malformed(
                f"a test loss and a metric must be finite, and accuracies from 0 to 1, got {got}"
            )
        if message.HasField("test_metric") != (self.replica.metric is not None):
            raise Malformed(
                f"a device must send a metric if the run has one of its own, training.metric = {show(self._settings.metric)}"
            )
        with self.changed:
            if work is not None and work.state == ASSESSING:
                work.assessed, work.state = message, ASSESSED
                self.changed.notify_all()

    # ---- layers that move ------------------------------------------------------------------------------------------------------
    def moved(
        self, member: Member, incoming: Incoming[pb.DeviceMessage], message: pb.Moved
    ) -> None:
        """A device has taken over the layers that it was sent, and hands over those that it was asked for."""
        work = member.work
        if work is None or work.state != MOVING or work.order != message.order:
            return
        received = incoming.named(
            message.layers, {name: self.replica.tensors[name] for name in work.received}
        )
        with self.changed:
            if (
                work.state == MOVING
            ):  # else it was dropped meanwhile, and the layers stay where they were
                work.received, work.state = received, MOVED
                self.changed.notify_all()


def _model_or_loss() -> AbstractContextManager[None]:
    """A context for the user's code at the server: what it raises ends the stream of the device that sent the data."""
    return user_code("at the server the model or the loss", passing=(NonFinite,))


def _activation(
    incoming: Incoming[pb.DeviceMessage], message: pb.Tensor, meta: TensorSpec, samples: int
) -> torch.Tensor:
    """A tensor that crosses the cut; its header is compared before its numbers are touched."""
    shape, dtype = meta.shape_at(samples), NAMES.get(meta.dtype, "")
    if tuple(message.shape) != shape or message.dtype != dtype:
        got = f"{show(tuple(message.shape[:MAX_DIMS]))} of {show(message.dtype[:64])}"
        raise Malformed(
            f"what crosses the cut must be {shape} of {dtype} for {samples} samples, got {got}"
        )
    if message.wants_gradient and not meta.dtype.is_floating_point:
        raise Malformed(f"only floats have gradients, got {dtype}")
    return incoming.tensor(message).requires_grad_(message.wants_gradient)


def _score_message(place: pb.Place, found: BatchScore, labels: torch.Tensor) -> pb.Score:
    """Return what a device hears of a batch: which answers are right, or how many if a sample has several labels."""
    message = pb.Score(place=place, loss=found.loss, metric=found.metric)
    if found.right is None:
        return message
    if labels.dim() == 1:
        message.right = bytes(found.right.to(torch.uint8).tolist())
    else:
        message.right_labels, message.counted_labels = (
            int(found.right.sum()),
            int((labels != IGNORED_LABEL).sum()),
        )
    return message


def told_scenario(scenario: Scenario) -> Scenario:
    """What a device is told of the scenario: the model, the training and the network; not the server's files, nor the other devices."""
    tables = {
        table: getattr(scenario, table).settings() for table in ("model", "training", "network")
    }
    tables["model"].pop("weights", None)
    return Scenario(**tables)


def _versions(messages: Sequence[pb.Version]) -> frozenset[tuple[int, int]]:
    if len(messages) > MOST_VERSIONS:
        raise Malformed(
            f"a device keeps at most {MOST_VERSIONS} versions of its front, got {len(messages)}"
        )
    return frozenset((each.round, each.split) for each in messages)


def _measured(message: pb.Arrived) -> dict[str, float]:
    measurement = message.measurement
    found = {name: float(getattr(measurement, name)) for name in MEASURED}
    for name, value in found.items():
        low, high = MEASURED[name]
        if not low <= value <= high:
            raise Malformed(f"a device's {name} must be from {low:g} to {high:g}, got {value:g}")
    return found | {"memory_bytes": float(message.memory_bytes)}


def _require_times(message: pb.Finished, elapsed_s: float) -> None:
    """Raise where a device says that it took longer than there was time, or what is no number at all."""
    times = (message.compute_s, message.transmit_s, message.server_s, *message.step_compute_s)
    wrong = [seconds for seconds in times if not 0 <= seconds <= elapsed_s + SLACK_S]
    if wrong:
        raise Malformed(
            f"times must be from 0 to {elapsed_s:.3g} s, which have gone by, got {wrong[0]:g}"
        )
    if not math.isfinite(message.train_loss):
        raise Malformed(f"a training loss must be finite, got {message.train_loss:g}")
