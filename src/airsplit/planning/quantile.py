r"""A quantile of the iteration: the least τ with P[max_k τ_k ≤ τ] = Π_k F_k ≥ p.

For a given τ the best plan maximizes Σ_k ln F_k(τ; ℓ_k, b_k) with Σ b_k ≤ 1.  With a price ν on the band this falls apart by device,

    V(τ) ≤ Σ_k max_{ℓ, b} [ln F_k(τ; ℓ, b) - ν b] + ν,

and where the right-hand side is below ln p no plan keeps τ: a lower bound.  ln F_k is concave in b_k, so for given splits the bound is
attained and the same search gives the best shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.branch_and_bound import Candidate, Node
from airsplit.planning.options import Mask, SplitTable, pick
from airsplit.system.radio import TransmitTime


@dataclass(frozen=True, eq=False)
class Response:
    """What each device would do at a price: values ln F - ν b (K × R, from above), shares K × R, and the choices taken."""

    values: Floats
    shares: Floats
    choice: Ints

    @cached_property
    def total(self) -> float:
        """Σ_k max_ℓ (ln F - ν b)."""
        return float(self.values.max(axis=1).sum())

    def taken(self) -> Floats:
        """The share of each device at its choice."""
        return pick(self.shares, self.choice)

    @cached_property
    def spare(self) -> float:
        """1 - Σ b: what is left of the band; the slope of the bound in the price."""
        return 1 - float(self.taken().sum())


@dataclass(frozen=True, eq=False)
class Priced:
    """A time, the price at which the band is used once, the responses just below and above it, and the bound on Σ ln F."""

    tau: float
    price: float
    greedy: Response
    frugal: Response
    bound: float


def least_quantile(
    table: SplitTable, allowed: Mask, p: float, low: float, high: float
) -> tuple[float, Priced]:
    """The least τ that the bound does not exclude: a proven lower bound to 1e-9, and what devices do there.

    No plan may keep `low`, and the bound must not exclude `high`.  Newton on the bound, whose slope is Σ_k (f/F)/β, within the bracket.
    """
    goal = float(np.log(p))
    at = _best_price(table, allowed, high, 1.0, goal)
    kept, tau = at, high
    for turn in range(60):
        tau = (
            at.tau - (at.bound - goal) / _slope_in_time(table, at) if np.isfinite(at.bound) else low
        )
        if turn % 2:  # look just below the root, so that the bracket closes from that side too
            tau *= 1 - 3e-10
        if not low < tau < high:
            tau = 0.5 * (low + high)
        at = _best_price(table, allowed, tau, kept, goal)
        if at.bound < goal:
            low = tau
        else:
            high, kept = tau, at
        if high - low <= 1e-9 * high:
            break
    return low, kept


def _slope_in_time(table: SplitTable, at: Priced) -> float:
    choice, b = at.frugal.choice, at.frugal.taken()
    law = table.law(choice, b)
    z = (at.tau - law.shift_s) / np.maximum(law.scale_s, 1e-300)
    X = law.fluctuation
    with np.errstate(all="ignore"):
        hazard = X.density(z) / X.cdf(z) / law.scale_s
    return float(np.nan_to_num(hazard, nan=0.0, posinf=0.0).sum()) or 1e300


def _best_price(
    table: SplitTable, allowed: Mask, tau: float, near: Priced | float, goal: float
) -> Priced:
    """The price with the least bound, or one that settles on which side of `goal` the bound is.

    The bound is convex in the price with slope 1 - Σ b; two tangents bound its least value from below.
    """
    price, guess = (near, None) if isinstance(near, float) else (near.price, near.frugal.shares)
    low = high = price
    greedy = frugal = respond(table, allowed, tau, price, guess)
    if not np.isfinite(greedy.total):
        return Priced(tau, price, greedy, frugal, -np.inf)
    factor = 1.2
    while greedy.spare < 0 and frugal.spare < 0 and high < 1e15 * price:
        low, greedy = high, frugal
        high, factor = high * factor, factor**2
        frugal = respond(table, allowed, tau, high, frugal.shares)
    while frugal.spare > 0 and greedy.spare > 0 and low > 1e-15 * price:
        high, frugal = low, greedy
        low, factor = low / factor, factor**2
        greedy = respond(table, allowed, tau, low, greedy.shares)
    for turn in range(60):
        bound = min(greedy.total + low, frugal.total + high)
        if bound < goal or high - low <= 1e-11 * high or frugal.spare - greedy.spare < 1e-11:
            break
        floor, middle = _crossing(low, greedy, high, frugal)
        if floor >= goal or bound - floor <= 1e-12:
            break
        if turn % 3 == 2 or not low < middle < high:
            middle = np.sqrt(low * high)
        response = respond(table, allowed, tau, middle, frugal.shares)
        if response.spare < 0:
            low, greedy = middle, response
        else:
            high, frugal = middle, response
    return Priced(tau, high, greedy, frugal, min(greedy.total + low, frugal.total + high))


def _crossing(low: float, greedy: Response, high: float, frugal: Response) -> tuple[float, float]:
    """Where the tangents of the bound at two prices meet: its value, which is below the least bound, and the price."""
    left, right = greedy.total + low, frugal.total + high
    price = (left - right - greedy.spare * low + frugal.spare * high) / (
        frugal.spare - greedy.spare
    )
    return left + greedy.spare * (price - low), float(price)


def respond(
    table: SplitTable, allowed: Mask, tau: float, nu: float, guess: Floats | None = None
) -> Response:
    """max_b [ln F_k - ν b] for every device and split, by Newton on the logarithm of the slope within a bracket.

    The slope of ln F in b is (f/F)(z) · |t'(b)| / β at z = (τ - x - t(b)) / β; it falls from infinity at the least usable share.
    """
    X = table.problem.fluctuation
    theta, beta = tau - table.shift_s, np.maximum(table.scale_s, 1e-300)
    least = table.problem.link.column().share(
        *np.broadcast_arrays(table.up_bits, table.down_bits, theta)
    )
    usable = allowed & (least < 1)
    theta = np.where(usable, theta, np.inf)
    least = np.where(usable, least, 1e-3)
    low, high = least, np.ones_like(least)
    b = (
        np.sqrt(least)
        if guess is None
        else np.where((guess > least) & (guess < 1), guess, np.sqrt(least))
    )
    with np.errstate(all="ignore"):
        whole = (
            _slope(table, theta, beta, high)[2] >= nu
        )  # even the last bit of band is worth its price
        b = np.where(whole, 1.0, b)
        for _ in range(60):
            t, hazard, slope = _slope(table, theta, beta, b)
            excess = np.log(slope) - np.log(nu)
            low, high = np.where(excess > 0, b, low), np.where(excess > 0, high, b)
            z = (theta - t.seconds) / beta
            bend = b * ((X.log_slope(z) - hazard) * -t.slope / beta + t.curvature / t.slope)
            newton = b * np.exp(-excess / bend)
            step = np.where((newton > low) & (newton < high), newton, np.sqrt(low * high))
            done = whole | ~usable | (np.abs(excess) <= 1e-11) | (np.abs(newton - b) <= 1e-13 * b)
            b = np.where(done, b, step)
            if done.all():
                break
        t, _, slope = _slope(table, theta, beta, b)
        # the rest of the slope counts for the worst share, which concavity allows
        rest = np.where(slope > nu, (slope - nu) * (1 - b), (nu - slope) * (b - least))
        values = np.log(X.cdf((theta - t.seconds) / beta)) - nu * b + rest
    steady = table.scale_s == 0
    b = np.where(steady, least, b)
    values = np.where(usable, np.where(steady, -nu * least, values), -np.inf)
    return Response(values, b, values.argmax(axis=1))


def _slope(
    table: SplitTable, theta: Floats, beta: Floats, b: Floats
) -> tuple[TransmitTime, Floats, Floats]:
    """Air time, f/F and the slope of ln F in the share."""
    X = table.problem.fluctuation
    t = table.transmit_all(b)
    z = (theta - t.seconds) / beta
    hazard = X.density(z) / X.cdf(z)
    return t, hazard, hazard * -t.slope / beta


@dataclass(frozen=True, eq=False)
class QuantileOfMax:
    """The p-quantile of max_k τ_k as an objective for branch and bound; no plan is below `lower_s`."""

    table: SplitTable
    p: float
    lower_s: float

    def polished(self, choice: Ints, shares: Floats) -> Candidate:
        """The best shares for a choice."""
        table = self.table.only(choice)
        high = self.table.law(choice, shares).max_quantile_s(self.p)
        _, at = least_quantile(table, table.allowed, self.p, self.lower_s, high * (1 + 1e-9))
        taken = at.frugal.taken()
        b = taken / taken.sum()
        value = self.table.law(choice, b).max_quantile_s(self.p)
        return Candidate(choice, b, value) if value < high else Candidate(choice, shares, high)

    def improved(self, candidate: Candidate, most_tries: int) -> Candidate:  # noqa: ARG002 - branching alone finds the rest
        return candidate

    def relaxed(
        self,
        allowed: Mask,
        weights: Floats,
        shares: Floats,
        *,
        enough_s: float,
        steps: int,  # noqa: ARG002 - the mean's relaxation takes it
    ) -> Node:
        """The dual bound over the allowed splits, which does not need a point to start at."""
        goal = float(np.log(self.p))
        if _best_price(self.table, allowed, enough_s, 1.0, goal).bound < goal:
            return Node(
                allowed, enough_s, weights, shares, np.zeros_like(weights), np.zeros(len(shares))
            )
        low, at = least_quantile(self.table, allowed, self.p, self.lower_s, enough_s)
        eye = np.eye(weights.shape[1])
        mixed = 0.5 * (eye[at.greedy.choice] + eye[at.frugal.choice])
        b = at.frugal.taken()
        return Node(allowed, low, mixed, b / b.sum(), np.zeros_like(weights), 1 - mixed.max(axis=1))

    def roundings(self, node: Node) -> list[Ints]:
        """The choices on the two sides of the price."""
        first = np.where(node.allowed, node.weights, -1.0).argmax(axis=1)
        last = (
            node.weights.shape[1]
            - 1
            - np.where(node.allowed, node.weights, -1.0)[:, ::-1].argmax(axis=1)
        )
        return [first] if (first == last).all() else [first, last]
