"""Who has which place at the server, and what is kept of whom."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from airsplit.core.errors import FileProblem
from airsplit.core.lock import folder_lock
from airsplit.models.tracing.graph import TensorSpec
from airsplit.network.client.checkpoint import Fronts
from airsplit.network.client.client import Device
from airsplit.network.events import silent
from airsplit.network.server import stream as sessions
from airsplit.network.server.assignments import Orders
from airsplit.network.server.device_registry import ASSESSING, TRAINED, Unwelcome, Work
from airsplit.network.server.forecast import forecast, measured_fleet
from airsplit.network.server.service import Desk, _activation, _require_times, told_scenario
from airsplit.network.server.stream import Session
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import HEADER_LIMIT, Malformed, Outgoing, opened
from airsplit.network.wire.transport import PROTOCOL
from airsplit.training.setup import replica_of
from network import fleets


class Context:
    """As much of a stream's context as a session needs before anything is said."""

    def __init__(self) -> None:
        self.cancelled = False

    def add_callback(self, callback: object) -> bool:
        return True

    def cancel(self) -> None:
        self.cancelled = True

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise grpc.RpcError(f"{code}: {details}")


@pytest.fixture
def desk() -> Desk:
    replica, profile = replica_of(fleets.scenario())
    return Desk(fleets.scenario(), replica, profile, 2, None, silent)


def session(desk: Desk) -> Session:
    return Session(desk, Context())  # type: ignore[arg-type]


def arrived(desk: Desk, **changes: object) -> pb.Arrived:
    return pb.Arrived(
        **{"fingerprint": desk.profile.fingerprint, "samples": 5, "test_samples": 5} | changes
    )  # type: ignore[arg-type]


def test_who_never_arrived_leaves_its_place_to_others(desk: Desk) -> None:
    first, second = session(desk), session(desk)
    one = desk.greet(first, "one")
    desk.greet(second, "two")
    with pytest.raises(Unwelcome, match="this run has its 2 devices"):
        desk.greet(session(desk), "three")
    with pytest.raises(Unwelcome, match="the device's model must be the server's"):
        desk.arrived(one, first, arrived(desk, fingerprint="another"))
    desk.left(one, first)
    assert desk.greet(session(desk), "three").number == one.number


def test_one_whose_arrival_is_refused_was_never_here(desk: Desk) -> None:
    """Not even for a moment, in which the server would plan with what it has not measured."""
    first = session(desk)
    one = desk.greet(first, "one")
    with pytest.raises(Malformed, match="at most 16 versions of its front, got 17"):
        desk.arrived(
            one,
            first,
            arrived(desk, versions=[pb.Version(round=number, split=1) for number in range(17)]),
        )
    assert not one.present
    desk.left(one, first)
    assert one.name == ""


@pytest.mark.parametrize(
    ("changes", "splits"),
    [
        ({"plan.method": "exact", "plan.split": None}, [1, 1]),
        ({"plan.method": "equal", "plan.split": None, "plan.min_split": 2}, [2, 2]),
        ({"plan.split": 2}, [2, 2]),
        ({}, [1, 3]),
    ],
)
def test_a_device_without_room_for_any_split_is_refused_and_not_the_end_of_all(
    changes: dict[str, Any], splits: list[int]
) -> None:
    wanted = fleets.scenario(splits=[1, 3], network__measure=True).replace(**changes)
    replica, profile = replica_of(wanted)
    desk = Desk(wanted, replica, profile, 2, None, silent)
    measurement = pb.Measurement(seconds_per_mac=1e-9, fluctuation=1e9, up_bps=1e6, down_bps=1e6)
    needed = profile.device_memory_bytes(wanted.training.batch_size)
    for name, split in zip(("one", "two"), splits, strict=True):
        came = session(desk)
        member, enough = desk.greet(came, name), int(needed[split - 1])
        with pytest.raises(
            Unwelcome,
            match=f"a device must have {enough} bytes of memory .*, got {enough - 1}; .* --memory",
        ):
            desk.arrived(
                member, came, arrived(desk, measurement=measurement, memory_bytes=enough - 1)
            )
        assert not member.present
        desk.arrived(member, came, arrived(desk, measurement=measurement, memory_bytes=enough))
        assert member.present
    fleet = measured_fleet(wanted, ["one", "two"], [member.measurement for member in desk.members])
    assert (forecast(wanted, profile, fleet, wanted.make_clock()).splits == splits).all()


def test_who_has_arrived_keeps_its_place_while_it_is_away(desk: Desk) -> None:
    first = session(desk)
    one = desk.greet(first, "one")
    desk.arrived(one, first, arrived(desk))
    desk.left(one, first)
    desk.greet(session(desk), "two")
    with pytest.raises(Unwelcome):
        desk.greet(session(desk), "three")
    assert desk.greet(session(desk), "one") is one


def test_one_who_was_replaced_is_told_so(desk: Desk) -> None:
    first = session(desk)
    member = desk.greet(first, "one")
    desk.greet(session(desk), "one")
    with pytest.raises(Unwelcome, match="another device has connected under this name"):
        list(
            first._answered(
                member,
                opened(pb.DeviceMessage, Outgoing(pb.DeviceMessage(ready=pb.Ready())).frame()),
                "ready",
            )
        )
    with pytest.raises(Unwelcome):
        list(first._ordered())


def test_a_loss_of_the_users_own_may_be_below_zero_and_an_accuracy_may_not(desk: Desk) -> None:
    member = desk.greet(session(desk), "one")
    member.work = Work(order=1, round=1, deadline=0.0, state=ASSESSING)
    place = pb.Place(run=desk.run, round=1, order=1)
    accuracies = ({"test_accuracy": -0.1}, {"own_accuracy": float("nan")}, {"own_accuracy": 1.1})
    for wrong in ({"test_loss": float("inf")}, {"test_metric": float("nan")}, *accuracies):
        with pytest.raises(
            Malformed, match="a test loss and a metric must be finite, and accuracies from 0 to 1"
        ):
            desk.assessed(member, pb.Assessed(place=place, **wrong))
    with pytest.raises(
        Malformed,
        match=r"must send a metric if the run has one of its own, training\.metric = 'accuracy'",
    ):
        desk.assessed(member, pb.Assessed(place=place, test_loss=1.0, test_metric=0.5))
    desk.assessed(member, pb.Assessed(place=place, test_loss=-1.5, test_accuracy=1.0))
    assert member.work.assessed is not None


def test_a_device_that_probes_and_goes_leaves_no_thread_behind(desk: Desk) -> None:
    before = set(threading.enumerate())
    said = (
        pb.DeviceMessage(hello=pb.Hello(protocol=PROTOCOL, name="one")),
        pb.DeviceMessage(probe=pb.Probe()),
    )
    assert len(list(session(desk).converse(Outgoing(each).frame() for each in said))) == 2
    fleets.wait_until(lambda: set(threading.enumerate()) <= before, seconds=5.0)


def test_the_server_tells_of_a_flood_as_of_whatever_else_it_refuses(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MESSAGES_PER_S", 10)
    told: list[str] = []
    desk.limit_bytes, desk.tell = (
        1000,
        lambda event, **facts: told.append(f"{event}: {facts.get('why')}"),
    )
    flood = [pb.Frame(piece=b"x").SerializeToString()] * 100
    with pytest.raises(grpc.RpcError, match=r"RESOURCE_EXHAUSTED: .* at most 10 messages a second"):
        list(session(desk).converse(iter(flood)))
    assert told == ["refused: a device may send at most 10 messages a second"]


def test_orders_that_a_device_does_not_take_do_not_pile_up(desk: Desk) -> None:
    """With federated averaging each has the whole model: a device that hangs would cost the server another every round."""
    member, orders = desk.greet(session(desk), "one"), Orders(desk)
    for why in ("first", "second", "last"):
        orders.end(why)
    assert member.session is not None
    assert member.session.orders.qsize() == 1
    (taken,) = member.session._ordered()
    assert taken.message.done.why == "last"


def test_no_order_makes_a_stream_that_has_ended_go_on(desk: Desk) -> None:
    ended = session(desk)
    ended.orders.put(None)
    ended.give(Outgoing(pb.ServerMessage(done=pb.Done())))
    assert list(ended._ordered()) == []


def test_a_device_is_told_nothing_of_files_or_of_other_devices(tmp_path: Path) -> None:
    wanted = fleets.scenario().replace(
        **{"model.weights": str(tmp_path / "x.safetensors"), "cell.bandwidth_hz": 12345.0}
    )
    told = told_scenario(wanted).to_toml()
    assert str(tmp_path) not in told
    assert "12345" not in told
    assert told_scenario(wanted).training == wanted.training


def test_one_who_was_replaced_before_it_arrived_does_not_arrive(desk: Desk) -> None:
    first, second = session(desk), session(desk)
    member = desk.greet(first, "one")
    desk.greet(second, "one")
    desk.arrived(member, first, arrived(desk, samples=99))
    assert (member.arrived, member.samples) == (False, 0)
    desk.arrived(member, second, arrived(desk))
    assert (member.arrived, member.samples) == (True, 5)


def test_what_nobody_has_asked_for_changes_nothing(desk: Desk) -> None:
    one = session(desk)
    member = desk.greet(one, "one")
    desk.arrived(member, one, arrived(desk))
    for work in (None, Work(3, 1, 0.0, state=TRAINED)):
        member.work = work
        moved, score = (
            pb.Moved(order=3),
            pb.Assessed(place=pb.Place(run=desk.run, round=1, order=3), test_loss=1.0),
        )
        desk.moved(
            member, opened(pb.DeviceMessage, Outgoing(pb.DeviceMessage(moved=moved)).frame()), moved
        )
        desk.assessed(member, score)
        assert work is None or (work.state, work.assessed, work.received) == (TRAINED, None, {})


def test_only_floats_have_gradients() -> None:
    meta = TensorSpec(((2, 4), (3, 4)), torch.int64, storage=0, requires_grad=False)
    sent = Outgoing(pb.DeviceMessage(step=pb.Step()))
    sent.put(
        sent.message.step.activations.add(),
        torch.zeros(2, 4, dtype=torch.int64),
        wants_gradient=True,
    )
    incoming = opened(pb.DeviceMessage, sent.frame())
    with pytest.raises(Malformed, match="only floats have gradients, got int64"):
        _activation(incoming, incoming.message.step.activations[0], meta, 2)


def all_header(size: int) -> bytes:
    """A message of at least so many bytes, and no numbers."""
    return Outgoing(
        pb.DeviceMessage(finished=pb.Finished(step_compute_s=[0.5] * (size // 8 + 1)))
    ).frame()


def test_a_message_must_not_be_all_header() -> None:
    with pytest.raises(Malformed, match="without its numbers"):
        opened(pb.DeviceMessage, all_header(HEADER_LIMIT))


def test_a_devices_message_has_room_for_the_headers_of_its_layers_and_the_times_of_its_steps_and_little_more(
    desk: Desk,
) -> None:
    hello = Outgoing(pb.DeviceMessage(hello=pb.Hello(protocol=PROTOCOL, name="one"))).frame()
    desk.limit_bytes = 1 << 20
    assert desk.header_limit < 1 << 17
    with pytest.raises(
        grpc.RpcError, match=f"without its numbers must have at most {desk.header_limit} bytes"
    ):
        list(session(desk).converse(iter([hello, all_header(desk.header_limit)])))
    largest = Outgoing(
        pb.DeviceMessage(
            finished=pb.Finished(step_compute_s=[0.5] * desk.scenario.training.iterations_per_round)
        )
    )
    largest.put_named(largest.message.finished.model, desk.replica.tensors)
    assert opened(pb.DeviceMessage, largest.frame(), desk.header_limit).message == largest.message


def test_the_layers_of_another_device_or_run_are_not_taken_for_ones_own(tmp_path: Path) -> None:
    Fronts(tmp_path, "run", 0).keep(3, 2, {"model:0.weight": torch.ones(2)})
    assert Fronts(tmp_path, "run", 0).versions == [(3, 2)]
    assert Fronts(tmp_path, "run", 1).versions == []
    assert Fronts(tmp_path, "another", 0).versions == []


@pytest.mark.parametrize(
    ("like", "told"),
    [
        ({"a": torch.ones(3)}, "does not fit the model: a$"),
        ({"a": torch.ones(2), "b": torch.ones(1)}, "does not fit the model: b$"),
        ({}, "it has other tensors"),
    ],
)
def test_layers_that_do_not_fit_the_model_are_told(
    tmp_path: Path, like: dict[str, torch.Tensor], told: str
) -> None:
    fronts = Fronts(tmp_path, "run", 0)
    fronts.keep(1, 2, {"a": torch.ones(2)})
    assert fronts.load(1, 2, {"a": torch.zeros(2)})["a"].tolist() == [1, 1]
    with pytest.raises(FileProblem, match=told):
        fronts.load(1, 2, like)


@pytest.mark.parametrize("name", ["front-000001-2.safetensors", "device.json"])
def test_damaged_layers_of_a_device_are_told(tmp_path: Path, name: str) -> None:
    like = {"a": torch.ones(2)}
    Fronts(tmp_path, "run", 0).keep(1, 2, like)
    assert Fronts(tmp_path, "run", 0).load(1, 2, like)["a"].tolist() == [1, 1]
    content = bytearray((tmp_path / name).read_bytes())
    content[-5] ^= 1  # a digit of the checksum, or a bit of a weight
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileProblem, match=f"{name}' is damaged: its checksum is"):
        Fronts(tmp_path, "run", 0).load(1, 2, like)


def test_layers_that_are_not_finite_or_of_another_type_are_told(tmp_path: Path) -> None:
    fronts = Fronts(tmp_path, "run", 0)
    fronts.keep(1, 2, {"a": torch.tensor([1.0, float("inf")])})
    with pytest.raises(FileProblem, match="has numbers that are not finite; delete the folder"):
        fronts.load(1, 2, {"a": torch.ones(2)})
    fronts.keep(2, 2, {"a": torch.ones(2, dtype=torch.float64)})
    with pytest.raises(FileProblem, match="does not fit the model: a"):
        fronts.load(2, 2, {"a": torch.ones(2)})


def test_two_devices_do_not_share_a_folder(tmp_path: Path) -> None:
    device = Device(name="one", folder=tmp_path)
    with (
        folder_lock(tmp_path, "device's folder"),
        pytest.raises(FileProblem, match=r"device's folder .* is in use"),
    ):
        device.run("127.0.0.1:1")


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_training_loss_that_is_not_finite_is_told(loss: float) -> None:
    with pytest.raises(Malformed, match=f"a training loss must be finite, got {loss:g}"):
        _require_times(pb.Finished(train_loss=loss, compute_s=0.5), elapsed_s=1.0)
