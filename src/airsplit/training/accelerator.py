"""Accelerator: where numbers are computed, in what precision, and how much fits there at a time."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only

from airsplit.core.errors import InvalidValue
from airsplit.scenario.settings import TrainingSettings
from airsplit.training.memory import PROCESSES, available_bytes

USED_MEMORY = 0.5
"""Of what is free: what a step needs is an estimate."""


@dataclass(frozen=True, eq=False)
class Accelerator:
    """A processor or a GPU.

    device     torch's name for it
    precision  "fp32": as torch is set; "bf16": matrix products and convolutions in bfloat16, weights and sums in float32
    compiles   whether steps of many devices are compiled
    stacks     whether many devices are trained at once, their weights stacked: it pays where one device leaves most of it idle
    processes  how many processes share its memory, this one included
    """

    device: torch.device
    precision: str = "fp32"
    compiles: bool = False
    stacks: bool = False
    processes: int = 1

    def autocast(self) -> AbstractContextManager[Any]:
        """A context in which models compute with this precision."""
        return (
            torch.autocast(self.device.type, torch.bfloat16)
            if self.precision == "bf16"
            else nullcontext()
        )

    def widened(self, output: Any) -> Any:
        """What a model returned, in float32 at least: losses are computed in it, and vmap keeps autocast from seeing to that."""
        return output if self.precision == "fp32" else tree_map_only(Tensor, _wide, output)

    def room(self, bytes_each: int, *, on_cpu: int, besides: int = 0) -> int:
        """How many things of a size fit at a time, at least one; on a CPU no more than `on_cpu`, because its caches are a limit, too.

        besides  bytes that are needed whatever their number
        """
        free = self._free_bytes()
        fitting = None if free is None else max(1, int((USED_MEMORY * free - besides) / bytes_each))
        if self.device.type == "cuda":
            return fitting or 1
        return on_cpu if fitting is None else min(on_cpu, fitting)

    def _free_bytes(self) -> int | None:
        """What this process may still take; None where the system does not say."""
        if self.device.type != "cuda":
            available = available_bytes()
            return None if available is None else available // self.processes
        free, total = torch.cuda.mem_get_info(self.device)
        allocated = torch.cuda.memory_allocated(self.device)
        cached = torch.cuda.memory_reserved(self.device) - allocated  # free to us, not to others
        # Those that begin at the same moment all see the same memory as free: each has its share of the whole.
        return min(free + cached, total // self.processes - allocated)

    def release_memory(self) -> None:
        """Give back memory that torch keeps for later."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def sped_up(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, compiled where that is wanted."""
        return Compiled(function) if self.compiles else function


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


CPU = Accelerator(torch.device("cpu"))


def accelerator_of(
    settings: TrainingSettings, local_rank: int = 0, environment: Mapping[str, str] = os.environ
) -> Accelerator:
    """What a scenario wants; an error where it is not there.

    local_rank   which of the processes on this machine asks: "cuda" gives each a GPU of its own, as far as there are some
    environment  says how many processes there are on this machine
    """
    device, places = torch.device(settings.device), 1
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if not count:
            raise InvalidValue(
                f'training.device "{device}" needs a GPU, but torch {torch.__version__} sees none; set it to "cpu"'
            )
        if settings.device == "cuda":
            device, places = torch.device("cuda", local_rank % count), count
        if device.index >= count:
            raise InvalidValue(
                f'training.device "{device}" must be one of {count}, counted from 0; set it to "cuda:0"'
            )
    ranks = math.ceil(_count(environment, "LOCAL_WORLD_SIZE") / places)
    processes = ranks * _count(environment, PROCESSES)
    return Accelerator(
        device,
        settings.precision,
        settings.compile,
        stacks=device.type == "cuda",
        processes=processes,
    )


def _count(environment: Mapping[str, str], name: str) -> int:
    """Return a number of processes, which is 1 unless the environment gives another."""
    text = environment.get(name, "")
    return max(1, int(text)) if text.isdecimal() else 1


class Compiled:
    """A function of tensors, compiled for each combination of their shapes.

    It is run once to record what it does in torch's basic operations, the backward pass included; so whatever a model's
    Python does is done only then.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._made = function, dict[Any, Callable[..., Any]]()

    def __call__(self, *given: Any) -> Any:
        leaves, layout = tree_flatten(given)
        key = (
            layout,
            *(
                (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, Tensor) else leaf
                for leaf in leaves
            ),
        )
        if key not in self._made:
            from torch.fx.experimental.proxy_tensor import make_fx

            copies = tree_map_only(
                Tensor, torch.clone, given
            )  # recording runs it, and it may change what it is given
            recorded = make_fx(lambda *tensors: self._function(*tensors))(*copies)
            self._made[key] = torch.compile(recorded, dynamic=False)
        return self._made[key](*given)
