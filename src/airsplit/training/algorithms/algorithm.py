"""Algorithm: the one shape that all learning algorithms have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airsplit.core.arrays import Ints
from airsplit.core.errors import InvalidValue
from airsplit.training.local_steps import Crew, Task
from airsplit.training.state import State
from airsplit.training.virtual_time import Charges, Terms


@dataclass(frozen=True)
class Algorithm:
    """A training algorithm.

    Attributes:
        name: Name in records and tables.
        boundary: Maps the splits to the split up to which layers are personal; 0 for none.
        round: Trains one round; returns the mean loss, or None if no device finished.
        charges: What a round costs on the virtual clock.
        in_turns: Whether devices train one after the other, each from where the previous one ended.
    """

    name: str
    boundary: Callable[[Ints], int]
    round: Callable[[Crew, State, Task], float | None]
    charges: Callable[[Terms], Charges]
    in_turns: bool = False

    def require_fit(self, processes: int) -> None:
        """Raise where so many processes cannot share the work."""
        if self.in_turns and processes > 1:
            raise InvalidValue(
                f'training.algorithm "{self.name}" trains one device after the other, which {processes} processes cannot share; '
                "run it without torchrun"
            )


def nothing_personal(splits: Ints) -> int:  # noqa: ARG001 - one shape for all
    """Every layer is common from round to round."""
    return 0
