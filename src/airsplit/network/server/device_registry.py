"""The devices of a run as the server knows them, and what each is at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airsplit.core.errors import AirsplitError, UserCodeError
from airsplit.network.server.back_ends import BackEnd, Named, OneCopy
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import Outgoing

if TYPE_CHECKING:
    from airsplit.network.server.stream import Session

TRAINING, TRAINED, DROPPED = "training", "trained", "dropped"
ASSESSING, ASSESSED = "assessing", "assessed"
MOVING, MOVED = "moving", "moved"
AT_WORK = (TRAINING, ASSESSING, MOVING)
"""What a device may be at while the server waits for it."""


class Unwelcome(AirsplitError):
    """A device that is sound but does not belong here: another model, another version, one too many."""


@dataclass
class Work:
    """One order of the server to a device.

    deadline   on the monotonic clock
    step       the iteration that is expected next
    diverged   whether it was dropped because the training itself met a number that is not finite
    failure    what the user's code at the server raised on the data that the device sent
    one_copy   where gradients of the common layers are added up, if there is but one copy of them
    """

    order: int
    round: int
    deadline: float
    state: str = TRAINING
    why: str = ""
    back: BackEnd | None = None
    step: int = 0
    diverged: bool = False
    failure: UserCodeError | None = None
    one_copy: OneCopy | None = None
    losses: list[float] = field(default_factory=list)
    finished: pb.Finished | None = None
    assessed: pb.Assessed | None = None
    received: Named = field(default_factory=dict)
    sent_bytes: int = 0
    received_bytes: int = 0
    began: float = 0.0
    allowed_s: float = 0.0
    assess_until: float = 0.0
    evaluated: int = 0
    ended: float = 0.0

    def drop(self, why: str) -> None:
        """The round goes on without the device."""
        self.state, self.why, self.back = DROPPED, why, None


@dataclass
class Member:
    """A device of the run, connected or not.

    version    the round after which the server last kept what it trained
    versions   what it has kept of its front: rounds, and the split of each
    has_model  with federated averaging: the round after which it has the average
    """

    number: int
    name: str = ""
    session: Session | None = None
    arrived: bool = False
    samples: int = 0
    test_samples: int = 0
    measurement: dict[str, float] = field(default_factory=dict)
    version: int = 0
    versions: frozenset[tuple[int, int]] = frozenset()
    has_model: int = -1
    work: Work | None = None
    last_seen: float = 0.0

    @property
    def present(self) -> bool:
        """Whether it is connected and has said all that must be known of it."""
        return self.session is not None and self.arrived

    def begin_from(self, split: int) -> int:
        """The round to begin from: what the server last kept of it or, where the device has lost that, as it was at first."""
        return self.version if (self.version, split) in self.versions else 0


def skip(order: int, why: str) -> Outgoing[pb.ServerMessage]:
    """Tells a device that the round goes on without it."""
    return Outgoing(pb.ServerMessage(skip=pb.Skip(order=order, why=why)))
