r"""Path loss, gain, rate, and how long a payload takes at a share of the band.  Pure numpy.

The paper's rate is R(b) = b W log2(1 + p g / N) with one noise power N whatever the share; with a noise density N₀
it is R(b) = b W log2(1 + p g / (N₀ b W)).  Both are concave and increasing in the share b.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.units import db_to_linear

SPEED_OF_LIGHT = 299_792_458.0


def paper_path_loss_db(distance_m: Floats, carrier_hz: float) -> Floats:  # noqa: ARG001 - fixed at 2 GHz by its authors
    """128.1 + 37.6 log10(d / km), the macro-cell loss at 2 GHz that the paper uses.

    >>> float(paper_path_loss_db(np.array(100.0), 2e9))
    90.5
    """
    return 128.1 + 37.6 * np.log10(distance_m / 1e3)


def free_space_path_loss_db(distance_m: Floats, carrier_hz: float) -> Floats:
    """20 log10(4 π d f / c).

    >>> round(float(free_space_path_loss_db(np.array(1000.0), 2e9)), 2)
    98.47
    """
    return 20 * np.log10(4 * np.pi * distance_m * carrier_hz / SPEED_OF_LIGHT)


def uma_nlos_path_loss_db(distance_m: Floats, carrier_hz: float) -> Floats:
    """3GPP TR 38.901 table 7.4.1-1, urban macro without line of sight; mast 25 m, device 1.5 m, distance on the ground.

    >>> round(float(uma_nlos_path_loss_db(np.array(1000.0), 2e9)), 2)
    136.81
    """
    mast_m, device_m, environment_m = 25.0, 1.5, 1.0
    f_ghz = carrier_hz / 1e9
    d3 = np.hypot(distance_m, mast_m - device_m)
    breakpoint_m = (
        4 * (mast_m - environment_m) * (device_m - environment_m) * carrier_hz / SPEED_OF_LIGHT
    )
    near = 28.0 + 22 * np.log10(d3) + 20 * np.log10(f_ghz)
    far = (
        28.0
        + 40 * np.log10(d3)
        + 20 * np.log10(f_ghz)
        - 9 * np.log10(breakpoint_m**2 + (mast_m - device_m) ** 2)
    )
    in_sight = np.where(distance_m <= breakpoint_m, near, far)
    loss: Floats = np.maximum(in_sight, 13.54 + 39.08 * np.log10(d3) + 20 * np.log10(f_ghz))
    return loss


PATH_LOSS_DB: dict[str, Callable[[Floats, float], Floats]] = {
    "paper": paper_path_loss_db,
    "free-space": free_space_path_loss_db,
    "3gpp-uma-nlos": uma_nlos_path_loss_db,
}


def channel_gain(path_loss: str, distance_m: Floats, fading: Floats, carrier_hz: float) -> Floats:
    """The power gain |g|² = 10^(-PL/10) · |g̃|²: a loss of PL decibels, times the small-scale fading.

    >>> round(10 * float(np.log10(channel_gain("paper", np.array(1000.0), np.array(1.0), 2e9))), 6)
    -128.1
    """
    return db_to_linear(-PATH_LOSS_DB[path_loss](distance_m, carrier_hz)) * fading


class TransmitTime(NamedTuple):
    """Seconds on the air as a function of the share, with its first two derivatives."""

    seconds: Floats
    slope: Floats
    curvature: Floats


@dataclass(frozen=True)
class Direction:
    """One way of a link, for K devices.

    `scale_bps` is the full-band rate when `snr` is None, and W / ln 2 otherwise; `snr` is that of the full band.
    """

    scale_bps: Floats
    snr: Floats | None = None

    @classmethod
    def fixed_snr(cls, bandwidth_hz: float, snr: Floats) -> Direction:
        """The paper's: R(b) = b W log2(1 + SNR)."""
        return cls(bandwidth_hz * np.log1p(snr) / np.log(2))

    @classmethod
    def noise_density(cls, bandwidth_hz: float, full_band_snr: Floats) -> Direction:
        """Noise grows with the band used: R(b) = b W log2(1 + SNR / b)."""
        return cls(np.full_like(full_band_snr, bandwidth_hz / np.log(2)), full_band_snr)

    def rate_bps(self, share: Floats) -> Floats:
        """
        >>> Direction.fixed_snr(1e6, np.array([3.0])).rate_bps(np.array([0.5])).tolist()
        [1000000.0]
        >>> Direction.noise_density(1e6, np.array([3.0])).rate_bps(np.array([1.0])).tolist()
        [2000000.0]
        """
        if self.snr is None:
            return self.scale_bps * share
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(share > 0, self.scale_bps * share * np.log1p(self.snr / share), 0.0)

    def transmit(self, bits: Floats, share: Floats) -> TransmitTime:
        """How long `bits` take, t(b) = D / R(b): positive, falling and convex in b > 0."""
        b = share
        if self.snr is None:
            t = bits / (self.scale_bps * b)
            return TransmitTime(t, -t / b, 2 * t / b**2)
        S = self.snr
        y, dy, ddy = b * np.log1p(S / b), _marginal(S / b), -(S**2) / (b * (b + S) ** 2)
        t = bits / (self.scale_bps * y)
        return TransmitTime(t, -t * dy / y, t * (2 * (dy / y) ** 2 - ddy / y))

    def reshape(self, *shape: int) -> Direction:
        return Direction(
            self.scale_bps.reshape(shape), None if self.snr is None else self.snr.reshape(shape)
        )

    def take(self, devices: slice) -> Direction:
        return Direction(self.scale_bps[devices], None if self.snr is None else self.snr[devices])


def _marginal(z: Floats) -> Floats:
    """ln(1 + z) - z / (1 + z), what more band adds to the rate; by its series where the two terms would cancel.

    >>> bool(np.isclose(_marginal(np.array(1e-9)), 0.5e-18))
    True
    """
    small = np.minimum(z, 1e-3)
    series = small**2 * (1 / 2 - small * (2 / 3 - small * (3 / 4 - small * (4 / 5))))
    return np.where(z < 1e-3, series, np.log1p(z) - z / (1 + z))


@dataclass(frozen=True)
class Link:
    """Up and down together: a device uses the same share of both.  `down` is None where the way back costs nothing."""

    up: Direction
    down: Direction | None = None

    @property
    def is_proportional(self) -> bool:
        """Whether every rate is proportional to the share, so that the air time is A / b."""
        return self.up.snr is None and (self.down is None or self.down.snr is None)

    def transmit(self, up_bits: Floats, down_bits: Floats, share: Floats) -> TransmitTime:
        up = self.up.transmit(up_bits, share)
        if self.down is None:
            return up
        down = self.down.transmit(down_bits, share)
        return TransmitTime(*(u + d for u, d in zip(up, down, strict=True)))

    def seconds(self, up_bits: Floats, down_bits: Floats, share: Floats) -> Floats:
        """Seconds on the air at this share; infinite where the share is zero."""
        with np.errstate(divide="ignore"):
            total = up_bits / self.up.rate_bps(share)
            return total if self.down is None else total + down_bits / self.down.rate_bps(share)

    def share(self, up_bits: Floats, down_bits: Floats, seconds: Floats) -> Floats:
        """The share b with t(b) = seconds; above 1 or infinite where not even the whole band, or no time at all, does.

        Newton on ln t over ln b, which is convex: from the right of the root it lands on its left, then climbs to it.

        >>> link = Link(Direction.fixed_snr(1e6, np.array([3.0])))
        >>> link.share(np.array([1e6]), np.array([0.0]), np.array([1.0])).tolist()
        [0.5]
        """
        full = self.seconds(up_bits, down_bits, np.ones_like(seconds))
        with np.errstate(divide="ignore", invalid="ignore"):
            b = np.where(seconds > 0, full / seconds, np.inf)
        if self.is_proportional:
            return b
        reachable = b <= 1 + 1e-12
        b, target = np.where(reachable, b, 1.0), np.where(reachable, seconds, full)
        for _ in range(100):
            t = self.transmit(up_bits, down_bits, b)
            # where power, not band, is the limit, ln t is almost flat on the right and the first steps would leap too far
            step = np.clip(np.log(target / t.seconds) * t.seconds / (b * t.slope), -3, 3)
            b = np.minimum(
                b * np.exp(step), 1.0
            )  # the root is no further: the whole band is enough
            if np.all(np.abs(step) < 1e-14):
                break
        return np.where(reachable, b, np.inf)

    def column(self) -> Link:
        """The same link with devices down the first axis, to be broadcast against splits along the second."""
        return Link(self.up.reshape(-1, 1), None if self.down is None else self.down.reshape(-1, 1))

    def take(self, devices: slice) -> Link:
        """The link of some of the devices."""
        return Link(self.up.take(devices), None if self.down is None else self.down.take(devices))
