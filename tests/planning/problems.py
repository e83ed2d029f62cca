"""Small planning problems, and a reference that works them out from the raw columns."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from airsplit import Cell, Clock, Fleet, Plan, Profile, plan
from airsplit.core.arrays import Floats, Ints
from airsplit.planning.arguments import make_problem
from airsplit.planning.problem import Problem
from airsplit.system.profile import load_shipped_profile

ALEXNET = load_shipped_profile("alexnet")
VGG16 = load_shipped_profile("vgg16")


def examples(count: int) -> settings:
    """Hypothesis without surprises: the same examples every time, no clock."""
    return settings(
        max_examples=count,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )


@contextmanager
def nothing_averaged() -> Iterator[None]:
    """Plans in here may keep every parameter on the devices without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*nothing is averaged.*")
        yield


def make_profile(
    layer_macs: Sequence[int],
    activation_elements: Sequence[int],
    parameters: Sequence[int] | None = None,
) -> Profile:
    """A profile of rows r1, r2, …; every row has one parameter by default."""
    L = len(layer_macs)
    return Profile(
        [f"r{row + 1}" for row in range(L)],
        layer_macs,  # type: ignore[arg-type]
        matmul_macs=np.cumsum(layer_macs),
        activation_elements=activation_elements,  # type: ignore[arg-type]
        parameters=[1] * L if parameters is None else parameters,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Case:
    """A profile, a fleet, and the options that they are planned with."""

    profile: Profile
    fleet: Fleet
    options: dict[str, Any] = field(default_factory=dict)

    def plan(self, method: str = "exact", **more: Any) -> Plan:
        with nothing_averaged():
            return plan(self.profile, self.fleet, method=method, **(self.options | more))

    def problem(self, **more: Any) -> Problem:
        with nothing_averaged():
            return make_problem(self.profile, self.fleet, **(self.options | more))


@dataclass(frozen=True)
class Reference:
    """A case from its raw columns: the paper's formulas written out, no pruning, no tables.

    Splits count from zero in here.
    """

    case: Case

    @property
    def devices(self) -> int:
        return len(self.case.fleet)

    @property
    def clock(self) -> Clock:
        return self.case.options.get("clock", Clock())

    @cached_property
    def work(self) -> Floats:
        return (
            self.case.profile.macs
            * float(self.case.options.get("batch_size", 1))
            * (1 + self.clock.backward_macs_ratio)
        )

    @cached_property
    def bits(self) -> Floats:
        options = self.case.options
        return (
            self.case.profile.activation_elements
            * float(options.get("batch_size", 1))
            * options.get("element_bits", 32)
        )

    @cached_property
    def server_s(self) -> Floats:
        slots = self.clock.server_parallel or self.devices
        return (
            (self.work[-1] - self.work)
            * self.clock.server_seconds_per_mac
            * max(1, self.devices / slots)
        )

    @cached_property
    def options(self) -> list[list[int]]:
        """The splits of each device within max_split, min_split and memory, without raw inputs."""
        profile, fleet, given = self.case.profile, self.case.fleet, self.case.options
        limit = given.get("max_split") or max(
            (row for row in range(1, len(profile)) if profile.parameters[row:].sum() > 0), default=1
        )
        limits = [limit] * self.devices if isinstance(limit, int) else limit
        memory = 4 * (
            2 * np.cumsum(profile.parameters)
            + given.get("batch_size", 1) * np.cumsum(profile.activation_elements)
        )
        options = []
        for k, deepest in enumerate(limits):
            fits = deepest if fleet.memory_bytes is None else sum(memory <= fleet.memory_bytes[k])
            within = range(given.get("min_split", 1) - 1, min(deepest, fits))
            options.append([row for row in within if not profile.raw_inputs[row]])
        return options

    @cached_property
    def choices(self) -> Ints:
        """Every combination of splits, one a line."""
        return np.array(list(itertools.product(*self.options)))

    def rates_bps(self, share: Floats) -> tuple[Floats, Floats]:
        """Up and down at a share; devices along the last axis."""
        fleet, cell = self.case.fleet, self.case.fleet.cell
        if fleet.full_band_rate_bps is not None:
            down = (
                fleet.full_band_rate_bps
                if fleet.full_band_downlink_bps is None
                else fleet.full_band_downlink_bps
            )
            return share * fleet.full_band_rate_bps, share * down
        assert fleet.distance_m is not None
        gain_db = 10 * np.log10(fleet.fading) - (128.1 + 37.6 * np.log10(fleet.distance_m / 1000))
        up_hz = cell.bandwidth_hz
        down_hz = cell.downlink_bandwidth_hz or up_hz
        return (
            self._rate_bps(up_hz, fleet.transmit_power_dbm + gain_db, share),
            self._rate_bps(down_hz, cell.downlink_power_dbm + gain_db, share),
        )

    def _rate_bps(self, band_hz: float, received_dbm: Floats, share: Floats) -> Floats:
        cell = self.case.fleet.cell
        if cell.noise_dbm is not None:
            snr = 10 ** ((received_dbm - cell.noise_dbm) / 10)
        else:
            snr = 10 ** ((received_dbm - cell.noise_dbm_per_hz) / 10) / (share * band_hz)
        return share * band_hz * np.log1p(snr) / math.log(2)

    def air_s(self, rows: Ints, share: Floats) -> Floats:
        up, down = self.rates_bps(share)
        return self.bits[rows] / up + (self.bits[rows] / down if self.clock.downlink else 0.0)

    def busy_s(self, rows: Ints, risk: float = 1.0) -> Floats:
        fleet = self.case.fleet
        return (
            self.work[rows] * (fleet.seconds_per_mac + risk / fleet.fluctuation)
            + self.server_s[rows]
        )

    def latency_s(self, rows: Ints, share: Floats, risk: float = 1.0) -> float:
        """max_k of the mean, or of the quantile that `risk` stands for."""
        return float((self.busy_s(rows, risk) + self.air_s(rows, share)).max())

    def needed_share(self, rows: Ints, spare_s: Floats) -> Floats:
        """Return the least share with at most `spare_s` of air time, by bisection.

        Infinite where the whole band is not enough.
        """
        low, high = np.full(spare_s.shape, -80.0), np.zeros(spare_s.shape)
        enough = self.air_s(rows, np.exp(high)) <= spare_s
        for _ in range(60):
            middle = 0.5 * (low + high)
            slow = self.air_s(rows, np.exp(middle)) > spare_s
            low, high = np.where(slow, middle, low), np.where(slow, high, middle)
        return np.where(enough, np.exp(high), np.inf)

    def band_needed(self, seconds: float, risk: float = 1.0) -> float:
        """Σ_k min_ℓ q_k(τ): above one, no plan at all finishes by `seconds`."""
        need = np.full(self.devices, np.inf)
        for row in range(len(self.case.profile)):
            rows = np.full(self.devices, row)
            offered = np.array([row in splits for splits in self.options])
            share = self.needed_share(rows, seconds - self.busy_s(rows, risk))
            need = np.where(offered, np.minimum(need, share), need)
        return float(need.sum())

    def least_over_blocks(self, blocks: int) -> float:
        """Return the least mean latency over all splits and all ways to hand out the blocks."""
        ends = itertools.combinations(range(1, blocks), self.devices - 1)
        shares = np.array([np.diff([0, *cut, blocks]) for cut in ends]) / blocks
        return min(
            float((self.busy_s(rows) + self.air_s(rows, shares)).max(axis=1).min())
            for rows in self.choices
        )


def powers(low: float, high: float) -> st.SearchStrategy[float]:
    """Positive numbers spread evenly over their orders of magnitude."""
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


def columns(values: st.SearchStrategy[float], devices: int) -> st.SearchStrategy[list[float]]:
    return st.lists(values, min_size=devices, max_size=devices)


@st.composite
def profiles(draw: st.DrawFn, most_rows: int = 4) -> Profile:
    L = draw(st.integers(1, most_rows))
    work = draw(st.lists(st.just(0) | powers(2, 9).map(int), min_size=L, max_size=L))
    sizes = draw(st.lists(powers(0, 6).map(int), min_size=L, max_size=L))
    parameters = draw(st.lists(st.integers(0, 1000), min_size=L, max_size=L))
    return make_profile(work, sizes, parameters)


@st.composite
def fleets(draw: st.DrawFn, most_devices: int = 3, blocks: int | None = None) -> Fleet:
    """One to three devices: measured rates, one noise power, or a noise density."""
    K = draw(st.integers(1, most_devices))
    pace = np.array(draw(columns(powers(-11, -8), K)))
    fluctuation = np.array(draw(columns(powers(-1, 2), K))) / pace
    kind = draw(st.sampled_from(["measured", "power", "density"]))
    if kind == "measured":
        rates = draw(columns(powers(4, 9), K))
        return Fleet(
            seconds_per_mac=pace,
            fluctuation=fluctuation,
            full_band_rate_bps=rates,
            cell=Cell(resource_blocks=blocks),
        )  # type: ignore[arg-type]
    noise = (
        {"noise_dbm": draw(st.floats(-120, -90))}
        if kind == "power"
        else {"noise_dbm_per_hz": draw(st.floats(-180, -150))}
    )
    cell = Cell(bandwidth_hz=draw(powers(5, 8)), resource_blocks=blocks, **noise)
    distance, fading = draw(columns(st.floats(10.0, 600.0), K)), draw(columns(powers(-1, 0.5), K))
    return Fleet(
        seconds_per_mac=pace, fluctuation=fluctuation, distance_m=distance, fading=fading, cell=cell
    )  # type: ignore[arg-type]


clocks = st.builds(
    Clock,
    barrier=st.sampled_from(["iteration", "round"]),
    iterations_per_round=st.integers(1, 5),
    downlink=st.booleans(),
    backward_macs_ratio=st.sampled_from([0.0, 2.0]),
    server_seconds_per_mac=st.sampled_from([0.0, 1e-12, 1e-9, 1e-7]),
    server_parallel=st.sampled_from([None, 1, 2]),
)


@st.composite
def cases(
    draw: st.DrawFn, most_devices: int = 3, most_rows: int = 4, blocks: int | None = None
) -> Case:
    """Tiny problems with every option that changes the optimum."""
    profile, fleet = draw(profiles(most_rows)), draw(fleets(most_devices, blocks))
    K, L = len(fleet), len(profile)
    options: dict[str, Any] = {"clock": draw(clocks), "batch_size": draw(st.integers(1, 8))}
    limit = draw(st.sampled_from(["none", "one", "each"]))
    if limit == "one":
        options["max_split"] = draw(st.integers(1, L))
    if limit == "each":
        options["max_split"] = draw(st.lists(st.integers(1, L), min_size=K, max_size=K))
    if limit != "none":
        options["min_split"] = draw(st.integers(1, int(np.min(options["max_split"]))))
    shallowest = options.get("min_split", 1)
    if draw(st.booleans()):
        # The last split of every device's range stays, so that each has one.
        last = int(np.min(options["max_split"])) if limit != "none" else profile.default_max_split()
        raw = [["context"] if draw(st.booleans()) else [] for _ in range(L)]
        raw[last - 1] = []
        profile = replace(profile, raw_inputs=raw)
        shallowest = next(split for split in range(shallowest, L + 1) if not raw[split - 1])
    if draw(st.booleans()):
        first = profile.device_memory_bytes(options["batch_size"])[shallowest - 1]
        fleet = fleet.replace(
            memory_bytes=[first * factor for factor in draw(columns(st.floats(1.0, 20.0), K))]
        )
    return Case(profile, fleet, options)


def random_plans(case: Case, rng: np.random.Generator, count: int) -> list[tuple[Ints, Floats]]:
    """Rows and shares drawn at random within the limits."""
    options = Reference(case).options
    drawn = []
    for _ in range(count):
        share = rng.exponential(size=len(options)) + 1e-3
        drawn.append((np.array([rng.choice(rows) for rows in options]), share / share.sum()))
    return drawn
