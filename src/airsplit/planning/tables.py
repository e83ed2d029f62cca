"""SplitTable: what every split would cost every device, K × R over the splits worth looking at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airsplit.latency import LatencyLaw
from airsplit.planning.problem import Problem
from airsplit.radio import TransmitTime
from airsplit.units import Floats, Ints

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class SplitTable:
    """`shift_s` and `scale_s` are x (without air time) and β of device k at `rows[r]`; a choice is an index r for each device."""

    problem: Problem
    rows: Ints
    shift_s: Floats
    scale_s: Floats
    allowed: Mask

    @classmethod
    def of(cls, problem: Problem) -> SplitTable:
        rows = problem.rows
        a, eps = problem.fleet.seconds_per_mac[:, None], problem.fleet.fluctuation[:, None]
        work, server = problem.work[rows], problem.server_s[rows]
        return cls(problem, rows, a * work + server, work / eps, rows <= problem.deepest[:, None])

    def choice(self, rows: Ints) -> Ints:
        """The index of each device's row in `rows`; a row that was left out is replaced by the one before it on the front."""
        return np.maximum(np.searchsorted(self.rows, rows, side="right") - 1, 0)

    def pick(self, table: Floats, choice: Ints) -> Floats:
        return table[np.arange(len(choice)), choice]  # type: ignore[no-any-return]

    def transmit_all(self, shares: Floats) -> TransmitTime:
        """Air time of every split at each device's share, K × R; shares may be K or K × R."""
        problem = self.problem
        b = shares[:, None] if shares.ndim == 1 else shares
        return problem.link.column().transmit(problem.up_bits[self.rows], problem.down_bits[self.rows], b)

    def law(self, choice: Ints, shares: Floats) -> LatencyLaw:
        return self.problem.law(self.rows[choice], shares)


@dataclass(frozen=True, eq=False)
class LocalAir:
    """Air time near some shares as U + A/b: exact for a fixed SNR (U = 0), tangent to second order's ease for a noise density."""

    steady_s: Floats
    per_share_s: Floats

    @classmethod
    def near(cls, table: SplitTable, shares: Floats) -> LocalAir:
        t = table.transmit_all(shares)
        A = -t.slope * shares[:, None] ** 2
        steady = np.zeros_like(A) if table.problem.link.proportional else t.seconds - A / shares[:, None]
        return cls(steady, A)
