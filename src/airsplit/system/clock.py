"""What one iteration is charged for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.errors import InvalidValue, require_choice, require_integer, require_number, show
from airsplit.system.profile import Profile

BARRIERS = ("iteration", "round")
COUNTED = "counted"


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The costs that count, and when devices wait for each other.  The defaults are the paper's.

    barrier                 "iteration": all wait after every iteration; "round": each runs its E iterations freely
    iterations_per_round    E
    downlink                whether the gradient's way back takes time, at the same share of the downlink
    backward_macs_ratio     backward work on the device as a multiple of forward work, one draw of c (1 + ratio); or "counted":
                            as much as the profile says, which knows what is frozen
    server_seconds_per_mac  the server's pace on the back ends; zero in the paper
    server_parallel         how many back ends it runs at once without slowing down; None: all of them
    """

    barrier: str = "iteration"
    iterations_per_round: int = 1
    downlink: bool = False
    backward_macs_ratio: float | str = 0.0
    server_seconds_per_mac: float = 0.0
    server_parallel: int | None = None

    def __post_init__(self) -> None:
        require_choice("clock.barrier", self.barrier, BARRIERS)
        require_integer("clock.iterations_per_round", self.iterations_per_round, low=1)
        if not isinstance(self.downlink, bool):
            raise InvalidValue(f"clock.downlink must be True or False, got {show(self.downlink)}")
        if self.backward_macs_ratio != COUNTED:
            require_number(
                "clock.backward_macs_ratio",
                self.backward_macs_ratio,
                low=0,
                hint=f'; or write "{COUNTED}"',
            )
        require_number("clock.server_seconds_per_mac", self.server_seconds_per_mac, low=0)
        if self.server_parallel is not None:
            require_integer("clock.server_parallel", self.server_parallel, low=1)

    def replace(self, **changes: Any) -> Clock:
        """A variant of this clock."""
        return replace(self, **changes)

    def work(self, profile: Profile) -> Floats:
        """MACs on the device at each split, for one sample: forward and, where it counts, backward.

        >>> profile = Profile(["a"], [8], matmul_macs=[8], activation_elements=[4], parameters=[1], backward_macs=[12])
        >>> Clock().work(profile), Clock(backward_macs_ratio=2.0).work(profile), Clock(backward_macs_ratio="counted").work(profile)
        (array([8.]), array([24.]), array([20.]))
        """
        if isinstance(self.backward_macs_ratio, str):
            return profile.macs.astype(np.float64) + profile.backward_macs
        return profile.macs.astype(np.float64) * (1 + self.backward_macs_ratio)

    @property
    def draws(self) -> int:
        """How many compute times pass before devices wait for each other."""
        return self.iterations_per_round if self.barrier == "round" else 1

    def server_pace(self, devices: int) -> float:
        """Seconds per MAC of one back end while all `devices` of them share the server.

        >>> Clock(server_seconds_per_mac=1e-12, server_parallel=4).server_pace(20)
        5e-12
        """
        parallel = devices if self.server_parallel is None else self.server_parallel
        return self.server_seconds_per_mac * max(1.0, devices / parallel)
