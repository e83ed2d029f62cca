"""SplitTable: what every split would cost every device, K × R over the splits worth looking at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.problem import Problem
from airsplit.system.latency import LatencyLaw
from airsplit.system.radio import TransmitTime

Mask = NDArray[np.bool_]
Entry = TypeVar("Entry", np.float64, np.int64)


def pick(table: NDArray[Entry], choice: Ints) -> NDArray[Entry]:
    """Each device's entry of a K × R table.

    >>> pick(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 0])).tolist()
    [2.0, 3.0]
    """
    return np.take_along_axis(table, choice[:, None], axis=1)[:, 0]


@dataclass(frozen=True, eq=False)
class SplitTable:
    """Costs of device k at its r-th split: `shift_s` is x without air time, `scale_s` is β; payloads broadcast to K × R.

    A choice is an index r for each device.
    """

    problem: Problem
    rows: Ints
    shift_s: Floats
    scale_s: Floats
    up_bits: Floats
    down_bits: Floats
    allowed: Mask

    @classmethod
    def of(cls, problem: Problem) -> SplitTable:
        """The table over the splits that are worth looking at."""
        rows = problem.rows[None, :]
        return cls._at(problem, rows, rows <= problem.deepest[:, None])

    @classmethod
    def _at(cls, problem: Problem, rows: Ints, allowed: Mask) -> SplitTable:
        a, eps = problem.fleet.seconds_per_mac[:, None], problem.fleet.fluctuation[:, None]
        work = problem.work[rows]
        shift = a * work + problem.server_s[rows]
        return cls(
            problem,
            rows,
            shift,
            work / eps,
            problem.up_bits[rows],
            problem.down_bits[rows],
            allowed,
        )

    def only(self, choice: Ints) -> SplitTable:
        """The table of one split for each device."""
        return self._at(
            self.problem, self.rows_of(choice)[:, None], np.ones((len(choice), 1), dtype=bool)
        )

    def rows_of(self, choice: Ints) -> Ints:
        return pick(np.broadcast_to(self.rows, self.shift_s.shape), choice)

    def choice(self, rows: Ints) -> Ints:
        """The index of each device's row; a row that was left out is replaced by the one before it on the front."""
        return np.maximum(np.searchsorted(self.rows[0], rows, side="right") - 1, 0)

    def transmit_all(self, shares: Floats) -> TransmitTime:
        """Air time of every split, K × R, at shares that are K or K × R."""
        b = shares[:, None] if shares.ndim == 1 else shares
        return self.problem.link.column().transmit(self.up_bits, self.down_bits, b)

    def law(self, choice: Ints, shares: Floats) -> LatencyLaw:
        return self.problem.law(self.rows_of(choice), shares)


@dataclass(frozen=True, eq=False)
class LocalAir:
    """Air time near some shares as U + A/b, K × R: exact for a fixed SNR, where U = 0; of equal value and slope for a noise density."""

    steady_s: Floats
    per_share_s: Floats

    @classmethod
    def near(cls, table: SplitTable, shares: Floats) -> LocalAir:
        t = table.transmit_all(shares)
        A = -t.slope * shares[:, None] ** 2
        steady = (
            np.zeros_like(A)
            if table.problem.link.is_proportional
            else t.seconds - A / shares[:, None]
        )
        return cls(steady, A)
