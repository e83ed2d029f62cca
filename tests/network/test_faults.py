"""What breaks: devices and servers that are killed, hang or come back, links that are cut, messages that come twice."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from airsplit import AirsplitError, Diverged, InvalidValue
from airsplit.core.errors import UserCodeError
from airsplit.network.client import client as device_module
from airsplit.network.client.client import Unreachable
from airsplit.network.client.stream import Rejected, Stream
from airsplit.network.identity.admission import (
    Admission,
    channel_credentials,
    init,
    issue,
    revoke,
    server_credentials,
)
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import Outgoing, opened
from airsplit.network.wire.transport import PROTOCOL, connect, join_call
from airsplit.report.page import write_report
from airsplit.runs.folder import Divergence
from airsplit.scenario.scenario import Scenario
from airsplit.training.coordinator import Training
from airsplit.training.local_steps import Task
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
    wait_until,
)

TESTS = Path(__file__).parents[1]
Holds = Callable[[pb.DeviceMessage], bool]


class Killed(BaseException):
    """The device's process is no more."""


@dataclass
class Fate:
    """What happens to devices, by name: before which message one dies, and before which it hangs until it is let go."""

    death: dict[str, Holds] = field(default_factory=dict)
    hanging: dict[str, Holds] = field(default_factory=dict)
    let_go: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def fate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fate]:
    """Devices in this process are mortal."""
    fate = Fate()

    class Mortal(Stream):
        name = ""

        def ask(self, message: Any) -> Any:
            said = message.message if isinstance(message, Outgoing) else message
            self.name = said.hello.name or self.name
            if fate.death.get(self.name, never)(said):
                self.close()
                raise Killed
            if fate.hanging.get(self.name, never)(said):
                fate.let_go.wait(PATIENCE_S)
            return super().ask(message)

    monkeypatch.setattr(device_module, "Stream", Mortal)
    yield fate
    fate.let_go.set()


def never(_: pb.DeviceMessage) -> bool:
    return False


def step(number: int, at: int) -> Holds:
    return lambda message: (
        message.HasField("step")
        and (message.step.place.round, message.step.place.step) == (number, at)
    )


def finished(number: int) -> Holds:
    return lambda message: message.HasField("finished") and message.finished.place.round == number


def evaluating(number: int) -> Holds:
    return lambda message: message.HasField("evaluate") and message.evaluate.place.round == number


def all_here(made: Party) -> bool:
    return all(member.present for member in made.server.members)


def assert_same_states(made: Party, wanted: Training) -> None:
    for k in range(len(made.server.members)):
        assert_same_tensors(made.state(k), wanted.state.of(k))


# ---- devices that die ------------------------------------------------------------------------------------------------------------
MOMENTS = {
    "before the first step": step(2, 0),
    "between two steps": step(2, 1),
    "before it says that it is done": finished(2),
}
SETTINGS: dict[str, Any] = {"rounds": 4, "momentum": 0.5, "weighting": "samples"}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_device_that_dies_in_a_round_is_left_out_of_it_and_comes_back(
    tmp_path: Path, fate: Fate, moment: str
) -> None:
    wanted = scenario(**SETTINGS)
    fate.death["1"] = MOMENTS[moment]
    with party(wanted, tmp_path) as made:
        made.join_all()
        records = []
        for record in made.rounds():
            records.append(record)
            if record.round == 2:
                assert isinstance(made.said["1"], Killed)
                fate.death.clear()
                made.join("1")
                wait_until(lambda: all_here(made))
        made.leave()
    assert [record.dropped for record in records] == [(), (1,), (), ()]
    assert made.events("begins anew") == []
    simulated = Simulated(wanted, {2: {1}})
    assert_same_states(made, simulated)
    assert [record.train_loss for record in records] == [
        record.train_loss for record in simulated.records
    ]


@pytest.mark.parametrize("rounds", [{2}, {2, 3}])
def test_with_federated_averaging_it_is_left_out_as_well(
    tmp_path: Path, fate: Fate, rounds: set[int]
) -> None:
    wanted = scenario(algorithm="fedavg", evaluate_every=2, **SETTINGS)
    fate.death["1"] = finished(2)
    with party(wanted, tmp_path) as made:
        made.join_all()
        for record in made.rounds():
            assert record.dropped == ((1,) if record.round in rounds else ())
            if record.round == max(rounds):
                fate.death.clear()
                made.join("1")
                wait_until(lambda: all_here(made))
        made.leave()
    assert_same_states(made, Simulated(wanted, {number: {1} for number in rounds}))


def test_a_device_that_lost_its_folder_begins_anew(tmp_path: Path, fate: Fate) -> None:
    wanted = scenario(**SETTINGS)

    class Forgetful(Simulated):
        """The front of the second device is as it was at first when round three begins; what the server has of it stays."""

        def _task(self, number: int) -> Task:
            if number == 3:
                first = Training(wanted).state.of(1)
                self.state.keep(
                    1, {name: first[name] for name in self.replica.front_keys(int(self.splits[1]))}
                )
            return super()._task(number)

    fate.death["1"] = finished(2)
    with party(wanted, tmp_path) as made:
        made.join_all()
        for record in made.rounds():
            if record.round == 2:
                fate.death.clear()
                shutil.rmtree(tmp_path / "device-1")
                made.join("1")
                wait_until(lambda: all_here(made))
        made.leave()
    assert [facts["device"] for _, facts in made.events("begins anew")] == ["1"]
    assert_same_states(made, Forgetful(wanted, {2: {1}}))


# ---- devices that hang -------------------------------------------------------------------------------------------------------------
def impatient(**changes: Any) -> Scenario:
    return scenario(network__grace_s=1.0, network__deadline_factor=1.0, **SETTINGS | changes)


@pytest.mark.parametrize(
    ("moment", "last"), [("between two steps", 3), ("before it says that it is done", 2)]
)
def test_a_device_that_hangs_is_skipped_and_takes_part_again(
    tmp_path: Path, fate: Fate, moment: str, last: int
) -> None:
    """Until its deadline is over, and maybe for another round."""
    wanted = impatient()
    fate.hanging["1"] = MOMENTS[moment]
    events: list[str] = []
    with party(wanted, tmp_path) as made:
        made.join_all(tell=lambda event, **_: events.append(event))
        records = []
        for record in made.rounds():
            records.append(record)
            if record.round == last:
                fate.hanging.clear()
                fate.let_go.set()
                wait_until(lambda: "skipped" in events)
                wait_until(
                    lambda: bool(
                        made.server.members[1].session and made.server.members[1].session.idle
                    )
                )
        made.leave()
    missing = {number: {1} for number in range(2, last + 1)}
    assert [record.dropped for record in records] == [
        (1,) if record.round in missing else () for record in records
    ]
    assert made.said == dict.fromkeys("012", "done")
    assert "connected" not in [
        event for event, facts in made.told[10:] if facts.get("device") == "1"
    ]  # the stream has held
    assert_same_states(made, Simulated(wanted, missing))


def test_a_device_that_hangs_while_it_evaluates_is_left_out_of_that_only(
    tmp_path: Path, fate: Fate
) -> None:
    wanted = impatient(rounds=3)
    fate.hanging["1"] = evaluating(2)
    with party(wanted, tmp_path) as made:
        made.join_all()
        records = []
        for record in made.rounds():
            records.append(record)
            if record.round == 2:
                fate.hanging.clear()
                fate.let_go.set()
                wait_until(
                    lambda: bool(
                        made.server.members[1].session and made.server.members[1].session.idle
                    )
                )
        made.leave()
    simulated = Simulated(wanted)
    assert_same_states(made, simulated)
    assert [record.dropped for record in records] == [()] * 3
    same = [
        record.test_accuracy == other.test_accuracy
        for record, other in zip(records, simulated.records, strict=True)
    ]
    assert same == [True, False, True]


# ---- too few -----------------------------------------------------------------------------------------------------------------------
def test_a_round_with_too_few_devices_is_repeated(tmp_path: Path, fate: Fate) -> None:
    wanted = scenario(network__min_devices=3, **SETTINGS)
    fate.death["1"] = finished(2)
    repeated: list[Any] = []

    def tell(event: str, **facts: Any) -> None:
        if event == "repeated":
            repeated.append((facts["round"], facts["finished"]))
            fate.death.clear()
            made.join("1")

    with party(wanted, tmp_path, tell=tell) as made:
        made.join_all()
        records = made.train()
        made.leave()
    assert repeated == [(2, 2)]
    simulated = Simulated(wanted)
    assert_same_run(made, records, simulated, simulated.records)


def test_a_round_that_never_works_is_given_up_and_says_why(tmp_path: Path, fate: Fate) -> None:
    fate.death["1"] = finished(1)

    def tell(event: str, **facts: Any) -> None:
        if event == "repeated":
            made.join("1")

    with party(scenario(network__min_devices=3), tmp_path, tell=tell) as made:
        made.join_all()
        with pytest.raises(
            AirsplitError, match="round 1 was tried 5 times, but its connection broke"
        ):
            made.train()


def test_no_more_devices_are_needed_than_take_part(tmp_path: Path) -> None:
    wanted = scenario(participation=0.3, network__min_devices=3, rounds=2)
    made, records = trained(wanted, tmp_path)
    simulated = Simulated(wanted)
    assert_same_run(made, records, simulated, simulated.records)


def test_more_devices_than_there_are_cannot_be_asked_for(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidValue, match=r"network\.min_devices"),
        party(scenario(network__min_devices=4), tmp_path),
    ):
        pass


@pytest.mark.parametrize("every", [100, 1], ids=["in a step", "in the evaluation"])
def test_a_training_that_diverges_ends_and_says_so(tmp_path: Path, every: int) -> None:
    wanted = scenario("linear", [1, 1, 1], learning_rate=1e3, rounds=20, evaluate_every=every)
    with party(wanted, tmp_path, wait_s=3.0) as made:
        made.join_all()
        with pytest.raises(Diverged, match="learning_rate") as raised:
            made.train()
    done = len(made.serving.folder.read_records())
    assert made.serving.folder.read_divergence() == Divergence(done + 1, str(raised.value))
    assert f"diverged in round {done + 1}" in write_report(made.serving.folder.path).read_text()


def test_weights_that_overflow_in_the_last_step_end_the_training(tmp_path: Path) -> None:
    wanted = scenario(
        "linear", [1, 1, 1], learning_rate=3e38, weight_decay=10.0, rounds=1, iterations_per_round=1
    )
    with party(wanted, tmp_path, wait_s=3.0) as made:
        made.join_all()
        with pytest.raises(
            Diverged,
            match=r"its weights on the server are not finite; lower training.learning_rate",
        ):
            made.train()


def test_a_gradient_that_is_not_finite_ends_the_training_where_the_server_has_one_copy(
    tmp_path: Path,
) -> None:
    wanted = scenario("rooted_behind", [1, 1, 1], rounds=1, iterations_per_round=1, fast_paths=True)
    with party(wanted, tmp_path, wait_s=3.0) as made:
        made.join_all()
        with pytest.raises(Diverged, match="the gradient is not finite; lower training"):
            made.train()


# ---- links -------------------------------------------------------------------------------------------------------------------------
def test_links_that_are_cut_again_and_again_change_nothing(tmp_path: Path) -> None:
    wanted = scenario(network__min_devices=3, momentum=0.5, rounds=12, evaluate_every=4)
    rng, over, cuts = random.Random(8), threading.Event(), list[int]()  # noqa: S311

    with party(wanted, tmp_path) as made, proxy(made.serving.port) as link:

        def cut() -> None:
            while len(cuts) < 4 and not over.wait(rng.uniform(0.1, 0.3)):
                wait_until(lambda: all_here(made) or over.is_set())
                cuts.append(link.cut())

        made.join_all(address=link.address)
        wait_until(lambda: all_here(made))
        thread = threading.Thread(target=cut)
        thread.start()
        try:
            records = made.train()
        finally:
            over.set()
            thread.join(PATIENCE_S)
        made.leave()
    assert sum(cuts) >= 3
    assert made.events("begins anew") == []
    simulated = Simulated(wanted)
    assert_same_states(made, simulated)
    assert [record.train_loss for record in records] == [
        record.train_loss for record in simulated.records
    ]


# ---- servers that die ----------------------------------------------------------------------------------------------------------------
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def environment() -> dict[str, str]:
    paths = [str(TESTS), *(path for path in sys.path if path)]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}


TWICE = """
import os, sys
import airsplit.network.client.client, airsplit.network.server.serve
from airsplit.cli.app import main
for _ in range(2):
    child = os.fork()
    if not child:
        sys.exit(main(sys.argv[1:]))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A command in a process of its own; when that is gone, once more.  Prints the number of each process, and how it ended."""


class Twice:
    """A command of airsplit that is started again when it was killed."""

    def __init__(self, *words: Any) -> None:
        line = [sys.executable, "-c", TWICE, *map(str, words)]
        self._process = subprocess.Popen(
            line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.children: list[int] = []

    def started(self) -> int:
        """The number of the next process; waits for it."""
        self.children.append(self._number())
        return self.children[-1]

    def ended(self) -> int:
        """How it ended: its code, or minus the signal."""
        return self._number()

    def _number(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def told(self) -> str:
        """What both said on stderr."""
        return self._process.communicate(timeout=PATIENCE_S)[1]

    def close(self) -> None:
        self._process.kill()
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._process.communicate()


def written(path: Path) -> int:
    """How many rounds are on the disk."""
    return path.read_text().count("\n") if path.exists() else 0


def test_a_server_that_is_killed_or_stopped_is_taken_up_where_it_was(tmp_path: Path) -> None:
    """Devices come back by themselves; the result is that of a run in which nothing has happened."""
    wanted = scenario(network__min_devices=3, momentum=0.5, rounds=16, evaluate_every=2)
    (tmp_path / "it.toml").write_text(wanted.to_toml())
    port, rounds = free_port(), tmp_path / "run/rounds.jsonl"
    made, rng = Party(None, tmp_path, wanted, []), random.Random(time.monotonic_ns())  # type: ignore[arg-type]  # noqa: S311 - any moment
    words = [
        "serve",
        tmp_path / "it.toml",
        "--listen",
        f"127.0.0.1:{port}",
        "--out",
        tmp_path / "run",
        "--resume",
    ]
    with contextlib.closing(Twice(*words)) as server:
        process = server.started()
        wait_until(lambda: _listens(port))
        made.join("0", "1", "2", address=f"127.0.0.1:{port}")
        for sign in (signal.SIGKILL, signal.SIGTERM):
            before = written(rounds)
            wait_until(lambda least=before + 1: written(rounds) >= least)
            time.sleep(rng.uniform(0.0, 0.1))
            os.kill(process, sign)
            assert server.ended() == (0 if sign == signal.SIGTERM else -signal.SIGKILL)
            process = server.started() if sign == signal.SIGKILL else process
        assert "the same command with --resume continues it" in server.told()
    seen = written(rounds)
    with party(wanted, tmp_path, resume=True, listen_on=f"127.0.0.1:{port}") as again:
        assert seen - 1 <= again.server.round <= seen < 16
        again.train()
        made.leave()
    assert made.said == dict.fromkeys("012", "done")
    assert again.events("begins anew") == []
    simulated = Simulated(wanted)
    assert_same_run(again, again.serving.folder.read_records(), simulated, simulated.records)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def test_a_server_that_dies_between_evaluation_and_checkpoint_loses_one_round(
    tmp_path: Path,
) -> None:
    """The disk fails: the checkpoint cannot be written.  By then devices have trained and evaluated the round that is lost."""
    wanted, folder = scenario(momentum=0.5), tmp_path / "run/checkpoint"

    def tell(event: str, **facts: Any) -> None:
        if event == "compared" and facts["round"] == 2:
            folder.rename(tmp_path / "kept")
            folder.touch()

    with party(wanted, tmp_path, tell=tell) as made:
        made.join_all()
        with pytest.raises(AirsplitError, match="cannot be"):
            made.train()
        folder.unlink()
        (tmp_path / "kept").rename(folder)
        with party(wanted, tmp_path, resume=True, listen_on=made.address) as again:
            assert (again.server.round, written(tmp_path / "run/rounds.jsonl")) == (1, 1)
            again.train()
            made.leave()
    assert again.events("begins anew") == []
    simulated = Simulated(wanted)
    assert_same_run(again, again.serving.folder.read_records(), simulated, simulated.records)


def test_a_run_that_is_done_waits_for_nobody(tmp_path: Path) -> None:
    wanted = scenario(rounds=1, network__grace_s=PATIENCE_S)
    trained(wanted, tmp_path)
    with party(wanted, tmp_path, resume=True) as made:
        assert made.train(seconds=3.0) == []


def test_a_server_that_is_started_again_before_its_first_round_is_as_new(tmp_path: Path) -> None:
    wanted = scenario(momentum=0.5)
    with party(wanted, tmp_path) as made:
        made.join_all()
        wait_until(lambda: all_here(made))
        made.close("it may come back")
        with party(wanted, tmp_path, resume=True, listen_on=made.address) as again:
            assert again.server.desk.run != made.server.desk.run
            records = again.train()
            made.leave()
    simulated = Simulated(wanted)
    assert_same_run(again, records, simulated, simulated.records)


def test_a_device_that_is_killed_and_started_again_goes_on(tmp_path: Path) -> None:
    """A real process, killed as hard as possible, at any moment."""
    wanted = scenario(network__min_devices=3, momentum=0.5, rounds=12, evaluate_every=2)
    with party(wanted, tmp_path) as made:
        words = [
            "join",
            made.address,
            "--name",
            "1",
            "--out",
            tmp_path / "device-1",
            "--model",
            wanted.model.name,
        ]
        with contextlib.closing(Twice(*words, "--data", "network.fleets:three_1")) as device:

            def kill() -> None:
                wait_until(lambda: written(tmp_path / "run/rounds.jsonl") >= 3)
                os.kill(device.children[0], signal.SIGKILL)

            device.started()
            made.join("0", "2")
            thread = threading.Thread(target=kill, daemon=True)
            thread.start()
            records = made.train()
            made.leave()
            assert (device.ended(), device.started() > 0, device.ended()) == (
                -signal.SIGKILL,
                True,
                0,
            )
    assert made.events("begins anew", "refused") == []
    simulated = Simulated(wanted)
    assert_same_run(made, records, simulated, simulated.records)


# ---- messages that come twice ------------------------------------------------------------------------------------------------------
class Raw:
    """A device by hand: whatever it is told to say, and what it hears."""

    def __init__(self, address: str, name: str, samples: int = 9) -> None:
        self._channel, self._outbox = connect(address, None), queue.SimpleQueue[bytes | None]()
        self._call = join_call(self._channel, iter(self._outbox.get, None))
        self.say(hello=pb.Hello(protocol=PROTOCOL, name=name))
        self.welcome = self.hear().welcome
        self.say(arrived=pb.Arrived(fingerprint=self.welcome.fingerprint, samples=samples))

    def say(self, **body: Any) -> None:
        self._outbox.put(Outgoing(pb.DeviceMessage(**body)).frame())

    def hear(self) -> pb.ServerMessage:
        return opened(pb.ServerMessage, next(self._call)).message

    def close(self) -> None:
        self._outbox.put(None)
        self._call.cancel()
        self._channel.close()

    def place(self, order: pb.Round, at: int, /, **changes: Any) -> pb.Place:
        return pb.Place(
            **{"run": self.welcome.run, "round": order.number, "order": order.order, "step": at}
            | changes
        )

    def step(self, order: pb.Round, at: int, /, **changes: Any) -> None:
        """Activations that differ from step to step."""
        message = Outgoing(pb.DeviceMessage(step=pb.Step(place=self.place(order, at, **changes))))
        message.put(
            message.message.step.activations.add(),
            torch.sin(torch.arange(28.0) + at).reshape(4, 7),
            wants_gradient=True,
        )
        message.put(message.message.step.labels, torch.tensor([0, 1, 2, at % 3]))
        self._outbox.put(message.frame())


def by_hand(folder: Path, train: Callable[[Raw, pb.Round], None]) -> tuple[Party, list[Any]]:
    """Two rounds in which the third device is played by hand: it trains in the first, and is gone in the second."""
    with party(
        scenario(rounds=2, evaluate_every=100, evaluate_devices=1, momentum=0.5), folder
    ) as made:
        made.join("0", "1")
        raw = Raw(made.address, "2")
        wait_until(lambda: all_here(made))

        def play() -> None:
            with contextlib.suppress(grpc.RpcError):
                order = raw.hear().round
                train(raw, order)
            raw.close()

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        records = []
        for record in made.rounds():
            records.append(record)
            raw.close()
            wait_until(lambda: made.server.members[2].session is None)
        made.leave()
        thread.join(PATIENCE_S)
    return made, records


def once(raw: Raw, order: pb.Round) -> None:
    for at in (0, 1):
        raw.step(order, at)
        assert raw.hear().gradient.place.step == at
    raw.say(finished=pb.Finished(place=raw.place(order, 2)))
    raw.hear()


def test_steps_that_come_twice_or_late_are_never_applied_again(tmp_path: Path) -> None:
    heard: list[str | None] = []

    def stammer(raw: Raw, order: pb.Round) -> None:
        for at in (0, 1):
            raw.step(order, at)
            raw.step(order, at)  # twice: nobody answers
            heard.append(raw.hear().WhichOneof("body"))
            for stale in (
                {"order": order.order - 1},
                {"round": order.number + 1},
                {"run": "another"},
            ):
                raw.step(order, at, **stale)
                heard.append(raw.hear().WhichOneof("body"))
            for old in range(at + 1):
                raw.step(order, old)
        raw.say(finished=pb.Finished(place=raw.place(order, 2, order=order.order - 1)))
        heard.append(raw.hear().WhichOneof("body"))
        for _ in range(2):
            raw.say(finished=pb.Finished(place=raw.place(order, 2)))
        raw.step(order, 0)
        raw.hear()

    wanted, records = by_hand(tmp_path / "once", once)
    made, same = by_hand(tmp_path / "often", stammer)
    assert heard == [*["gradient", "skip", "skip", "skip"] * 2, "skip"]
    assert [(r.train_loss, r.dropped) for r in same] == [(r.train_loss, r.dropped) for r in records]
    assert [record.dropped for record in records] == [(), (2,)]
    for k in range(3):
        assert_same_tensors(made.server.desk.back_ends.of(k), wanted.server.desk.back_ends.of(k))


@pytest.mark.parametrize(
    "train",
    [
        lambda raw, order: (raw.step(order, 1), raw.step(order, 0), raw.hear()),
        lambda raw, order: (raw.step(order, 0), raw.step(order, 2), raw.hear(), raw.hear()),
        lambda raw, order: (
            raw.step(order, 0),
            raw.say(finished=pb.Finished(place=raw.place(order, 2))),
            raw.hear(),
            raw.hear(),
        ),
        lambda raw, order: (raw.step(order, 0), raw.say(ready=pb.Ready()), raw.hear(), raw.close()),
    ],
    ids=["the second first", "one left out", "finished too early", "ready in the middle"],
)
def test_steps_out_of_order_cost_a_device_its_round_and_nobody_else(
    tmp_path: Path, train: Callable[[Raw, pb.Round], Any]
) -> None:
    made, records = by_hand(tmp_path, train)
    assert [record.dropped for record in records] == [(2,), (2,)]
    simulated = Simulated(made.scenario, {1: {2}, 2: {2}})
    assert_same_states_of(made, simulated, [0, 1])


# ---- code of the user's that fails ---------------------------------------------------------------------------------------------
def test_a_loss_that_fails_for_all_ends_the_run_on_both_sides(tmp_path: Path) -> None:
    said = r"training\.loss 'network\.fleets:failing_loss' failed: KeyError: 'no such label' \(.*fleets\.py:\d+\)"
    with party(scenario(loss="network.fleets:failing_loss"), tmp_path) as made:
        made.join_all()
        with pytest.raises(
            UserCodeError, match=rf"^training stopped in round 1: {said}$"
        ) as caught:
            made.train()
        made.leave()
    assert isinstance(caught.value.__cause__, KeyError)
    for error in made.said.values():
        assert isinstance(error, Rejected)
        assert re.search(said, str(error))


def test_a_loss_that_fails_on_one_device_s_data_is_no_end_for_the_others(tmp_path: Path) -> None:
    wanted = scenario(loss="network.fleets:picky_loss", evaluate_every=9)
    with party(wanted, tmp_path) as made:
        made.join_all()
        records = made.train()
        made.leave()
    assert [record.dropped for record in records] == [(1,), (1,)]
    assert made.said["0"] == made.said["2"] == "done"
    assert "training.loss 'network.fleets:picky_loss' failed: KeyError: 'a batch of 2'" in str(
        made.said["1"]
    )
    ((_, refused),) = made.events("refused")
    assert (refused["device"], "picky_loss' failed" in refused["why"]) == ("1", True)


def test_a_model_that_fails_on_the_device_is_said_there(tmp_path: Path) -> None:
    wanted = scenario(splits=[2, 2, 2]).replace(**{"model.name": "network.fleets:failing_model"})
    with party(wanted, tmp_path) as made, ThreadPoolExecutor() as pool:
        made.join_all()
        trained = pool.submit(made.train)
        made.leave()
        made.serving.stop("all devices have failed")
        assert trained.exception() is not None
    said = r"^training stopped on this device: the model failed: RuntimeError: index -1 is out of bounds .*\(.*fleets\.py:\d+\)$"
    for error in made.said.values():
        assert re.search(said, str(error))
        assert isinstance(error, UserCodeError)


def assert_same_states_of(made: Party, wanted: Training, devices: list[int]) -> None:
    for k in devices:
        assert_same_tensors(made.state(k), wanted.state.of(k))


# ---- identities --------------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and three devices that it knows; to be copied."""
    folder = tmp_path_factory.mktemp("identity") / "identity"
    init(folder)
    for name in "012":
        issue(folder, name)
    return folder


@pytest.fixture
def known(identities: Path, tmp_path: Path) -> Path:
    shutil.copytree(identities, tmp_path / "identity")
    return tmp_path / "identity"


def secured(folder: Path) -> dict[str, Any]:
    return {
        "credentials": server_credentials(folder),
        "admission": Admission(folder / "revoked.txt"),
    }


def join_secured(made: Party, known: Path, *names: str, **changes: Any) -> None:
    for name in names:
        made.join(name, credentials=channel_credentials(known / "devices" / name), **changes)


def test_a_run_over_tls_is_the_same(tmp_path: Path, known: Path) -> None:
    """Devices need not say who they are: their certificates do."""
    wanted = scenario(momentum=0.5)
    with party(wanted, tmp_path, **secured(known)) as made:
        for name in "012":
            made.join(name, credentials=channel_credentials(known / "devices" / name), name="")
        records = made.train()
        made.leave()
    simulated = Simulated(wanted)
    assert_same_run(made, records, simulated, simulated.records)


def test_a_device_that_is_revoked_is_refused_when_it_comes_back(
    tmp_path: Path, known: Path
) -> None:
    wanted = scenario(momentum=0.5)
    with party(wanted, tmp_path, **secured(known)) as made, proxy(made.serving.port) as link:
        join_secured(made, known, "0", "1", "2", address=link.address)
        for record in made.rounds():
            if record.round == 1:
                revoke(known, "2")
                assert link.cut() == 3
                wait_until(lambda: "2" in made.said)
                wait_until(lambda: all(member.present for member in made.server.members[:2]))
        made.leave()
    assert isinstance(made.said["2"], Rejected)
    assert "revoked" in str(made.said["2"])
    simulated = Simulated(wanted, {2: {2}, 3: {2}})
    assert_same_states_of(made, simulated, [0, 1, 2])


def test_a_device_cannot_act_as_another(tmp_path: Path, known: Path) -> None:
    with party(scenario(), tmp_path, **secured(known)) as made:
        made.join("0", credentials=channel_credentials(known / "devices/1"))
        made.leave()
        assert isinstance(made.said["0"], Rejected)
        assert "a device can only act as itself" in str(made.said["0"])
        assert made.events("connected") == []


def test_strangers_are_not_even_heard(tmp_path: Path, known: Path) -> None:
    """One with a certificate of another authority, one without any, and one who speaks plain text."""
    init(tmp_path / "other")
    issue(tmp_path / "other", "1")
    theirs = channel_credentials(tmp_path / "other/devices/1")
    nobody = grpc.ssl_channel_credentials((known / "ca.pem").read_bytes())
    with party(scenario(), tmp_path, **secured(known)) as made:
        made.join("0", credentials=theirs, patience_s=0.1)
        made.join("1", credentials=nobody, patience_s=0.1)
        made.join("2", patience_s=0.1)
        made.leave()
        assert all(isinstance(said, Unreachable | Rejected) for said in made.said.values()), (
            made.said
        )
        assert made.told == []


# ---- all at once -------------------------------------------------------------------------------------------------------------------
def test_two_runs_in_chaos_end_well() -> None:
    line = [sys.executable, str(TESTS.parent / "benchmarks/chaos.py"), "--quick"]
    done = subprocess.run(
        line, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 runs" in done.stdout
