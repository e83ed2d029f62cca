"""Ranks: the processes that train together.  Each trains its share of the devices; what is common is added up among them.

One process is the usual case, ALONE.  More are started by torchrun: it says in the environment who is who.
What they send each other are numbers and bytes; nothing is ever unpickled.
"""

from __future__ import annotations

import importlib
import os
import re
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch import distributed as dist

from airsplit.core.errors import AirsplitError, Diverged, InvalidValue, require_integer, show

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

MEETING = timedelta(minutes=5)
"""How long processes wait for each other at the beginning: torchrun starts them at the same time."""

PATIENCE = timedelta(days=1)
"""How long one waits for another that trains.  A process that died is noticed at once, whatever this is."""

MESSAGE_BYTES = 1 << 25
"""Small tensors travel together, in messages of about this size; a larger one travels alone, and is not copied."""


class FailedElsewhere(AirsplitError):
    """Another process has stopped, and says why."""


class DivergedElsewhere(FailedElsewhere, Diverged):
    """Another process met a number that is not finite."""


class OutOfTouch(AirsplitError):
    """Another process cannot be reached: it died, or the network did."""


@dataclass(frozen=True)
class Ranks:
    """The processes, and which one this is.

    rank   this one, from 0; the first keeps the run folder, and prints
    size   how many there are
    local  which of those on this machine
    store  torchrun's notice board, which outlives the processes; None where there is none
    group  by which they speak; None: torch's default
    gpus   by which their GPUs speak; None: what is on a GPU goes by way of the CPU
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    store: Store | None = field(default=None, repr=False, compare=False)
    group: dist.ProcessGroup | None = field(default=None, repr=False, compare=False)
    gpus: dist.ProcessGroup | None = field(default=None, repr=False, compare=False)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    # ---- who trains which device ---------------------------------------------------------------------------------------------
    def share(self, devices: int) -> range:
        """The devices of this process: neighbors, and about as many as the others have.

        >>> [list(Ranks(rank, 3).share(7)) for rank in range(3)]
        [[0, 1], [2, 3], [4, 5, 6]]
        """
        return self.share_of(self.rank, devices)

    def share_of(self, rank: int, devices: int) -> range:
        return range(rank * devices // self.size, (rank + 1) * devices // self.size)

    def holder(self, device: int, devices: int) -> int:
        """The process that has a device.

        >>> [Ranks(0, 3).holder(device, 7) for device in range(7)]
        [0, 0, 1, 1, 2, 2, 2]
        """
        return next(rank for rank in range(self.size) if device in self.share_of(rank, devices))

    # ---- tensors -------------------------------------------------------------------------------------------------------------
    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Make each tensor the sum of what the processes have; everybody calls it, with tensors of the same shapes."""
        if self.size == 1:
            return
        with torch.no_grad(), in_touch():
            for several in _messages(tensors):
                if len(several) == 1 and several[0].is_contiguous():
                    self._sum(several[0].detach())
                    continue
                whole = torch.cat([tensor.detach().flatten() for tensor in several])
                self._sum(whole)
                for tensor, part in zip(
                    several, torch.split(whole, [tensor.numel() for tensor in several]), strict=True
                ):
                    tensor.detach().copy_(part.view_as(tensor))

    def _sum(self, whole: Tensor) -> None:
        if whole.is_complex():
            whole = torch.view_as_real(whole)
        if whole.device.type == "cpu" or self.gpus is not None:
            dist.all_reduce(whole, group=self._way(whole))
        else:
            here = whole.cpu()
            dist.all_reduce(here, group=self.group)
            whole.copy_(here)

    def _way(self, whole: Tensor) -> dist.ProcessGroup | None:
        return self.group if whole.device.type == "cpu" else self.gpus

    def spread(self, tensors: Sequence[Tensor], source: int = 0) -> None:
        """Give everybody the tensors of one process, of whatever type they are."""
        if self.size == 1:
            return
        with torch.no_grad(), in_touch():
            for tensor in tensors:
                whole = tensor.detach().contiguous()
                if whole.device.type != "cpu" and self.gpus is None:
                    whole = whole.cpu()
                if whole.numel():
                    dist.broadcast(as_bytes(whole), source, group=self._way(whole))
                # only what differs: a constant may be one number seen many times, which cannot be written
                if not torch.equal(whole.to(tensor.device), tensor):
                    tensor.detach().copy_(whole)

    def gathered(self, rows: Tensor, devices: int) -> Tensor | None:
        """The rows of all devices on the CPU, where each process has those of its share; only the first gets them."""
        if self.size == 1:
            return rows
        mine = rows.detach().cpu().contiguous()
        with in_touch():
            if not self.is_first:
                if mine.numel():
                    dist.send(as_bytes(mine), 0, group=self.group)
                return None
            whole = torch.empty((devices, *rows.shape[1:]), dtype=rows.dtype)
            for rank in range(self.size):
                share = self.share_of(rank, devices)
                place = whole[share.start : share.stop]
                if rank == 0:
                    place.copy_(mine)
                elif place.numel():
                    dist.recv(as_bytes(place), rank, group=self.group)
            return whole

    def scattered(self, whole: Tensor | None, like: Tensor, devices: int) -> Tensor:
        """The other way: the rows of this process's share, of what the first has; `like` is one row, where they are to be."""
        mine = self.share(devices)
        if whole is not None and self.size == 1:
            return whole.to(like.device)
        with in_touch():
            if whole is not None:
                for rank in range(1, self.size):
                    share = self.share_of(rank, devices)
                    place = whole[share.start : share.stop].contiguous()
                    if place.numel():
                        dist.send(as_bytes(place), rank, group=self.group)
                return (
                    whole[mine.start : mine.stop].clone().to(like.device)
                )  # a copy: else the rows of all would stay in memory
            rows = torch.empty((len(mine), *like.shape), dtype=like.dtype)
            if rows.numel():
                dist.recv(as_bytes(rows), 0, group=self.group)
            return rows.to(like.device)

    def with_gpus(self, device: torch.device) -> Ranks:
        """The same, with NCCL between the GPUs where each process has one of its own; `device` is that of this process."""
        if self.size == 1:
            return self
        places = torch.zeros(self.size, dtype=torch.int64)
        if device.type == "cuda" and dist.is_nccl_available():
            places[self.rank] = (
                zlib.crc32(str(torch.cuda.get_device_properties(device).uuid).encode()) + 1
            )
        self.add_up([places])
        if not bool(places.all()) or len(set(places.tolist())) < self.size:
            return self
        with in_touch():
            return replace(self, gpus=dist.new_group(backend="nccl", timeout=PATIENCE))

    # ---- words and numbers ---------------------------------------------------------------------------------------------------
    @contextmanager
    def together(self) -> Iterator[None]:
        """A context for work that can fail in one process: then it fails in all, and nobody waits for a message that never comes.

        The first that has a problem raises it, the others FailedElsewhere or DivergedElsewhere.  Not one inside another.
        """
        problem: AirsplitError | None = None
        try:
            yield
        except OutOfTouch:
            raise
        except AirsplitError as error:
            problem = error
        speaker, said = self._heard(None if problem is None else str(problem))
        if said is None:
            return
        # The first process keeps the run folder, so it must hear that the training diverged in another one.
        diverged = self.any(isinstance(problem, Diverged))
        if problem is not None and speaker == self.rank:
            raise problem
        raise DivergedElsewhere(said) if diverged else FailedElsewhere(said)

    def told(self, text: str) -> str:
        """What the first process that has something to say says, to all; "" where nobody has."""
        return self._heard(text or None)[1] or ""

    def _heard(self, text: str | None) -> tuple[int, str | None]:
        """The first process that says something, and what."""
        if self.size == 1:
            return 0, text
        with in_touch():
            number = torch.tensor(self.size if text is None else self.rank)
            dist.all_reduce(number, dist.ReduceOp.MIN, group=self.group)
            speaker = int(number)
            if speaker == self.size:
                return speaker, None
            said = text.encode() if text is not None and speaker == self.rank else b""
            length = torch.tensor(len(said))
            dist.broadcast(length, speaker, group=self.group)
            letters = (
                torch.frombuffer(bytearray(said), dtype=torch.uint8)
                if said
                else torch.zeros(int(length), dtype=torch.uint8)
            )
            if len(letters):
                dist.broadcast(letters, speaker, group=self.group)
            return speaker, bytes(letters.tolist()).decode()

    def require_same(self, what: str, here: str) -> None:
        """Raise where a process has something else than the first."""
        with self.together():
            if here != self.told(here):
                raise InvalidValue(
                    f"{what} must be the same in all processes, but process {self.rank} of {self.size} has another"
                )

    def total(self, here: float) -> float:
        """The sum of a number of each process."""
        if self.size == 1:
            return here
        number = torch.tensor(here, dtype=torch.float64)
        self.add_up([number])
        return float(number)

    def any(self, here: bool) -> bool:
        """Whether something is so in any process."""
        return self.told("yes" if here else "") != ""

    # ---- what outlives the processes -----------------------------------------------------------------------------------------
    def remember(self, name: str, text: str) -> None:
        """Leave a word for the processes that torchrun starts should these die."""
        if self.store is not None:
            with in_touch():
                self.store.set(name, text)

    def remembered(self, name: str) -> str:
        """What was left under a name since torchrun was started; "" where nothing was."""
        if self.store is None:
            return ""
        with in_touch():
            return self.store.get(name).decode() if self.store.check([name]) else ""


ALONE = Ranks()


def _messages(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors that travel together: of one type, on one device, until a message is full.  The same for everybody."""
    alike = dict[tuple[torch.dtype, torch.device], list[Tensor]]()
    for tensor in tensors:
        if not tensor.numel():
            continue
        several = alike.setdefault((tensor.dtype, tensor.device), [])
        if several and sum(each.nbytes for each in several) + tensor.nbytes > MESSAGE_BYTES:
            yield list(several)
            several.clear()
        several.append(tensor)
    yield from alike.values()


def as_bytes(tensor: Tensor) -> Tensor:
    """The memory of a tensor that lies in one piece; whatever is written there is written to the tensor.

    >>> as_bytes(torch.tensor([1, 2], dtype=torch.int16))
    tensor([1, 0, 2, 0], dtype=torch.uint8)
    """
    flat = tensor.detach().as_strided(
        (tensor.numel(),), (1,)
    )  # not view(-1), which lets one number have any stride
    return flat.view(torch.uint8)


@contextmanager
def in_touch() -> Iterator[None]:
    """A context for messages: where one cannot be sent or does not come, it says so."""
    try:
        yield
    except RuntimeError as error:
        raise OutOfTouch(
            f"lost touch with another process, which may have died: {_reason(error)}"
        ) from error


def _reason(error: RuntimeError) -> str:
    """What went wrong between processes, without the place in torch's source and its advice.

    >>> _reason(RuntimeError("[/gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:99. Check the logs. GLHF!"))
    'Connection closed by peer [127.0.0.1]:99'
    """
    return re.sub(r"^\[\S*\] ", "", " ".join(str(error).split())).split(". ")[0][:200]


def ranks_of(environment: Mapping[str, str] = os.environ) -> Ranks:
    """Who is who, by what torchrun says; ALONE where it says nothing.

    >>> ranks_of({"WORLD_SIZE": "4", "RANK": "2", "LOCAL_RANK": "0"})
    Ranks(rank=2, size=4, local=0)
    """
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return ALONE
    size = _number(environment, "WORLD_SIZE", 1)
    return Ranks(
        _number(environment, "RANK", 0, size - 1), size, _number(environment, "LOCAL_RANK", 0)
    )


def _number(environment: Mapping[str, str], name: str, low: int, high: int | None = None) -> int:
    text = environment.get(name, "0")
    hint = ", in the environment; start airsplit by torchrun, or unset it"
    return require_integer(name, int(text) if text.isdecimal() else text, low, high, hint)


@contextmanager
def joined(ranks: Ranks) -> Iterator[Ranks]:
    """A context in which the processes can speak to each other, by gloo: the ranks to do it with."""
    if ranks.size == 1 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        yield ranks
        return
    kept = _part(_store(ranks), "airsplit")
    if ranks.size == 1:
        yield replace(ranks, store=kept)
        return
    group, begun = (
        None,
        not dist.is_initialized(),
    )  # else by the caller, who may want it for something else, too
    with in_touch():
        if begun:
            # which models load later anyway; loaded within the group it holds on to it, and threads that outlive Python abort
            importlib.import_module("torch._dynamo")
            place = _part(kept, _meeting_place(kept, ranks))
            dist.init_process_group(
                "gloo", store=place, rank=ranks.rank, world_size=ranks.size, timeout=PATIENCE
            )
        else:
            group = dist.new_group(backend="gloo", timeout=PATIENCE)
    try:
        yield replace(ranks, store=kept, group=group)
    finally:
        if begun:
            dist.destroy_process_group()


def _store(ranks: Ranks) -> Store:
    """The notice board that all processes can reach."""
    try:
        found: Store = next(dist.rendezvous("env://", ranks.rank, ranks.size, timeout=MEETING))[0]  # type: ignore[attr-defined]
    except ValueError as error:
        raise InvalidValue(
            f"RANK and WORLD_SIZE are set, but not all that torchrun sets: {error}; use it, or unset them"
        ) from None
    except RuntimeError as error:
        raise OutOfTouch(
            f"process {ranks.rank} of {ranks.size} does not find the first: {_reason(error)}"
        ) from error
    return found


def _part(store: Store, name: str) -> Store:
    """A part of a notice board for whatever has this name."""
    part: Store = dist.PrefixStore(name, store)  # type: ignore[attr-defined]
    return part


def _meeting_place(store: Store, ranks: Ranks) -> str:
    """A name that these processes agree on.

    torchrun keeps what was on the board when it starts processes again, the addresses of those that died included.  So the
    first calls with a new name, each other answers with one of its own, and believes only an answer in which that is found.
    """
    me = uuid.uuid4().hex
    if ranks.is_first:
        store.set("call", me)
        answers = [store.get(f"{me}/{rank}").decode() for rank in range(1, ranks.size)]
        store.set(f"{me}/all", " ".join(answers))
        return me
    end, answered = time.monotonic() + MEETING.total_seconds(), ""
    while time.monotonic() < end:
        call: str = store.get("call").decode()
        if call != answered:
            store.set(f"{call}/{ranks.rank}", me)
            answered = call
        if store.check([f"{call}/all"]) and me in store.get(f"{call}/all").decode().split():
            return call
        time.sleep(0.02)
    raise OutOfTouch(
        f"process {ranks.rank} of {ranks.size} waited {show(MEETING.total_seconds())} seconds for the others"
    )
