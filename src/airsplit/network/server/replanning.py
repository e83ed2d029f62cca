"""Between rounds: what was predicted beside what was measured, the fleet fitted anew, and which layers a new plan would move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from airsplit.core.errors import InvalidValue
from airsplit.core.units import bytes_to_bits
from airsplit.network.client.probe import STEADY
from airsplit.network.server.device_registry import Member
from airsplit.network.server.forecast import Forecast
from airsplit.network.server.service import MEASURED
from airsplit.system.compute import fit_compute
from airsplit.system.fleet import Fleet
from airsplit.training.replica import Replica

REMEMBERED = 100
"""So many of a device's last steps tell how fast it is."""

ENOUGH = 5
"""With fewer steps than these a device is taken to be as it was."""

SLOWER = 1.05
"""A link counts as slower than planned when it takes so many times as long."""


class Watch:
    """What the devices' last rounds have shown of them: seconds for each MAC, and how much slower than planned their links are."""

    def __init__(self, devices: int) -> None:
        self._paces: list[list[float]] = [[] for _ in range(devices)]
        self._slower = np.ones(devices)

    def look(self, member: Member, macs: float, forecast: Forecast) -> None:
        """Take note of a round that a device has finished."""
        work = member.work
        if work is None or work.finished is None or macs <= 0:
            return
        k, (least, most) = member.number, MEASURED["seconds_per_mac"]
        new = (seconds / macs for seconds in work.finished.step_compute_s)
        self._paces[k] = (self._paces[k] + [pace for pace in new if least <= pace <= most])[
            -REMEMBERED:
        ]  # no others can be fitted
        planned_s = (
            bytes_to_bits(work.sent_bytes) / forecast.up_bps[k]
            + bytes_to_bits(work.received_bytes) / forecast.down_bps[k]
        )
        if planned_s > 0:
            ratio = work.finished.transmit_s / float(planned_s)
            self._slower[k] = ratio if ratio > SLOWER else 1.0

    def forget_links(self) -> None:
        """A new plan is made: what links have shown is in its fleet."""
        self._slower[:] = 1.0

    def refitted(self, fleet: Fleet) -> Fleet:
        """The fleet as it has shown itself to be."""
        pace, fluctuation = fleet.seconds_per_mac.copy(), fleet.fluctuation.copy()
        for k, paces in enumerate(self._paces):
            if len(paces) >= ENOUGH:
                pace[k], fluctuation[k] = _fitted(paces)
        changed = {"seconds_per_mac": pace, "fluctuation": fluctuation}
        for column in ("full_band_rate_bps", "full_band_downlink_bps"):
            rates = getattr(fleet, column)
            if rates is not None:
                changed[column] = rates / self._slower
        return fleet.replace(**changed)


def _fitted(paces: Sequence[float]) -> tuple[float, float]:
    """a and ε; a device whose steps all take the same time hardly fluctuates."""
    try:
        fit = fit_compute(np.ones(len(paces)), np.array(paces))
    except InvalidValue:
        return paces[0], STEADY / paces[0]
    return fit.seconds_per_mac, fit.fluctuation


@dataclass(frozen=True)
class Moving:
    """What one device hands over and takes over, by name."""

    from_split: int
    split: int
    wanted: list[str]
    given: list[str]


def moving(replica: Replica, before: Sequence[int], after: Sequence[int]) -> Mapping[int, Moving]:
    """For each device whose split changes the layers that move."""
    found = {}
    for k, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            had, has = replica.front_keys(old), replica.front_keys(new)
            found[k] = Moving(
                old,
                new,
                [name for name in had if name not in has],
                [name for name in has if name not in had],
            )
    return found
