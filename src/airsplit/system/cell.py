"""Cell: the radio that the devices of a fleet share."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from airsplit.core.arrays import Floats
from airsplit.core.declared_settings import check_settings, number, one_of, whole_number
from airsplit.core.errors import InvalidValue, show
from airsplit.core.units import db_to_linear, dbm_to_watts
from airsplit.system.path_loss import PATH_LOSSES, path_loss_db
from airsplit.system.radio import Direction

PAPER_NOISE_DBM = -114.0

# Wider than any radio, and narrow enough that no product of powers leaves a double.
Decibels = Annotated[float, number(low=-400, high=400)]
OptionalDecibels = Annotated[float | None, number(low=-400, high=400)]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The radio that K devices share: a band W and the noise on it.

    Attributes:
        bandwidth_hz: Bandwidth W, of which device k gets the share b_k.
        noise_dbm: Noise power N₀ of the paper, the same for every share. It is the default, at -114
            dBm.
        noise_dbm_per_hz: Noise density instead of a power, so that noise grows with the band used.
        downlink_bandwidth_hz: Bandwidth of the downlink (default: that of the uplink).
        downlink_power_dbm: Power at which the server sends.
        path_loss: Law of the path loss. Code by path is a function `path_loss(distance_m,
            carrier_hz, **arguments)` that returns the loss of each device in dB; it is imported
            when rates are computed.
        path_loss_arguments: Keyword arguments for a path loss by path.
        carrier_hz: Carrier frequency; the path loss "paper" is fixed at 2 GHz.
        resource_blocks: Number N of equal blocks of the band, so that shares are multiples of 1/N
            (default: any share).

    >>> cell = Cell(bandwidth_hz=10e6, noise_dbm=-110.0)
    >>> cell.replace(noise_dbm_per_hz=-174.0).noise_dbm is None
    True
    """

    bandwidth_hz: Annotated[float, number(above=0)] = 20e6
    noise_dbm: OptionalDecibels = None
    noise_dbm_per_hz: OptionalDecibels = None
    downlink_bandwidth_hz: Annotated[float | None, number(above=0)] = None
    downlink_power_dbm: Decibels = 30.0
    path_loss: Annotated[str, one_of(PATH_LOSSES, or_path=True)] = "paper"
    # No part of the hash, so that a cell stays hashable; equality does compare it.
    path_loss_arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    carrier_hz: Annotated[float, number(above=0)] = 2e9
    resource_blocks: Annotated[int | None, whole_number(low=1, high=10**9)] = None

    def __post_init__(self) -> None:
        if self.noise_dbm is not None and self.noise_dbm_per_hz is not None:
            raise InvalidValue(
                f"cell.noise_dbm ({self.noise_dbm}) and cell.noise_dbm_per_hz "
                f"({self.noise_dbm_per_hz}) exclude each other; give one"
            )
        # Not the field's default, so that a density can be given alone.
        if self.noise_dbm is None and self.noise_dbm_per_hz is None:
            object.__setattr__(self, "noise_dbm", PAPER_NOISE_DBM)
        check_settings("cell", Cell, vars(self))

        arguments = self.path_loss_arguments
        if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
            raise InvalidValue(
                f"cell.path_loss_arguments must be a table of named values, got {show(arguments)}"
            )
        if arguments and self.path_loss in PATH_LOSSES:
            raise InvalidValue(
                "cell.path_loss_arguments is for a path loss of your own, cell.path_loss = "
                f'"package.module:function", got {show(arguments)} for {self.path_loss!r}; '
                "leave it out"
            )
        # A deep copy: a change of the caller's table must not change a cell that was checked.
        object.__setattr__(self, "path_loss_arguments", deepcopy(dict(arguments)))

    def replace(self, **changes: Any) -> Cell:
        """Return a variant of this cell; one kind of noise takes the place of the other."""
        if changes.get("noise_dbm_per_hz") is not None:
            changes.setdefault("noise_dbm", None)
        elif changes.get("noise_dbm") is not None:
            changes.setdefault("noise_dbm_per_hz", None)
        return replace(self, **changes)

    def channel_gain(self, distance_m: Floats, fading: Floats) -> Floats:
        """Return the power gains |g|² = 10^(-PL/10) · |g̃|², path loss times small-scale fading.

        >>> import numpy as np
        >>> gain = Cell().channel_gain(np.array([1000.0]), np.array([1.0]))
        >>> round(10 * float(np.log10(gain[0])), 6)
        -128.1
        """
        loss_db = path_loss_db(
            self.path_loss, distance_m, self.carrier_hz, self.path_loss_arguments
        )
        return db_to_linear(-loss_db) * fading

    def direction(self, bandwidth_hz: float, received_w: Floats) -> Direction:
        """Return one direction of K links from the power received over the full band."""
        if self.noise_dbm_per_hz is not None:
            # Of the full band; a share b sees b times as much.
            noise_w = dbm_to_watts(self.noise_dbm_per_hz) * bandwidth_hz
            return Direction.noise_density(bandwidth_hz, received_w / noise_w)
        assert self.noise_dbm is not None  # noqa: S101 - set by __post_init__
        return Direction.fixed_snr(bandwidth_hz, received_w / dbm_to_watts(self.noise_dbm))
