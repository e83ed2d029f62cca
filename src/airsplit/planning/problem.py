r"""Problem: the arrays that every planning method works on, checked once.

K devices choose among R options. Device k at option ℓ with share b of the band needs

    τ_k = a_k c_ℓ + s_ℓ + t_k(ℓ, b) + (c_ℓ/ε_k) X_k

seconds for an iteration: best-case compute time, server time, air time, and a fluctuation, with X_k
the mean of E independent Exp(1) draws. Written as x_k + β_k X_k, a method minimizes E[max_k τ_k] or
a quantile of max_k τ_k, or at a risk s the largest x_k + s β_k: the mean for s = 1, a device
quantile for s the quantile of X. The shares sum to at most one.

Inside `planning` an option is a row of the table, counted from zero; outside, splits count from
one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.blocks import allocate
from airsplit.planning.options import AllowedOptions, OptionTable, lower_hull, pareto_front
from airsplit.system.clock import Clock
from airsplit.system.compute import mean_compute_s
from airsplit.system.fleet import Fleet
from airsplit.system.latency import Fluctuation, LatencyLaw
from airsplit.system.profile import Profile, RawInputs
from airsplit.system.radio import Link

# The longest that an iteration of one device may take; the universe is 4e17 s old.
MOST_S = 1e30


@dataclass(frozen=True, eq=False)
class Problem:
    """One planning problem. Build it with `make_problem`, which checks everything.

    Attributes:
        options: The cost of each option. The solvers look at these, not at the profile.
        allowed: The options that each device may take, within max_split, min_split, memory and
            raw_inputs.
        raw_inputs: The model's inputs that may be sent to the server as they are.
        split: The row of each device for the method "fixed".
        quantile: p of the quantile of max_k τ_k to minimize; None for the mean.
        device_quantile: p of the largest device quantile to minimize; None for the largest mean.
        certify: Whether "expected-max" tightens its lower bound by branch and bound.
    """

    profile: Profile
    fleet: Fleet
    clock: Clock
    batch_size: int
    element_bits: int
    options: OptionTable
    allowed: AllowedOptions
    raw_inputs: RawInputs = "refuse"
    split: Ints | None = None
    quantile: float | None = None
    device_quantile: float | None = None
    certify: bool = True
    seed: int = 0

    def copy(self) -> Problem:
        """Return the same problem with arrays of its own; profile and fleet are read-only."""
        split = None if self.split is None else self.split.copy()
        return replace(self, options=self.options.copy(), allowed=self.allowed.copy(), split=split)

    @property
    def devices(self) -> int:
        """K."""
        return len(self.fleet)

    @property
    def min_split(self) -> int:
        """The shallowest split that a device may take."""
        return int(self.allowed.rows[0]) + 1

    @property
    def max_splits(self) -> Ints:
        """The deepest split that each device may take."""
        return self.allowed.last + 1

    @property
    def blocks(self) -> int | None:
        """Number of resource blocks, or None if shares are continuous."""
        return self.fleet.cell.resource_blocks

    @cached_property
    def link(self) -> Link:
        """The link of every device."""
        return self.fleet.link(downlink=self.clock.downlink)

    @cached_property
    def fluctuation(self) -> Fluctuation:
        """The law of X."""
        return Fluctuation(self.clock.draws)

    @cached_property
    def server_s(self) -> Floats:
        """The server's time for each option while every device uses it."""
        return self.options.server_work * self.clock.server_pace(self.devices)

    @property
    def risk(self) -> float:
        """s in κ = a + s/ε: 1 for the mean, the quantile of X for a device quantile."""
        if self.device_quantile is None:
            return 1.0
        return self.fluctuation.quantile(self.device_quantile)

    def pace(self, risk: float) -> Floats:
        """Return κ_k = a_k + s/ε_k, seconds per MAC at a risk."""
        return self.fleet.seconds_per_mac + risk / self.fleet.fluctuation

    @cached_property
    def front_rows(self) -> Ints:
        """The options worth looking at: the Pareto front over work, busy time and payload.

        An option is left out only for one that every device may take in its place.
        """
        rows = self.allowed.rows
        options = self.options
        # For every pace κ ≥ a the busy time κ c + s = (κ - a) c + (a c + s), so an option with less
        # work and less busy time at the least pace of all is quicker for every device and risk.
        least_pace = float(self.fleet.seconds_per_mac.min())
        least_busy_s = least_pace * options.work + self.server_s
        costs = np.stack([options.work, least_busy_s, options.up_bits, options.down_bits])
        return rows[pareto_front(costs[:, rows], self.allowed.covers(rows))]

    @cached_property
    def hull_rows(self) -> Ints:
        """The options that can be best at a fixed risk.

        At a given τ a device needs the least D/(τ - κ c - s). With s = p (C - c) and p ≤ κ the busy
        time rises linearly with c, and only the lower convex hull of the points (c, D) can attain
        it. All devices must have the same options, and one number must give the payload.
        """
        rows = self.front_rows
        options = self.options
        server_pace = self.clock.server_pace(self.devices)
        is_linear = server_pace == 0 or options.shares_out_one_work
        # Else a deeper option would be quicker for the fastest device, whatever its payload.
        is_rising = server_pace <= float(self.fleet.seconds_per_mac.min())
        has_one_set = len(self.allowed.sets) == 1
        if not (is_linear and is_rising and has_one_set and options.has_one_payload):
            return rows

        # A hull needs its points from left to right; the rows then return to their order.
        by_work = rows[np.argsort(options.work[rows], kind="stable")]
        return np.sort(by_work[lower_hull(options.work[by_work], options.up_bits[by_work])])

    def busy_s(self, rows: Ints, risk: float) -> Floats:
        """Return the time without air time at a risk: κ_k c + server time."""
        return self.pace(risk) * self.options.work[rows] + self.server_s[rows]

    def transmit_s(self, rows: Ints, shares: Floats) -> Floats:
        """Return the air time of each device at its row."""
        return self.link.seconds(self.options.up_bits[rows], self.options.down_bits[rows], shares)

    def needed_shares(self, rows: Ints, seconds: Floats) -> Floats:
        """Return the shares with this air time; above one or infinite if the full band has more."""
        return self.link.share(self.options.up_bits[rows], self.options.down_bits[rows], seconds)

    def compute_s(self, splits: Ints) -> Floats:
        """Return the mean compute time of each device at its split, counted from one."""
        work = self.options.work[np.asarray(splits) - 1]
        return mean_compute_s(work, self.fleet.seconds_per_mac, self.fleet.fluctuation)

    def best_shares(self, splits: Ints) -> Floats:
        """Return the shares that minimize max_k E[τ_k] for given splits, counted from one."""
        return self.allocate(np.asarray(splits) - 1, risk=1.0)

    def allocate(self, rows: Ints, risk: float) -> Floats:
        """Return the shares that minimize max_k (x_k + s β_k), in blocks if the band has them."""
        up_bits = self.options.up_bits[rows]
        down_bits = self.options.down_bits[rows]
        return allocate(self.link, up_bits, down_bits, self.busy_s(rows, risk), self.blocks)

    def law(self, rows: Ints, shares: Floats) -> LatencyLaw:
        """Return the law of an iteration's latency under a plan."""
        work = self.options.work[rows]
        # The same order of sums as in the cost table, so that their values agree.
        best_case_s = self.fleet.seconds_per_mac * work + self.server_s[rows]
        shift_s = best_case_s + self.transmit_s(rows, shares)
        return LatencyLaw(shift_s, work / self.fleet.fluctuation, self.fluctuation)

    def worst_s(self, rows: Ints, shares: Floats, risk: float) -> float:
        """Return max_k (x_k + s β_k), the objective of "exact" and the baselines."""
        compute_s = self.pace(risk) * self.options.work[rows]
        return float((compute_s + self.transmit_s(rows, shares) + self.server_s[rows]).max())

    def objective_s(self, law: LatencyLaw) -> float:
        """Return E[max_k τ_k], or the quantile of max_k τ_k that was asked for."""
        if self.quantile is None:
            return law.expected_max_s
        return law.max_quantile_s(self.quantile)

    def max_s(self, rows: Ints, shares: Floats) -> float:
        """Return the objective of "expected-max" for a plan."""
        return self.objective_s(self.law(rows, shares))
