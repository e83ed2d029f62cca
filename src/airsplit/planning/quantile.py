r"""A quantile of the iteration: the least τ with P[max_k τ_k ≤ τ] = Π_k F_k ≥ p.

For a given τ the best plan maximizes Σ_k ln F_k(τ; ℓ_k, b_k) with Σ_k b_k ≤ 1, where F_k is the
distribution function of device k's latency at option ℓ_k and share b_k. With a price ν ≥ 0 on the
band this separates by device,

    Σ_k ln F_k ≤ Σ_k max_{ℓ, b} [ln F_k(τ; ℓ, b) - ν b] + ν,

and if the right-hand side is below ln p, no plan keeps τ: a lower bound. ln F_k is concave in b_k,
so for given options the bound is attained, and the same search gives the best shares. One
evaluation of the right-hand side is a pass over the K × R table with a few Newton steps in each
entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.branch_and_bound import Candidate, Node
from airsplit.planning.cost_table import CostTable, select
from airsplit.planning.options import Mask
from airsplit.system.radio import TransmitTime


@dataclass(frozen=True, eq=False)
class Response:
    """The response of each device to a price on the band.

    Attributes:
        values: max_b [ln F - ν b] of each option, from above; K × R.
        shares: The maximizing shares, K × R.
        choice: The best option of each device.
    """

    values: Floats
    shares: Floats
    choice: Ints

    @cached_property
    def total(self) -> float:
        """Σ_k max_ℓ (ln F - ν b)."""
        return float(self.values.max(axis=1).sum())

    def chosen_shares(self) -> Floats:
        """Return the share of each device at its choice."""
        return select(self.shares, self.choice)

    @cached_property
    def spare(self) -> float:
        """1 - Σ b: the rest of the band, which is the slope of the bound in the price."""
        return 1 - float(self.chosen_shares().sum())


@dataclass(frozen=True, eq=False)
class Priced:
    """A time, and the price on the band at which it is used once.

    Attributes:
        greedy: The response just below the price.
        frugal: The response just above the price.
        bound: An upper bound on Σ ln F.
    """

    tau: float
    price: float
    greedy: Response
    frugal: Response
    bound: float


def least_quantile(
    table: CostTable, allowed: Mask, p: float, low: float, high: float
) -> tuple[float, Priced]:
    """Return the least τ that the bound does not exclude, and the responses there.

    That τ is a lower bound on every plan, accurate to 1e-9. Newton on the bound, whose slope is
    Σ_k (f/F)/β, within the bracket.

    Args:
        low: A time that no plan keeps.
        high: A time that the bound does not exclude.
    """
    goal = float(np.log(p))
    at = _best_price(table, allowed, high, 1.0, goal)
    kept = at
    tau = high
    for turn in range(60):
        tau = low
        if np.isfinite(at.bound):
            tau = at.tau - (at.bound - goal) / _slope_in_time(table, at)
        if turn % 2:
            # Look just below the root, so that the bracket closes from that side too.
            tau *= 1 - 3e-10
        if not low < tau < high:
            tau = 0.5 * (low + high)

        at = _best_price(table, allowed, tau, kept, goal)
        if at.bound < goal:
            low = tau
        else:
            high = tau
            kept = at
        if high - low <= 1e-9 * high:
            break
    return low, kept


def _slope_in_time(table: CostTable, at: Priced) -> float:
    """Return the slope of the bound in τ: Σ_k (f/F)/β at the frugal response."""
    law = table.law(at.frugal.choice, at.frugal.chosen_shares())
    X = law.fluctuation
    z = (at.tau - law.shift_s) / np.maximum(law.scale_s, 1e-300)
    with np.errstate(all="ignore"):
        hazard = X.density(z) / X.cdf(z) / law.scale_s
    # Devices without fluctuation drop out. With no slope at all the step is nil.
    return float(np.nan_to_num(hazard, nan=0.0, posinf=0.0).sum()) or 1e300


def _best_price(
    table: CostTable, allowed: Mask, tau: float, near: Priced | float, goal: float
) -> Priced:
    """Return the price with the least bound, or one that settles on which side of `goal` it is.

    The bound is convex in the price with slope 1 - Σ b; two tangents bound its least value from
    below.
    """
    if isinstance(near, Priced):
        price = near.price
        guess = near.frugal.shares
    else:
        price = near
        guess = None
    # Start where the last search ended: τ has changed little since.
    low = high = price
    greedy = frugal = respond(table, allowed, tau, price, guess)
    # Some device cannot keep τ with any option: no price is needed to exclude it.
    if not np.isfinite(greedy.total):
        return Priced(tau, price, greedy, frugal, -np.inf)

    # Bracket the best price, in ever larger steps.
    factor = 1.2
    while greedy.spare < 0 and frugal.spare < 0 and high < 1e15 * price:
        low = high
        greedy = frugal
        high *= factor
        factor **= 2
        frugal = respond(table, allowed, tau, high, frugal.shares)
    while frugal.spare > 0 and greedy.spare > 0 and low > 1e-15 * price:
        high = low
        frugal = greedy
        low /= factor
        factor **= 2
        greedy = respond(table, allowed, tau, low, greedy.shares)

    for turn in range(60):
        bound = min(greedy.total + low, frugal.total + high)
        if bound < goal or high - low <= 1e-11 * high or frugal.spare - greedy.spare < 1e-11:
            break
        floor, middle = cross_tangents(low, greedy, high, frugal)
        # The bound stays above the goal at any price, or is known well enough.
        if floor >= goal or bound - floor <= 1e-12:
            break
        if turn % 3 == 2 or not low < middle < high:
            middle = np.sqrt(low * high)
        response = respond(table, allowed, tau, middle, frugal.shares)
        if response.spare < 0:
            low = middle
            greedy = response
        else:
            high = middle
            frugal = response
    return Priced(tau, high, greedy, frugal, min(greedy.total + low, frugal.total + high))


def cross_tangents(
    low: float, greedy: Response, high: float, frugal: Response
) -> tuple[float, float]:
    """Return the bound and the price where its tangents at two prices cross.

    That bound is below the least one.
    """
    left = greedy.total + low
    right = frugal.total + high
    rise = left - right - greedy.spare * low + frugal.spare * high
    price = rise / (frugal.spare - greedy.spare)
    return left + greedy.spare * (price - low), float(price)


def respond(
    table: CostTable, allowed: Mask, tau: float, nu: float, guess: Floats | None = None
) -> Response:
    """Maximize ln F_k - ν b over b, for every device and option.

    The slope of ln F in b is (f/F)(z) · |t'(b)| / β at z = (τ - x - t(b)) / β; it falls from
    infinity at the least usable share. Newton on its logarithm, within a bracket.
    """
    X = table.problem.fluctuation
    theta = tau - table.shift_s
    beta = np.maximum(table.scale_s, 1e-300)
    payload_and_time = np.broadcast_arrays(table.up_bits, table.down_bits, theta)
    least = table.problem.link.column().share(*payload_and_time)
    is_usable = allowed & (least < 1)
    # Entries that cannot be used run along with harmless numbers.
    theta = np.where(is_usable, theta, np.inf)
    least = np.where(is_usable, least, 1e-3)

    low = least
    high = np.ones_like(least)
    b = np.sqrt(least)
    if guess is not None:
        b = np.where((guess > least) & (guess < 1), guess, b)
    with np.errstate(all="ignore"):
        # Even the last bit of band is worth its price.
        takes_all = _slope(table, theta, beta, high)[2] >= nu
        b = np.where(takes_all, 1.0, b)
        for _ in range(60):
            t, hazard, slope = _slope(table, theta, beta, b)
            excess = np.log(slope) - np.log(nu)
            low = np.where(excess > 0, b, low)
            high = np.where(excess > 0, high, b)
            z = (theta - t.seconds) / beta
            # The derivative of ln slope in ln b.
            bend = b * ((X.log_slope(z) - hazard) * -t.slope / beta + t.curvature / t.slope)
            newton = b * np.exp(-excess / bend)
            step = np.where((newton > low) & (newton < high), newton, np.sqrt(low * high))
            has_converged = (np.abs(excess) <= 1e-11) | (np.abs(newton - b) <= 1e-13 * b)
            is_done = takes_all | ~is_usable | has_converged
            b = np.where(is_done, b, step)
            if is_done.all():
                break

        t, _, slope = _slope(table, theta, beta, b)
        # The rest of the slope counts for the worst share, which concavity allows.
        rest = np.where(slope > nu, (slope - nu) * (1 - b), (nu - slope) * (b - least))
        values = np.log(X.cdf((theta - t.seconds) / beta)) - nu * b + rest

    # A device that does not fluctuate needs its least share exactly, and no more.
    is_steady = table.scale_s == 0
    b = np.where(is_steady, least, b)
    values = np.where(is_steady, -nu * least, values)
    values = np.where(is_usable, values, -np.inf)
    return Response(values, b, values.argmax(axis=1))


def _slope(
    table: CostTable, theta: Floats, beta: Floats, b: Floats
) -> tuple[TransmitTime, Floats, Floats]:
    """Return air time, f/F, and the slope of ln F in the share."""
    X = table.problem.fluctuation
    t = table.air(b)
    z = (theta - t.seconds) / beta
    hazard = X.density(z) / X.cdf(z)
    return t, hazard, hazard * -t.slope / beta


@dataclass(frozen=True, eq=False)
class QuantileOfMax:
    """The p-quantile of max_k τ_k as an objective for branch and bound.

    Attributes:
        lower_s: A proven lower bound on every plan, from which searches start.
    """

    table: CostTable
    p: float
    lower_s: float

    def refine(self, choice: Ints, shares: Floats) -> Candidate:
        """Return a choice with its best shares, or with the given ones if those are better."""
        given_s = self.table.law(choice, shares).max_quantile_s(self.p)
        table = self.table.only(choice)
        high = given_s * (1 + 1e-9)
        _, at = least_quantile(table, table.allowed, self.p, self.lower_s, high)
        b = at.frugal.chosen_shares()
        b = b / b.sum()
        value_s = self.table.law(choice, b).max_quantile_s(self.p)
        if value_s < given_s:
            return Candidate(choice, b, value_s)
        return Candidate(choice, shares, given_s)

    def improve(self, candidate: Candidate, most_tries: int) -> Candidate:  # noqa: ARG002
        """Return the candidate: branching alone finds better plans."""
        return candidate

    def relax(
        self,
        allowed: Mask,
        weights: Floats,
        shares: Floats,
        *,
        enough_s: float,
        steps: int,  # noqa: ARG002 - the relaxation of the mean has steps
    ) -> Node:
        """Bound all plans with allowed options by the price; it needs no point to start from."""
        unknown = np.zeros_like(weights)
        goal = float(np.log(self.p))
        if _best_price(self.table, allowed, enough_s, 1.0, goal).bound < goal:
            return Node(allowed, enough_s, weights, shares, unknown, np.zeros(len(shares)))

        low, at = least_quantile(self.table, allowed, self.p, self.lower_s, enough_s)
        eye = np.eye(weights.shape[1])
        # Half of each side of the price: options on which the two sides differ get branched.
        mixed = 0.5 * (eye[at.greedy.choice] + eye[at.frugal.choice])
        b = at.frugal.chosen_shares()
        return Node(allowed, low, mixed, b / b.sum(), unknown, 1 - mixed.max(axis=1))

    def round_mixture(self, node: Node) -> list[Ints]:
        """Return the choices on the two sides of the price."""
        weights = np.where(node.allowed, node.weights, -1.0)
        first = weights.argmax(axis=1)
        last = weights.shape[1] - 1 - weights[:, ::-1].argmax(axis=1)
        return [first] if (first == last).all() else [first, last]
