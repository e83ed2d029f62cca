"""The same algorithm over a network: bit for bit what the simulator computes, and nothing leaves a device but what must."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch
from torch import Tensor

from airsplit import AirsplitError, FileProblem, Infeasible, InvalidValue, load_state
from airsplit.core.errors import UserCodeError
from airsplit.core.units import dbm_to_watts
from airsplit.network.client import client as device_module
from airsplit.network.client.client import Device
from airsplit.network.client.stream import Lost, Rejected, Stream
from airsplit.network.client.worker import Skipped, expected_answer
from airsplit.network.server.back_ends import SharingBackEnd
from airsplit.network.server.checkpoint import read_kept
from airsplit.network.server.replanning import Watch
from airsplit.network.server.serve import Serving
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import Incoming, Malformed, Outgoing, opened
from airsplit.network.wire.transport import listen
from airsplit.scenario.scenario import Scenario
from airsplit.system.fleet import Fleet
from airsplit.training import checkpoint
from airsplit.training.coordinator import Training
from airsplit.training.export import export_model
from airsplit.training.replica import kind_and_name
from network import fleets
from network.fleets import (
    PATIENCE_S,
    Party,
    Simulated,
    assert_same_run,
    assert_same_tensors,
    party,
    proxy,
    scenario,
    trained,
)

ADAM = {"optimizer": "adam", "momentum": None, "learning_rate": 0.03}
DROPOUT = {"front": 0.3, "back": 0.4}
CASES: dict[str, dict[str, Any]] = {
    "mixed splits, two iterations": {},
    "one iteration": {"iterations_per_round": 1},
    "momentum and weight decay": {"momentum": 0.5, "weight_decay": 0.02},
    "adam": ADAM | {"weight_decay": 0.02},
    "batch norm on both sides": {"model": "norm_mlp", "splits": [1, 3, 2], "momentum": 0.5},
    "batch norm, one iteration": {
        "model": "norm_mlp",
        "splits": [2, 3, 2],
        "iterations_per_round": 1,
    },
    "dropout on both sides": {
        "model": "dropout_mlp",
        "splits": [2, 4, 1],
        "model__arguments": DROPOUT,
        "momentum": 0.5,
    },
    "several tensors cross": {"model": "shortcut", "splits": [2, 4, 3], "momentum": 0.5},
    "tied layers": {"model": "tied", "splits": [1, 4, 2], "momentum": 0.5},
    "a frozen front": {"model": "frozen", "splits": [1, 3, 2], "momentum": 0.5},
    "a frozen back": {"model": "frozen", "model__arguments": {"layer": 4}, "splits": [1, 3, 2]},
    "buffers that never move": {"model": "frozen_norm", "splits": [1, 2, 3]},
    "images": {"model": "cnn", "data": "three_images", "splits": [2, 4, 3], "momentum": 0.5},
    "weighted by samples": {"weighting": "samples", "momentum": 0.5},
    "some take part": {"participation": 0.5, "rounds": 5, "momentum": 0.5},
    "evaluated now and then": {"evaluate_every": 2, "evaluate_devices": 2},
    "fp16": {"network__compression": "fp16"},
    "bf16": {"network__compression": "bf16"},
    "int8": {"network__compression": "int8", "model": "shortcut", "splits": [2, 4, 3]},
    "doubles, three rounds": {"kind": "float64", "momentum": 0.5, "rounds": 3},
    "a class that nobody is tested on": {"data": "by_class", "splits": [1, 2]},
    "federated averaging": {"algorithm": "fedavg", "momentum": 0.5, "weighting": "samples"},
    "federated averaging, batch norm, adam": ADAM | {"algorithm": "fedavg", "model": "norm_mlp"},
    "federated averaging, some take part": {
        "algorithm": "fedavg",
        "participation": 0.5,
        "evaluate_every": 2,
        "rounds": 5,
    },
    "segmentation": {"model": "segmenter", "data": "three_pixels", "splits": [1, 2, 1]},
    "segmentation, federated averaging": {
        "model": "segmenter",
        "data": "three_pixels",
        "splits": [1, 2, 1],
        "algorithm": "fedavg",
    },
    "a metric of the server's own": {"metric": "training.tiny:part_wrong", "metric_goal": "min"},
    "a metric, federated averaging": {
        "metric": "training.tiny:part_wrong",
        "metric_goal": "min",
        "algorithm": "fedavg",
    },
    "a loss of the server's own": {
        "model": "line",
        "data": "three_numbers",
        "splits": [1, 2, 1],
        "loss": "training.tiny:squared_error",
    },
}


@pytest.mark.parametrize("case", CASES)
def test_a_network_computes_what_the_simulator_does(tmp_path: Path, case: str) -> None:
    wanted = scenario(**CASES[case])
    simulated = Simulated(wanted)
    made, records = trained(wanted, tmp_path)
    assert_same_run(made, records, simulated, simulated.records)
    assert made.events("dropped", "begins anew", "refused", "skipped", "repeated") == []


def test_training_over_a_network_changes_weights_on_both_sides(tmp_path: Path) -> None:
    """What the tests of equality rest on."""
    wanted = scenario(momentum=0.5)
    made, _ = trained(wanted, tmp_path)
    before = Training(wanted).state.of(0)
    for k in range(3):
        assert [
            name for name, tensor in made.state(k).items() if torch.equal(tensor, before[name])
        ] == []
    assert not torch.equal(made.state(0)["model:0.weight"], made.state(1)["model:0.weight"])


@pytest.mark.parametrize(
    "changes",
    [{}, {"algorithm": "fedavg"}, {"model": "dropout_mlp", "model__arguments": DROPOUT}],
    ids=str,
)
def test_the_order_of_arrival_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    rng = random.Random(5)  # noqa: S311

    class Late(Stream):
        def ask(self, message: Any) -> Any:
            time.sleep(rng.choice((0.0, 0.0, 0.03)))
            return super().ask(message)

    monkeypatch.setattr(device_module, "Stream", Late)
    wanted = scenario(momentum=0.5, weighting="samples", evaluate_every=3, **changes)
    simulated = Simulated(wanted)
    made, records = trained(wanted, tmp_path)
    assert_same_run(made, records, simulated, simulated.records)


def test_a_slow_listener_changes_no_record(tmp_path: Path) -> None:
    """Events may be printed to a terminal that is stuck."""
    wanted = scenario(rounds=2)

    def slow(event: str, **facts: Any) -> None:
        time.sleep(0.1 if event == "finished" and facts["number"] == 2 else 0.0)

    with party(wanted, tmp_path, tell=slow) as made:
        made.join_all()
        records = made.train()
        made.leave()
    simulated = Simulated(wanted)
    assert_same_run(made, records, simulated, simulated.records)


def test_records_say_what_each_device_did_in_that_round_and_no_other(tmp_path: Path) -> None:
    wanted = scenario(participation=0.3, evaluate_every=2, rounds=6)
    simulated = Simulated(wanted)
    _, records = trained(wanted, tmp_path)
    assert {record.participants for record in records} >= {(0,), (1,), (2,)}
    for record, same in zip(records, simulated.records, strict=True):
        assert (record.macs, record.test_loss is None) == (same.macs, same.test_loss is None)
        for column in (record.sent_bytes, record.received_bytes, record.compute_s, record.energy_j):
            assert [k for k, value in enumerate(column) if value] == list(record.participants)


# ---- one copy --------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "changes",
    [{"splits": [1, 3, 2]}, {"splits": [2, 2, 2]}, {"weighting": "samples", "weight_decay": 0.01}],
    ids=str,
)
def test_one_copy_of_the_common_layers_is_enough_and_gives_the_same(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    wanted = scenario(iterations_per_round=1, momentum=0.5, fast_paths=True, rounds=4, **changes)
    backs: list[tuple[SharingBackEnd, dict[str, Tensor], set[str]]] = []

    def look(event: str, **facts: Any) -> None:
        if event == "finished":
            ends, work = made.server.desk.back_ends, made.server.members[facts["number"]].work
            backs.append((work.back, dict(ends.common), set(ends.own[facts["number"]])))

    with party(wanted, tmp_path, tell=look) as made:
        made.join_all()
        records = made.train()
        made.leave()
    assert len(backs) == 3 * wanted.training.rounds
    for back, common, own in backs:
        assert isinstance(back, SharingBackEnd)
        assert set(back.tensors) == own
        shared = {
            kind_and_name(name)[1]: tensor
            for name, tensor in common.items()
            if name.startswith("model:")
        }
        assert shared
        assert all(
            back._model[name].data_ptr() == tensor.data_ptr() for name, tensor in shared.items()
        )
    simulated = Simulated(wanted.replace(**{"training.fast_paths": False}))
    for k in range(3):
        for name, tensor in simulated.state.of(k).items():
            torch.testing.assert_close(made.state(k)[name], tensor, rtol=1e-5, atol=1e-6)
    assert [r.train_loss for r in records] == pytest.approx(
        [r.train_loss for r in simulated.records], rel=1e-5
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"iterations_per_round": 2},
        ADAM,
        {"model": "norm_mlp", "splits": [1, 2, 1]},
        {"fast_paths": False},
    ],
    ids=str,
)
def test_where_one_copy_would_give_something_else_there_are_several(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    wanted = scenario(**{"iterations_per_round": 1, "fast_paths": True, "rounds": 1} | changes)
    kinds = set()
    with party(
        wanted,
        tmp_path,
        tell=lambda event, **f: (
            event == "finished" and kinds.add(type(made.server.members[f["number"]].work.back))
        ),
    ) as made:
        made.join_all()
        made.train()
        made.leave()
    assert kinds
    assert not any(issubclass(kind, SharingBackEnd) for kind in kinds)


# ---- what is on the wire -------------------------------------------------------------------------------------------------------
def spoken(
    wanted: Scenario, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[bytes, list[Incoming[pb.DeviceMessage]]]:
    """A run over a link that is listened to: what devices sent, as bytes on the wire and as messages."""
    said: list[Incoming[pb.DeviceMessage]] = []

    class Recorded(Stream):
        def ask(self, message: Any) -> Any:
            outgoing = message if isinstance(message, Outgoing) else Outgoing(message)
            said.append(opened(pb.DeviceMessage, outgoing.frame()))
            return super().ask(outgoing)

    monkeypatch.setattr(device_module, "Stream", Recorded)
    with party(wanted, folder) as made, proxy(made.serving.port) as link:
        made.join_all(address=link.address)
        made.train()
        made.leave()
        return b"|".join(bytes(heard) for heard in link.heard), said


def raw(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().numpy().tobytes()


def fronts_and_inputs(wanted: Scenario) -> tuple[list[bytes], list[bytes]]:
    """The bytes of every tensor that is a device's own, after every round; and of every sample, to train on or to test with."""
    training = Training(wanted)
    private = []
    for moment in (None, *training.rounds()):
        for k, split in enumerate(training.splits.tolist()):
            state = training.state.of(k)
            names = training.replica.front_keys(split) if split else list(state)
            private += [
                raw(state[name])
                for name in names
                if moment is not None or name.startswith("model:")
            ]
    devices, (test, _) = fleets.three()
    return private, [
        raw(row) for inputs in (*(inputs for inputs, _ in devices), test) for row in inputs
    ]


def test_neither_inputs_nor_front_weights_leave_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = scenario(momentum=0.5)
    heard, said = spoken(wanted, tmp_path, monkeypatch)
    private, inputs = fronts_and_inputs(wanted)
    assert min(map(len, private + inputs)) >= 20
    assert not any(each in heard for each in (*private, *inputs))
    bodies = {each.message.WhichOneof("body") for each in said}
    assert bodies == {"hello", "arrived", "step", "finished", "evaluate", "assessed"}
    assert not any(each.message.finished.model for each in said)
    steps = [each for each in said if each.message.HasField("step")]
    assert len(steps) == 3 * 2 * 2
    for each in steps:  # these are heard, so that the others would have been
        assert raw(each.tensor(each.message.step.activations[0])) in heard
        assert raw(each.tensor(each.message.step.labels)) in heard


def test_what_is_looked_for_on_the_wire_is_found_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Federated averaging sends weights: the other test would find them."""
    wanted = scenario(algorithm="fedavg", rounds=1, iterations_per_round=1)
    heard, said = spoken(wanted, tmp_path, monkeypatch)
    sent = [
        raw(each.tensor(named.tensor)) for each in said for named in each.message.finished.model
    ]
    assert len(sent) == 3 * 6
    assert all(each in heard for each in sent)
    _, inputs = fronts_and_inputs(scenario())
    assert not any(each in heard for each in inputs)


# ---- who belongs together ------------------------------------------------------------------------------------------------------
def refused(wanted: Scenario, folder: Path, **changes: Any) -> Any:
    """How the run of one device ends that should not come that far."""
    with party(wanted, folder) as made:
        made.join("0", **changes)
        made.leave()
        return made.said["0"]


@pytest.mark.parametrize(
    "changes", [{"model": "training.tiny:shortcut"}, {"model": "training.tiny:norm_mlp"}], ids=str
)
def test_a_device_with_another_model_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    error = refused(scenario(), tmp_path, **changes)
    assert isinstance(error, Rejected)
    assert "the device's model must be the server's" in str(error)
    assert "--model" in str(error)


@pytest.mark.parametrize(
    ("changes", "option"),
    [({"model": None}, "--model"), ({"data": None}, "--data")],
    ids=["model", "data"],
)
def test_a_device_runs_no_code_that_it_was_not_told_to_run(
    tmp_path: Path, changes: dict[str, Any], option: str
) -> None:
    error = refused(scenario(), tmp_path, **changes)
    assert isinstance(error, InvalidValue)
    assert f"{option} package.module:factory" in str(error)


def test_a_device_whose_labels_do_not_go_with_the_model_does_not_even_arrive(
    tmp_path: Path,
) -> None:
    with party(scenario(), tmp_path) as made:
        made.join("0", data="network.fleets:three_numbers_0")
        made.leave()
    error = made.said["0"]
    assert isinstance(error, InvalidValue)
    assert (
        "training.dataset 'network.fleets:three_numbers_0': training.loss \"cross-entropy\" needs labels that are whole"
        in str(error)
    )
    assert made.events("arrived") == []


def test_a_device_says_which_axis_is_taken_where_two_could_be_the_classes(tmp_path: Path) -> None:
    wanted = scenario(
        "segmenter", (1, 2, 1), "three_squares", rounds=1, model__input_shape=[1, 3, 3]
    )
    said: list[tuple[str, dict[str, Any]]] = []
    with party(wanted, tmp_path) as made:
        made.join("0", "1")
        made.join("2", tell=lambda event, **facts: said.append((event, facts)))
        made.train()
        made.leave()
    ((_, facts),) = [each for each in said if each[0] == "layout"]
    assert "the last axis is taken" in facts["note"]


def test_a_device_that_evaluates_by_itself_is_told_to_name_the_metric(tmp_path: Path) -> None:
    error = refused(
        scenario(algorithm="fedavg", metric="training.tiny:part_wrong"), tmp_path, metric=None
    )
    assert isinstance(error, InvalidValue)
    assert (
        "with federated averaging the device evaluates; say which code to run by --metric package.module:function"
        in str(error)
    )


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        ("broken_metric", r"failed: KeyError: 'class' \(.*test_loopback\.py:\d+\)"),
        ("metric_of_nothing", "must return one finite number, got nan"),
    ],
)
def test_a_metric_that_fails_for_all_devices_ends_the_training_in_one_line(
    tmp_path: Path, metric: str, why: str
) -> None:
    with party(scenario(metric=f"network.test_loopback:{metric}"), tmp_path) as made:
        made.join_all()
        with pytest.raises(
            UserCodeError,
            match=rf"^training stopped in round 1: training\.metric 'network\.test_loopback:{metric}' {why}$",
        ):
            made.train()


def broken_metric(outputs: Tensor, labels: Tensor) -> float:
    raise KeyError("class")


def metric_of_nothing(outputs: Tensor, labels: Tensor) -> float:
    return float("nan")


def test_a_metric_that_fails_on_what_one_device_sends_ends_nothing(tmp_path: Path) -> None:
    """Whoever could end the training by what it sends would be its master."""
    wanted = scenario(
        data="one_that_sends_nonsense", metric="network.test_loopback:metric_of_floats"
    )
    with party(wanted, tmp_path) as made:
        made.join_all()
        records = made.train()
    assert len(records) == 2
    assert records[-1].test_metric is not None
    assert {facts["device"] for _, facts in made.events("refused")} == {"1"}


def metric_of_floats(outputs: Tensor, labels: Tensor) -> float:
    """Fails on the labels that the second device is tested with."""
    if bool((labels == 0).all()):
        raise ValueError("labels must differ")
    return 0.5


def test_a_device_too_many_is_refused(tmp_path: Path) -> None:
    with party(scenario(rounds=1), tmp_path) as made:
        made.join("0", "1", "2")
        fleets.wait_until(lambda: all(member.present for member in made.server.members))
        made.join("intruder", data="network.fleets:three_0")
        made.threads[-1].join(PATIENCE_S)
        assert isinstance(made.said["intruder"], Rejected)
        assert "'intruder' is not one of them" in str(made.said["intruder"])
        made.train()
        made.leave()


ROGUE = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\nfrom training.tiny import mlp, flat, wide_loss\n"


def rogue_server(told: Scenario, heard: list[str]) -> tuple[Any, int]:
    """A server that says what it likes in its welcome."""

    def join(messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for message in messages:
            heard.append(str(opened(pb.DeviceMessage, message).message.WhichOneof("body")))
            welcome = pb.Welcome(run="run", devices=3, scenario=told.to_toml())
            answer = (
                pb.ServerMessage(welcome=welcome)
                if heard[-1] == "hello"
                else pb.ServerMessage(done=pb.Done())
            )
            yield Outgoing(answer).frame()

    return listen("127.0.0.1:0", join, {}, devices=1, limit_bytes=1 << 20, credentials=None)


@pytest.mark.parametrize("algorithm", ["sfl", "fedavg"])
@pytest.mark.parametrize(
    ("key", "value", "own"),
    [
        ("model.name", "rogue_code:mlp", {"data": "network.fleets:three_0"}),
        ("training.dataset", "rogue_code:flat", {"model": "training.tiny:mlp"}),
        (
            "training.loss",
            "rogue_code:wide_loss",
            {"model": "training.tiny:mlp", "data": "network.fleets:three_0"},
        ),
        (
            "training.metric",
            "rogue_code:part_wrong",
            {"model": "training.tiny:mlp", "data": "network.fleets:three_0"},
        ),
    ],
    ids=["model", "data", "loss", "metric"],
)
def test_code_that_a_server_names_is_never_imported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    algorithm: str,
    key: str,
    value: str,
    own: dict[str, str],
) -> None:
    (tmp_path / "rogue_code.py").write_text(ROGUE)
    monkeypatch.syspath_prepend(tmp_path)
    heard: list[str] = []
    server, port = rogue_server(scenario(algorithm=algorithm).replace(**{key: value}), heard)
    try:
        if (
            key in ("training.loss", "training.metric") and algorithm == "sfl"
        ):  # both are the server's business
            assert Device(name="0", folder=tmp_path, **own).run(f"127.0.0.1:{port}") == "done"
            assert heard == ["hello", "arrived"]
        else:
            with pytest.raises(InvalidValue):
                Device(name="0", folder=tmp_path, **own).run(f"127.0.0.1:{port}")
            assert heard == ["hello"]
    finally:
        server.stop(0).wait()
    assert not (tmp_path / "rogue_code.ran").exists()
    assert "rogue_code" not in sys.modules


def test_files_that_a_server_names_are_never_read(tmp_path: Path) -> None:
    """A file that is not there would be missed."""
    server, port = rogue_server(
        scenario().replace(**{"model.weights": str(tmp_path / "secret.safetensors")}), []
    )
    try:
        own = {"model": "training.tiny:mlp", "data": "network.fleets:three_0"}
        assert Device(name="0", folder=tmp_path, **own).run(f"127.0.0.1:{port}") == "done"
    finally:
        server.stop(0).wait()


def answering(*answers: pb.ServerMessage) -> tuple[Any, int]:
    """A server that gives its answers in turn, whatever it hears."""

    def join(messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        yield from (Outgoing(answer).frame() for answer, _ in zip(answers, messages, strict=False))

    return listen("127.0.0.1:0", join, {}, devices=1, limit_bytes=1 << 20, credentials=None)


def welcomed(device: int = 0, **changes: Any) -> pb.ServerMessage:
    return pb.ServerMessage(
        welcome=pb.Welcome(
            run="run", device=device, devices=3, scenario=scenario(**changes).to_toml()
        )
    )


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([pb.ServerMessage(skip=pb.Skip(why="no"))], "must answer with welcome, got 'skip'"),
        ([welcomed(device=3)], "a number below that of its devices, 3, got 3"),
        (
            [welcomed(), pb.ServerMessage(round=pb.Round(number=1, split=0))],
            "a split from 1 to 5, got 0",
        ),
        (
            [welcomed(), pb.ServerMessage(round=pb.Round(number=1, split=99))],
            "a split from 1 to 5, got 99",
        ),
        (
            [welcomed(), pb.ServerMessage(assess=pb.Assess(round=1, split=99))],
            "a split from 1 to 5, got 99",
        ),
        (
            [welcomed(network__replan=True), pb.ServerMessage(move=pb.Move(from_split=3, split=0))],
            "a split from 1 to 5, got 0",
        ),
        (
            [welcomed(), pb.ServerMessage(move=pb.Move(from_split=3, split=1))],
            "must not move layers",
        ),
        (
            [welcomed(algorithm="fedavg"), pb.ServerMessage(round=pb.Round(number=1))],
            "must send the model with the first round",
        ),
    ],
)
def test_a_server_that_says_what_it_must_not_is_left_with_a_reason(
    tmp_path: Path, answers: list[pb.ServerMessage], words: str
) -> None:
    server, port = answering(*answers, pb.ServerMessage(done=pb.Done()))
    try:
        with pytest.raises(Malformed, match=words):
            Device(
                name="0", folder=tmp_path, model="training.tiny:mlp", data="network.fleets:three_0"
            ).run(f"127.0.0.1:{port}")
    finally:
        server.stop(0).wait()
    assert not (tmp_path / checkpoint.FRONT_FILE).exists()


def test_a_server_cannot_steer_the_terminal_of_a_device(tmp_path: Path) -> None:
    why, plain = "\x1b]0;yours\x07 gone\r\n", "]0;yours gone"

    def join(messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        yield b""

    server, port = listen("127.0.0.1:0", join, {}, devices=1, limit_bytes=1 << 20, credentials=None)
    try:
        with pytest.raises(Rejected) as refused:
            Device(name="0", folder=tmp_path).run(f"127.0.0.1:{port}")
    finally:
        server.stop(0).wait()
    assert str(refused.value) == f"the server refuses: {plain}"
    for kind, message in (
        (Skipped, pb.ServerMessage(skip=pb.Skip(why=why))),
        (Lost, pb.ServerMessage(done=pb.Done(why=why))),
    ):
        with pytest.raises(kind) as caught:
            expected_answer(Incoming(message, memoryview(b"")), "gradient")
        assert str(caught.value) == plain


# ---- data --------------------------------------------------------------------------------------------------------------------
def digits(**changes: Any) -> Scenario:
    settings = {
        "rounds": 2,
        "iterations_per_round": 2,
        "batch_size": 8,
        "learning_rate": 0.1,
        "partition": "shards",
    }
    made = scenario(
        "digits_net",
        [1, 3, 2],
        **settings | {"evaluate_every": 100, "evaluate_devices": 1} | changes,
    )
    return made.replace(**{"training.dataset": "digits"})


def test_devices_take_their_part_of_a_data_set_that_all_have(tmp_path: Path) -> None:
    wanted = digits()
    simulated = Simulated(wanted)
    made, records = trained(wanted, tmp_path)
    assert_same_run(made, records, simulated, simulated.records)


def divide_unevenly(
    labels: np.ndarray, devices: int, rng: np.random.Generator, first: int
) -> list[np.ndarray]:
    samples = rng.permutation(len(labels))
    return [samples[:first], *np.array_split(samples[first:], devices - 1)]


def smoothed_cross_entropy(output: Tensor, labels: Tensor, amount: float) -> Tensor:
    return torch.nn.functional.cross_entropy(output, labels, label_smoothing=amount)


OWN_PARTITION = {
    "partition": f"{__name__}:divide_unevenly",
    "partition_arguments": {"first": 21},
    "loss": f"{__name__}:smoothed_cross_entropy",
    "loss_arguments": {"amount": 0.25},
}


def test_devices_that_name_the_partitions_code_take_their_part_by_it(tmp_path: Path) -> None:
    wanted = digits(**OWN_PARTITION)
    simulated = Simulated(wanted)
    with party(wanted, tmp_path) as made:
        made.join_all(partition=f"{__name__}:divide_unevenly")
        records = made.train()
        made.leave()
    assert [member.samples for member in made.server.members] == [21, 708, 708]
    assert_same_run(made, records, simulated, simulated.records)


def test_a_device_runs_no_partition_that_only_the_server_names(tmp_path: Path) -> None:
    error = refused(digits(**OWN_PARTITION), tmp_path)
    assert isinstance(error, InvalidValue)
    assert "say which code to run by --partition package.module:function" in str(error)


def test_a_device_with_data_of_its_own_needs_no_partition(tmp_path: Path) -> None:
    with party(digits(**OWN_PARTITION), tmp_path) as made:
        made.join("0", data=f"{__name__}:digits_of_its_own")
        fleets.wait_until(lambda: made.server.members[0].arrived)
    assert made.server.members[0].samples == 5


def digits_of_its_own() -> Any:
    images = torch.zeros(5, 1, 8, 8)
    return (images, torch.arange(5)), (images, torch.arange(5))


def test_devices_bring_data_of_their_own(tmp_path: Path) -> None:
    """One factory for all: each device trains on all of what its factory gives."""
    wanted = scenario(rounds=2)
    with party(wanted, tmp_path) as made:
        for k, data in enumerate(("flat", "drawn_anew", "one_class_to_test")):
            made.join(str(k), data=f"training.tiny:{data}")
        records = made.train()
        made.leave()
    assert [member.samples for member in made.server.members] == [48, 24, 48]
    assert records[-1].test_accuracy is not None
    assert all(torch.isfinite(tensor).all() for k in range(3) for tensor in made.state(k).values())
    assert not torch.equal(made.state(0)["model:0.weight"], made.state(1)["model:0.weight"])


def test_a_server_says_who_holds_less_than_a_batch_before_it_plans(tmp_path: Path) -> None:
    made, _ = trained(scenario(rounds=1), tmp_path)
    events = [name for name, _ in made.told]
    assert events.index("short of samples") < events.index("planned")
    assert [facts["note"] for _, facts in made.events("short of samples")] == [
        "training.batch_size is 4, but 1 of 3 devices holds fewer samples (1: 2); "
        "it uses all of them in every iteration, while the plan counts a whole batch"
    ]


def test_labels_may_be_large(tmp_path: Path) -> None:
    wanted = scenario(
        splits=[1], data="wide_labels", batch_size=64, loss="training.tiny:squared_error", rounds=1
    )
    wanted = wanted.replace(**{"model.name": "network.fleets:wide"})
    simulated = Simulated(wanted)
    made, records = trained(wanted, tmp_path)
    assert_same_run(made, records, simulated, simulated.records)


def test_a_devices_model_is_what_the_server_has_and_what_the_device_has(tmp_path: Path) -> None:
    made, records = trained(scenario(momentum=0.5, fleet__joules_per_mac=1e-3), tmp_path)
    run, device = tmp_path / "run", tmp_path / "device-1"
    state = load_state(run, device=1, front=device)
    assert all(
        torch.equal(tensor, state[name]) for name, tensor in load_state(run, front=device).items()
    )  # it says whose it is
    written = export_model(run, front=device)
    assert written.file.name == "model-1.safetensors"
    assert_same_tensors(
        {f"model:{name}": tensor for name, tensor in state.items()}, of_the_model(made.state(1))
    )
    with pytest.raises(
        InvalidValue,
        match=r"are on the device, not in .*; give front \(--front\), that device's folder",
    ):
        load_state(run, device=1)
    with pytest.raises(
        InvalidValue, match=r"each device has layers of its own: take front \(--front\)"
    ):
        load_state(run, average=True)
    with pytest.raises(FileProblem, match="is not that of device 0 in this run, but of device 1"):
        load_state(run, device=0, front=device)
    for file in device.glob("front-*"):
        file.unlink()
    with pytest.raises(
        FileProblem, match="is not that of device 1 after round 2: there is no front-000002-3"
    ):
        load_state(run, device=1, front=device)
    watts = dbm_to_watts(made.server._planned.fleet.transmit_power_dbm)
    for record in records:
        assert record.energy_j == pytest.approx(
            1e-3 * np.array(record.macs) + watts * np.array(record.transmit_s), rel=1e-3
        )


def of_the_model(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if kind_and_name(name)[0] == "model"}


# ---- layers that move ----------------------------------------------------------------------------------------------------------
class Rigged(Watch):
    """A watch that has seen what it was told: before each round the paces of the devices, in seconds for each MAC."""

    def __init__(self, paces: dict[int, list[float]], made: Party) -> None:
        super().__init__(3)
        self._told, self._made = paces, made

    def refitted(self, fleet: Fleet) -> Fleet:
        paces = self._told.get(self._made.server.round + 1)
        return (
            fleet
            if paces is None
            else fleet.replace(seconds_per_mac=np.array(paces), fluctuation=1e3 / np.array(paces))
        )


FAST, SLOW = 1e-9, 1e-5
PACES = {
    2: [FAST, SLOW, SLOW],
    3: [SLOW, SLOW, SLOW],
    4: [SLOW, FAST, SLOW],
    5: [FAST, FAST, FAST],
    6: [SLOW, FAST, SLOW],
}
SPLITS = {2: [3, 1, 1], 3: [1, 1, 1], 4: [1, 3, 1], 5: [3, 3, 3], 6: [1, 3, 1]}


class Moved(Simulated):
    """The simulator, cut elsewhere at the same moments."""

    def _replan_if_due(self, number: int) -> bool:
        if number not in SPLITS:
            return False
        self.splits = np.array(SPLITS[number])
        self.state.move(
            self.replica, max(SPLITS[number]), self._weights(np.ones(3, dtype=bool)).tolist()
        )
        return True


def moving_scenario(**changes: Any) -> Scenario:
    plan = {
        "plan__method": "exact",
        "plan__split": None,
        "plan__max_split": 3,
        "fleet__seconds_per_mac": SLOW,
        "rounds": 7,
    }
    return scenario(network__replan=True, network__replan_gain=0.0, momentum=0.5, **plan | changes)


def picture(made: Party) -> tuple[list[int], list[dict[str, Tensor]]]:
    """The boundary's splits, and everything of each device, as it is now."""
    states = [{name: tensor.clone() for name, tensor in made.state(k).items()} for k in range(3)]
    return list(made.server.desk.back_ends.splits), states


def moved_by_hand(
    made: Party, splits: list[int], states: list[dict[str, Tensor]], new: list[int]
) -> list[dict[str, Tensor]]:
    """What the simulator makes of it: newly common layers are the mean, newly personal ones what was common."""
    replica, weights = made.server.replica, [13 / 24, 2 / 24, 9 / 24]
    before, after = set(replica.front_keys(max(splits))), set(replica.front_keys(max(new)))
    result = [dict(state) for state in states]
    for name in before - after:
        mean = sum(
            weight * state[name].double() for weight, state in zip(weights, states, strict=True)
        )
        for state in result:
            state[name] = mean.to(state[name].dtype)
    return result


def test_layers_move_both_ways_as_the_simulator_moves_them(tmp_path: Path) -> None:
    wanted = moving_scenario(weighting="samples")
    before: list[Any] = []
    moves: list[Any] = []

    def look(event: str, **facts: Any) -> None:
        if event == "replanned":
            moves.append((before[-1], picture(made)))

    with party(wanted, tmp_path, tell=look) as made:
        made.server._watch = Rigged(PACES, made)
        made.join_all()
        records = []
        for record in made.rounds():
            before.append(picture(made))
            records.append(record)
        made.leave()
    assert {
        r.round: list(r.splits) for r in records if r.splits is not None and r.round in SPLITS
    } == SPLITS
    changed = [(old, new) for old, new in moves if old[0] != new[0]]
    assert [new[0] for _, new in changed] == list(SPLITS.values())
    for (splits, states), (new, found) in changed:
        for state, right in zip(found, moved_by_hand(made, splits, states, new), strict=True):
            assert state.keys() == right.keys()
            for name, tensor in right.items():
                torch.testing.assert_close(state[name], tensor, rtol=1e-6, atol=1e-7)
    simulated = Moved(
        wanted.replace(**{"plan.method": "fixed", "plan.max_split": None, "plan.split": [1, 1, 1]})
    )
    for k in range(3):
        assert_same_tensors(made.state(k), simulated.state.of(k))
    assert [r.train_loss for r in records] == [r.train_loss for r in simulated.records]


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"network__replan_gain": 0.9}, ["stayed"] * 2), ({"algorithm": "fedavg"}, [])],
    ids=["it is not worth it", "nothing is cut"],
)
def test_where_cutting_elsewhere_would_be_of_no_use_layers_stay(
    tmp_path: Path, changes: dict[str, Any], said: list[str]
) -> None:
    wanted = scenario(
        **{"network__replan": True, "network__replan_gain": 0.0, "rounds": 3} | changes
    )
    simulated = Simulated(wanted)
    made, records = trained(wanted, tmp_path)
    assert [event for event, _ in made.events("stayed", "replanned")] == said
    assert [record.splits for record in records] == [None] * 3
    assert_same_run(made, records, simulated, simulated.records)


def test_a_run_whose_layers_have_moved_goes_on_after_a_restart(tmp_path: Path) -> None:
    wanted = moving_scenario(network__min_devices=3)
    with party(wanted, tmp_path) as made:
        made.server._watch = Rigged(PACES, made)
        made.join_all()
        with contextlib.closing(made.rounds()) as rounds:
            assert [next(rounds).round for _ in range(5)] == [1, 2, 3, 4, 5]
        fixed = {"resume": True, "listen_on": made.address}
        with party(wanted, tmp_path, **fixed) as again:
            again.server._watch = Rigged(PACES, again)
            assert [record.round for record in again.train()] == [6, 7]
            made.leave()
    assert again.events("begins anew", "dropped", "refused") == []
    simulated = Moved(
        wanted.replace(**{"plan.method": "fixed", "plan.max_split": None, "plan.split": [1, 1, 1]})
    )
    for k in range(3):
        assert_same_tensors(again.state(k), simulated.state.of(k))


def test_a_server_killed_while_it_saves_moved_layers_has_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that names the tensors is written last: a server that is killed before that has written the tensors only."""
    file, splits = tmp_path / "run/checkpoint/checkpoint.json", list[list[int]]()
    with (
        party(moving_scenario(rounds=2), tmp_path) as made,
        contextlib.closing(made.rounds()) as rounds,
    ):
        made.server._watch = Rigged(PACES, made)
        made.join_all()
        next(rounds)
        keep = made.server.keep

        def killed() -> None:
            with monkeypatch.context() as patch:
                patch.setattr(checkpoint, "write_text", lambda *_: sys.exit())
                with pytest.raises(SystemExit):
                    keep()
            splits.append(
                read_kept(file.parent, made.server.replica, made.server.profile.fingerprint)[
                    0
                ].splits
            )  # type: ignore[index]

        made.server.keep = killed
        next(rounds)
    assert splits == [[1, 1, 1]]


# ---- what must fit -------------------------------------------------------------------------------------------------------------
def test_a_server_that_would_need_too_much_memory_does_not_even_listen(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # to listen there would be another error
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            Infeasible, match=r"would need .* for 3 devices, more than network.memory_bytes"
        ):
            Serving(scenario(network__memory_bytes=1000), out=tmp_path / "run", listen_on=where)
        with pytest.raises(InvalidValue, match="cannot be listened on"):
            Serving(scenario(), out=tmp_path / "run", listen_on=where)
    assert not (tmp_path / "run/checkpoint").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "split-learning"},
        {"average_fronts_every": 2},
        {"dropout_probability": 0.1},
        {"replan_every": 2},
        {"fleet__redraw_fading": True},
    ],
    ids=str,
)
def test_what_only_the_simulator_does_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(AirsplitError, match="simulat"):
        Serving(scenario(**changes), out=tmp_path / "run", listen_on="127.0.0.1:0")
