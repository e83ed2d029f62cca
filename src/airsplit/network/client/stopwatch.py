"""Where a device's time goes in a round."""

from __future__ import annotations

import time
from collections.abc import Callable

from airsplit.network.wire import airsplit_pb2 as pb

MOST = 1000
"""So many of a round's last steps are told one by one."""


class Stopwatch:
    """Where the time of a round goes: computing, the server, and the rest of each question, which is on the air."""

    def __init__(self, laps: int = 2) -> None:
        self._steps: list[float] = []
        self._laps = laps  # of computing in a step
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
        steps = [
            sum(self._steps[at : at + self._laps]) for at in range(0, len(self._steps), self._laps)
        ][-MOST:]
        return pb.Finished(
            place=place,
            compute_s=self._compute_s,
            transmit_s=self._transmit_s,
            server_s=self._server_s,
            step_compute_s=steps,
        )


class _Lap:
    def __init__(self, done: Callable[[float, pb.ServerMessage | None], None]) -> None:
        self._done = done
        self._answer: pb.ServerMessage | None = None

    def __enter__(self) -> Callable[[pb.ServerMessage], None]:
        self._start = time.perf_counter()
        return self._hear

    def _hear(self, answer: pb.ServerMessage) -> None:
        self._answer = answer

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._done(time.perf_counter() - self._start, self._answer)
