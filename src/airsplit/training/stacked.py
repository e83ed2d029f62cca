"""The fast path for GPUs: many devices at once.  Their weights are stacked, and one vmapped step trains them all.

Weights come out as those of one device after the other, up to rounding.  Where they would not, `usable` says no, and why, once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from airsplit.core.errors import UserCodeError
from airsplit.training.accelerator import Accelerator
from airsplit.training.folding import Folding, best_algorithms, full_precision
from airsplit.training.local_steps import Crew, Groups, Task
from airsplit.training.memory import is_out_of_memory
from airsplit.training.replica import MODEL, Replica, key, kind_and_name
from airsplit.training.state import Mean, State
from airsplit.training.step import NonFinite, Tensors, split_step
from airsplit.training.substitution import Substituted

ON_CPU = 16
"""Devices at a time, where this path is taken on a CPU at all: in tests."""

STACKED = ("stacked",)
PROBED_SAMPLES = 3
TOLERANCE = 0.02
"""How far gradients may be apart in the trial, of their length: far more than rounding, far less than another computation."""


def usable(crew: Crew, state: State, task: Task, mine: list[int]) -> bool:
    """Whether these devices can be trained at once; warns once where they could but for the model."""
    if not crew.settings.fast_paths or not crew.accelerator.stacks or not mine:
        return False
    if STACKED not in crew.obstacles:
        obstacle = crew.obstacles[STACKED] = _obstacle(crew, state, task, mine[0])
        if obstacle:
            warnings.warn(
                f"the devices are trained one after the other, not at once, because {obstacle}",
                stacklevel=2,
            )
    return crew.obstacles[STACKED] is None


def _obstacle(crew: Crew, state: State, task: Task, device: int) -> str | None:
    """Why many devices at once would not be the same; None where it is."""
    if crew.compression != "none":
        return "what crosses the cut is compressed for each device by itself"
    if any(call.is_random for call in crew.replica.outline.training.graph.calls):
        return "layers draw random numbers, of each device by itself"
    try:
        with full_precision():
            return (
                None
                if _comes_out_alike(crew, state, task, device)
                else "that trains the model otherwise"
            )
    except NonFinite:
        return "numbers overflow in a trial"
    except Exception as error:  # a model may be unfit for it in any way
        if is_out_of_memory(error):
            return "memory has no room for two models"
        cause = (
            error.__cause__
            if isinstance(error, UserCodeError) and error.__cause__ is not None
            else error
        )
        return f"the model cannot be vmapped ({type(cause).__name__}: {' '.join(str(cause).split())[:200]})"


def _comes_out_alike(crew: Crew, state: State, task: Task, device: int) -> bool:
    """Try it: the gradients and buffers of two models with a few samples, at once and one after the other."""
    replica = crew.replica
    inputs, labels = crew.batch(device, task, 0)
    few = tuple(tensor[:PROBED_SAMPLES] for tensor in inputs), labels[:PROBED_SAMPLES]
    with crew.chance(device, task, 0):
        models = [_unlike(replica, state.of(device)) for _ in range(2)]
    apart = [_alone(replica, int(task.splits[device]), model, *few) for model in models]
    tensors = {name: torch.stack([model[name] for model in models]) for name in replica.tensors}
    at_once = Gradients(replica, replace(crew.accelerator, precision="fp32"))
    _, gradients = at_once.of(*parted(replica, tensors), *(_twice(each) for each in few))
    together = {
        name: gradient
        for name, gradient in zip(replica.trained, gradients, strict=True)
        if gradient is not None
    }
    together |= {name: tensors[name].double() for name in replica.statistics}
    longest = max(float(apart[0][name].norm()) for name in replica.trained if name in apart[0])

    def alike(one: Tensor, other: Tensor) -> bool:
        return float((one - other).norm()) <= TOLERANCE * (float(other.norm()) + 0.01 * longest)

    return all(
        together.keys() == alone.keys()
        and all(alike(together[name][at], each) for name, each in alone.items())
        for at, alone in enumerate(apart)
    )


def _unlike(replica: Replica, model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A model like this one, with other weights: a layer that begins at zero would hide what is before it."""
    trained = {key(MODEL, name) for name in replica.trained}
    return {
        name: tensor + torch.randn_like(tensor) * max(1, math.prod(tensor.shape[1:])) ** -0.5
        if name in trained and tensor.is_floating_point()
        else tensor.clone()
        for name, tensor in model.items()
    }


def _alone(
    replica: Replica, split: int, model: Mapping[str, Tensor], inputs: Tensors, labels: Tensor
) -> dict[str, Tensor]:
    """The gradients of one model, cut as it is, and its buffers after the step; in floating point."""
    replica.load(model)
    replica.clear()
    split_step(
        *replica.halves(split), replica.loss, tuple(tensor.clone() for tensor in inputs), labels
    )
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in replica.trained.items()
        if parameter.grad is not None
    }
    return gradients | {
        name: replica.tensors[name].to(torch.float64, copy=True) for name in replica.statistics
    }


def _twice(each: Any) -> Any:
    return (
        tuple(torch.stack([tensor, tensor]) for tensor in each)
        if isinstance(each, tuple)
        else torch.stack([each, each])
    )


def parted(
    replica: Replica, tensors: Mapping[str, Tensor]
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Tensors of the model: those that have gradients, as `trained_in` names them, and the others by name."""
    leaves = [tensors[key(MODEL, name)] for name in trained_in(replica, tensors)]
    return leaves, {
        kind_and_name(name)[1]: tensors[name]
        for name in sorted(replica.statistics & tensors.keys())
    }


def trained_in(replica: Replica, tensors: Iterable[str]) -> list[str]:
    """The trained parameters whose tensors are among these, in the model's order."""
    there = set(tensors)
    return [name for name in replica.trained if key(MODEL, name) in there]


class Gradients:
    """The gradients of stacked models."""

    def __init__(self, replica: Replica, accelerator: Accelerator) -> None:
        self._model = Substituted(replica.model, replica.changing)
        self._loss, self._names, self._accelerator = (
            replica.loss,
            list(replica.trained),
            accelerator,
        )

    def of(
        self, leaves: list[Tensor], buffers: dict[str, Tensor], inputs: Tensors, labels: Tensor
    ) -> tuple[Tensor, list[Tensor | None]]:
        """The loss of each model, and the gradients of all; buffers change as a training step changes them."""
        leaves = [leaf.detach().requires_grad_() for leaf in leaves]

        def lost(
            own: list[Tensor], kept: dict[str, Tensor], inputs: Tensors, labels: Tensor
        ) -> Tensor:
            output = self._model(dict(zip(self._names, own, strict=True)) | kept, inputs)
            return self._loss(self._accelerator.widened(output), labels).reshape(())

        with best_algorithms():
            with self._accelerator.autocast(), Folding():
                losses = vmap(lost, randomness="error")(leaves, buffers, inputs, labels)
            # a model's loss depends on its own weights only, so the gradients of the sum are those of each
            return losses.detach(), list(
                torch.autograd.grad(losses.sum(), leaves, allow_unused=True)
            )


def train_stacked(crew: Crew, state: State, task: Task, mine: list[int]) -> tuple[float, Mean]:
    """E iterations of these devices, many at a time: their personal layers are kept.

    Returns their part of the mean loss, and of the mean of the common layers.
    """
    if STACKED not in crew.made:
        crew.made[STACKED] = crew.accelerator.sped_up(Gradients(crew.replica, crew.accelerator).of)
    divide = partial(_groups, crew, state, mine)
    losses, mean, trained = crew.train_in_groups(
        divide, partial(_train_groups, crew, state, task), task
    )
    for devices, personal in trained:
        state.keep_rows(devices, personal)
    return float(torch.stack(losses).sum()), mean


Personal = list[tuple[list[int], dict[str, Tensor]]]
"""Groups of devices, with their personal tensors after a round."""


def _train_groups(
    crew: Crew, state: State, task: Task, groups: Groups
) -> tuple[list[Tensor], Mean, Personal]:
    """Train each group; the state stays as it is, so that this can be repeated."""
    mean, losses, trained = Mean(), list[Tensor](), Personal()
    for devices in groups:
        with crew.told(devices[0], task, 0):
            loss, personal = _train_group(crew, state, task, devices, mean)
        losses.append(loss)
        trained.append((devices, personal))
    return losses, mean, trained


def _train_group(
    crew: Crew, state: State, task: Task, devices: list[int], mean: Mean
) -> tuple[Tensor, dict[str, Tensor]]:
    """Train devices at once; return their part of the mean loss and their personal tensors."""
    tensors = {
        name: tensor.expand(len(devices), *tensor.shape).clone()
        for name, tensor in state.common.items()
    }
    tensors |= state.rows(devices)
    losses = torch.stack(
        [
            _descend(crew, task, devices, tensors, iteration)
            for iteration in range(task.iterations_per_round)
        ]
    )
    require_finite_losses(crew, state, task, devices, losses)
    for at, k in enumerate(devices):
        mean.add({name: tensors[name][at] for name in state.common}, float(task.weights[k]))
    loss = losses.double().mean(dim=0) @ torch.as_tensor(
        task.weights[devices], device=losses.device
    )
    return loss, {name: tensors[name] for name in state.personal}


def _groups(crew: Crew, state: State, devices: list[int], limit: int | None) -> list[list[int]]:
    """Devices that go together: with batches of the same size, and as many as fit, in groups of about the same size."""
    replica, found = crew.replica, list[list[int]]()
    weights = sum(tensor.nbytes for tensor in replica.tensors.values()) + 2 * sum(
        p.nbytes for p in replica.trained.values()
    )
    kept = sum(stacked.nbytes for stacked in state.personal.values())  # until all groups are done
    for size, alike in by_batch_size(crew, devices).items():
        fitting = crew.accelerator.room(
            weights + 3 * size * replica.passing_bytes, on_cpu=ON_CPU, besides=kept
        )
        found += in_equal_parts(alike, fitting if limit is None else min(fitting, limit))
    return found


def by_batch_size(crew: Crew, devices: Sequence[int]) -> dict[int, list[int]]:
    """Devices whose batches have the same size."""
    found = dict[int, list[int]]()
    for k in devices:
        found.setdefault(crew.batch_size(k), []).append(k)
    return found


def in_equal_parts(devices: Sequence[int], limit: int) -> Iterator[list[int]]:
    """Parts of at most so many, as equal as can be: what is compiled is compiled for a size.

    >>> list(in_equal_parts([1, 2, 3, 4, 5], 3))
    [[1, 2, 3], [4, 5]]
    """
    parts = math.ceil(len(devices) / limit)
    size = math.ceil(len(devices) / max(1, parts))
    return (list(devices[at : at + size]) for at in range(0, len(devices), size))


def _descend(
    crew: Crew, task: Task, devices: list[int], tensors: dict[str, Tensor], iteration: int
) -> Tensor:
    """One iteration of these devices: the loss of each before it."""
    replica = crew.replica
    found: tuple[Tensor, list[Tensor | None]] = crew.made[STACKED](
        *parted(replica, tensors), *stacked_batches(crew, task, devices, iteration)
    )
    losses, gradients = found
    descend(replica, tensors, dict(zip(replica.trained, gradients, strict=True)))
    crew.count(len(devices))
    return losses


def stacked_batches(
    crew: Crew, task: Task, devices: list[int], iteration: int
) -> tuple[Tensors, Tensor]:
    """What devices train on, their batches stacked."""
    inputs, labels = crew.batches(devices, task, iteration)
    return tuple(per_device(tensor, len(devices)) for tensor in inputs), per_device(
        labels, len(devices)
    )


def per_device(tensor: Tensor, devices: int) -> Tensor:
    """Rows of devices one behind the other, parted."""
    return tensor.view(devices, -1, *tensor.shape[1:])


def descend(
    replica: Replica, tensors: Mapping[str, Tensor], gradients: Mapping[str, Tensor | None]
) -> None:
    """The optimizer's step on stacked tensors, where there is a gradient."""
    found = {name: gradient for name, gradient in gradients.items() if gradient is not None}
    if found:
        remembered = {
            slot: [tensors[key(slot, name)] for name in found] for slot in replica.optimizer.slots
        }
        replica.optimizer.step(
            [tensors[key(MODEL, name)] for name in found], list(found.values()), remembered
        )


def require_finite_losses(
    crew: Crew, state: State, task: Task, devices: list[int], losses: Tensor
) -> None:
    """Raise where a loss was not finite: looked at once, because to look stops a GPU, so what came before it is done again."""
    bad = (~losses.isfinite()).any(dim=0).nonzero().flatten().tolist()
    for at in bad:
        crew.replica.load(state.of(devices[at]))
        crew.train(devices[at], task)  # which says where, and why
    if bad:
        raise crew.diverged(
            "loss",
            devices[bad[0]],
            task,
            task.iterations_per_round - 1,
            crew.batch(devices[bad[0]], task, 0)[0],
        )
