"""Server and devices that do everything but compute: the server answers at once, devices sleep as long as the law says.

So it is the link that is measured, and the plan for it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import airsplit.network.client.client as device_module
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

PIECE = b"\x1a"  # how a frame that is a piece begins
PACES = (1.0, 1.3, 1.7, 2.2, 2.9, 3.7, 4.8, 6.3)
"""How slow the eight devices are, relative to the fastest."""


def scenario(changes: dict[str, Any]) -> Scenario:
    """The demo's model in batches of 16, never evaluated but at the end."""
    base = {
        "training.rounds": 8,
        "training.iterations_per_round": 5,
        "training.evaluate_every": 10**6,
        "training.momentum": 0.0,
    }
    return Scenario.load("demo").replace(**base | changes)


# ---- devices ---------------------------------------------------------------------------------------------------------------
class Sleeper(Trainee):
    """Sends noise of the right shape after sleeping as long as computing would have taken."""

    pace: tuple[float, float] = (1e-9, 2e9)

    def _step(self, stream: Stream, order: pb.Round, step: int, clock: Any) -> None:
        with clock.computing():
            time.sleep(self._compute_s(order.split, order.number, step))
            crossing, labels = self._noise(order.split)
            sent = Outgoing(pb.DeviceMessage(step=pb.Step(place=self._place(order, step))))
            for tensor in crossing:
                sent.put(
                    sent.message.step.activations.add(),
                    tensor,
                    self._compression,
                    wants_gradient=True,
                )
            sent.put(sent.message.step.labels, labels)
        with clock.asking() as heard:
            heard(stream.ask(sent).message)
        with clock.computing():
            pass

    def _compute_s(self, split: int, number: int, step: int) -> float:
        work = self.settings.batch_size * float(
            Clock(backward_macs_ratio="counted").work(self.profile)[split - 1]
        )
        a, eps = self.pace
        return work * a + work / eps * float(
            generator(0, "emulated compute", self.number, number, step).exponential()
        )

    def _noise(self, split: int) -> tuple[tuple[Tensor, ...], Tensor]:
        if not hasattr(self, "_made") or self._made[0] != split:
            inputs, labels = self._dataset.train.batch(torch.arange(self.settings.batch_size))
            with torch.no_grad():
                self._made = (split, self.replica.halves(split)[0](*inputs), labels)
        return self._made[1], self._made[2]

    def _whole_round(
        self, incoming: Incoming[pb.ServerMessage], order: pb.Round
    ) -> Outgoing[pb.DeviceMessage]:
        """Federated averaging: sleep for the whole model, and send it back."""
        clock = Stopwatch()
        if order.model:
            self._model_now = incoming.named(order.model, self.replica.tensors)
        with clock.computing():
            for step in range(self.settings.iterations_per_round):
                time.sleep(self._compute_s(len(self.profile), order.number, step))
        done = Outgoing(
            pb.DeviceMessage(
                finished=clock.finished(self._place(order, self.settings.iterations_per_round))
            )
        )
        done.put_named(done.message.finished.model, self._model_now)
        return done

    def _assess(
        self, stream: Stream, _: Incoming[pb.ServerMessage], order: pb.Assess
    ) -> Incoming[pb.ServerMessage]:
        return stream.ask(
            pb.DeviceMessage(assessed=pb.Assessed(place=self._place(order, 0), test_loss=0.0))
        )


class Known(Device):
    """A device whose pace is known; its link is measured."""

    def __init__(self, pace: tuple[float, float], **options: Any) -> None:
        super().__init__(**options)
        self.pace = pace

    def _prepared(self, welcome: pb.Welcome) -> Trainee:
        trainee = super()._prepared(welcome)
        trainee.pace = self.pace  # type: ignore[attr-defined]
        return trainee

    def _measured(self, stream: Stream, _: Trainee) -> pb.Measurement:
        link = measure_link(stream.ask)
        return pb.Measurement(
            seconds_per_mac=self.pace[0], fluctuation=self.pace[1], samples=1, **link
        )


def run_devices(address: str, fastest: float, count: int) -> None:
    """All devices, each in a thread."""
    device_module.Trainee = Sleeper  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        paces = [(fastest * each, 2 / (fastest * each)) for each in PACES[:count]]
        devices = [
            Known(pace, name=str(k), folder=Path(folder) / str(k)) for k, pace in enumerate(paces)
        ]
        threads = [threading.Thread(target=device.run, args=(address,)) for device in devices]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


# ---- server ----------------------------------------------------------------------------------------------------------------
def at_once(
    _: BackEnd, arrived: tuple[Tensor, ...], __: Tensor
) -> tuple[float, list[Tensor | None]]:
    """In place of a back end's step: nothing is computed, and what came goes back."""
    return 0.0, [tensor.detach() for tensor in arrived]


class Arrivals:
    """How long messages in pieces take from their first piece to their last, and how many bytes come after the first."""

    def __init__(self) -> None:
        self.seconds, self.bytes = 0.0, 0
        plain = Session._counted

        def counted(session: Session, arriving: Iterator[bytes]) -> Iterator[bytes]:
            begun: float | None = None
            for data in plain(session, arriving):
                now = time.perf_counter()
                if data[:1] == PIECE:
                    if begun is not None:
                        self.seconds, self.bytes = (
                            self.seconds + now - begun,
                            self.bytes + len(data),
                        )
                    begun = None if pb.Frame.FromString(data).last else now
                yield data

        Session._counted = counted  # type: ignore[method-assign]


def run_server(address: str, changes: dict[str, Any], devices: int) -> None:
    """A server without computing; prints the forecast and each round as JSON."""
    BackEnd.step = at_once  # type: ignore[method-assign, assignment]
    server_module.measure_server = lambda *_, **__: 0.0  # type: ignore[assignment]
    arrivals = Arrivals()
    with tempfile.TemporaryDirectory() as folder:
        serving = Serving(
            scenario(changes), out=Path(folder) / "run", devices=devices, listen_on=address
        )
        for record in serving:
            told: dict[str, Any] = {
                "latency_s": record.latency_s,
                "sent_bytes": record.sent_bytes,
                "compute_s": record.compute_s,
                "transmit_s": record.transmit_s,
            }
            told |= {"sending_s": arrivals.seconds, "sending_bytes": arrivals.bytes}
            if serving.server.forecast is not None:
                told |= _foretold(serving.server.forecast)
            print(json.dumps(told), flush=True)


def _foretold(forecast: Forecast) -> dict[str, Any]:
    rates = {
        "up_bps": forecast.up_bps.tolist(),
        "full_up_bps": np.asarray(forecast.fleet.full_band_rate_bps).tolist(),
    }
    return {
        "planned_s": forecast.latency_s,
        "device_s": forecast.round_s.tolist(),
        "splits": forecast.splits.tolist(),
    } | rates


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("server", "devices"))
    parser.add_argument("address")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--fastest", type=float, default=1e-10)
    parser.add_argument("--changes", default="{}")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.role == "server":
        run_server(chosen.address, json.loads(chosen.changes), chosen.devices)
    else:
        run_devices(chosen.address, chosen.fastest, chosen.devices)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
