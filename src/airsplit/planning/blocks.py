r"""Shares in whole resource blocks: the band comes in N equal blocks, device k gets n_k of them.

To finish by τ device k needs ⌈N q_k(τ)⌉ blocks, with q_k(τ) the share that it needs of a continuous
band. The number of blocks falls as τ grows, so the least τ with Σ_k ⌈N q_k(τ)⌉ ≤ N is
found by bisection: about 45 evaluations of q for the accuracy of a double.

E[max_k τ_k] does not separate by device. There the optimum of a continuous band is rounded down,
and single blocks go where they lower E[max_k τ_k] most.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.shares import allocate_shares, rounding_room
from airsplit.system.latency import LatencyLaw
from airsplit.system.radio import Link


def blocks_needed(shares: Floats, blocks: int) -> Floats:
    """Return the whole blocks that cover the shares, at least one each.

    A share that exceeds a whole number of blocks by rounding alone needs no more than that number.

    >>> blocks_needed(np.array([0.1, 0.2000000000000001, 0.25]), 10).tolist()
    [1.0, 2.0, 3.0]
    """
    return np.maximum(1.0, np.ceil(shares * blocks * (1 - 1e-12)))


def shares_of_blocks(counts: Ints, blocks: int) -> Floats:
    """Return numbers of blocks as shares of the band.

    They fall short of it by a rounding error, so that they sum to at most one in any order.

    >>> float(shares_of_blocks(np.full(10, 10), 100).sum()) <= 1.0
    True
    """
    return counts / blocks * rounding_room(len(counts))


def allocate(
    link: Link, up_bits: Floats, down_bits: Floats, busy_s: Floats, blocks: int | None = None
) -> Floats:
    """Return the shares that minimize max_k (busy_k + air time_k).

    Args:
        blocks: Number of resource blocks, or None if shares are continuous.

    >>> from airsplit.system.radio import Direction
    >>> link = Link(Direction(np.array([1e6, 1e6])))
    >>> allocate(link, np.array([1e6, 3e6]), np.zeros(2), np.zeros(2), blocks=10).round(9).tolist()
    [0.3, 0.7]
    """
    continuous = allocate_shares(link, up_bits, down_bits, busy_s)
    if blocks is None:
        return continuous.shares

    def needed_shares(finish_s: float) -> Floats:
        return link.share(up_bits, down_bits, finish_s - busy_s)

    # The end at which an allocation exists.
    _, finish_s = bracket_finish(needed_shares, blocks, continuous.finish_s)
    return share_out_blocks(link, up_bits, down_bits, busy_s, needed_shares(finish_s), blocks)


def bracket_finish(
    needed_shares: Callable[[float], Floats], blocks: int, lower_s: float
) -> tuple[float, float]:
    """Return a time by which no allocation in whole blocks finishes, and one by which one does.

    They differ by at most one part in 10¹³, or are equal if `lower_s` itself is feasible.

    Args:
        needed_shares: The shares with which each device just finishes by a given time.
        lower_s: The earliest finish of a continuous band.
    """

    def is_feasible(finish_s: float) -> bool:
        return bool(blocks_needed(needed_shares(finish_s), blocks).sum() <= blocks)

    # No finish is earlier than that of a continuous band: double from there, then bisect.
    low = lower_s
    high = lower_s
    while not is_feasible(high):
        low = high
        high = 2 * high
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        if is_feasible(middle):
            high = middle
        else:
            low = middle
    return low, high


def share_out_blocks(
    link: Link, up_bits: Floats, down_bits: Floats, busy_s: Floats, needed: Floats, blocks: int
) -> Floats:
    """Cover the needed shares with blocks; give the blocks left to those that finish last."""
    counts = blocks_needed(needed, blocks).astype(np.int64)
    finish_s = busy_s + link.seconds(up_bits, down_bits, counts / blocks)
    # A heap, because there may be thousands of blocks. It pops the smallest, hence the sign.
    queue = [(-float(finish), k) for k, finish in enumerate(finish_s)]
    heapq.heapify(queue)

    for _ in range(blocks - int(counts.sum())):
        _, k = heapq.heappop(queue)
        counts[k] += 1
        alone = slice(k, k + 1)
        share = np.array([counts[k] / blocks])
        air_s = link.take(alone).seconds(up_bits[alone], down_bits[alone], share)
        heapq.heappush(queue, (-float(busy_s[k] + air_s[0]), k))
    return shares_of_blocks(counts, blocks)


def round_to_blocks(
    shares: Floats,
    blocks: int,
    air_s: Callable[[Floats], Floats],
    law: Callable[[Floats], LatencyLaw],
    objective_s: Callable[[LatencyLaw], float],
) -> Floats:
    """Return multiples of 1/N near the shares with a low E[max_k τ_k], at least one block each.

    Round down, give the blocks left over to where they help most, then exchange single blocks while
    that lowers the objective. A heuristic: its result is judged by the bound of the continuous
    band.

    Args:
        air_s: Air time of each device at given shares.
        law: The law of the latency at given shares.
        objective_s: E[max_k τ_k] of a law, or a quantile of max_k τ_k.
    """

    def gain(counts: Ints, more: int = 1) -> Floats:
        """Decrease of E[max], to first order, if one device alone got that many blocks more."""
        last = law(counts / blocks).last_device().last
        return last * (air_s(counts / blocks) - air_s((counts + more) / blocks))

    def exchange(counts: Ints) -> Ints | None:
        """Move a block from the device that misses it least to the one that needs it most."""
        if counts.max() == 1 or len(counts) == 1:
            return None
        # A device with one block cannot give; its loss is never looked at, but must be finite to
        # compute.
        loss = np.where(counts > 1, -gain(np.maximum(counts, 2), -1), np.inf)
        giver = int(loss.argmin())
        taker = int(gain(counts).argmax())
        if giver == taker:
            return None
        trial = counts.copy()
        trial[giver] -= 1
        trial[taker] += 1
        return trial

    counts = np.maximum(1, np.floor(shares * blocks * (1 + 1e-12))).astype(np.int64)
    while counts.sum() > blocks:
        # One block for every device may be too many: take from those rounded up the most.
        excess = np.where(counts > 1, counts - shares * blocks, -np.inf)
        counts[int(excess.argmax())] -= 1
    while counts.sum() < blocks:
        counts[int(gain(counts).argmax())] += 1

    value = objective_s(law(counts / blocks))
    # Each exchange costs several quadratures, so their number is limited.
    for _ in range(2 * len(shares)):
        trial = exchange(counts)
        if trial is None:
            break
        reached = objective_s(law(trial / blocks))
        if reached >= value:
            break
        counts = trial
        value = reached
    return shares_of_blocks(counts, blocks)
