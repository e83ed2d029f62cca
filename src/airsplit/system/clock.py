"""Clock: the costs of an iteration that count, and when devices wait for each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.declared_settings import check_settings, flag, number, one_of, whole_number
from airsplit.system.profile import Profile

BARRIERS = ("iteration", "round")

# A backward_macs_ratio that takes the backward work from the profile.
COUNTED = "counted"


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The costs of an iteration that count; the defaults are the paper's.

    Attributes:
        barrier: "iteration" if all devices wait for each other after every iteration, "round" if
            each runs its E iterations freely.
        iterations_per_round: Number E of iterations in a round.
        downlink: Whether sending gradients back takes time, at the same share of the downlink.
        backward_macs_ratio: Backward work on the device as a multiple of its forward work c, so
            that its work is c (1 + ratio); or "counted" for what the profile says, which leaves
            out frozen layers.
        server_seconds_per_mac: Pace of the server on the remaining layers; zero in the paper.
        server_parallel: Number of back ends that the server runs in parallel without slowing down
            (default: all of them).

    >>> clock = Clock(barrier="round", iterations_per_round=20, server_seconds_per_mac=1e-12)
    >>> clock.draws, Clock(iterations_per_round=20).draws
    (20, 1)
    """

    barrier: Annotated[str, one_of(BARRIERS)] = "iteration"
    iterations_per_round: Annotated[int, whole_number(low=1)] = 1
    downlink: Annotated[bool, flag()] = False
    backward_macs_ratio: Annotated[float | str, number(low=0, word=COUNTED)] = 0.0
    server_seconds_per_mac: Annotated[float, number(low=0)] = 0.0
    server_parallel: Annotated[int | None, whole_number(low=1)] = None

    def __post_init__(self) -> None:
        check_settings("clock", Clock, vars(self))

    def replace(self, **changes: Any) -> Clock:
        """Return a variant of this clock."""
        return replace(self, **changes)

    def work(self, profile: Profile) -> Floats:
        """Return c_ℓ: MACs on the device at each split for one sample, with what counts backward.

        >>> profile = Profile(["a"], [8], [8], activation_elements=[4], parameters=[1],
        ...                   backward_macs=[12])
        >>> Clock().work(profile), Clock(backward_macs_ratio=2.0).work(profile)
        (array([8.]), array([24.]))
        >>> Clock(backward_macs_ratio="counted").work(profile)
        array([20.])
        """
        # Doubles, because a large batch of a large model leaves 64 bits.
        if isinstance(self.backward_macs_ratio, str):
            return profile.macs.astype(np.float64) + profile.backward_macs
        return profile.macs.astype(np.float64) * (1 + self.backward_macs_ratio)

    @property
    def draws(self) -> int:
        """Number of compute times that a device draws between two barriers."""
        return self.iterations_per_round if self.barrier == "round" else 1

    def server_pace(self, devices: int) -> float:
        """Return the seconds per MAC of one back end while K of them share the server.

        Twenty back ends on a server for four take five times as long:

        >>> Clock(server_seconds_per_mac=1e-12, server_parallel=4).server_pace(20)
        5e-12
        """
        # More back ends than fit take turns; fewer are no faster than one alone.
        parallel = devices if self.server_parallel is None else self.server_parallel
        return self.server_seconds_per_mac * max(1.0, devices / parallel)
