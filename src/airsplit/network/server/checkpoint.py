"""The server's checkpoint: the common layers, what it has of each device alone, and who the devices are.

The files are those of a simulated run's checkpoint.  The layers up to a device's split are not in it: they are on the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from airsplit.core.errors import FileProblem, InvalidValue, require_integer, require_number
from airsplit.network.names import require_name
from airsplit.network.server.back_ends import BackEnds
from airsplit.training.checkpoint import (
    COMMON,
    NETWORK,
    OWN,
    Progress,
    fitting,
    read_checkpoint,
    write_checkpoint,
)
from airsplit.training.integrity import require_fingerprint
from airsplit.training.replica import Replica


@dataclass(frozen=True)
class Who:
    """What a server must know, besides its tensors, to go on.

    run           the run's own name, which devices have in their checkpoints
    names         of the devices, by their numbers
    samples       of each
    versions      of each, the round after which the server last kept what it trained
    order         the last order that was given
    server_seconds_per_mac   as it was measured
    """

    run: str
    names: list[str]
    samples: list[int]
    versions: list[int]
    order: int
    server_seconds_per_mac: float

    def check(self, devices: int) -> None:
        if not isinstance(self.run, str) or not self.run:
            raise InvalidValue("run must be a text")
        for column in (self.names, self.samples, self.versions):
            if not isinstance(column, list) or len(column) != devices:
                raise InvalidValue(f"names, samples and versions must be lists of {devices}")
        for name in self.names:
            require_name("a device's name", name)
        for number in (*self.samples, *self.versions, self.order):
            require_integer("samples, versions, order", number, low=0)
        require_number("server_seconds_per_mac", self.server_seconds_per_mac, low=0)


def write_kept(folder: Path, back_ends: BackEnds, progress: Progress, who: Who) -> None:
    """Replace the checkpoint; the one before it is there until the new one is whole."""
    tensors = {f"{COMMON}{name}": tensor for name, tensor in back_ends.common.items()}
    for k, own in enumerate(back_ends.own):
        tensors |= {f"{OWN}{k}/{name}": tensor for name, tensor in own.items()}
    # layers may move between two rounds: the number of the order makes the name new all the same
    name = f"round-{progress.round:06d}-{who.order}"
    about = asdict(progress) | {NETWORK: asdict(who)}
    # One is enough: devices keep only the layers that belong to the newest.
    write_checkpoint(folder, tensors, back_ends.replica.fixed, about, name, kept=1)


def read_kept(
    folder: Path, replica: Replica, fingerprint: str
) -> tuple[BackEnds, Progress, Who] | None:
    """The checkpoint of a server; None where there is none yet.

    fingerprint   of the model's profile
    """
    kept = read_checkpoint(folder)
    if kept is None:
        return None
    progress, tensors = kept.progress, kept.tensors
    require_fingerprint(progress.fingerprint, fingerprint, f"checkpoint {str(folder)!r}")
    try:
        who = Who(**kept.about[NETWORK])
        who.check(len(progress.splits))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileProblem(
            f"checkpoint {str(folder)!r} is not that of a server: {type(error).__name__}: {error}"
        ) from None
    deepest = len(replica.outline.splits)
    if max((*progress.splits, progress.boundary)) > deepest:
        raise FileProblem(
            f"checkpoint {str(folder)!r} does not fit the model, which has {deepest} splits"
        )
    found = BackEnds(replica, progress.splits if progress.boundary else [])
    found.common = _like(
        folder, tensors, COMMON, {name: replica.tensors[name] for name in found.common_names()}
    )
    if progress.boundary:
        for k in range(len(progress.splits)):
            found.own.append(
                _like(
                    folder,
                    tensors,
                    f"{OWN}{k}/",
                    {name: replica.tensors[name] for name in found.own_names(k)},
                )
            )
    return found, progress, who


def _like(
    folder: Path, tensors: Mapping[str, Tensor], prefix: str, like: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    return {
        name: fitting(folder, tensors, prefix + name, tuple(tensor.shape), tensor.dtype)
        for name, tensor in like.items()
    }
