"""The modules that are running while a model is traced, and the names that their calls get."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from airsplit.models.tracing.graph import NO_GROUP
from airsplit.models.zoo.response_norm import ResponseNorm

# Modules of torch.nn that are traced layer by layer.
CONTAINERS = (
    nn.Sequential,
    nn.ModuleList,
    nn.ModuleDict,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.Transformer,
    nn.DataParallel,
)


def is_layer(module: nn.Module) -> bool:
    """Return whether a module is traced as one call.

    It is if its forward is one of torch.nn, as in a subclass that only adds settings; containers
    are not.

    >>> is_layer(nn.Linear(2, 3)), is_layer(nn.Sequential(nn.Linear(2, 3)))
    (True, False)
    """
    if isinstance(module, torch.jit.ScriptModule | ResponseNorm):
        return True
    forward_module = getattr(type(module).forward, "__module__", "")
    has_torch_forward = forward_module.startswith(("torch.nn.", "torch.ao.nn."))
    return has_torch_forward and not isinstance(module, CONTAINERS)


@dataclass(frozen=True)
class CallName:
    """The name of a call, as `Call` has it."""

    base_name: str
    name: str
    group: int


@dataclass(frozen=True)
class Frame:
    """A module whose forward is running.

    Attributes:
        split_name: Set if all calls in it make one split.
        group: The group of these calls.
    """

    path: str
    split_name: str | None = None
    group: int = NO_GROUP


class ModuleStack:
    """The running modules of a model, innermost last.

    >>> model = nn.Sequential(nn.ReLU())
    >>> modules = ModuleStack(model)
    >>> with modules.enter(modules.next_path(model[0]), is_split=False):
    ...     modules.name_call("relu").name, modules.name_call("relu").name
    ('0.relu', '0.relu_1')
    """

    def __init__(self, model: nn.Module) -> None:
        # Modules are identified by their id(), so all of them must stay alive.
        self._model = model
        self._paths = defaultdict[int, list[str]](list)
        for path, submodule in model.named_modules(remove_duplicate=False):
            self._paths[id(submodule)].append(path)
        self._module_calls = Counter[int]()
        # The model itself is the outermost frame, and its names have no prefix.
        self._frames = [Frame("")]
        self._groups = itertools.count()
        self._name_uses = Counter[str]()

    def next_path(self, module: nn.Module) -> str | None:
        """Return the name of a module at its next call; None if it is no part of the model.

        A module with several names has another of them at each call, as if they were several.
        """
        paths = self._paths.get(id(module))
        if paths is None:
            return None
        path = paths[self._module_calls[id(module)] % len(paths)]
        self._module_calls[id(module)] += 1
        return path

    @contextmanager
    def enter(self, path: str, *, is_split: bool) -> Iterator[None]:
        """Enter a module.

        Args:
            is_split: Whether all calls in it make one split.
        """
        frame = Frame(path)
        if is_split:
            frame = Frame(path, self._unique_name(path), next(self._groups))
        # What is inside a module that is one split belongs to that split.
        outer = self._frames[-1]
        if outer.split_name is not None:
            frame = Frame(path, outer.split_name, outer.group)
        self._frames.append(frame)
        try:
            yield
        finally:
            self._frames.pop()

    def name_call(self, function: str) -> CallName:
        """Name a call of a function in the running module."""
        frame = self._frames[-1]
        base_name = function.strip("_") or "function"
        if frame.path:
            base_name = f"{frame.path}.{base_name}"
        if frame.split_name is not None:
            return CallName(base_name, frame.split_name, frame.group)
        return CallName(base_name, self._unique_name(base_name), NO_GROUP)

    def _unique_name(self, name: str) -> str:
        """Return a name, with a number from its second use on."""
        unique = name
        # "relu_1" may be taken by a layer that has this very name.
        while unique in self._name_uses:
            unique = f"{name}_{self._name_uses[name]}"
            self._name_uses[name] += 1
        self._name_uses[unique] = 1
        return unique
