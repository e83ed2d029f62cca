"""Server and devices that do everything but compute.

The server answers immediately, and devices sleep for the time that their compute model draws. So
the link is measured, and the plan for it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import airsplit.network.client.client as client_module
import airsplit.network.server.server as server_module
from airsplit.core.randomness import generator
from airsplit.network.client.client import Device, Trainee
from airsplit.network.client.stopwatch import Stopwatch
from airsplit.network.client.stream import Stream, measure_link
from airsplit.network.server.back_ends import BackEnd
from airsplit.network.server.forecast import Forecast
from airsplit.network.server.serve import Serving
from airsplit.network.server.stream import Session
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import Incoming, Outgoing
from airsplit.scenario.scenario import Scenario
from airsplit.system.clock import Clock

# First byte of a frame that is a piece of a message.
PIECE = b"\x1a"
# Seconds per MAC of the eight devices, relative to the fastest.
PACES = (1.0, 1.3, 1.7, 2.2, 2.9, 3.7, 4.8, 6.3)


def make_scenario(changes: dict[str, Any]) -> Scenario:
    """Return the demo's model in batches of 16, not evaluated before the end."""
    base = {
        "training.rounds": 8,
        "training.iterations_per_round": 5,
        "training.evaluate_every": 10**6,
        "training.momentum": 0.0,
    }
    return Scenario.load("demo").replace(**base | changes)


class SleepingTrainee(Trainee):
    """Sleep as long as computing would take, then send noise of the right shape.

    Attributes:
        pace: Seconds per MAC, and fluctuation.
    """

    pace: tuple[float, float] = (1e-9, 2e9)

    def _step(self, stream: Stream, order: pb.Round, step: int, clock: Stopwatch) -> None:
        with clock.computing():
            time.sleep(self._draw_compute_s(order.split, order.number, step))
            activations, labels = self._noise(order.split)
            message = Outgoing(pb.DeviceMessage(step=pb.Step(place=self._place(order, step))))
            for tensor in activations:
                header = message.message.step.activations.add()
                message.put(header, tensor, self._compression, wants_gradient=True)
            message.put(message.message.step.labels, labels)
        with clock.asking() as hear:
            hear(stream.ask(message).message)
        # The stopwatch expects a backward pass.
        with clock.computing():
            pass

    def _draw_compute_s(self, split: int, number: int, step: int) -> float:
        """Draw the time to compute the layers of a split: a constant and an exponential part."""
        macs = Clock(backward_macs_ratio="counted").work(self.profile)[split - 1]
        work = self.settings.batch_size * float(macs)
        a, eps = self.pace
        rng = generator(0, "emulated compute", self.number, number, step)
        return work * a + work / eps * float(rng.exponential())

    @cache  # noqa: B019 - a trainee lives as long as the process
    def _noise(self, split: int) -> tuple[tuple[Tensor, ...], Tensor]:
        inputs, labels = self._dataset.train.batch(torch.arange(self.settings.batch_size))
        front, _ = self.replica.halves(split)
        with torch.no_grad():
            return front(*inputs), labels

    def _whole_round(
        self, incoming: Incoming[pb.ServerMessage], order: pb.Round
    ) -> Outgoing[pb.DeviceMessage]:
        """Federated averaging: sleep for the whole model, and send it back unchanged."""
        clock = Stopwatch()
        if order.model:
            self._received_model = incoming.named(order.model, self.replica.tensors)
        iterations = self.settings.iterations_per_round
        with clock.computing():
            for step in range(iterations):
                time.sleep(self._draw_compute_s(len(self.profile), order.number, step))
        finished = clock.finished(self._place(order, iterations))
        message = Outgoing(pb.DeviceMessage(finished=finished))
        message.put_named(message.message.finished.model, self._received_model)
        return message

    def _assess(
        self, stream: Stream, _: Incoming[pb.ServerMessage], order: pb.Assess
    ) -> Incoming[pb.ServerMessage]:
        """Skip the evaluation."""
        assessed = pb.Assessed(place=self._place(order, 0), test_loss=0.0)
        return stream.ask(pb.DeviceMessage(assessed=assessed))


class EmulatedDevice(Device):
    """A device whose pace is given; its link is measured."""

    def __init__(self, pace: tuple[float, float], **options: Any) -> None:
        super().__init__(**options)
        self.pace = pace

    def _prepared(self, welcome: pb.Welcome) -> Trainee:
        trainee = super()._prepared(welcome)
        trainee.pace = self.pace  # type: ignore[attr-defined]
        return trainee

    def _measured(self, stream: Stream, _: Trainee) -> pb.Measurement:
        seconds_per_mac, fluctuation = self.pace
        return pb.Measurement(
            seconds_per_mac=seconds_per_mac,
            fluctuation=fluctuation,
            samples=1,
            **measure_link(stream.ask),
        )


def run_devices(address: str, fastest: float, count: int) -> None:
    """Run all devices, each in a thread."""
    client_module.Trainee = SleepingTrainee  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        threads = []
        for k, ratio in enumerate(PACES[:count]):
            seconds_per_mac = fastest * ratio
            device = EmulatedDevice(
                (seconds_per_mac, 2 / seconds_per_mac), name=str(k), folder=folder / str(k)
            )
            threads.append(threading.Thread(target=device.run, args=(address,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def skip_computing(
    _: BackEnd, received: tuple[Tensor, ...], __: Tensor
) -> tuple[float, list[Tensor | None]]:
    """Replace the step of a back end: send the activations back as their gradients."""
    return 0.0, [tensor.detach() for tensor in received]


class Arrivals:
    """Measure messages that arrive in pieces.

    Attributes:
        seconds: Time from the first piece to the last, summed over messages.
        bytes: Bytes after the first piece, summed over messages.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.bytes = 0
        original = Session._counted

        def measure(session: Session, arriving: Iterator[bytes]) -> Iterator[bytes]:
            previous_s: float | None = None
            for data in original(session, arriving):
                now_s = time.perf_counter()
                if data[:1] == PIECE:
                    if previous_s is not None:
                        self.seconds = self.seconds + now_s - previous_s
                        self.bytes += len(data)
                    previous_s = None if pb.Frame.FromString(data).last else now_s
                yield data

        Session._counted = measure  # type: ignore[method-assign,assignment]


def run_server(address: str, changes: dict[str, Any], devices: int) -> None:
    """Serve without computing; print forecast and times of each round as JSON."""
    BackEnd.step = skip_computing  # type: ignore[method-assign, assignment]
    server_module.measure_server = lambda *_, **__: 0.0  # type: ignore[assignment]
    arrivals = Arrivals()
    with tempfile.TemporaryDirectory() as folder:
        serving = Serving(
            make_scenario(changes), out=Path(folder) / "run", devices=devices, listen_on=address
        )
        for record in serving:
            values: dict[str, Any] = {
                "latency_s": record.latency_s,
                "sent_bytes": record.sent_bytes,
                "compute_s": record.compute_s,
                "transmit_s": record.transmit_s,
                "sending_s": arrivals.seconds,
                "sending_bytes": arrivals.bytes,
            }
            if serving.server.forecast is not None:
                values |= _to_json(serving.server.forecast)
            print(json.dumps(values), flush=True)


def _to_json(forecast: Forecast) -> dict[str, Any]:
    return {
        "planned_s": forecast.latency_s,
        "device_s": forecast.round_s.tolist(),
        "splits": forecast.splits.tolist(),
        "up_bps": forecast.up_bps.tolist(),
        "full_up_bps": np.asarray(forecast.fleet.full_band_rate_bps).tolist(),
    }


def main() -> None:
    """Run the server or all devices."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("server", "devices"))
    parser.add_argument("address")
    parser.add_argument("--devices", type=int, default=8, help="number of devices (default 8)")
    parser.add_argument(
        "--fastest",
        type=float,
        default=1e-10,
        help="seconds per MAC of the fastest device (default 1e-10)",
    )
    parser.add_argument("--changes", default="{}", help="settings of the server as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.role == "server":
        run_server(options.address, json.loads(options.changes), options.devices)
    else:
        run_devices(options.address, options.fastest, options.devices)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
