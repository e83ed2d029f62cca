"""Check that a model that was cut still computes the same.

Outputs, the tensors that cross the cut, and the gradients of a split step are compared with those
of the unsplit model.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

import airsplit as air
from airsplit.core.arrays import Ints
from airsplit.models.cut import cut_in_halves
from airsplit.models.example_inputs import make_example_inputs
from airsplit.models.splits import find_splits
from zoo.specimen import Case

# Largest difference, relative to the largest element of a tensor.
TOLERANCE = 1e-4
# Entries of an output that only serve to generate the next token.
CACHES = ("past_key_values", "cache_params")


class Wrong(Exception):
    """A result that contradicts the contract of a cut or of a profile."""


@dataclass
class Findings:
    """The largest differences over all cuts, relative to the largest element, and all problems.

    Attributes:
        splits: Names of the splits that were tried.
    """

    splits: list[str] = field(default_factory=list)
    outputs: float = 0.0
    gradients: dict[str, float] = field(default_factory=lambda: {"eval": 0.0, "train": 0.0})
    problems: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)

    @contextmanager
    def record_problems(self, what: str) -> Iterator[None]:
        """Record any error, and go on behind the context."""
        try:
            yield
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            kind = "" if isinstance(error, Wrong) else f"{type(error).__name__}: "
            self.problems.append(f"{what}: {kind}{lines[0]}")
            self.tracebacks.append(f"{what}\n{traceback.format_exc()}")


def sample_splits(profile: air.Profile, count: int) -> list[int]:
    """Return first, last and other splits, counted from 0.

    Half of the others are spread over those that send less than all before them, half over all.

    >>> work = np.ones(9, dtype=np.int64)
    >>> profile = air.Profile(
    ...     names=[*"abcdefghi"],
    ...     layer_macs=work,
    ...     matmul_macs=work,
    ...     activation_elements=np.array([9, 8, 8, 9, 7, 9, 5, 6, 6]),
    ...     parameters=work,
    ... )
    >>> sample_splits(profile, 5)
    [0, 3, 4, 5, 8]
    """
    sent = profile.activation_elements
    last = len(profile) - 1
    useful = np.flatnonzero(sent[1:] < np.minimum.accumulate(sent)[:-1]) + 1
    useful = useful[useful < last]
    if not len(useful):
        useful = np.arange(last + 1)
    inner = max(count - 2, 0)
    chosen = {0, last, *_spread(useful, (inner + 1) // 2)}
    others = np.setdiff1d(np.arange(last + 1), list(chosen))
    return sorted(int(at) for at in chosen.union(_spread(others, count - len(chosen))))


def _spread(values: Ints, count: int) -> Ints:
    """Return some values at equal distances, without the ends.

    >>> _spread(np.arange(10), 3)
    array([2, 4, 7])
    """
    if not len(values):
        return values
    positions = np.linspace(0, len(values) - 1, max(count, 0) + 2)[1:-1]
    return values[np.unique(positions.round().astype(int))]


def check_cuts(case: Case, profile: air.Profile, count: int) -> Findings:
    """Cut a model at some of its splits, and compare with the whole in both modes."""
    findings = Findings()
    set_batch_statistics(case)

    # As air.cut does, but the model is traced only once.
    splits = find_splits(
        case.model,
        make_example_inputs(case.model, case.sample.get("input_shape"), case.sample.get("inputs")),
    )
    cuts: dict[int, tuple[nn.Module, nn.Module]] = {}
    for at in sample_splits(profile, count):
        findings.splits.append(profile.names[at])
        with findings.record_problems(f"cut at {profile.names[at]!r}"):
            cuts[at] = cut_in_halves(splits, at + 1)

    evaluated = Whole(case, "eval")
    compare_cuts(evaluated, evaluated, cuts, profile, findings)
    compare_cuts(Whole(case, "train"), evaluated, cuts, profile, findings)
    return findings


def compare_cuts(
    whole: Whole,
    evaluated: Whole,
    cuts: dict[int, tuple[nn.Module, nn.Module]],
    profile: air.Profile,
    findings: Findings,
) -> None:
    """Compare all cuts with the whole model in one mode."""
    mode = whole.mode
    for at, (front, back) in cuts.items():
        front.train(mode == "train")
        back.train(mode == "train")
        # A profile is of evaluation mode. A model that returns other things in training sends
        # other things, too.
        elements = None
        if whole.kinds == evaluated.kinds:
            elements = int(profile.activation_elements[at])
        if mode == "eval":
            with findings.record_problems(f"outputs: {mode}, {profile.names[at]!r}"):
                difference = whole.compare_outputs(front, back, elements)
                findings.outputs = max(findings.outputs, difference)
        with findings.record_problems(f"gradients: {mode}, {profile.names[at]!r}"):
            difference = whole.compare_step(front, back, elements)
            findings.gradients[mode] = max(findings.gradients[mode], difference)


def set_batch_statistics(case: Case) -> None:
    """Give batch normalization the statistics of the batch.

    With those of a new model, evaluation drives the activations of deep ones to 1e-15 or 1e7.
    """
    norms = [module for module in case.model.modules() if isinstance(module, _BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    if norms:
        with torch.no_grad():
            case.model.train()(*case.batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


class Whole:
    """The unsplit model in one mode, with the results of one training step.

    Attributes:
        kind: Type of the output.
        kinds: Types of its entries, if it is a mapping.
        tensors: Floating-point tensors of the output.
        before: Buffers before the step.
        after: Buffers after the step.
    """

    def __init__(self, case: Case, mode: str) -> None:
        self.mode = mode
        self.batch = case.batch
        self.model = case.model.train(mode == "train")
        self.before = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        self._reset()
        output = self.model(*self.batch)
        self.kind = type(output)
        self.kinds: Any = self.kind
        if isinstance(output, Mapping):
            self.kinds = {key: type(value) for key, value in output.items()}
        self.tensors = [tensor.detach().clone() for tensor in float_tensors(output)]
        make_loss(output).backward()
        self.gradients = {name: p.grad for name, p in self.model.named_parameters()}
        self.after = {name: buffer.clone() for name, buffer in self.model.named_buffers()}

    def _reset(self) -> None:
        """Restore buffers, gradients and seed, so that all steps begin in the same state."""
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                buffer.copy_(self.before[name])
        self.model.zero_grad(set_to_none=True)
        torch.manual_seed(7)

    def compare_outputs(self, front: nn.Module, back: nn.Module, elements: int | None) -> float:
        """Return how far back(front(x)) is from the model's output.

        Raises:
            Wrong: It is too far, the profile does not say what crosses, or a parameter is on both
                sides.
        """
        self._reset()
        with torch.no_grad():
            output = back(*self._run_front(front, elements))
        shared = {id(p) for p in front.parameters()} & {id(p) for p in back.parameters()}
        if shared:
            names = [name for name, p in self.model.named_parameters() if id(p) in shared]
            raise Wrong(f"parameters on both sides: {', '.join(names[:3])}")
        return self._compare_output(output)

    def _run_front(self, front: nn.Module, elements: int | None) -> tuple[Tensor, ...]:
        sent = front(*self.batch)
        if not isinstance(sent, tuple):
            raise Wrong(f"front returns a {type(sent).__name__}, not a tuple")
        count = sum(tensor.numel() for tensor in sent)
        samples = len(self.batch[0])
        if elements is not None and count != samples * elements:
            raise Wrong(
                f"{count} elements cross for {samples} samples, "
                f"the profile says {elements} per sample"
            )
        return sent

    def _compare_output(self, output: Any) -> float:
        if type(output) is not self.kind:
            raise Wrong(
                f"the output is a {type(output).__name__}, the model's a {self.kind.__name__}"
            )
        tensors = float_tensors(output)
        shapes = [tuple(tensor.shape) for tensor in tensors]
        expected_shapes = [tuple(tensor.shape) for tensor in self.tensors]
        if shapes != expected_shapes:
            raise Wrong(f"the output has shapes {shapes}, the model's {expected_shapes}")
        worst = max(map(compare_tensors, tensors, self.tensors))
        # Written so that not-a-number fails.
        if not worst <= TOLERANCE:
            raise Wrong(f"outputs differ by {worst:.1e}")
        return worst

    def compare_step(self, front: nn.Module, back: nn.Module, elements: int | None) -> float:
        """Return how far the gradients of a step over the cut are from those of the whole.

        Raises:
            Wrong: They are too far, or outputs or buffers differ.
        """
        self._reset()
        sent = self._run_front(front, elements)
        received = tuple(t.detach().requires_grad_(t.is_floating_point()) for t in sent)
        output = back(*received)
        make_loss(output).backward()
        pairs = [
            (tensor, leaf.grad)
            for tensor, leaf in zip(sent, received, strict=True)
            if tensor.requires_grad and leaf.grad is not None
        ]
        # A front without parameters needs no gradient.
        if pairs:
            tensors, gradients = zip(*pairs, strict=True)
            torch.autograd.backward(tensors, gradients)

        self._compare_output(output)
        worst, name = max(self._gradient_differences())
        if not worst <= TOLERANCE:
            raise Wrong(f"the gradient of {name} differs by {worst:.1e}")
        for name, buffer in self.model.named_buffers():
            if compare_tensors(buffer, self.after[name]) > TOLERANCE:
                raise Wrong(f"buffer {name} is not what the whole model leaves")
        return worst

    def _gradient_differences(self) -> Iterator[tuple[float, str]]:
        for name, p in self.model.named_parameters():
            expected = self.gradients[name]
            if p.grad is None and expected is None:
                continue
            # No gradient and a gradient of zeros are the same.
            gradient = torch.zeros_like(p) if p.grad is None else p.grad
            expected = torch.zeros_like(p) if expected is None else expected
            yield compare_tensors(gradient, expected), name


def float_tensors(output: Any) -> list[Tensor]:
    """Return the floating-point tensors of an output, without a decoder's cache."""
    if isinstance(output, Mapping):
        output = [value for key, value in output.items() if key not in CACHES]
    return [
        leaf
        for leaf in tree_leaves(output)
        if isinstance(leaf, Tensor) and leaf.is_floating_point()
    ]


def make_loss(output: Any) -> Tensor:
    """Return a loss with a fixed random weight for every number of the output."""
    rng = torch.Generator().manual_seed(3)
    terms = [(t * torch.randn(t.shape, generator=rng)).sum() for t in float_tensors(output)]
    return reduce(add, terms)


def compare_tensors(tensor: Tensor, expected: Tensor) -> float:
    """Return the largest difference, relative to the largest element.

    It is not a number if either is not finite.

    >>> compare_tensors(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    0.5
    >>> compare_tensors(torch.zeros(2), torch.zeros(2))
    0.0
    """
    if expected.numel() == 0 or torch.equal(tensor, expected):
        return 0.0
    if not expected.is_floating_point():
        return float("inf")
    difference = (tensor.detach() - expected.detach()).abs().max()
    return float(difference) / max(float(expected.detach().abs().max()), 1e-30)
