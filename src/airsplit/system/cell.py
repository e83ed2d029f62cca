"""Cell: the radio that the devices of a fleet share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from airsplit.core.arrays import Floats
from airsplit.core.errors import InvalidValue, require_choice, require_integer, require_number
from airsplit.core.units import dbm_to_watts
from airsplit.system.radio import PATH_LOSS_DB, Direction


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The radio that the devices share.

    noise_dbm              the paper's: one noise power, whatever the share (the default, at -114 dBm)
    noise_dbm_per_hz       a density instead: noise grows with the band used
    downlink_bandwidth_hz  None: the same as up
    path_loss              "paper", "free-space" or "3gpp-uma-nlos"; the last two use carrier_hz
    resource_blocks        N: shares are multiples of 1/N; None: any share
    """

    bandwidth_hz: float = 20e6
    noise_dbm: float | None = None
    noise_dbm_per_hz: float | None = None
    downlink_bandwidth_hz: float | None = None
    downlink_power_dbm: float = 30.0
    path_loss: str = "paper"
    carrier_hz: float = 2e9
    resource_blocks: int | None = None

    def __post_init__(self) -> None:
        if self.noise_dbm is not None and self.noise_dbm_per_hz is not None:
            raise InvalidValue(
                f"cell.noise_dbm ({self.noise_dbm}) and cell.noise_dbm_per_hz ({self.noise_dbm_per_hz}) exclude each other; give one"
            )
        if self.noise_dbm is None and self.noise_dbm_per_hz is None:
            object.__setattr__(self, "noise_dbm", -114.0)
        for name in ("bandwidth_hz", "carrier_hz", "downlink_bandwidth_hz"):
            if getattr(self, name) is not None:
                require_number(f"cell.{name}", getattr(self, name), above=0)
        for name in ("noise_dbm", "noise_dbm_per_hz", "downlink_power_dbm"):
            if getattr(self, name) is not None:
                require_number(f"cell.{name}", getattr(self, name), low=-400, high=400)
        require_choice("cell.path_loss", self.path_loss, PATH_LOSS_DB)
        if self.resource_blocks is not None:
            require_integer("cell.resource_blocks", self.resource_blocks, low=1, high=10**9)

    def replace(self, **changes: Any) -> Cell:
        """A variant of this cell."""
        if changes.get("noise_dbm_per_hz") is not None:
            changes.setdefault("noise_dbm", None)
        elif changes.get("noise_dbm") is not None:
            changes.setdefault("noise_dbm_per_hz", None)
        return replace(self, **changes)

    def direction(self, bandwidth_hz: float, received_w: Floats) -> Direction:
        """One way of the K links, from the power that is received over the full band."""
        if self.noise_dbm_per_hz is not None:
            noise_w = dbm_to_watts(self.noise_dbm_per_hz) * bandwidth_hz
            return Direction.noise_density(bandwidth_hz, received_w / noise_w)
        assert self.noise_dbm is not None  # noqa: S101 - set by __post_init__
        return Direction.fixed_snr(bandwidth_hz, received_w / dbm_to_watts(self.noise_dbm))
