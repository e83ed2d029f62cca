"""CostTable: the seconds that every option would take every device, K × R."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.options import Mask
from airsplit.planning.problem import Problem
from airsplit.system.latency import LatencyLaw
from airsplit.system.radio import TransmitTime

Entry = TypeVar("Entry", np.float64, np.int64)


def select(table: NDArray[Entry], choice: Ints) -> NDArray[Entry]:
    """Return each device's entry of a K × R table.

    >>> select(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 0])).tolist()
    [2.0, 3.0]
    """
    return np.take_along_axis(table, choice[:, None], axis=1)[:, 0]


@dataclass(frozen=True, eq=False)
class CostTable:
    """The latency τ = x + t(b) + β X of each device at each of R options worth looking at.

    A choice is an index into the R columns for each device.

    Attributes:
        rows: The option behind each column, 1 × R, or K × 1 if each device has one option only.
        shift_s: x without air time, K × R: best-case compute time and server time.
        scale_s: β, K × R: the scale of the fluctuation.
        up_bits: Payload to the server; broadcasts to K × R.
        down_bits: Payload from the server; broadcasts to K × R.
        allowed: Whether the device may take the option, K × R.
    """

    problem: Problem
    rows: Ints
    shift_s: Floats
    scale_s: Floats
    up_bits: Floats
    down_bits: Floats
    allowed: Mask

    @classmethod
    def of(cls, problem: Problem) -> CostTable:
        """Return the table over the Pareto front of a problem's options."""
        front = problem.front_rows
        return cls._at(problem, front[None, :], problem.allowed.mask(front))

    @classmethod
    def _at(cls, problem: Problem, rows: Ints, allowed: Mask) -> CostTable:
        a = problem.fleet.seconds_per_mac[:, None]
        eps = problem.fleet.fluctuation[:, None]
        options = problem.options
        # 1 × R rows broadcast against all devices; K × 1 rows are one option for each device.
        c = options.work[rows]
        return cls(
            problem,
            rows,
            shift_s=a * c + problem.server_s[rows],
            scale_s=c / eps,
            up_bits=options.up_bits[rows],
            down_bits=options.down_bits[rows],
            allowed=allowed,
        )

    def only(self, choice: Ints) -> CostTable:
        """Return the table with one option for each device."""
        rows = self.rows_of(choice)[:, None]
        return self._at(self.problem, rows, np.ones_like(rows, dtype=bool))

    def rows_of(self, choice: Ints) -> Ints:
        """Return the option behind each device's choice."""
        return select(np.broadcast_to(self.rows, self.shift_s.shape), choice)

    def choice_of(self, rows: Ints) -> Ints:
        """Return the choice of given options.

        An option that is not in the table is replaced by the last one before it that the device may
        take, or else by the first that it may take.
        """
        # The columns are in the order of the options.
        columns = np.arange(self.rows.shape[1])
        is_usable = self.allowed & (self.rows <= rows[:, None])
        last: Ints = np.where(is_usable, columns, -1).max(axis=1)
        return np.where(last >= 0, last, self.allowed.argmax(axis=1))

    def air(self, shares: Floats) -> TransmitTime:
        """Return the air time of every option at shares that are K or K × R."""
        b = shares[:, None] if shares.ndim == 1 else shares
        return self.problem.link.column().transmit(self.up_bits, self.down_bits, b)

    def law(self, choice: Ints, shares: Floats) -> LatencyLaw:
        """Return the law of an iteration's latency at a choice."""
        return self.problem.law(self.rows_of(choice), shares)


@dataclass(frozen=True, eq=False)
class LocalAir:
    """Air time near some shares as U + A/b, K × R.

    Exact for a fixed SNR, where U = 0; equal in value and slope for a noise density.

    Attributes:
        steady_s: U.
        per_share_s: A.
    """

    steady_s: Floats
    per_share_s: Floats

    @classmethod
    def near(cls, table: CostTable, shares: Floats) -> LocalAir:
        """Return the model of a table's air time around given shares, one for each device."""
        t = table.air(shares)
        # The slope of U + A/b is -A/b².
        A = -t.slope * shares[:, None] ** 2
        if table.problem.link.is_proportional:
            # Exactly zero, not the rounding error of a difference.
            U = np.zeros_like(A)
        else:
            U = t.seconds - A / shares[:, None]
        return cls(U, A)
