r"""The paper's algorithm 2: options by optimal stopping and shares by algorithm 1, in turns.

**Stopping.** After layer ℓ a device has seen its compute time τ^cp_ℓ and either sends, and is done
at τ^cp_ℓ + τ^cm_ℓ, or goes on, which is worth E(V_{ℓ+1}). It sends if τ^cp_ℓ is below τ̂_ℓ =
E(V_{ℓ+1}) - τ^cm_ℓ. With x_ℓ = max(0, ε(τ̂_ℓ - a c_ℓ)/c_ℓ)

    E(V_ℓ) = min(a c_ℓ, τ̂_ℓ) + τ^cm_ℓ + (c_ℓ/ε)(1 - e^(-x_ℓ)),      P(stop at ℓ | reached) = 1 -
    e^(-x_ℓ).

This is the paper's closed form with the clip that it lacks: if τ̂ < a c the device never stops at
ℓ. The model takes the time for ℓ + 1 layers as independent of the time just seen for ℓ, so E(V_1)
is the latency of no realizable policy: never report it as one. The induction costs O(K L).

**Alternation.** Each device takes its most probable layer, algorithm 1 finds the shares for those,
and so on. Taking the most probable layer is a heuristic, and the alternation can cycle instead of
converging, so the best plan seen is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import require_integer, require_number
from airsplit.planning.problem import Problem
from airsplit.system.profile import Profile

# Devices whose stopping tables are held at once: bounds the memory at K × L.
_DEVICES_AT_ONCE = 1 << 14

_MOST_ROUNDS = 100


@dataclass(frozen=True, eq=False)
class StoppingTable:
    """The backward induction of one device, one entry a layer.

    Attributes:
        thresholds_s: τ̂_ℓ.
        expected_s: E(V_ℓ).
        probabilities: The probability of stopping at ℓ.
        split: The most probable split, counted from one.
    """

    thresholds_s: Floats
    expected_s: Floats
    probabilities: Floats
    split: int


def stopping_table(
    profile: Profile,
    seconds_per_mac: float,
    fluctuation: float,
    rate_bps: float,
    *,
    max_split: int | str | None = None,
    batch_size: int = 1,
    element_bits: int = 32,
) -> StoppingTable:
    """Return the backward induction of one device over the layers of a model.

    Args:
        max_split: The deepest split, a number or a name; None for the last.

    >>> p = Profile(["a", "b"], [10, 10], [10, 20], activation_elements=[40, 1], parameters=[1, 1])
    >>> table = stopping_table(p, 1.0, 1.0, 32.0)
    >>> table.expected_s.round(6).tolist(), table.split
    ([41.0, 41.0], 2)
    """
    # Public through airsplit, so the arguments are checked here.
    a = require_number("seconds_per_mac", seconds_per_mac, above=0)
    eps = require_number("fluctuation", fluctuation, above=0)
    rate = require_number("rate_bps", rate_bps, above=0)
    require_integer("batch_size", batch_size, low=1, high=10**9)
    require_integer("element_bits", element_bits, low=1, high=64)
    last = len(profile) if max_split is None else profile.split_of(max_split, "max_split")

    work = profile.macs[:last].astype(np.float64) * batch_size
    elements = profile.activation_elements[:last].astype(np.float64)
    transmit_s = elements * (batch_size * element_bits / rate)
    thresholds, expected, probabilities = backward_induction(
        work, transmit_s[None, :], np.array([a]), np.array([eps])
    )
    split = int(probabilities[0].argmax()) + 1
    return StoppingTable(thresholds[0], expected[0], probabilities[0], split)


def backward_induction(
    work: Floats, transmit_s: Floats, seconds_per_mac: Floats, fluctuation: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return thresholds, expectations and stopping probabilities, each K × L.

    Args:
        work: Work of the first ℓ layers, L entries.
        transmit_s: τ^cm, K × L; infinite where a device may not stop, finite somewhere in each row.
    """
    a, eps = seconds_per_mac, fluctuation
    K, L = transmit_s.shape
    thresholds = np.empty((K, L))
    expected = np.empty((K, L))
    stop = np.empty((K, L))
    # E(V_{ℓ+1}): behind the last layer there is nothing to go on to.
    onward = np.full(K, np.inf)
    for ell in reversed(range(L)):
        c = work[ell]
        is_usable = np.isfinite(transmit_s[:, ell])
        air_s = np.where(is_usable, transmit_s[:, ell], 0.0)
        threshold = np.where(is_usable, onward - air_s, -np.inf)
        if c > 0:
            x = eps * np.maximum(threshold - a * c, 0) / c
        else:
            # No work takes no time: the device stops if sending now is quicker.
            x = np.where(threshold > 0, np.inf, 0.0)
        stop[:, ell] = -np.expm1(-x)
        value = np.minimum(a * c, threshold) + air_s + (c / eps) * stop[:, ell]
        # Where it may not stop, a device just goes on.
        onward = np.where(is_usable, value, onward)
        thresholds[:, ell] = threshold
        expected[:, ell] = onward

    # The probability to get to ℓ: that of going on at every layer before it.
    reached = np.cumprod(np.hstack([np.ones((K, 1)), 1 - stop[:, :-1]]), axis=1)
    return thresholds, expected, reached * stop


@dataclass(frozen=True, eq=False)
class Alternation:
    """The best plan that the alternation visited, and where it went.

    Attributes:
        history: The latency of each visited plan.
        cycle: The number of plans that repeat: 1 if it converged, None if it ran out of rounds.
    """

    rows: Ints
    shares: Floats
    history: tuple[float, ...]
    cycle: int | None

    @property
    def status(self) -> str:
        """The end of the alternation, in a few words."""
        visited = len(self.history)
        if self.cycle == 1:
            return f"converged after {visited} alternations"
        best = "the best plan seen is kept"
        if self.cycle is None:
            return f"neither converged nor cycled within {visited} alternations; {best}"
        return f"cycles: {self.cycle} plans repeat after {visited} alternations; {best}"


def alternate(problem: Problem) -> Alternation:
    """Run algorithm 2 from equal shares until it stands still, cycles or runs out of rounds."""
    shares = np.full(problem.devices, 1 / problem.devices)
    turn_of: dict[bytes, int] = {}
    history: list[float] = []
    best_rows = np.empty(0, dtype=np.int64)
    best_shares = shares
    for turn in range(_MOST_ROUNDS):
        rows = most_probable_rows(problem, shares)
        key = rows.tobytes()
        if key in turn_of:
            return Alternation(best_rows, best_shares, tuple(history), turn - turn_of[key])
        turn_of[key] = turn

        shares = problem.allocate(rows, risk=1.0)
        history.append(problem.worst_s(rows, shares, 1.0))
        # The last plan of a cycle may be far from the best one.
        if history[-1] <= min(history):
            best_rows = rows
            best_shares = shares
    return Alternation(best_rows, best_shares, tuple(history), None)


def most_probable_rows(problem: Problem, shares: Floats) -> Ints:
    """Return ℓ* = argmax P(ℓ) of every device at its share."""
    options = problem.options
    # The induction goes through the options as through layers, in the order of their work.
    by_work = np.argsort(options.work[problem.allowed.rows], kind="stable")
    layers = problem.allowed.rows[by_work]
    work = options.work[layers]
    rows = np.empty(problem.devices, dtype=np.int64)
    for start in range(0, problem.devices, _DEVICES_AT_ONCE):
        some = slice(start, start + _DEVICES_AT_ONCE)
        link = problem.link.take(some).column()
        b = shares[some, None]
        air_s = link.seconds(options.up_bits[layers], options.down_bits[layers], b)
        air_s = air_s + problem.server_s[layers]
        is_allowed = problem.allowed.sets[:, layers][problem.allowed.set_of[some]]
        air_s = np.where(is_allowed, air_s, np.inf)
        a = problem.fleet.seconds_per_mac[some]
        eps = problem.fleet.fluctuation[some]
        _, _, probabilities = backward_induction(work, air_s, a, eps)
        rows[some] = layers[probabilities.argmax(axis=1)]
    return rows
