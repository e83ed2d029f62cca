"""Fleet: K devices with their clocks and channels, held by column."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from airsplit.core.arrays import Floats
from airsplit.core.errors import (
    InvalidValue,
    require_integer,
    require_number,
    require_numbers,
    show,
)
from airsplit.core.files import find_duplicate, parse_table, read_table, write_text
from airsplit.core.randomness import generator
from airsplit.core.units import dbm_to_watts
from airsplit.system.cell import Cell
from airsplit.system.fleet_csv import FleetTable, format_fleet_table, parse_fleet_table
from airsplit.system.radio import Direction, Link
from airsplit.system.traces import Trace


@dataclass(frozen=True)
class Device:
    """One row of a fleet."""

    name: str
    seconds_per_mac: float
    fluctuation: float
    full_band_rate_bps: float
    distance_m: float | None
    memory_bytes: float | None
    joules_per_mac: float | None


_POSITIVE = (
    "seconds_per_mac",
    "fluctuation",
    "distance_m",
    "fading",
    "full_band_rate_bps",
    "full_band_downlink_bps",
    "memory_bytes",
)
COLUMNS = (*_POSITIVE, "transmit_power_dbm", "joules_per_mac")


@dataclass(frozen=True, eq=False, kw_only=True)
class Fleet:
    """K devices.  Every column is an array of K or one number for all; all numbers: K = 1.

    Channels come from `distance_m` and `fading` (the factor |g̃|² on the power gain), or are measured:
    `full_band_rate_bps` (and `full_band_downlink_bps`, else the same), with R_k(b) = b · rate_k; or replayed from a
    `trace`.
    A split that needs more than `memory_bytes` is not offered to that device.
    """

    seconds_per_mac: Floats
    fluctuation: Floats
    distance_m: Floats | None = None
    fading: Floats = field(default=1.0)  # type: ignore[arg-type]
    transmit_power_dbm: Floats = field(default=10.0)  # type: ignore[arg-type]
    full_band_rate_bps: Floats | None = None
    full_band_downlink_bps: Floats | None = None
    memory_bytes: Floats | None = None
    joules_per_mac: Floats | None = None
    name: Sequence[str] | None = None
    trace: Trace | None = None
    cell: Cell = field(default_factory=Cell)

    def __post_init__(self) -> None:
        self._check_sources()
        columns = {c: _column(c, getattr(self, c)) for c in COLUMNS if getattr(self, c) is not None}
        lengths = {c: len(v) for c, v in columns.items() if v.ndim == 1}
        if self.name is not None:
            object.__setattr__(self, "name", _names(self.name))
            lengths["name"] = len(self.name)
        if self.trace is not None:
            lengths["trace"] = self.trace.devices
        K = next(iter(lengths.values()), 1)
        for column, length in lengths.items():
            if length != K:
                first = next(iter(lengths))
                raise InvalidValue(
                    f"fleet.{column} has {length} entries, but fleet.{first} has {K}; give one a device"
                )
        if K == 0:
            raise InvalidValue("fleet must have at least one device, got empty columns")
        for column, values in columns.items():
            object.__setattr__(self, column, np.broadcast_to(values, (K,)))

    def _check_sources(self) -> None:
        given = [
            n for n in ("distance_m", "full_band_rate_bps", "trace") if getattr(self, n) is not None
        ]
        if not given:
            raise InvalidValue(
                "fleet needs distance_m, full_band_rate_bps or a trace to know its channels, got none"
            )
        if len(given) > 1:
            raise InvalidValue(
                f"fleet.{given[0]} and fleet.{given[1]} exclude each other; give one"
            )
        for column in ("seconds_per_mac", "fluctuation", "fading", "transmit_power_dbm"):
            if getattr(self, column) is None:
                raise InvalidValue(
                    f"fleet.{column} must be a number or a list of numbers, got None"
                )
        for column, kind in (("cell", Cell), ("trace", Trace | None)):
            if not isinstance(getattr(self, column), kind):
                raise InvalidValue(
                    f"fleet.{column} must be an airsplit.{column.capitalize()}, got {show(getattr(self, column))}"
                )
        if self.distance_m is None and np.any(require_numbers("fleet.fading", self.fading) != 1.0):
            raise InvalidValue(
                "fleet.fading belongs to fleet.distance_m; measured rates have it in them already"
            )
        if self.full_band_downlink_bps is not None and self.full_band_rate_bps is None:
            raise InvalidValue(
                "fleet.full_band_downlink_bps needs fleet.full_band_rate_bps beside it"
            )

    def __len__(self) -> int:
        return len(self.seconds_per_mac)

    def __getitem__(self, k: int) -> Device:
        if not -len(self) <= k < len(self):
            raise IndexError(f"device {k} of a fleet of {len(self)}")
        return self._device(k % len(self), self.rate_bps(1.0))

    def __iter__(self) -> Iterator[Device]:
        rates = self.rate_bps(1.0)  # once for all, not once a device
        return (self._device(k, rates) for k in range(len(self)))

    def _device(self, k: int, full_band_rates: Floats) -> Device:
        def entry(column: Floats | None) -> float | None:
            return None if column is None else float(column[k])

        return Device(
            name=self.device_name(k),
            seconds_per_mac=float(self.seconds_per_mac[k]),
            fluctuation=float(self.fluctuation[k]),
            full_band_rate_bps=float(full_band_rates[k]),
            distance_m=entry(self.distance_m),
            memory_bytes=entry(self.memory_bytes),
            joules_per_mac=entry(self.joules_per_mac),
        )

    def device_name(self, k: int) -> str:
        """The name of device k; its number where it has none."""
        return str(k) if self.name is None else self.name[k]

    def replace(self, **changes: Any) -> Fleet:
        """A variant of this fleet."""
        return replace(self, **changes)

    def at(self, time_s: float) -> Fleet:
        """This fleet with the channels that its trace recorded at a time."""
        if self.trace is None:
            raise InvalidValue(
                "fleet.at(t) needs a trace; give one with Fleet(trace=Trace.read(path), …)"
            )
        return replace(self, trace=None, full_band_rate_bps=self.trace.at(time_s))

    def redraw_fading(self, seed: int, round_number: int) -> Fleet:
        """This fleet with the fading of one round, drawn anew: |g̃|² ~ Exp(1)."""
        if self.distance_m is None:
            raise InvalidValue(
                "fleet.redraw_fading needs fleet.distance_m; measured rates have their fading in them already"
            )
        return replace(
            self, fading=generator(seed, "fading", round_number).exponential(size=len(self))
        )

    def link(self, *, downlink: bool = False) -> Link:
        """The K links: up, and down when it counts."""
        if self.trace is not None:
            return self.at(float(self.trace.time_s[0])).link(downlink=downlink)
        if self.full_band_rate_bps is not None:
            back = (
                self.full_band_rate_bps
                if self.full_band_downlink_bps is None
                else self.full_band_downlink_bps
            )
            return Link(Direction(self.full_band_rate_bps), Direction(back) if downlink else None)
        assert self.distance_m is not None  # noqa: S101 - see _check_sources
        cell = self.cell
        gain = cell.channel_gain(self.distance_m, self.fading)
        up = cell.direction(cell.bandwidth_hz, dbm_to_watts(self.transmit_power_dbm) * gain)
        _require_channels("uplink", up, self.distance_m)
        if not downlink:
            return Link(up)
        down_hz = cell.downlink_bandwidth_hz or cell.bandwidth_hz
        down = cell.direction(down_hz, dbm_to_watts(cell.downlink_power_dbm) * gain)
        _require_channels("downlink", down, self.distance_m)
        return Link(up, down)

    def rate_bps(self, shares: ArrayLike) -> Floats:
        """K uplink rates for K shares.

        >>> Fleet(seconds_per_mac=1e-9, fluctuation=2e9, full_band_rate_bps=[1e6, 2e6]).rate_bps([0.5, 0.5]).tolist()
        [500000.0, 1000000.0]
        """
        b = require_numbers("shares", shares, low=0, high=1)
        if b.shape not in ((), (len(self),)):
            raise InvalidValue(
                f"shares must be {len(self)} numbers, one a device, got shape {b.shape}"
            )
        return self.link().up.rate_bps(np.broadcast_to(b, (len(self),)))

    @classmethod
    def sample(
        cls,
        devices: int,
        *,
        seed: int,
        mean_distance_m: float = 200.0,
        distance_spread: float = 0.0,
        seconds_per_mac: float | tuple[float, float] = (0.2e-9, 1e-9),
        fluctuation_ratio: float = 2.0,
        fading: bool = True,
        joules_per_mac: float | None = None,
        cell: Cell | None = None,
    ) -> Fleet:
        """A random fleet as in the paper's experiments.

        a is uniform, ε = ratio / a, distance uniform in mean·(1 ± spread), fading Exp(1); joules_per_mac is the same for all.
        Each column has its own generator, so that device k is the same in a fleet of 20 and of 100.

        >>> small, large = Fleet.sample(2, seed=7), Fleet.sample(100, seed=7)
        >>> bool((small.seconds_per_mac == large.seconds_per_mac[:2]).all())
        True
        """
        require_integer("fleet.devices", devices, low=1)
        require_integer("fleet.seed", seed, low=0)
        require_number("fleet.mean_distance_m", mean_distance_m, above=0)
        require_number("fleet.distance_spread", distance_spread, low=0, below=1)
        require_number("fleet.fluctuation_ratio", fluctuation_ratio, above=0)
        low, high = _pace_range(seconds_per_mac)
        a = generator(seed, "seconds_per_mac").uniform(low, high, devices)
        spread = generator(seed, "distance_m").uniform(-distance_spread, distance_spread, devices)
        exp1 = generator(seed, "fading").exponential(size=devices) if fading else 1.0
        return cls(
            seconds_per_mac=a,
            fluctuation=fluctuation_ratio / a,
            distance_m=mean_distance_m * (1 + spread),
            fading=exp1,  # type: ignore[arg-type]
            joules_per_mac=joules_per_mac,  # type: ignore[arg-type]
            cell=cell or Cell(),
        )

    @classmethod
    def read(cls, path: str | os.PathLike[str], cell: Cell | None = None) -> Fleet:
        """Read a CSV file: a header that names columns in any order, then one device a line."""
        rows = read_table(path, what="fleet file")
        return cls._from_table(parse_fleet_table(rows, f"fleet file {str(path)!r}", COLUMNS), cell)

    @classmethod
    def parse(cls, text: str, cell: Cell | None = None) -> Fleet:
        """Return the fleet that the text of a CSV file describes.

        >>> Fleet.parse("seconds_per_mac,fluctuation,full_band_rate_bps\\n1e-9,2e9,fast\\n")
        Traceback (most recent call last):
        ...
        airsplit.core.errors.FileProblem: fleet, line 2: full_band_rate_bps must be a number, got 'fast'
        """
        table = parse_fleet_table(parse_table(text, "fleet"), "fleet", COLUMNS)
        return cls._from_table(table, cell)

    @classmethod
    def _from_table(cls, table: FleetTable, cell: Cell | None) -> Fleet:
        with table.locate_errors():
            return cls(**table.columns, cell=cell or Cell())

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the columns that are set; `read` gives the same fleet back, to the last bit."""
        if self.trace is not None:
            raise InvalidValue(
                "fleet.trace has no place in a fleet file; write fleet.at(t) instead"
            )
        columns: dict[str, Sequence[str]] = {} if self.name is None else {"name": self.name}
        for column in COLUMNS:
            values = getattr(self, column)
            # Fading without a distance is refused on reading: measured rates contain it.
            is_redundant = column == "fading" and self.distance_m is None
            if values is not None and not is_redundant:
                columns[column] = [repr(value) for value in values.tolist()]
        write_text(path, format_fleet_table(columns))


def _require_channels(way: str, direction: Direction, distance_m: Floats) -> None:
    full_rate = direction.rate_bps(np.ones_like(distance_m))
    dead = np.flatnonzero(full_rate < 1e-6)
    if len(dead):
        k = int(dead[0])
        raise InvalidValue(
            f"fleet device {k} at {distance_m[k]:g} m has {full_rate[k]:.3g} bit/s of {way} with the whole band; "
            "leave it out or bring it nearer"
        )


def _column(column: str, values: ArrayLike) -> Floats:
    above = 0.0 if column in _POSITIVE else None
    low = {"joules_per_mac": 0.0, "transmit_power_dbm": -400.0}.get(column)
    high = 400.0 if column == "transmit_power_dbm" else None
    numbers = require_numbers(f"fleet.{column}", values, above=above, low=low, high=high)
    if numbers.ndim > 1:
        raise InvalidValue(
            f"fleet.{column} must be a number or a list of numbers, got {numbers.ndim} dimensions"
        )
    return numbers


def _names(names: Sequence[str]) -> tuple[str, ...]:
    listed = isinstance(names, Sequence | np.ndarray) and not isinstance(names, str)
    if not listed or not all(isinstance(n, str) and n and n == n.strip() for n in names):
        raise InvalidValue(
            f"fleet.name must be a list of strings, not empty and not padded, got {show(names)}"
        )
    if (repeated := find_duplicate(names)) is not None:
        name, one, other = repeated
        raise InvalidValue(
            f"fleet.name must not repeat a name, got {show(name)} for devices {one} and {other}"
        )
    return tuple(str(n) for n in names)


def _pace_range(seconds_per_mac: float | tuple[float, float]) -> tuple[float, float]:
    if np.ndim(seconds_per_mac) == 0:
        pace = require_number("fleet.seconds_per_mac", seconds_per_mac, above=0)
        return pace, pace
    bounds = require_numbers("fleet.seconds_per_mac", seconds_per_mac, above=0)
    if bounds.shape != (2,) or bounds[0] > bounds[1]:
        raise InvalidValue(
            f"fleet.seconds_per_mac must be one number or (low, high), got {show(bounds.tolist())}"
        )
    return float(bounds[0]), float(bounds[1])
