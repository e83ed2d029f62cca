"""Ranks: the processes that train together.  Each trains its share of the devices; what is common is added up among them.

One process is the usual case, ALONE.  More are started by torchrun: it says in the environment who is who.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributed as dist

from airsplit.errors import AirsplitError


class FailedElsewhere(AirsplitError):
    """Another process has stopped, and says why."""


@dataclass(frozen=True)
class Ranks:
    """The processes, and which one this is.

    rank     this one, from 0; the first keeps the run folder, and prints
    size     how many there are
    local    which of those on this machine
    restart  how often torchrun has started them again
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    restart: int = 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, devices: int) -> range:
        """The devices of this process: neighbours, and about as many as the others have.

        >>> [list(Ranks(rank, 3).share(7)) for rank in range(3)]
        [[0, 1], [2, 3], [4, 5, 6]]
        """
        return self.share_of(self.rank, devices)

    def share_of(self, rank: int, devices: int) -> range:
        return range(rank * devices // self.size, (rank + 1) * devices // self.size)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Make each tensor the sum of what the processes have; everybody calls it, with tensors of the same shapes."""
        if self.size == 1:
            return
        alike = dict[tuple[torch.dtype, torch.device], list[Tensor]]()
        for tensor in tensors:
            alike.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        for several in alike.values():
            whole = torch.cat([tensor.detach().flatten() for tensor in several])  # one message, not one for each layer
            dist.all_reduce(whole)
            for tensor, part in zip(several, torch.split(whole, [tensor.numel() for tensor in several]), strict=True):
                tensor.detach().copy_(part.view_as(tensor))

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Give everybody the tensors of the first."""
        if self.size > 1:
            for tensor in tensors:
                whole = tensor.detach().contiguous()
                dist.broadcast(whole, 0)
                tensor.detach().copy_(whole)

    def gathered(self, rows: Tensor, devices: int) -> Tensor | None:
        """The rows of all devices on the CPU, where each process has those of its share; only the first gets them."""
        if self.size == 1:
            return rows
        if not self.is_first:
            if len(rows):
                dist.send(rows.detach().cpu().contiguous(), 0)
            return None
        whole = torch.empty((devices, *rows.shape[1:]), dtype=rows.dtype)
        for rank in range(self.size):
            share = self.share_of(rank, devices)
            if rank == 0:
                whole[share.start : share.stop] = rows.detach().cpu()
            elif len(share):
                dist.recv(whole[share.start : share.stop], rank)
        return whole

    def scattered(self, whole: Tensor | None, like: Tensor, devices: int) -> Tensor:
        """The other way: the rows of this process's share, of what the first has; `like` is one row, where they are to be."""
        mine = self.share(devices)
        if whole is not None:
            for rank in range(1, self.size):
                if share := self.share_of(rank, devices):
                    dist.send(whole[share.start : share.stop].contiguous(), rank)
            return whole[mine.start : mine.stop].to(like.device)
        rows = torch.empty((len(mine), *like.shape), dtype=like.dtype)
        if mine:
            dist.recv(rows, 0)
        return rows.to(like.device)

    @contextmanager
    def together(self) -> Iterator[None]:
        """A context for work that can fail in one process: then it fails in all, and nobody waits for a message that never comes."""
        problem: AirsplitError | None = None
        try:
            yield
        except AirsplitError as error:
            problem = error
        if self.any(problem is not None):
            raise problem if problem is not None else FailedElsewhere("another process stopped")

    def total(self, here: float) -> float:
        """The sum of a number of each process."""
        if self.size == 1:
            return here
        number = torch.tensor(here, dtype=torch.float64)
        dist.all_reduce(number)
        return float(number)

    def told(self, text: str) -> str:
        """What the first process says, to all."""
        if self.size == 1:
            return text
        said = text.encode()
        length = torch.tensor(len(said))
        dist.broadcast(length, 0)
        letters = torch.zeros(int(length), dtype=torch.uint8)
        if self.is_first and said:
            letters.copy_(torch.frombuffer(bytearray(said), dtype=torch.uint8))
        dist.broadcast(letters, 0)
        return bytes(letters.tolist()).decode()

    def any(self, here: bool) -> bool:
        """Whether something is so in any process."""
        if self.size == 1:
            return here
        flag = torch.tensor(float(here))
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)


ALONE = Ranks()


def ranks_of(environment: Mapping[str, str] = os.environ) -> Ranks:
    """Who is who, by what torchrun says; ALONE where it says nothing.

    >>> ranks_of({"WORLD_SIZE": "4", "RANK": "2", "LOCAL_RANK": "0"})
    Ranks(rank=2, size=4, local=0, restart=0)
    """
    if int(environment.get("WORLD_SIZE", "1")) == 1 or "RANK" not in environment:
        return ALONE
    numbers = (int(environment.get(name, "0")) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT"))
    return Ranks(*numbers)


@contextmanager
def joined(ranks: Ranks, *, gpus: bool) -> Iterator[None]:
    """A context in which the processes can speak to each other: by gloo, and between GPUs by NCCL."""
    if ranks.size == 1:
        yield
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()
