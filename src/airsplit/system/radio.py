r"""Rates of K links, and the air time of a payload at a share of the band.

The paper's rate is R(b) = b W log2(1 + p g / N), with one noise power N for every share. With a
noise density N₀ it is R(b) = b W log2(1 + p g / (N₀ b W)). Both are concave and increasing in the
share b, and R(0) = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from airsplit.core.arrays import Floats


class TransmitTime(NamedTuple):
    """Seconds on the air as a function of the share, with its first two derivatives."""

    seconds: Floats
    slope: Floats
    curvature: Floats


@dataclass(frozen=True)
class Direction:
    """One direction of K links: R_k as a function of the share b_k.

    Attributes:
        scale_bps: Rate over the full band if `snr` is None, else W / ln 2.
        snr: Signal-to-noise ratio over the full band, if noise grows with the band used.

    Half of 1 MHz at an SNR of 3 carries ½ · 10⁶ · log2(4) bit/s:

    >>> Direction.fixed_snr(1e6, np.array([3.0])).rate_bps(np.array([0.5])).tolist()
    [1000000.0]
    """

    scale_bps: Floats
    snr: Floats | None = None

    @classmethod
    def fixed_snr(cls, bandwidth_hz: float, snr: Floats) -> Direction:
        """Return the paper's links, R(b) = b W log2(1 + SNR)."""
        return cls(bandwidth_hz * np.log1p(snr) / np.log(2))

    @classmethod
    def noise_density(cls, bandwidth_hz: float, full_band_snr: Floats) -> Direction:
        """Return links whose noise grows with the band used, R(b) = b W log2(1 + SNR / b)."""
        return cls(np.full_like(full_band_snr, bandwidth_hz / np.log(2)), full_band_snr)

    def rate_bps(self, share: Floats) -> Floats:
        """Return R_k(b_k).

        >>> Direction.noise_density(1e6, np.array([3.0])).rate_bps(np.array([1.0])).tolist()
        [2000000.0]
        """
        if self.snr is None:
            return self.scale_bps * share
        # At b = 0 this is 0 · ∞, whose limit is 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(share > 0, self.scale_bps * share * np.log1p(self.snr / share), 0.0)

    def transmit(self, bits: Floats, share: Floats) -> TransmitTime:
        """Return t(b) = D / R(b), which is positive, falling and convex in b > 0."""
        b = share
        if self.snr is None:
            t = bits / (self.scale_bps * b)
            return TransmitTime(t, -t / b, 2 * t / b**2)

        # R is proportional to y = b ln(1 + S/b), so t is to 1/y.
        S = self.snr
        y = b * np.log1p(S / b)
        dy = marginal_rate(S / b)
        ddy = -(S**2) / (b * (b + S) ** 2)
        t = bits / (self.scale_bps * y)
        return TransmitTime(t, -t * dy / y, t * (2 * (dy / y) ** 2 - ddy / y))

    def reshape(self, *shape: int) -> Direction:
        """Return the same links as an array of another shape."""
        snr = None if self.snr is None else self.snr.reshape(shape)
        return Direction(self.scale_bps.reshape(shape), snr)

    def take(self, devices: slice) -> Direction:
        """Return the links of some of the devices."""
        snr = None if self.snr is None else self.snr[devices]
        return Direction(self.scale_bps[devices], snr)


def marginal_rate(z: Floats) -> Floats:
    """Return ln(1 + z) - z / (1 + z), the derivative of b ln(1 + S/b) at z = S/b.

    >>> bool(np.isclose(marginal_rate(np.array(1e-9)), 0.5e-18))
    True
    """
    # The two terms cancel where z is small: use their series, z²/2 - 2z³/3 + 3z⁴/4 - …, there.
    small = np.minimum(z, 1e-3)
    series = small**2 * (1 / 2 - small * (2 / 3 - small * (3 / 4 - small * (4 / 5))))
    return np.where(z < 1e-3, series, np.log1p(z) - z / (1 + z))


@dataclass(frozen=True)
class Link:
    """K links, up and down: the device uses the same share b_k of both bands.

    The air time τ^cm_k = D_up / R^up_k(b_k) + D_down / R^down_k(b_k) is positive, falling and
    convex in b_k.

    Attributes:
        up: Activations to the server.
        down: Gradients back; None if they cost no time, as in the paper.

    >>> link = Link(Direction.fixed_snr(1e6, np.array([3.0])))  # 2 Mbit/s over the full band
    >>> link.seconds(np.array([1e6]), np.array([0.0]), np.array([0.5])).tolist()
    [1.0]
    """

    up: Direction
    down: Direction | None = None

    @property
    def is_proportional(self) -> bool:
        """Whether every rate is proportional to the share, so that the air time is A / b."""
        return self.up.snr is None and (self.down is None or self.down.snr is None)

    def transmit(self, up_bits: Floats, down_bits: Floats, share: Floats) -> TransmitTime:
        """Return the air time τ^cm of b > 0 with its derivatives."""
        up = self.up.transmit(up_bits, share)
        if self.down is None:
            return up
        down = self.down.transmit(down_bits, share)
        return TransmitTime(*(u + d for u, d in zip(up, down, strict=True)))

    def seconds(self, up_bits: Floats, down_bits: Floats, share: Floats) -> Floats:
        """Return the air time τ^cm at a share; infinite where the share is zero."""
        with np.errstate(divide="ignore"):
            total = up_bits / self.up.rate_bps(share)
            if self.down is None:
                return total
            return total + down_bits / self.down.rate_bps(share)

    def share(self, up_bits: Floats, down_bits: Floats, seconds: Floats) -> Floats:
        """Return the share b with τ^cm(b) = seconds.

        It is above 1, or infinite, where the full band is not enough or there is no time at all.
        Newton on ln τ^cm over ln b, which is convex: from the right of the root it lands on its
        left, then climbs to it.

        >>> link = Link(Direction.fixed_snr(1e6, np.array([3.0])))
        >>> link.share(np.array([1e6]), np.array([0.0]), np.array([1.0])).tolist()
        [0.5]
        """
        # The answer if rates are proportional; else an upper bound, as R(b) ≥ b R(1).
        full = self.seconds(up_bits, down_bits, np.ones_like(seconds))
        with np.errstate(divide="ignore", invalid="ignore"):
            b = np.where(seconds > 0, full / seconds, np.inf)
        if self.is_proportional:
            return b

        # Rounding must not put the full band itself out of reach.
        is_reachable = b <= 1 + 1e-12
        # Devices out of reach iterate towards the full band, so that no number here is infinite.
        b = np.where(is_reachable, b, 1.0)
        target = np.where(is_reachable, seconds, full)
        for _ in range(100):
            t = self.transmit(up_bits, down_bits, b)
            # Where power, not band, is the limit, ln t is almost flat on the right of the root,
            # and the first steps would leap too far.
            step = np.clip(np.log(target / t.seconds) * t.seconds / (b * t.slope), -3, 3)
            # The full band is enough, so the root is at most 1.
            b = np.minimum(b * np.exp(step), 1.0)
            if np.all(np.abs(step) < 1e-14):
                break
        return np.where(is_reachable, b, np.inf)

    def column(self) -> Link:
        """Return the same links as a column, to be broadcast against a row of splits."""
        down = None if self.down is None else self.down.reshape(-1, 1)
        return Link(self.up.reshape(-1, 1), down)

    def take(self, devices: slice) -> Link:
        """Return the links of some of the devices."""
        down = None if self.down is None else self.down.take(devices)
        return Link(self.up.take(devices), down)
