r"""LatencyLaw: the distribution of max_k τ_k, for K devices that run in parallel.

Device k needs τ_k = x_k + β_k X_k seconds. x_k is certain: best-case compute, air time, server.
β_k X_k fluctuates: X_k is the mean of E independent Exp(1) draws. E = 1 if devices wait for each
other after every iteration; with the barrier per round, τ_k is the mean over its E iterations. The
devices are independent.

Integrals over the maximum start at t₀ = max_k x_k, below which its distribution function Π_k F_k(t)
is zero. In u = ln(t - t₀) the integrand is analytic and decays at both ends, so that the
trapezoidal rule converges exponentially, and the logarithm resolves devices whose fluctuations
differ by any factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.errors import require_number

# Table entries that are worked on at a time, so that they fit the cache.
_BLOCK = 1 << 15

# ln of a probability that no double shows beside another: e^-100.
_NEGLIGIBLE_LOG = -100.0


@dataclass(frozen=True)
class Fluctuation:
    """X, the mean of E independent Exp(1) variables: Gamma(E) / E.

    Attributes:
        draws: E.
    """

    draws: int = 1

    # scipy is imported only where it is needed: that takes longer than most plans with E = 1.

    def cdf(self, z: Floats) -> Floats:
        """Return P[X ≤ z] for z ≥ 0."""
        if self.draws == 1:
            return -np.expm1(-z)
        from scipy.special import gammainc

        return gammainc(self.draws, self.draws * z)

    def density(self, z: Floats) -> Floats:
        """Return the probability density at z ≥ 0."""
        if self.draws == 1:
            return np.exp(-z)
        from scipy.special import gammaln

        # In logarithms, because E^E overflows from E = 144 on; ln 0 = -∞ gives density 0 at z = 0.
        E = float(self.draws)
        with np.errstate(divide="ignore"):
            log_density = E * np.log(E) + (E - 1) * np.log(z) - E * z - gammaln(E)
        return np.exp(log_density)  # type: ignore[no-any-return]

    def log_slope(self, z: Floats) -> Floats:
        """Return the derivative of ln density, (E - 1) / z - E."""
        if self.draws == 1:
            return np.full_like(z, -1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return (self.draws - 1) / z - self.draws

    def quantile(self, p: float) -> float:
        """Return the z with P[X ≤ z] = p.

        >>> Fluctuation().quantile(0.5) == float(np.log(2))
        True
        """
        # For p ≥ ½ the difference 1 - p is exact.
        if p > 0.5:
            return self.tail_quantile(1 - p)
        if self.draws == 1:
            return float(-np.log1p(-p))
        from scipy.special import gammaincinv

        return float(gammaincinv(self.draws, p)) / self.draws

    def tail_quantile(self, q: float) -> float:
        """Return the z with P[X > z] = q, accurate also for a tiny q."""
        if self.draws == 1:
            return float(-np.log(q))
        from scipy.special import gammainccinv

        return float(gammainccinv(self.draws, q)) / self.draws

    def sharpness(self, devices: int) -> float:
        """Return -d ln P[X > z] / d ln z at the z that one of K draws exceeds.

        It is the inverse width of their maximum in ln z.

        >>> bool(np.isclose(Fluctuation().sharpness(1000), np.log(1000)))
        True
        """
        # For K = 1 the tail 1/K would be all there is, and z zero.
        K = max(devices, 2)
        z = np.array([self.tail_quantile(1 / K)])
        return float((z * self.density(z))[0] * K)


@dataclass(frozen=True)
class LastDevice:
    """E[max_k τ_k] with its gradient and, if asked for, the table behind its Hessian.

    Attributes:
        expected_max_s: E[max_k τ_k].
        last: π_k = P(k is the last) = ∂E[max]/∂x_k; sums to one.
        excess: m_k = E[X_k; k is the last] = ∂E[max]/∂β_k.
        hazards: K × N table, √w_n · f_k/F_k · √ΠF at the nodes, so that the Hessian in x is
            diag(M 1) - M with M = hazards · hazardsᵀ. No rows if it was not asked for.
    """

    expected_max_s: float
    last: Floats
    excess: Floats
    hazards: Floats


@dataclass(frozen=True, eq=False)
class LatencyLaw:
    """The law of one iteration's latency, max_k τ_k with τ_k = x_k + β_k X_k.

    Attributes:
        shift_s: x_k, the certain part: a_k c + D/R_k(b_k), and the server's time.
        scale_s: β_k = c/ε_k, the mean of the part that fluctuates.
        fluctuation: The law of X_k, which has mean 1.

    Of two devices that need an Exp(1) time each, the first is done after ½ s on average, the other
    1 s later:

    >>> law = LatencyLaw(shift_s=np.zeros(2), scale_s=np.ones(2))
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
        """Return the p-quantile of each device's own latency."""
        return self.shift_s + self.scale_s * self.fluctuation.quantile(p)

    @cached_property
    def expected_max_s(self) -> float:
        r"""E[max_k τ_k] = t₀ + ∫ (1 - Π_k F_k(t₀ + y)) dy."""
        y, weight = self._nodes()
        if len(y) == 0:
            return self.start_s
        return self.start_s + float(weight @ -np.expm1(self._log_product(y)))

    @cached_property
    def start_s(self) -> float:
        """t₀ = max_k x_k, before which the devices are never all done."""
        return float(self.shift_s.max())

    def _nodes(self) -> tuple[Floats, Floats]:
        """Return times y after t₀ and their weights: the trapezoidal rule in ln y."""
        beta = self.scale_s
        slack = self.start_s - self.shift_s
        K = len(self)
        X = self.fluctuation

        # Beyond `last` all devices are done, but for 10⁻¹³ of the probability.
        far = X.tail_quantile(1e-13 / K)
        last = float((beta * far - slack).max())
        near = beta[(beta > 0) & (slack < beta * far)]
        if last <= 0 or len(near) == 0:
            return np.empty(0), np.empty(0)

        first = max(1e-5 * float(near.min()), 1e-14 * last)
        # The step follows the narrowest feature in ln y. The mean of E draws is sharp to 1/√E,
        # the maximum of K of them more so.
        h = min(0.2, 0.75 / np.sqrt(X.draws), 0.6 / X.sharpness(K))
        y = first * np.exp(h * np.arange(int(np.ceil(np.log(last / first) / h)) + 1))
        weight = h * y
        # Below the first node the integrand is constant, and the weights a geometric series.
        weight[0] /= -np.expm1(-h)
        return y, weight

    def _log_product(self, y: Floats) -> Floats:
        """Return ln Π_k F_k(t₀ + y) at the nodes, which ascend; devices come in blocks."""
        total = np.zeros_like(y)
        slack = self.start_s - self.shift_s
        first = 0
        k = 0
        while k < len(self) and first < len(y):
            block = slice(k, k + max(1, _BLOCK // (len(y) - first)))
            z = _standardize(y[first:], slack[block], self.scale_s[block])
            with np.errstate(divide="ignore"):
                total[first:] += np.log(self.fluctuation.cdf(z)).sum(axis=0)
            # The product rises with the node: skip those where it is negligible already.
            first += int(np.searchsorted(total[first:], _NEGLIGIBLE_LOG))
            k = block.stop
        return total

    def smooth(self, fraction: float = 1e-5) -> LatencyLaw:
        """Return this law with every fluctuation at least a fraction of the latency.

        E[max] then has a gradient even if devices without fluctuation tie.

        >>> law = LatencyLaw(np.array([1.0, 2.0]), np.array([0.0, 1.0]))
        >>> law.smooth(0.01).scale_s.tolist()
        [0.02, 1.0]
        """
        return LatencyLaw(
            self.shift_s, np.maximum(self.scale_s, fraction * self.start_s), self.fluctuation
        )

    def cdf_of_max(self, seconds: float) -> float:
        """Return P[max_k τ_k ≤ t] = Π_k F_k(t)."""
        # Before t₀ the standardized times would be negative, where F is not defined.
        if seconds < self.start_s:
            return 0.0
        return float(np.exp(self._log_product(np.array([seconds - self.start_s]))[0]))

    def max_quantile_s(self, p: float) -> float:
        """Return the time by which all devices are done with probability p.

        >>> law = LatencyLaw(np.zeros(3), np.ones(3))
        >>> round(law.cdf_of_max(law.max_quantile_s(0.9)), 9)
        0.9
        """
        require_number("p", p, above=0, below=1)
        # One device alone is no later than all; and if each keeps a time with probability
        # p^(1/K), all of them keep the largest with at least p.
        low = float(self.device_quantile_s(p).max())
        z = self.fluctuation.tail_quantile(-float(np.expm1(np.log(p) / len(self))))
        high = float((self.shift_s + self.scale_s * z).max())
        while high - low > 1e-13 * high:
            middle = 0.5 * (low + high)
            if middle in (low, high):
                # Two neighboring doubles: there is nothing between them.
                break
            if self.cdf_of_max(middle) < p:
                low = middle
            else:
                high = middle
        return high

    def last_device(self, *, hessian: bool = False) -> LastDevice:
        """Return E[max] with its gradient, and with the table behind its Hessian if asked for."""
        y, weight = self._nodes()
        K = len(self)
        last = np.zeros(K)
        excess = np.zeros(K)
        hazards = np.zeros((K if hessian else 0, len(y)))
        if len(y) == 0:
            last[int(self.shift_s.argmax())] = 1.0
            return LastDevice(self.start_s, last, excess, hazards)

        product = np.exp(self._log_product(y))
        slack = self.start_s - self.shift_s
        block_size = max(1, _BLOCK // len(y))
        for k in range(0, K, block_size):
            block = slice(k, k + block_size)
            z, hazard = self._hazard(y, slack[block], self.scale_s[block])
            # On blocks of this size the threads of a matrix library cost more than they save.
            last[block] = np.einsum("kn,n->k", hazard, weight * product)
            excess[block] = np.einsum("kn,kn,n->k", hazard, z, weight * product)
            if hessian:
                hazards[block] = hazard * np.sqrt(weight * product)

        is_steady = self.scale_s == 0
        if is_steady.any():
            # The slowest device without fluctuation is last whenever no other device is.
            ends = np.where(is_steady, self.shift_s, -np.inf)
            last[int(ends.argmax())] = max(0.0, 1 - float(last.sum()))
        # They are probabilities: take the quadrature's error out of their sum.
        total = float(last.sum())
        expected_max_s = self.start_s + float(weight @ (1 - product))
        return LastDevice(expected_max_s, last / total, excess / total, hazards)

    def _hazard(self, y: Floats, slack: Floats, beta: Floats) -> tuple[Floats, Floats]:
        """Return z and f/F at the nodes, as tables over devices and nodes.

        Both are zero where they do not matter: for devices without fluctuation, and where F
        underflows, and with it the product of all.
        """
        z = _standardize(y, slack, beta)
        with np.errstate(divide="ignore", invalid="ignore"):
            hazard = self.fluctuation.density(z) / self.fluctuation.cdf(z) / beta[:, None]
        hazard[~np.isfinite(hazard)] = 0.0
        z[~np.isfinite(z)] = 0.0
        return z, hazard

    def draw(self, rng: np.random.Generator, iterations: int) -> Floats:
        """Return independent draws of every τ_k, of shape (iterations, K)."""
        E = self.fluctuation.draws
        X = rng.gamma(E, size=(iterations, len(self))) / E
        return self.shift_s + self.scale_s * X


def _standardize(y: Floats, slack: Floats, beta: Floats) -> Floats:
    """Return z_kn = (y_n + t₀ - x_k) / β_k; infinite for a device that does not fluctuate."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (y + slack[:, None]) / beta[:, None]
    # Also at its very end, where y + slack is zero.
    z[beta == 0] = np.inf
    return z
