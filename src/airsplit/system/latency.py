r"""How long an iteration takes: the law of max_k τ_k for K devices that run at the same time.

Device k needs τ_k = x_k + β_k X_k seconds: x_k is certain (best-case compute, air time, server), β_k X_k fluctuates, with X_k
the mean of E independent Exp(1) draws (E = 1 when devices wait for each other after every iteration; with the barrier per
round, τ_k is the mean over the round's E iterations).  The devices are independent.

Integrals over the maximum start at t₀ = max_k x_k, below which its distribution function Π_k F_k(t) is zero.  In u = ln(t - t₀)
the integrand is analytic and decays at both ends, so that the trapezoidal rule converges exponentially, and the logarithm
resolves devices whose fluctuations differ by any factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.errors import require_number

_BLOCK = 1 << 15  # table entries that are worked on at once: fits the cache
_NEVER = -100.0  # a probability below e^-100


@dataclass(frozen=True)
class Fluctuation:
    """X, the mean of `draws` independent Exp(1) variables: Gamma(E) / E."""

    draws: int = 1

    def cdf(self, z: Floats) -> Floats:
        """P[X ≤ z], for z ≥ 0."""
        if self.draws == 1:
            return -np.expm1(-z)
        from scipy.special import gammainc

        return gammainc(self.draws, self.draws * z)

    def density(self, z: Floats) -> Floats:
        """The probability density at z ≥ 0."""
        if self.draws == 1:
            return np.exp(-z)
        from scipy.special import gammaln

        E = float(self.draws)
        with np.errstate(divide="ignore"):
            return np.exp(E * np.log(E) + (E - 1) * np.log(z) - E * z - gammaln(E))  # type: ignore[no-any-return]

    def log_slope(self, z: Floats) -> Floats:
        """The derivative of ln density: (E - 1) / z - E."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return (self.draws - 1) / z - self.draws if self.draws > 1 else np.full_like(z, -1.0)

    def quantile(self, p: float) -> float:
        """The z with P[X ≤ z] = p.

        >>> Fluctuation().quantile(0.5) == float(np.log(2))
        True
        """
        return self.tail_quantile(1 - p) if p > 0.5 else self._lower_quantile(p)

    def tail_quantile(self, q: float) -> float:
        """The z with P[X > z] = q, accurate also where q is tiny."""
        if self.draws == 1:
            return float(-np.log(q))
        from scipy.special import gammainccinv

        return float(gammainccinv(self.draws, q)) / self.draws

    def sharpness(self, devices: int) -> float:
        """-d ln P[X > z] / d ln z where one of so many draws is above z: the inverse width in ln z of their maximum.

        >>> bool(np.isclose(Fluctuation().sharpness(1000), np.log(1000)))
        True
        """
        some = max(devices, 2)
        z = np.array([self.tail_quantile(1 / some)])
        return float((z * self.density(z))[0] * some)

    def _lower_quantile(self, p: float) -> float:
        if self.draws == 1:
            return float(-np.log1p(-p))
        from scipy.special import gammaincinv

        return float(gammaincinv(self.draws, p)) / self.draws


@dataclass(frozen=True)
class LastDevice:
    """Who finishes last: P(k is last), E[X_k; k is last], and the pieces of the Hessian of E[max]."""

    expected_max_s: float
    last: Floats
    """π_k = ∂E[max]/∂x_k; sums to one."""
    excess: Floats
    """m_k = ∂E[max]/∂β_k."""
    hazards: Floats
    """K × N: √w_n · f_k/F_k · √ΠF at the nodes, so that the Hessian in x is diag(M 1) - M with M = hazards · hazardsᵀ."""


@dataclass(frozen=True, eq=False)
class LatencyLaw:
    """The law of one iteration's latency: `shift_s` x_k and `scale_s` β_k of each device, and the fluctuation X.

    >>> law = LatencyLaw(np.zeros(2), np.ones(2))
    >>> law.mean_s.tolist(), round(law.expected_max_s, 9)
    ([1.0, 1.0], 1.5)
    """

    shift_s: Floats
    scale_s: Floats
    fluctuation: Fluctuation = Fluctuation()

    def __len__(self) -> int:
        return len(self.shift_s)

    @property
    def mean_s(self) -> Floats:
        """E[τ_k] of each device."""
        return self.shift_s + self.scale_s

    def device_quantile_s(self, p: float) -> Floats:
        """The time that each device keeps with probability p, by itself."""
        return self.shift_s + self.scale_s * self.fluctuation.quantile(p)

    @cached_property
    def expected_max_s(self) -> float:
        r"""E[max_k τ_k] = t₀ + ∫ (1 - Π_k F_k(t₀ + y)) dy."""
        y, weight = self.nodes()
        if len(y) == 0:
            return self.start_s
        return self.start_s + float(weight @ -np.expm1(self._log_product(y)))

    @cached_property
    def start_s(self) -> float:
        """t₀: nobody's best case is later."""
        return float(self.shift_s.max())

    def nodes(self) -> tuple[Floats, Floats]:
        """Times after t₀ and their weights: the trapezoidal rule in ln y, with the geometric rest below the first node."""
        beta, slack = self.scale_s, self.start_s - self.shift_s
        K, X = len(self), self.fluctuation
        far = X.tail_quantile(1e-13 / K)
        last = float((beta * far - slack).max())
        near = beta[(beta > 0) & (slack < beta * far)]
        if last <= 0 or len(near) == 0:
            return np.empty(0), np.empty(0)
        first = max(1e-5 * float(near.min()), 1e-14 * last)
        # the step follows the narrowest feature in ln y: the mean of E draws is sharp to 1 / √E, the maximum of K more so
        h = min(0.2, 0.75 / np.sqrt(X.draws), 0.6 / X.sharpness(K))
        y = first * np.exp(h * np.arange(int(np.ceil(np.log(last / first) / h)) + 1))
        weight = h * y
        weight[0] /= -np.expm1(-h)
        return y, weight

    def _log_product(self, y: Floats) -> Floats:
        """ln Π_k F_k(t₀ + y) at the nodes, which ascend, devices in blocks; where it is below -100 already, more devices do not matter."""
        total, first = np.zeros_like(y), 0
        slack, at = self.start_s - self.shift_s, 0
        while at < len(self) and first < len(y):
            some = slice(at, at + max(1, _BLOCK // (len(y) - first)))
            z = _standardized(y[first:], slack[some], self.scale_s[some])
            with np.errstate(divide="ignore"):
                total[first:] += np.log(self.fluctuation.cdf(z)).sum(axis=0)
            first += int(np.searchsorted(total[first:], _NEVER))  # it rises with the node
            at = some.stop
        return total

    def smooth(self, fraction: float = 1e-5) -> LatencyLaw:
        """The same with every fluctuation at least a part of the latency: E[max] then has a gradient also where steady devices tie.

        >>> LatencyLaw(np.array([1.0, 2.0]), np.array([0.0, 1.0])).smooth(0.01).scale_s.tolist()
        [0.02, 1.0]
        """
        return LatencyLaw(
            self.shift_s, np.maximum(self.scale_s, fraction * self.start_s), self.fluctuation
        )

    def cdf_of_max(self, seconds: float) -> float:
        """P[max_k τ_k ≤ t] = Π_k F_k(t)."""
        if seconds < self.start_s:
            return 0.0
        return float(np.exp(self._log_product(np.array([seconds - self.start_s]))[0]))

    def max_quantile_s(self, p: float) -> float:
        """The time in which all devices are done with probability p.

        >>> law = LatencyLaw(np.zeros(3), np.ones(3))
        >>> round(law.cdf_of_max(law.max_quantile_s(0.9)), 9)
        0.9
        """
        require_number("p", p, above=0, below=1)
        low = float(self.device_quantile_s(p).max())
        each = self.fluctuation.tail_quantile(-float(np.expm1(np.log(p) / len(self))))
        high = float((self.shift_s + self.scale_s * each).max())
        while high - low > 1e-13 * high:
            middle = 0.5 * (low + high)
            if middle in (low, high):
                break
            low, high = (middle, high) if self.cdf_of_max(middle) < p else (low, middle)
        return high

    def last_device(self, *, hessian: bool = False) -> LastDevice:
        """E[max] with its gradient, and with the table from which its Hessian follows when asked for."""
        y, weight = self.nodes()
        K = len(self)
        last, excess = np.zeros(K), np.zeros(K)
        hazards = np.zeros((K if hessian else 0, len(y)))
        if len(y) == 0:
            last[int(self.shift_s.argmax())] = 1.0
            return LastDevice(self.start_s, last, excess, hazards)
        product = np.exp(self._log_product(y))
        slack, at_once = self.start_s - self.shift_s, max(1, _BLOCK // len(y))
        for at in range(0, K, at_once):
            some = slice(at, at + at_once)
            z, hazard = self._hazard(y, slack[some], self.scale_s[some])
            # einsum, because the threads of a matrix library cost more than they save on blocks of this size
            last[some] = np.einsum("kn,n->k", hazard, weight * product)
            excess[some] = np.einsum("kn,kn,n->k", hazard, z, weight * product)
            if hessian:
                hazards[some] = hazard * np.sqrt(weight * product)
        steady = self.scale_s == 0
        if steady.any():  # a device without fluctuation is last whenever no other is
            ends = np.where(steady, self.shift_s, -np.inf)
            last[int(ends.argmax())] = max(0.0, 1 - float(last.sum()))
        total = float(last.sum())
        return LastDevice(
            self.start_s + float(weight @ (1 - product)), last / total, excess / total, hazards
        )

    def _hazard(self, y: Floats, slack: Floats, beta: Floats) -> tuple[Floats, Floats]:
        """z and f/F at the nodes; both zero where they are irrelevant: no fluctuation, or F underflows with the product of all."""
        z = _standardized(y, slack, beta)
        with np.errstate(divide="ignore", invalid="ignore"):
            hazard = self.fluctuation.density(z) / self.fluctuation.cdf(z) / beta[:, None]
        hazard[~np.isfinite(hazard)] = 0.0
        z[~np.isfinite(z)] = 0.0
        return z, hazard

    def draw(self, rng: np.random.Generator, iterations: int) -> Floats:
        """Independent draws of every τ_k, shape (iterations, K); the latency is their maximum."""
        X = rng.gamma(self.fluctuation.draws, size=(iterations, len(self))) / self.fluctuation.draws
        return self.shift_s + self.scale_s * X


def _standardized(y: Floats, slack: Floats, beta: Floats) -> Floats:
    """z_kn = (y_n + t₀ - x_k) / β_k; infinite for a device that does not fluctuate."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (y + slack[:, None]) / beta[:, None]
    z[beta == 0] = np.inf  # also at its very end, where y + slack is zero
    return z
