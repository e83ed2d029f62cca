"""The fast path for E = 1: all devices' activations go through the common layers as one batch.

With one iteration a round and an optimizer that is linear, the mean of the devices' steps is one step on the mean gradient.
On a GPU the fronts are stacked and go at once, too.
Weights come out the same up to rounding.  Where they would not, `usable` says no, and why, once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

from airsplit.models.cut import Half, get_subgraph
from airsplit.models.tracing.graph import Call
from airsplit.training.folding import Folding, best_algorithms
from airsplit.training.local_steps import Crew, Groups, Task
from airsplit.training.losses import Loss, cross_entropy, logits_of, widened
from airsplit.training.replica import MODEL, key, kind_and_name
from airsplit.training.stacked import (
    by_batch_size,
    descend,
    in_equal_parts,
    parted,
    per_device,
    require_finite_losses,
    stacked_batches,
    trained_in,
)
from airsplit.training.stacked import usable as usable_at_once
from airsplit.training.state import State
from airsplit.training.step import NonFinite, Tensors, require_finite, sent
from airsplit.training.substitution import Substituted

SAMPLES_AT_ONCE = 256
"""More at a time are not faster on a CPU, and their activations leave its caches."""

PROBED_SAMPLES = 3


def usable(crew: Crew, state: State, task: Task, mine: list[int]) -> bool:
    """Whether the round can be trained as one batch; warns once where it could but for the model or the optimizer."""
    if not crew.settings.fast_paths or task.iterations_per_round != 1:
        return False
    between = (int(task.splits.min()), state.boundary)
    if between not in crew.obstacles:
        with crew.ranks.together(), crew.told((mine or task.finishing)[0], task, 0):
            found = _obstacle(crew, state, task, mine[0]) if mine else None
        obstacle = crew.obstacles[between] = (
            crew.ranks.told(found or "") or None
        )  # of any process: they must do the same
        if obstacle and not crew.accelerator.stacks:
            warnings.warn(
                f"the devices are trained one after the other, not as one batch, because {obstacle}",
                stacklevel=2,
            )
    return crew.obstacles[between] is None


def _obstacle(crew: Crew, state: State, task: Task, first: int) -> str | None:
    """Why one batch through the common layers would not be the same; None where it is.  `first` is a device to try it with."""
    if not crew.replica.optimizer.linear:
        return "the optimizer's mean step is not its step on the mean gradient"
    if not state.common:
        return "no layer is common"
    if crew.compression != "none":
        return "what crosses the cut is compressed for each device by itself"
    front, back = _sides(crew, state.boundary)
    if isinstance(back, Half):
        subgraph = get_subgraph(back, training=True)
        calls: Sequence[Call] = subgraph.calls
        slots = [subgraph.graph.specs[slot] for slot in subgraph.inputs]
        if not all(
            slot.is_per_sample and slot.shapes[0][1:] == slot.shapes[1][1:] for slot in slots
        ):
            return "what crosses the cut is not a row for each sample"
    else:
        calls = crew.replica.outline.training.graph.calls
    if any(call.is_random for call in calls):
        return "common layers draw random numbers"
    if state.boundary and _draws(front) > _draws(crew.replica.halves(int(task.splits.min()))[0]):
        return "layers draw random numbers that some devices have themselves and the server has for others"
    if any(name in crew.replica.statistics for name in state.common):
        return "common layers keep statistics of their batches"
    return _mixing(crew, state, task, first, front, back)


def _mixing(
    crew: Crew, state: State, task: Task, first: int, front: nn.Module, back: nn.Module
) -> str | None:
    """Try it with a few samples and others like them: whether they come out of the common layers as they do by themselves.

    The weights are noise meanwhile: a layer that begins at zero would hide what is before it.
    """
    replica = crew.replica
    with torch.no_grad(), crew.chance(first, task, 0):
        replica.load(state.of(first))
        inputs, labels = crew.batch(first, task, 0)
        some = tuple(tensor[:PROBED_SAMPLES] for tensor in front(*inputs))
        others = tuple(_unlike(tensor) for tensor in some)
        for name in state.common:
            weights = replica.tensors[name]
            if weights.is_floating_point():
                weights.normal_(std=max(1, math.prod(weights.shape[1:])) ** -0.5)
        together = back(*(torch.cat(pair) for pair in zip(some, others, strict=True)))
        apart = [back(*each) for each in (some, others)]
    if not isinstance(together, Tensor) and replica.loss is not cross_entropy:
        return "the model's output is not one tensor"
    one = logits_of(together)
    if not one.dim() or len(one) != 2 * len(some[0]):
        return "the model's output is not a row for each sample"
    other = torch.cat([logits_of(each) for each in apart])
    largest = float(other.abs().amax())
    if one.shape != other.shape or not torch.allclose(
        one, other, rtol=1e-3, atol=1e-3 * largest if math.isfinite(largest) else 0.0
    ):
        return "common layers mix the samples of a batch"
    with torch.no_grad(), crew.chance(first, task, 0):
        answer, wanted = one[: len(some[0])], labels[: len(some[0])]
        if replica.loss is not cross_entropy and not torch.equal(
            replica.loss(answer, wanted), replica.loss(answer, wanted)
        ):
            return "the loss draws random numbers"
    return None


def _unlike(some: Tensor) -> Tensor:
    """As many samples that are not these."""
    if some.is_floating_point():
        wide = some.float()
        return (wide.mean() + (1e-3 + wide.std(correction=0)) * torch.randn_like(wide)).to(
            some.dtype
        )
    return some.roll(1, dims=-1) if some.dim() > 1 else some.flip(0)


class _Uncut(nn.Module):
    """The front where nothing is personal: it passes the inputs on."""

    def forward(self, *inputs: Tensor) -> Tensors:
        return inputs


def _sides(crew: Crew, boundary: int) -> tuple[nn.Module, nn.Module]:
    return crew.replica.halves(boundary) if boundary else (_Uncut(), crew.replica.model)


def train_as_one_batch(crew: Crew, state: State, task: Task, mine: list[int]) -> float:
    """One iteration of every device, and one step of the common layers on the mean gradient: the mean loss."""
    replica = crew.replica
    at_once = usable_at_once(crew, state, task, mine)
    replica.load(state.common)
    with crew.ranks.together():
        train = partial(_train_groups, crew, state, task, at_once)
        loss, steps = crew.train_in_groups(partial(_groups, crew, state, mine), train, task)
        for step in steps:
            step()
    _add_up_gradients(crew)
    replica.descend()
    state.keep_common(replica)
    return crew.ranks.total(loss)


def _train_groups(
    crew: Crew, state: State, task: Task, at_once: bool, groups: Groups
) -> tuple[float, list[Callable[[], None]]]:
    """Train each group: the loss, and the steps of the devices' own layers, which are yet to be taken.

    Gradients of the common layers are in the replica.  The state stays as it is, so that this can be repeated.
    """
    train, loss, steps = _train_stacked if at_once else _train_some, 0.0, list[Callable[[], None]]()
    crew.replica.clear()
    for devices in groups:
        with crew.told(devices[0], task, 0):
            value, step = train(crew, state, task, devices)
        loss += value
        steps.append(step)
        crew.count(len(devices))
    return loss, steps


def _groups(crew: Crew, state: State, mine: Sequence[int], limit: int | None) -> list[list[int]]:
    """Devices that go together, with batches of the same size, so that no batch grows too large."""
    found = list[list[int]]()
    kept = sum(stacked.nbytes for stacked in state.personal.values())  # until all groups are done
    for size, alike in by_batch_size(crew, mine).items():
        samples = crew.accelerator.room(
            3 * crew.replica.passing_bytes, on_cpu=SAMPLES_AT_ONCE, besides=kept
        )
        fitting = max(1, samples // size)
        found += in_equal_parts(alike, fitting if limit is None else min(fitting, limit))
    return found


def _add_up_gradients(crew: Crew) -> None:
    """The sum of what the processes have found; those that have no gradient of a layer have none to add."""
    if crew.ranks.size == 1:
        return
    parameters = list(crew.replica.trained.values())
    known = torch.tensor([float(p.grad is not None) for p in parameters])
    crew.ranks.add_up([known])
    used = [p for p, count in zip(parameters, known.tolist(), strict=True) if count]
    for p in used:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    crew.ranks.add_up([p.grad for p in used if p.grad is not None])


def _train_some(
    crew: Crew, state: State, task: Task, devices: list[int]
) -> tuple[float, Callable[[], None]]:
    """Fronts one by one, common layers together, fronts back one by one; gradients of the common layers add up.

    Returns the loss and the step of the fronts, which is yet to be taken.
    """
    front, back = _sides(crew, state.boundary)
    if (known := ("front", state.boundary)) not in crew.made:
        crew.made[known] = Substituted(front, crew.replica.changing)
    inputs, labels = crew.batches(devices, task, 0)
    runs, at = [], 0
    with crew.accelerator.autocast():
        for k in devices:
            rows = slice(at, at + crew.batch_size(k))
            own = tuple(tensor[rows].clone() for tensor in inputs)  # a front may change its inputs
            runs.append(_FrontRun(crew, state, task, crew.made[known], k, rows, own))
            at = rows.stop
        arrived = sent(
            [torch.cat(column) for column in zip(*(run.crossing for run in runs), strict=True)]
        )
        output = back(*arrived)
        lost = _losses(
            crew.replica.loss,
            output if isinstance(output, Tensor) else logits_of(output),
            labels,
            runs,
        )
    mean = lost @ torch.as_tensor(task.weights[devices], dtype=lost.dtype, device=lost.device)
    value = float(mean.detach())
    if not math.isfinite(value):
        _explain(crew, task, runs, lost)
    mean.backward()  # type: ignore[no-untyped-call]
    for run in runs:
        run.backward([tensor.grad for tensor in arrived], float(task.weights[run.device]))

    def step() -> None:
        for run in runs:
            run.descend()

    return value, step


def _train_stacked(
    crew: Crew, state: State, task: Task, devices: list[int]
) -> tuple[float, Callable[[], None]]:
    """The same with all fronts at once, and what is found is added to the gradients of the common layers."""
    replica = crew.replica
    if (known := ("one batch", state.boundary)) not in crew.made:
        crew.made[known] = crew.accelerator.sped_up(_StackedFronts(crew, state).gradients)
    rows = state.rows(devices)
    own, kept = parted(replica, rows)
    common, _ = parted(replica, replica.taken(state.common))
    weights = torch.as_tensor(task.weights[devices], device=crew.accelerator.device)
    with best_algorithms():
        losses, of_own, of_common = crew.made[known](
            own, kept, common, *stacked_batches(crew, task, devices, 0), weights
        )
    require_finite_losses(crew, state, task, devices, losses[None])
    descend(replica, rows, dict(zip(trained_in(replica, rows), of_own, strict=True)))
    for name, gradient in zip(trained_in(replica, state.common), of_common, strict=True):
        parameter = replica.trained[name]
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return float(losses.double() @ weights), partial(state.keep_rows, devices, rows)


class _Unweighted(torch.autograd.Function):
    """What crosses to the common layers: back comes the gradient of the device's own loss, without its weight in the mean."""

    @staticmethod
    def forward(ctx: Any, crossing: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(weights)
        return crossing.view_as(crossing)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        return gradient / weights.view(-1, *[1] * (gradient.dim() - 1)).to(gradient.dtype), None


class _StackedFronts:
    """The gradients of stacked fronts, with one batch through the common layers."""

    def __init__(self, crew: Crew, state: State) -> None:
        front, back = _sides(crew, state.boundary)
        self._front, self._back = (
            Substituted(side, crew.replica.changing) for side in (front, back)
        )
        self._is_cut = state.boundary > 0
        self._own, self._common = (
            trained_in(crew.replica, tensors) for tensors in (state.personal, state.common)
        )
        self._loss, self._accelerator = crew.replica.loss, crew.accelerator

    def gradients(
        self,
        own: list[Tensor],
        kept: dict[str, Tensor],
        common: list[Tensor],
        inputs: Tensors,
        labels: Tensor,
        weights: Tensor,
    ) -> tuple[Tensor, list[Tensor | None], list[Tensor | None]]:
        """The loss of each device, the gradients of its own layers, and those of the weighted mean of the common ones."""
        own, common = (
            [leaf.detach().requires_grad_() for leaf in leaves] for leaves in (own, common)
        )
        with self._accelerator.autocast(), Folding():
            crossing = (
                vmap(self._crossing, randomness="error")(own, kept, inputs)
                if self._is_cut
                else inputs
            )
            crossing = tuple(_Unweighted.apply(tensor, weights) for tensor in crossing)  # type: ignore[no-untyped-call]
            output = self._back(
                dict(zip(self._common, common, strict=True)),
                [tensor.flatten(0, 1) for tensor in crossing],
            )
            scores = self._accelerator.widened(
                output if isinstance(output, Tensor) else logits_of(output)
            )
            losses = vmap(self._loss)(per_device(scores, len(labels)), labels).reshape(-1)
        found = torch.autograd.grad(
            (losses * weights.to(losses.dtype)).sum(), [*own, *common], allow_unused=True
        )
        return losses.detach(), list(found[: len(own)]), list(found[len(own) :])

    def _crossing(self, own: list[Tensor], kept: dict[str, Tensor], inputs: Tensors) -> Tensors:
        crossing: Tensors = self._front(dict(zip(self._own, own, strict=True)) | kept, inputs)
        return crossing


def _losses(loss: Loss, output: Tensor, labels: Tensor, runs: list[_FrontRun]) -> Tensor:
    """The loss of each device on its rows."""
    alike = len(runs) > 1 and len({run.rows.stop - run.rows.start for run in runs}) == 1
    if (
        loss is cross_entropy and labels.dim() == 1 and alike
    ):  # at once: a call for each device would cost more than it computes
        cross_entropy(
            output[:1].detach(), labels.max().reshape(1)
        )  # which says what is wrong with labels that are out of range
        return (
            functional.cross_entropy(widened(output), labels, reduction="none")
            .reshape(len(runs), -1)
            .mean(dim=1)
        )
    return torch.stack([loss(output[run.rows], labels[run.rows]).reshape(()) for run in runs])


class _FrontRun:
    """One device's front, with a graph of its own; its rows of the state change with `descend` only.

    rows   where its samples are among those of all
    """

    def __init__(
        self,
        crew: Crew,
        state: State,
        task: Task,
        front: Substituted,
        device: int,
        rows: slice,
        inputs: Tensors,
    ) -> None:
        self.device, self.rows, self.inputs, self._optimizer = (
            device,
            rows,
            inputs,
            crew.replica.optimizer,
        )
        # .data, because all devices' rows are one tensor: one device's step must not look like a change of another's
        self._own = {
            name: stacked.data[state.held.index(device)] for name, stacked in state.personal.items()
        }
        self._statistics = {
            name: self._own[name].clone() for name in self._own.keys() & crew.replica.statistics
        }
        named = (
            (*kind_and_name(each), tensor)
            for each, tensor in (self._own | self._statistics).items()
        )
        model = {name: tensor for kind, name, tensor in named if kind == MODEL}
        self._leaves = {
            name: tensor.requires_grad_()
            for name, tensor in model.items()
            if name in crew.replica.trained
        }
        with crew.chance(device, task, 0) if _draws(front.module) else nullcontext():
            self.crossing: Tensors = front(model, inputs)
        self._gradients = dict[str, Tensor]()

    def backward(self, gradients: list[Tensor | None], weight: float) -> None:
        """Backward through the front; the gradients came with the device's weight."""
        pairs = [
            (tensor, g[self.rows] / weight)
            for tensor, g in zip(self.crossing, gradients, strict=True)
            if g is not None
        ]
        self.crossing, self.inputs = (
            (),
            (),
        )  # not needed any more, while the front waits for its step
        if not pairs or not self._leaves:
            return
        outputs, given = zip(*pairs, strict=True)
        found = torch.autograd.grad(outputs, list(self._leaves.values()), given, allow_unused=True)
        self._gradients = {
            name: g for name, g in zip(self._leaves, found, strict=True) if g is not None
        }

    def descend(self) -> None:
        """The optimizer's step on the front, and the statistics that its forward pass has left."""
        with torch.no_grad():
            for name, statistic in self._statistics.items():
                self._own[name].copy_(statistic)
        names = list(self._gradients)
        if not names:
            return
        remembered = {
            slot: [self._own[key(slot, name)] for name in names] for slot in self._optimizer.slots
        }
        self._optimizer.step(
            [self._own[key(MODEL, name)] for name in names],
            list(self._gradients.values()),
            remembered,
        )


def _draws(front: nn.Module) -> int:
    """How many calls of a front draw random numbers."""
    return (
        sum(call.is_random for call in get_subgraph(front, training=True).calls)
        if isinstance(front, Half)
        else 0
    )


def _explain(crew: Crew, task: Task, runs: list[_FrontRun], lost: Tensor) -> None:
    """Raise for the first device whose numbers are not finite."""
    for run, loss in zip(runs, lost.tolist(), strict=True):
        seen = "" if math.isfinite(loss) else "loss"
        try:
            require_finite(run.crossing)
        except NonFinite as activations:
            seen = str(activations)
        if seen:
            raise crew.diverged(seen, run.device, task, 0, run.inputs)
