"""Fleet: K devices with their clocks and channels, held by column."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from airsplit.core.arrays import Floats
from airsplit.core.declared_settings import Rule, check_arguments, flag, number, whole_number
from airsplit.core.errors import InvalidValue, require_number, require_numbers, show
from airsplit.core.files import find_duplicate, parse_table, read_table, write_text
from airsplit.core.randomness import generator
from airsplit.core.units import dbm_to_watts
from airsplit.system.cell import Cell
from airsplit.system.fleet_csv import FleetTable, format_fleet_table, parse_fleet_table
from airsplit.system.radio import Direction, Link
from airsplit.system.traces import Trace

# The numeric columns, with their ranges as arguments of `require_numbers`.
_RANGES: dict[str, dict[str, Any]] = {
    "seconds_per_mac": {"above": 0},
    "fluctuation": {"above": 0},
    "distance_m": {"above": 0},
    "fading": {"above": 0},
    "full_band_rate_bps": {"above": 0},
    "full_band_downlink_bps": {"above": 0},
    "memory_bytes": {"above": 0},
    "transmit_power_dbm": {"low": -400, "high": 400},
    "joules_per_mac": {"low": 0},
}

# A channel below this is dead: no payload would ever arrive, and times would overflow.
_LEAST_RATE_BPS = 1e-6


def _require_pace(field: str, value: object) -> None:
    """Raise unless a pace is one number or a pair of bounds."""
    if np.ndim(value) == 0:  # type: ignore[arg-type]
        require_number(field, value, above=0)
        return
    bounds = require_numbers(field, value, above=0)
    if bounds.shape != (2,) or bounds[0] > bounds[1]:
        raise InvalidValue(
            f"{field} must be one number or (low, high), got {show(bounds.tolist())}"
        )


PACE = Rule("number > 0, or [low, high]", _require_pace)


@dataclass(frozen=True)
class Device:
    """One device k of a fleet: a row of its columns.

    Attributes:
        name: Its number, counted from zero, if the fleet has no names.
        seconds_per_mac: a_k, best-case time of a multiply-add in s.
        fluctuation: ε_k in MAC/s; c multiply-adds take c/ε_k more on average than at best.
        full_band_rate_bps: R_k(1) of the uplink.
        distance_m: Distance to the server, if the channel follows from it.
        memory_bytes: Memory for training; None if it is no limit.
        joules_per_mac: Energy of a multiply-add, if known.

    >>> fleet = Fleet(seconds_per_mac=1e-9, fluctuation=2e9, full_band_rate_bps=[8e6, 4e6])
    >>> fleet[1].name, fleet[1].full_band_rate_bps
    ('1', 4000000.0)
    """

    name: str
    seconds_per_mac: float
    fluctuation: float
    full_band_rate_bps: float
    distance_m: float | None
    memory_bytes: float | None
    joules_per_mac: float | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Fleet:
    """K devices; each column has one entry for each, or is one number for all.

    A device needs τ^cp_k = c (a_k + X/ε_k) seconds for c multiply-adds, with X ~ Exp(1), and sends
    at R_k(b_k) with its share b_k of the band. The channel comes from one of three sources:
    `distance_m` with `fading`, measured rates, or a `trace`.

    Attributes:
        seconds_per_mac: a_k, best-case time of a multiply-add in s.
        fluctuation: ε_k in MAC/s; the mean extra time of c multiply-adds is c/ε_k.
        distance_m: Distance to the server, from which the path loss follows.
        fading: |g̃_k|², the factor of small-scale fading on the power gain.
        transmit_power_dbm: p_k.
        full_band_rate_bps: Measured R_k(1); then R_k(b) = b R_k(1).
        full_band_downlink_bps: The same of the downlink; None if it is as fast as the uplink.
        memory_bytes: No device is offered a split that needs more; None for no limit.
        joules_per_mac: Energy of a multiply-add, for the energy of computing.
        name: Distinct names of the devices; None for their numbers.
        trace: Rates over time, to be replayed.
        cell: The radio that all share; it matters for `distance_m`, and for resource blocks.

    >>> fleet = Fleet(seconds_per_mac=[1e-9, 2e-9], fluctuation=2e9, full_band_rate_bps=8e6)
    >>> len(fleet), fleet.fluctuation.tolist(), fleet.rate_bps([0.5, 0.25]).tolist()
    (2, [2000000000.0, 2000000000.0], [4000000.0, 2000000.0])
    """

    # Numbers and lists are accepted, too: `__post_init__` makes arrays of K of them.
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
        columns: dict[str, Floats] = {}
        for column, range_ in _RANGES.items():
            if getattr(self, column) is None:
                continue
            values = require_numbers(f"fleet.{column}", getattr(self, column), **range_)
            if values.ndim > 1:
                raise InvalidValue(
                    f"fleet.{column} must be a number or a list of numbers, "
                    f"got {values.ndim} dimensions"
                )
            columns[column] = values
        lengths = {column: len(values) for column, values in columns.items() if values.ndim == 1}
        if self.name is not None:
            object.__setattr__(self, "name", _convert_names(self.name))
            lengths["name"] = len(self.name)
        if self.trace is not None:
            lengths["trace"] = self.trace.devices

        K = next(iter(lengths.values()), 1)
        for column, length in lengths.items():
            if length != K:
                first = next(iter(lengths))
                raise InvalidValue(
                    f"fleet.{column} has {length} entries, but fleet.{first} has {K}; "
                    "give one for each device"
                )
        if K == 0:
            raise InvalidValue("fleet must have at least one device, got empty columns")

        # One number for all stays one number in memory: a broadcast array has stride 0.
        for column, values in columns.items():
            object.__setattr__(self, column, np.broadcast_to(values, (K,)))

    def _check_sources(self) -> None:
        """Raise unless the channels come from exactly one source, and what all need is there."""
        sources = [
            source
            for source in ("distance_m", "full_band_rate_bps", "trace")
            if getattr(self, source) is not None
        ]
        if not sources:
            raise InvalidValue(
                "fleet needs distance_m, full_band_rate_bps or a trace to know its channels, "
                "got none"
            )
        if len(sources) > 1:
            raise InvalidValue(
                f"fleet.{sources[0]} and fleet.{sources[1]} exclude each other; give one"
            )

        for column in ("seconds_per_mac", "fluctuation", "fading", "transmit_power_dbm"):
            if getattr(self, column) is None:
                raise InvalidValue(
                    f"fleet.{column} must be a number or a list of numbers, got None"
                )
        for column, kind in (("cell", Cell), ("trace", Trace | None)):
            value = getattr(self, column)
            if not isinstance(value, kind):
                raise InvalidValue(
                    f"fleet.{column} must be an airsplit.{column.capitalize()}, got {show(value)}"
                )

        if self.distance_m is None and np.any(require_numbers("fleet.fading", self.fading) != 1.0):
            raise InvalidValue(
                "fleet.fading belongs to fleet.distance_m; measured rates include fading already"
            )
        if self.full_band_downlink_bps is not None and self.full_band_rate_bps is None:
            raise InvalidValue(
                "fleet.full_band_downlink_bps needs fleet.full_band_rate_bps; give both"
            )

    def __len__(self) -> int:
        return len(self.seconds_per_mac)

    def __getitem__(self, k: int) -> Device:
        # As in a list, negative numbers count from the end.
        if not -len(self) <= k < len(self):
            raise IndexError(f"device {k} of a fleet of {len(self)}")
        return self._device(k % len(self), self.rate_bps(1.0))

    def __iter__(self) -> Iterator[Device]:
        # Once for the fleet: a rate takes a pass over all columns.
        rates_bps = self.rate_bps(1.0)
        return (self._device(k, rates_bps) for k in range(len(self)))

    def _device(self, k: int, full_band_rate_bps: Floats) -> Device:
        def entry(column: Floats | None) -> float | None:
            return None if column is None else float(column[k])

        return Device(
            name=self.device_name(k),
            seconds_per_mac=float(self.seconds_per_mac[k]),
            fluctuation=float(self.fluctuation[k]),
            full_band_rate_bps=float(full_band_rate_bps[k]),
            distance_m=entry(self.distance_m),
            memory_bytes=entry(self.memory_bytes),
            joules_per_mac=entry(self.joules_per_mac),
        )

    def device_name(self, k: int) -> str:
        """Return the name of device k, or its number if the fleet has no names."""
        return str(k) if self.name is None else self.name[k]

    def replace(self, **changes: Any) -> Fleet:
        """Return a variant of this fleet."""
        return replace(self, **changes)

    def at(self, time_s: float) -> Fleet:
        """Return this fleet with the rates that its trace has at a time."""
        if self.trace is None:
            raise InvalidValue(
                "fleet.at(t) needs a trace; give one with Fleet(trace=Trace.read(path), …)"
            )
        return replace(self, trace=None, full_band_rate_bps=self.trace.at(time_s))

    def redraw_fading(self, seed: int, round_number: int) -> Fleet:
        """Return this fleet with the fading of a round, |g̃_k|² ~ Exp(1)."""
        if self.distance_m is None:
            raise InvalidValue(
                "fleet.redraw_fading needs fleet.distance_m; measured rates include fading already"
            )
        # The round is part of the address, so that a resumed run draws the same.
        fading = generator(seed, "fading", round_number).exponential(size=len(self))
        return replace(self, fading=fading)

    def link(self, *, downlink: bool = False) -> Link:
        """Return the K links; with `downlink`, in both directions."""
        if self.trace is not None:
            # Without a time the trace's first row counts.
            return self.at(float(self.trace.time_s[0])).link(downlink=downlink)

        if self.full_band_rate_bps is not None:
            measured = Direction(self.full_band_rate_bps)
            if not downlink:
                return Link(measured)
            if self.full_band_downlink_bps is None:
                return Link(measured, measured)
            return Link(measured, Direction(self.full_band_downlink_bps))

        assert self.distance_m is not None  # noqa: S101 - see _check_sources
        cell = self.cell
        # Both ways have one gain, since the channel is reciprocal.
        gain = cell.channel_gain(self.distance_m, self.fading)
        up = cell.direction(cell.bandwidth_hz, dbm_to_watts(self.transmit_power_dbm) * gain)
        _require_live_channels("uplink", up, self.distance_m)
        if not downlink:
            return Link(up)

        down_hz = cell.downlink_bandwidth_hz or cell.bandwidth_hz
        down = cell.direction(down_hz, dbm_to_watts(cell.downlink_power_dbm) * gain)
        _require_live_channels("downlink", down, self.distance_m)
        return Link(up, down)

    def rate_bps(self, shares: ArrayLike) -> Floats:
        """Return the uplink rates R_k(b_k).

        Args:
            shares: b_k of each device, or one share for all.

        >>> fleet = Fleet(seconds_per_mac=1e-9, fluctuation=2e9, full_band_rate_bps=[1e6, 2e6])
        >>> fleet.rate_bps([0.5, 0.5]).tolist()
        [500000.0, 1000000.0]
        """
        b = require_numbers("shares", shares, low=0, high=1)
        if b.shape not in ((), (len(self),)):
            raise InvalidValue(
                f"shares must be {len(self)} numbers, one for each device, got shape {b.shape}"
            )
        return self.link().up.rate_bps(np.broadcast_to(b, (len(self),)))

    @classmethod
    @check_arguments("fleet")
    def sample(
        cls,
        devices: Annotated[int, whole_number(low=1, high=10**8)],
        *,
        seed: Annotated[int, whole_number(low=0)],
        mean_distance_m: Annotated[float, number(above=0)] = 200.0,
        distance_spread: Annotated[float, number(low=0, below=1)] = 0.0,
        seconds_per_mac: Annotated[float | tuple[float, float], PACE] = (0.2e-9, 1e-9),
        fluctuation_ratio: Annotated[float, number(above=0)] = 2.0,
        fading: Annotated[bool, flag()] = True,
        joules_per_mac: Annotated[float | None, number(low=0)] = None,
        cell: Cell | None = None,
    ) -> Fleet:
        """Draw a fleet as in the paper's experiments.

        Each column has its own generator, so that device k is the same in a fleet of 20 and of 100.

        Args:
            devices: Number K of devices.
            seed: Random seed of all columns.
            mean_distance_m: Mean distance to the server.
            distance_spread: Distances are uniform in mean · (1 ± spread).
            seconds_per_mac: Time a_k of a multiply-add: one for all, or bounds between which it is
                uniform.
            fluctuation_ratio: Fluctuation ε_k as a multiple of 1/a_k.
            fading: Whether the fading |g̃_k|² is Exp(1); else it is 1.
            joules_per_mac: Energy of a multiply-add, for all.
            cell: The radio; the paper's by default.

        >>> small, large = Fleet.sample(2, seed=7), Fleet.sample(100, seed=7)
        >>> bool((small.seconds_per_mac == large.seconds_per_mac[:2]).all())
        True
        """
        low, high = np.broadcast_to(seconds_per_mac, (2,)).tolist()
        a = generator(seed, "seconds_per_mac").uniform(low, high, devices)
        spread = generator(seed, "distance_m").uniform(-distance_spread, distance_spread, devices)
        gain: ArrayLike = 1.0
        if fading:
            gain = generator(seed, "fading").exponential(size=devices)
        return cls(
            seconds_per_mac=a,
            fluctuation=fluctuation_ratio / a,
            distance_m=mean_distance_m * (1 + spread),
            fading=gain,  # type: ignore[arg-type]
            joules_per_mac=joules_per_mac,  # type: ignore[arg-type]
            cell=cell or Cell(),
        )

    @classmethod
    def read(cls, path: str | os.PathLike[str], cell: Cell | None = None) -> Fleet:
        """Read a CSV file: a header that names columns in any order, then one device a line."""
        rows = read_table(path, what="fleet file")
        return cls._from_table(parse_fleet_table(rows, f"fleet file {str(path)!r}", _RANGES), cell)

    @classmethod
    def parse(cls, text: str, cell: Cell | None = None) -> Fleet:
        """Return the fleet that the text of a CSV file describes.

        >>> Fleet.parse("seconds_per_mac,fluctuation,distance_m\\n1e-9,2e9,far\\n")
        Traceback (most recent call last):
        ...
        airsplit.core.errors.FileProblem: fleet, line 2: distance_m must be a number, got 'far'
        """
        table = parse_fleet_table(parse_table(text, "fleet"), "fleet", _RANGES)
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
        for column in _RANGES:
            values = getattr(self, column)
            # Measured rates include fading, so that a fleet of them has none to write.
            is_redundant = column == "fading" and self.distance_m is None
            if values is not None and not is_redundant:
                # `repr` gives the shortest text that reads back as the same double.
                columns[column] = [repr(value) for value in values.tolist()]
        write_text(path, format_fleet_table(columns))


def _require_live_channels(name: str, direction: Direction, distance_m: Floats) -> None:
    """Raise if a device has practically no rate even with the whole band."""
    full_rate = direction.rate_bps(np.ones_like(distance_m))
    dead = np.flatnonzero(full_rate < _LEAST_RATE_BPS)
    if len(dead):
        k = int(dead[0])
        raise InvalidValue(
            f"fleet device {k} at {distance_m[k]:g} m has {full_rate[k]:.3g} bit/s of {name} "
            "with the whole band; leave it out or bring it nearer"
        )


def _convert_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of devices; raise if one is empty, padded or repeated."""
    is_list = isinstance(names, Sequence | np.ndarray) and not isinstance(names, str)
    if not is_list or not all(
        isinstance(name, str) and name and name == name.strip() for name in names
    ):
        raise InvalidValue(
            "fleet.name must be a list of strings, none empty or padded with spaces, "
            f"got {show(names)}"
        )
    repeated = find_duplicate(names)
    if repeated is not None:
        name, first, second = repeated
        raise InvalidValue(
            f"fleet.name must not repeat a name, got {show(name)} for devices {first} and {second}"
        )
    # Names from an array are numpy's strings, which show otherwise in messages and files.
    return tuple(str(name) for name in names)
