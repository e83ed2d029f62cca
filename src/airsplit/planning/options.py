"""Options: what a device may do in an iteration, as rows of a table of costs.

A split is one kind of option. Others, such as a split with compressed activations, are further rows
of the same table. The solvers see rows and their costs, never the layers behind them, and rely on
no order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from airsplit.core.arrays import Floats, Ints
from airsplit.system.clock import Clock
from airsplit.system.profile import Profile

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class OptionTable:
    """The cost of each of R options in one iteration of a device; every column has R entries.

    Attributes:
        work: MACs on the device: c. The backward pass is included if the clock counts it.
        up_bits: Bits sent to the server: D. Positive.
        down_bits: Bits received from the server; zero if the clock does not count the downlink.
        server_work: MACs on the server for this device.
        memory_bytes: Memory that training takes on the device.
        averaged_parameters: Parameters that no device with this option keeps for itself.
    """

    work: Floats
    up_bits: Floats
    down_bits: Floats
    server_work: Floats
    memory_bytes: Ints
    averaged_parameters: Ints

    def __len__(self) -> int:
        return len(self.work)

    def copy(self) -> OptionTable:
        """Return the same table with columns of its own."""
        return replace(self, **{f.name: getattr(self, f.name).copy() for f in fields(self)})

    @property
    def has_one_payload(self) -> bool:
        """Whether data down is a fixed multiple of data up, so that one number is the payload."""
        return bool(np.ptp(self.down_bits / self.up_bits) == 0)

    @property
    def shares_out_one_work(self) -> bool:
        """Whether device and server share out the same work in every option, as with splits."""
        total_work = self.work + self.server_work
        return bool(np.allclose(total_work, total_work[0], rtol=1e-12, atol=0.0))


def tabulate_splits(
    profile: Profile,
    clock: Clock,
    *,
    batch_size: int = 1,
    element_bits: int = 32,
    optimizer_slots: int = 0,
) -> OptionTable:
    """Return the splits of a model as options: row i is split i + 1.

    Work and memory never fall from row to row, and the server does what the device leaves.

    >>> profile = Profile(["a", "b"], [8, 8], [8, 16], [4, 2], parameters=[3, 1])
    >>> table = tabulate_splits(profile, Clock(), batch_size=10)
    >>> table.work.tolist(), table.server_work.tolist(), table.up_bits.tolist()
    ([80.0, 160.0], [80.0, 0.0], [1280.0, 640.0])
    >>> table.averaged_parameters.tolist()
    [1, 0]
    """
    # As floats from here on: 64-bit integers overflow for large models and batches.
    bits_per_element = batch_size * element_bits
    work = batch_size * clock.work(profile)
    down_bits = np.zeros(len(profile))
    if clock.downlink:
        down_bits = profile.gradient_elements.astype(np.float64) * bits_per_element
    return OptionTable(
        work=work,
        up_bits=profile.activation_elements.astype(np.float64) * bits_per_element,
        down_bits=down_bits,
        # The backward pass of the rest is the server's too.
        server_work=work[-1] - work,
        memory_bytes=profile.device_memory_bytes(batch_size, optimizer_slots),
        averaged_parameters=profile.parameters.sum() - np.cumsum(profile.parameters),
    )


@dataclass(frozen=True, eq=False)
class AllowedOptions:
    """The options that each of K devices may take.

    A fleet has few distinct sets of options, so each set is stored once.

    Attributes:
        sets: M × R: whether a set contains an option. No set is empty.
        set_of: The set of each device, an index below M.

    >>> allowed = AllowedOptions.up_to(np.array([0, 2, 2]), np.array([True, False, True]))
    >>> allowed.includes(2).tolist(), allowed.mask(np.array([0, 1, 2]))[1].tolist()
    ([False, True, True], [True, False, True])
    """

    sets: Mask
    set_of: Ints

    @classmethod
    def up_to(cls, last: Ints, offered: Mask) -> AllowedOptions:
        """Return for each device the offered options up to its last one."""
        # The distinct values of `last`, without sorting a million of them.
        occurs = np.zeros(len(offered), dtype=bool)
        occurs[last] = True
        index = np.cumsum(occurs) - 1
        # One set for each value that occurs.
        within = np.arange(len(offered)) <= np.flatnonzero(occurs)[:, None]
        return cls(within & offered, index[last])

    def copy(self) -> AllowedOptions:
        """Return the same sets in arrays of its own."""
        return AllowedOptions(self.sets.copy(), self.set_of.copy())

    @property
    def by_all(self) -> Mask:
        """Whether every device may take each option."""
        return np.asarray(self.sets.all(axis=0))

    @property
    def rows(self) -> Ints:
        """The options that some device may take, in order."""
        return np.flatnonzero(self.sets.any(axis=0))

    @property
    def last(self) -> Ints:
        """The last option that each device may take."""
        return self._for_devices(self.sets.shape[1] - 1 - self.sets[:, ::-1].argmax(axis=1))

    def includes(self, rows: int | Ints) -> Mask:
        """Return whether each device may take a row, the same for all or one for each."""
        is_allowed: Mask = self.sets[self.set_of, rows]
        return is_allowed

    def mask(self, rows: Ints) -> Mask:
        """Return K × len(rows): whether each device may take each row."""
        return self.sets[:, rows][self.set_of]

    def rows_of(self, device: int) -> Ints:
        """Return the options that one device may take."""
        return np.flatnonzero(self.sets[self.set_of[device]])

    def first_of(self, rows: Ints) -> Ints:
        """Return the first of these rows that each device may take."""
        return self._for_devices(rows[self.sets[:, rows].argmax(axis=1)])

    def _for_devices(self, of_set: Ints) -> Ints:
        """Return each device's entry of a column over sets, in an array of its own."""
        if len(of_set) == 1:
            # Many times quicker than a look-up for each of a million devices.
            return np.full(len(self.set_of), of_set[0])
        return of_set[self.set_of]

    def covers(self, rows: Ints) -> Mask:
        """Return a square table over rows: whether every device that may take j may also take i."""
        # Floats, because only those are multiplied by BLAS.
        among = self.sets[:, rows].astype(np.float64)
        # Entry (i, j) counts the sets that contain j and lack i.
        lacking: Floats = (1 - among).T @ among
        return np.asarray(lacking == 0)


def pareto_front(costs: Floats, covers: Mask | None = None) -> Ints:
    """Return the columns of a (criteria × options) table that no other column makes superfluous.

    Column i replaces j if it costs no more in any criterion and every device that may take j may
    take i. Of equal columns the first stays.

    Args:
        covers: Entry (i, j): every device that may take option j may take i; default: always.

    >>> pareto_front(np.array([[1, 2, 3], [9, 9, 4]])).tolist()
    [0, 2]
    """
    position = np.arange(costs.shape[1])
    is_no_worse = (costs[:, :, None] <= costs[:, None, :]).all(axis=0)
    is_better = (costs[:, :, None] < costs[:, None, :]).any(axis=0)
    # Equal columns replace each other, so the order must decide between them.
    is_earlier = position[:, None] < position[None, :]

    replaces = is_no_worse & (is_earlier | is_better)
    if covers is not None:
        replaces &= covers
    np.fill_diagonal(replaces, False)
    return np.flatnonzero(~replaces.any(axis=0))


def lower_hull(x: Floats, y: Floats) -> Ints:
    """Return the indices of the lower convex hull of points, from left to right.

    Points on a chord are left out. The points must be sorted by x.

    >>> lower_hull(np.array([0.0, 1, 2, 3]), np.array([9.0, 5, 4, 0])).tolist()
    [0, 1, 3]
    """
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) >= 2:
            o, p = hull[-2], hull[-1]
            # The cross product of two edges; p stays only if the path turns left there.
            turn = (x[p] - x[o]) * (y[i] - y[o]) - (y[p] - y[o]) * (x[i] - x[o])
            if turn > 0:
                break
            hull.pop()
        hull.append(i)
    return np.array(hull)
