"""Replica: the one model in memory, which plays every device in turn.

A device is whatever tensors are loaded into it.  So common layers exist once, and K devices cost no more than their own layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache

import torch
from torch import Tensor, nn

from airsplit.core.errors import InvalidValue
from airsplit.models.cut import Back, Front, cut_in_halves
from airsplit.models.splits import ModelSplits
from airsplit.models.tracing.graph import TensorSpec
from airsplit.models.tracing.interpreter import get_attribute
from airsplit.training.losses import Loss
from airsplit.training.metrics import MetricFunction
from airsplit.training.optimizers import Optimizer
from airsplit.training.seeding import seeded
from airsplit.training.step import Chance, Tensors, as_it_comes, split_step

MODEL = "model"
"""The kind of state that is the model's own; other kinds are what the optimizer remembers."""


def key(kind: str, name: str) -> str:
    """How a tensor of the training's state is called.

    >>> key("momentum", "conv1.weight")
    'momentum:conv1.weight'
    """
    return f"{kind}:{name}"


def kind_and_name(each: str) -> tuple[str, str]:
    """
    >>> kind_and_name("momentum:conv1.weight")
    ('momentum', 'conv1.weight')
    """
    kind, _, name = each.partition(":")
    return kind, name


class Replica:
    """A model with its optimizer.

    trained  the parameters that are trained, by name; `changing`, these and the buffers that a training step writes
    tensors  everything that training changes: trained parameters, the buffers that a training step writes, and what the
             optimizer remembers; live, so that copying into one changes the model
    statistics  those of them that are buffers
    fixed    the model's other tensors: frozen parameters, constant buffers
    metric   the user's own, which evaluation computes beside the loss; None where there is none
    """

    def __init__(
        self,
        found: ModelSplits,
        optimizer: Optimizer,
        loss: Loss,
        metric: MetricFunction | None = None,
    ) -> None:
        self.model, self.outline, self.optimizer, self.loss = found.model, found, optimizer, loss
        self.metric = metric
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        buffers = moving_buffers(found)
        self.trained = trained
        self.changing: dict[str, Tensor] = trained | buffers
        self._parameters: list[Tensor] = list(trained.values())
        self._remembered = {
            slot: [self._begun(slot, p) for p in self._parameters] for slot in optimizer.slots
        }
        self.tensors = {key(MODEL, name): tensor.detach() for name, tensor in self.changing.items()}
        self.statistics = {key(MODEL, name) for name in buffers}
        for slot, tensors in self._remembered.items():
            self.tensors |= {
                key(slot, name): tensor for name, tensor in zip(trained, tensors, strict=True)
            }
        everything = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        self.fixed = {
            key(MODEL, name): t.detach()
            for name, t in everything.items()
            if key(MODEL, name) not in self.tensors
        }
        self._constants = {
            name: (t, t.clone()) for name, t in self.model.named_buffers() if name not in buffers
        }
        self.halves = lru_cache(maxsize=None)(self._halves)

    def _begun(self, slot: str, parameter: Tensor) -> Tensor:
        counts = slot in self.optimizer.counters
        return (
            torch.zeros((), dtype=torch.float64, device=parameter.device)
            if counts
            else torch.zeros_like(parameter).detach()
        )

    def _halves(self, split: int) -> tuple[Front, Back]:
        return cut_in_halves(self.outline, split)

    @cached_property
    def passing_bytes(self) -> int:
        """What a sample leaves behind on its way through the model, for the way back."""
        return 4 * int(self.outline.profile().stored_elements[-1])

    def front_keys(self, split: int) -> list[str]:
        """What belongs to the layers up to a split, and what the optimizer remembers of them; none at split 0."""
        if split == 0:
            return []
        front, _ = self.halves(split)
        inside = {id(tensor) for tensor in (*front.parameters(), *front.buffers())}
        everything = (*self.model.named_parameters(), *self.model.named_buffers())
        names = {name for name, tensor in everything if id(tensor) in inside}
        return [each for each in self.tensors if kind_and_name(each)[1] in names]

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what these tensors say."""
        copy_into([self.tensors[each] for each in tensors], list(tensors.values()))

    def taken(self, keys: Iterable[str]) -> dict[str, Tensor]:
        """The live tensors of these names."""
        return {each: self.tensors[each] for each in keys}

    def step(
        self,
        split: int,
        inputs: Tensors,
        labels: Tensor,
        compression: str = "none",
        chance: Chance = as_it_comes,
    ) -> float:
        """One iteration of training, cut at a split: the loss before it."""
        front, back = self.halves(split)
        self.clear()
        value = split_step(front, back, self.loss, inputs, labels, compression, chance)
        self.descend()
        return value

    def require_constants(self) -> None:
        """Raise where a buffer that seemed to be constant is not: it would have been shared by all devices."""
        for name, (now, before) in self._constants.items():
            if not torch.equal(now, before) and not bool(now.isnan().any()):
                raise InvalidValue(
                    f"model buffer {name} must change in every training step or in none, but it changed in some; make it a parameter"
                )

    def keep_constants(self) -> None:
        """Take the buffers that seem to be constant as they are now."""
        self._constants = {name: (now, now.clone()) for name, (now, _) in self._constants.items()}

    def clear(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def descend(self) -> None:
        """The optimizer's step, on the gradients that are there."""
        at = [i for i, parameter in enumerate(self._parameters) if parameter.grad is not None]
        parameters = [self._parameters[i] for i in at]
        gradients = [p.grad for p in parameters if p.grad is not None]
        if parameters:
            remembered = {
                slot: [tensors[i] for i in at] for slot, tensors in self._remembered.items()
            }
            self.optimizer.step(parameters, gradients, remembered)


def moving_buffers(found: ModelSplits) -> dict[str, Tensor]:
    """The buffers that a forward pass in training mode changes, such as running statistics, by name.  It is tried, with noise."""
    model, graph = found.model, found.training.graph
    buffers = dict(model.named_buffers())
    written = {
        id(get_attribute(model, name)) for call in graph.calls for name in call.written_state
    }
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    moved = {name for name, buffer in buffers.items() if id(buffer) in written}
    try:
        with torch.no_grad(), seeded(0, "noise"):
            model(*(_noise(spec, model) for spec in graph.specs[: graph.input_count]))
        moved |= {name for name, buffer in buffers.items() if not torch.equal(buffer, before[name])}
    except Exception:  # a model may refuse noise in any way: then every buffer may move
        moved = set(buffers)
    finally:
        for name in (
            moved
        ):  # only these: a constant may be one number seen many times, which cannot be written
            buffers[name].copy_(before[name])
    return {name: buffer for name, buffer in buffers.items() if name in moved}


def _noise(meta: TensorSpec, model: nn.Module) -> Tensor:
    """An input of the right shape: random numbers, and zeros where whole numbers are wanted, which are valid indices."""
    shape, device = meta.shape_at(4), next(model.parameters()).device
    if meta.dtype.is_floating_point:
        return torch.randn(shape, dtype=meta.dtype, device=device)
    return torch.zeros(shape, dtype=meta.dtype, device=device)


def copy_into(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy tensor by tensor."""
    if targets:
        with torch.no_grad():
            torch._foreach_copy_(targets, sources)


def state_names(model: nn.Module) -> dict[str, str]:
    """For each name in the model's state_dict the one under which it is trained: tied tensors have several.

    >>> two = nn.Linear(2, 2)
    >>> state_names(nn.Sequential(two, two))
    {'0.weight': '0.weight', '0.bias': '0.bias', '1.weight': '0.weight', '1.bias': '0.bias'}
    """
    everything = (*model.named_parameters(), *model.named_buffers())
    first = {id(tensor): name for name, tensor in everything}
    kept = model.state_dict(keep_vars=True)
    return {name: first[id(tensor)] for name, tensor in kept.items() if id(tensor) in first}
