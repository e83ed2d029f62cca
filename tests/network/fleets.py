"""Whole fleets on this machine: a server that listens on the loopback, devices in threads, and links that can be heard and cut."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from airsplit.network.client.checkpoint import Fronts
from airsplit.network.client.client import Device
from airsplit.network.server.serve import Serving
from airsplit.network.server.server import Server
from airsplit.runs.record import RoundRecord
from airsplit.scenario.scenario import Scenario
from airsplit.training.coordinator import Training
from airsplit.training.local_steps import Task
from training import tiny

TESTED = 9
"""Samples to test with."""

PATIENCE_S = 20.0
"""After so long a test fails instead of hanging."""


# ---- data and scenarios --------------------------------------------------------------------------------------------------------
def three() -> Any:
    """What each of three devices holds: with batches of four, the second has half a batch."""
    return [
        tiny.drawn(size, 10 + k, tiny.FEATURES) for k, size in enumerate((13, 2, 9))
    ], tiny.drawn(TESTED, 3, tiny.FEATURES)


def four() -> Any:
    return [
        tiny.drawn(size, 10 + k, tiny.FEATURES) for k, size in enumerate((13, 2, 9, 6))
    ], tiny.drawn(TESTED, 3, tiny.FEATURES)


def by_class() -> Any:
    """The second device has a class that nobody is tested on."""
    return tiny.parted_by_class()


def three_images() -> Any:
    return [tiny.drawn(8, 10 + k, 1, 6, 6) for k in range(3)], tiny.drawn(TESTED, 3, 1, 6, 6)


def three_pixels() -> Any:
    """A class for each pixel; one pixel of the test set has none."""
    inputs, labels = tiny.shaded(TESTED, 3, 6, 5)
    labels[0, 0, 0] = -100
    return [tiny.shaded(8, 10 + k, 6, 5) for k in range(3)], (inputs, labels)


def three_squares() -> Any:
    """As many classes as rows and columns."""
    return [tiny.shaded(8, 10 + k, 3, 3) for k in range(3)], tiny.shaded(TESTED, 3, 3, 3)


def three_numbers() -> Any:
    """Labels that are numbers."""
    devices, (test, _) = three()
    return [(inputs, inputs.sum(dim=1)) for inputs, _ in devices], (test, test.sum(dim=1))


WIDE = 150 * 150


@tiny.fixed_weights
def wide() -> nn.Module:
    """An answer for each pixel of an image."""
    return nn.Sequential(nn.Linear(tiny.FEATURES, 7), nn.Tanh(), nn.Linear(7, WIDE))


def wide_labels() -> Any:
    """A batch of 64 of them has more bytes than most messages."""
    return [(tiny.drawn(64, 10, tiny.FEATURES)[0], torch.ones(64, WIDE))], (
        tiny.drawn(2, 3, tiny.FEATURES)[0],
        torch.ones(2, WIDE),
    )


def failing_loss(output: Tensor, labels: Tensor) -> Tensor:
    raise KeyError("no such label")


def picky_loss(output: Tensor, labels: Tensor) -> Tensor:
    """Return a loss, unless the batch is the half one that only the second device has."""
    if len(labels) == 2:
        raise KeyError(f"a batch of {len(labels)}")
    return functional.cross_entropy(output, labels)


class FailingFront(nn.Module):
    """A layer that can be looked at on the meta device, but cannot compute: there is no index -1."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.gather(x, 1, (x > 1e30).long() - 1)


@tiny.fixed_weights
def failing_model() -> nn.Module:
    return nn.Sequential(nn.Linear(tiny.FEATURES, 7), FailingFront(), nn.Linear(7, tiny.CLASSES))


def one_that_sends_nonsense() -> Any:
    return three()


def one_that_sends_nonsense_1() -> Any:
    """Test labels of the second device that are all the same."""
    devices, (inputs, labels) = three()
    return devices[1], (inputs, torch.zeros_like(labels))


def __getattr__(name: str) -> Any:
    """What one device holds of the data above: `three_1` is a factory like any other."""
    data, _, number = name.rpartition("_")
    if not number.isdigit() or data not in globals():
        raise AttributeError(name)

    def part() -> Any:
        devices, test = globals()[data]()
        return devices[int(number)], test

    return part


def scenario(
    model: str = "mlp", splits: Any = (1, 3, 2), data: str = "three", **changes: Any
) -> Scenario:
    """A scenario of tiny's for a network that is this machine: nothing is measured, nothing paced, every fast path is off."""
    network = {"network__measure": False, "network__pacing": False, "fast_paths": False}
    made = tiny.scenario(model, "parted", list(splits), **{"rounds": 2} | network | changes)
    return made.replace(**{"training.dataset": f"{__name__}:{data}"})


# ---- a server with its devices -----------------------------------------------------------------------------------------------
@dataclass
class Party:
    """A server in this process, and devices in threads, each with a folder of its own.

    told   events of the server
    said   by name, how each device's run ended: what it returned or raised
    """

    serving: Serving
    folder: Path
    scenario: Scenario
    told: list[tuple[str, dict[str, Any]]]
    said: dict[str, Any] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)

    @property
    def server(self) -> Server:
        return self.serving.server

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.serving.port}"

    def events(self, *names: str) -> list[tuple[str, dict[str, Any]]]:
        return [each for each in self.told if each[0] in names]

    def device(self, name: str, /, **changes: Any) -> Device:
        """A device as the scenario needs it; its number is its name."""
        given: dict[str, Any] = {
            "name": name,
            "folder": self.folder / f"device-{name}",
            "patience_s": PATIENCE_S,
        }
        if ":" in self.scenario.model.name:
            given["model"] = self.scenario.model.name
        if ":" in self.scenario.training.dataset:
            given["data"] = f"{__name__}:{self.scenario.training.dataset.partition(':')[2]}_{name}"
        if ":" in self.scenario.training.metric and self.scenario.training.algorithm == "fedavg":
            given["metric"] = self.scenario.training.metric
        return Device(**given | changes)

    def join(self, *names: str, address: str = "", credentials: Any = None, **changes: Any) -> None:
        """Let devices join, each in a thread."""
        for name in names:
            device = self.devices[name] = self.device(name, **changes)
            thread = threading.Thread(
                target=self._take_part,
                args=(name, device, address or self.address, credentials),
                daemon=True,
            )
            self.threads.append(thread)
            thread.start()

    def join_all(self, **changes: Any) -> None:
        self.join(*(str(k) for k in range(len(self.server.members))), **changes)

    def _take_part(self, name: str, device: Device, address: str, credentials: Any) -> None:
        try:
            self.said[name] = device.run(address, credentials)
        except BaseException as error:  # it is looked at by the test
            self.said[name] = error

    def train(self, seconds: float = PATIENCE_S) -> list[RoundRecord]:
        """All rounds that are left."""
        return list(self.rounds(seconds))

    def rounds(self, seconds: float = PATIENCE_S) -> Generator[RoundRecord, None, None]:
        """The same, one after the other; stopped where it takes too long."""
        watch = threading.Timer(seconds, self.serving.stop, ["the test has waited for too long"])
        watch.daemon = True
        watch.start()
        try:
            yield from self.serving
        finally:
            watch.cancel()

    def close(self, why: str = "") -> None:
        """Tell the devices that it is over, or why it is not, and listen no more."""
        self.server.orders.end(why)
        self.serving._open.close()

    def leave(self) -> None:
        """Wait until every device has gone home."""
        for thread in self.threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in self.threads)

    def front(self, k: int) -> dict[str, Tensor]:
        """The last version of a device's front that the server has kept, from the device's folder; none with federated averaging."""
        splits, member = self.server.desk.back_ends.splits, self.server.members[k]
        if not splits:
            return {}
        names = self.server.replica.front_keys(splits[k])
        if not member.version:
            return {
                name: tensor.clone()
                for name, tensor in Training(self.scenario).replica.taken(names).items()
            }
        kept = Fronts(self.folder / f"device-{member.name}", self.server.desk.run, k)
        return kept.load(member.version, splits[k], self.server.replica.taken(names))

    def state(self, k: int) -> dict[str, Tensor]:
        """Everything of one device: its front, what the server has behind it, and what the optimizer remembers of both."""
        ends = self.server.desk.back_ends
        return self.front(k) | (ends.of(k) if ends.splits else ends.common)


def wait_until(holds: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Wait for something to happen in another thread or process."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("it did not happen")
        time.sleep(0.005)


@contextmanager
def party(wanted: Scenario, folder: Path, **serving: Any) -> Iterator[Party]:
    """A server that listens, until the end of the context."""
    told: list[tuple[str, dict[str, Any]]] = []
    given = {
        "out": folder / "run",
        "listen_on": "127.0.0.1:0",
        "wait_s": PATIENCE_S,
        "tell": lambda event, **facts: told.append((event, facts)),
    }
    made = Party(Serving(wanted, **given | serving), folder, wanted, told)
    try:
        yield made
    finally:
        made.serving.stop("the test is over")
        made.close()
        for device in made.devices.values():
            device.stop()


def trained(wanted: Scenario, folder: Path, **changes: Any) -> tuple[Party, list[RoundRecord]]:
    """A whole run, with all devices."""
    with party(wanted, folder) as made:
        made.join_all(**changes)
        records = made.train()
        made.leave()
    assert made.said == dict.fromkeys(made.devices, "done")
    return made, records


# ---- what must come of it ------------------------------------------------------------------------------------------------------
class Simulated(Training):
    """The simulator, with devices missing in some rounds: by the number of the round."""

    def __init__(self, wanted: Scenario, missing: dict[int, set[int]] | None = None) -> None:
        super().__init__(wanted)
        self._missing = missing or {}
        self.records = list(self.rounds())

    def _task(self, number: int) -> Task:
        task = super()._task(number)
        iterations = task.iterations.copy()
        iterations[list(self._missing.get(number, ()))] = 0
        return replace(
            task,
            iterations=iterations,
            weights=self._weights(iterations == task.iterations_per_round),
        )


def assert_same_tensors(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Bit for bit, types included."""
    assert found.keys() == wanted.keys()
    assert [
        name
        for name, tensor in wanted.items()
        if found[name].dtype != tensor.dtype or not torch.equal(found[name], tensor)
    ] == []


def assert_same_run(
    made: Party, records: Sequence[RoundRecord], wanted: Training, same: Sequence[RoundRecord]
) -> None:
    """The tensors of every device, and what the records say of the model."""
    for k in range(len(made.server.members)):
        assert_same_tensors(made.state(k), wanted.state.of(k))
    for name in (
        "round",
        "train_loss",
        "participants",
        "test_accuracy",
        "test_accuracy_worst",
        "own_accuracy",
    ):
        assert [getattr(record, name) for record in records] == [
            getattr(record, name) for record in same
        ], name
    for name in ("test_metric", "test_metric_spread", "test_metric_worst"):
        found, wanted_values = (
            [getattr(record, name) for record in each] for each in (records, same)
        )
        assert found == pytest.approx(wanted_values, abs=1e-12), name
    for record, other in zip(records, same, strict=True):
        assert (record.test_loss is None) == (other.test_loss is None)
        if (
            record.test_loss is not None and other.test_loss is not None
        ):  # the mean over batches of another size
            assert abs(record.test_loss - other.test_loss) < 1e-5


# ---- links ---------------------------------------------------------------------------------------------------------------------
class Proxy:
    """A link between devices and a server on this machine, which can be listened to, and cut.

    heard   what devices have sent, one bytearray for each connection
    """

    def __init__(self, port: int, own_port: int = 0) -> None:
        self._target, self.heard = port, list[bytearray]()
        self._listener = socket.create_server(("127.0.0.1", own_port))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock, self._open = threading.Lock(), True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self, chosen: Callable[[], bool] = lambda: True) -> int:
        """Break all connections at once, as a cable that is pulled out, or those that are chosen: how many that were."""
        with self._lock:
            pairs = [pair for pair in self._pairs if chosen()]
            self._pairs = [pair for pair in self._pairs if pair not in pairs]
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        return len(pairs)

    def close(self) -> None:
        self._open = False
        self.cut()
        self._thread.join(PATIENCE_S)
        self._listener.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._listener, selectors.EVENT_READ, None)
            while self._open:
                for key, _ in ready.select(0.05):
                    if key.data is None:
                        self._accept(ready)
                    else:
                        self._pass_on(ready, key.fileobj, *key.data)
            for key in list(ready.get_map().values()):
                if key.data is not None:
                    key.fileobj.close()

    def _accept(self, ready: selectors.BaseSelector) -> None:
        device, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=5.0)
        except OSError:
            device.close()
            return
        self.heard.append(bytearray())
        with self._lock:
            self._pairs.append((device, server))
        ready.register(device, selectors.EVENT_READ, (server, self.heard[-1]))
        ready.register(server, selectors.EVENT_READ, (device, None))

    def _pass_on(
        self, ready: selectors.BaseSelector, end: Any, other: socket.socket, heard: bytearray | None
    ) -> None:
        data = b""
        with suppress(OSError):
            data = end.recv(1 << 16)
        if heard is not None:
            heard += data
        with contextlib.suppress(OSError):
            if data:
                other.sendall(data)
                return
        for each in (end, other):
            with suppress(KeyError, ValueError, OSError):
                ready.unregister(each)
            each.close()


@contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """A link, until the end of the context."""
    made = Proxy(port)
    try:
        yield made
    finally:
        made.close()
