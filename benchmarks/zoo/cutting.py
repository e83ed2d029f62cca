"""Whether a model that was cut still computes what it computed: outputs, what crosses, and the gradients of a split step."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
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

TOLERANCE = 1e-4  # of the largest element of a gradient
CACHES = ("past_key_values", "cache_params")


class Wrong(Exception):
    """What was found is not what the contract says."""


@dataclass
class Findings:
    """The largest differences over all cuts that were tried, relative to the largest element, and what went wrong."""

    splits: list[str] = field(default_factory=list)
    outputs: float = 0.0
    gradients: dict[str, float] = field(default_factory=lambda: {"eval": 0.0, "train": 0.0})
    problems: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Whatever goes wrong inside is written down, and the rest goes on."""
        try:
            yield
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            kind = "" if isinstance(error, Wrong) else f"{type(error).__name__}: "
            self.problems.append(f"{what}: {kind}{lines[0]}")
            self.tracebacks.append(f"{what}\n{traceback.format_exc()}")


def sample_splits(profile: air.Profile, count: int) -> list[int]:
    """First, last, and others: half spread over those that send less than all before them, half over all.  From 0.

    >>> work, sent = np.ones(9, dtype=np.int64), np.array([9, 8, 8, 9, 7, 9, 5, 6, 6])
    >>> sample_splits(air.Profile(names=[*"abcdefghi"], layer_macs=work, matmul_macs=work, activation_elements=sent, parameters=work), 5)
    [0, 3, 4, 5, 8]
    """
    sent, last = profile.activation_elements, len(profile) - 1
    better = np.flatnonzero(sent[1:] < np.minimum.accumulate(sent)[:-1]) + 1
    useful = better[better < last] if np.any(better < last) else np.arange(last + 1)
    inner = max(count - 2, 0)
    chosen = {0, last, *_spread(useful, (inner + 1) // 2)}
    others = np.setdiff1d(np.arange(last + 1), list(chosen))
    return sorted(int(at) for at in chosen.union(_spread(others, count - len(chosen))))


def _spread(values: Ints, count: int) -> Ints:
    """
    >>> _spread(np.arange(10), 3)
    array([2, 4, 7])
    """
    between = np.linspace(0, len(values) - 1, max(count, 0) + 2)[1:-1]
    return values[np.unique(between.round().astype(int))] if len(values) else values


def check_cuts(case: Case, profile: air.Profile, count: int) -> Findings:
    """Cut the model, as it was built, at some of its splits and compare with the whole, in evaluation and in training."""
    findings, cuts = Findings(), {}
    settle(case)
    # what air.cut does, but the model is looked at once
    found = find_splits(
        case.model,
        make_example_inputs(case.model, case.sample.get("input_shape"), case.sample.get("inputs")),
    )
    for at in sample_splits(profile, count):
        findings.splits.append(profile.names[at])
        with findings.attempt(f"cut at {profile.names[at]!r}"):
            cuts[at] = cut_in_halves(found, at + 1)
    wholes: dict[str, Whole] = {}
    for mode in ("eval", "train"):
        whole = wholes[mode] = Whole(case, mode)
        for at, (front, back) in cuts.items():
            front.train(mode == "train")
            back.train(mode == "train")
            # a profile is of evaluation mode: a model that returns other things in training sends other things there
            elements = (
                int(profile.activation_elements[at])
                if whole.kinds == wholes["eval"].kinds
                else None
            )
            if mode == "eval":
                with findings.attempt(f"outputs: {mode}, {profile.names[at]!r}"):
                    findings.outputs = max(
                        findings.outputs, whole.compare_outputs(front, back, elements)
                    )
            with findings.attempt(f"gradients: {mode}, {profile.names[at]!r}"):
                findings.gradients[mode] = max(
                    findings.gradients[mode], whole.compare_step(front, back, elements)
                )
    return findings


def settle(case: Case) -> None:
    """Give batch normalization the statistics of the batch: with those of a new model, evaluation drives deep ones to 1e-15 or 1e7."""
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
    """The unsplit model in one mode, with its outputs and the gradients and buffers of one training step."""

    def __init__(self, case: Case, mode: str) -> None:
        self.mode, self.batch = mode, case.batch
        self.model = case.model.train(mode == "train")
        self.before = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        self._start()
        output = self.model(*self.batch)
        self.kind, self.tensors = type(output), [t.detach().clone() for t in floats(output)]
        self.kinds = (
            {key: type(value) for key, value in output.items()}
            if isinstance(output, Mapping)
            else self.kind
        )
        loss(output).backward()
        self.gradients = {name: p.grad for name, p in self.model.named_parameters()}
        self.after = {name: buffer.clone() for name, buffer in self.model.named_buffers()}

    def _start(self) -> None:
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                buffer.copy_(self.before[name])
        self.model.zero_grad(set_to_none=True)
        torch.manual_seed(7)

    def compare_outputs(self, front: nn.Module, back: nn.Module, elements: int | None) -> float:
        """back(front(x)) is the model's output, what crosses is what the profile says, and no parameter is on both sides."""
        self._start()
        with torch.no_grad():
            sent = self._send(front, elements)
            output = back(*sent)
        both = {id(p) for p in front.parameters()} & {id(p) for p in back.parameters()}
        if both:
            names = [name for name, p in self.model.named_parameters() if id(p) in both]
            raise Wrong(f"parameters on both sides: {', '.join(names[:3])}")
        return self._output_difference(output)

    def _send(self, front: nn.Module, elements: int | None) -> tuple[Tensor, ...]:
        sent = front(*self.batch)
        if not isinstance(sent, tuple):
            raise Wrong(f"front returns a {type(sent).__name__}, not a tuple")
        crossing = sum(tensor.numel() for tensor in sent)
        if elements is not None and crossing != len(self.batch[0]) * elements:
            raise Wrong(
                f"{crossing} elements cross for {len(self.batch[0])} samples, the profile says {elements} per sample"
            )
        return sent

    def _output_difference(self, output: Any) -> float:
        tensors = floats(output)
        if type(output) is not self.kind:
            raise Wrong(
                f"the output is a {type(output).__name__}, the model's a {self.kind.__name__}"
            )
        if [t.shape for t in tensors] != [t.shape for t in self.tensors]:
            raise Wrong(
                f"the output has shapes {[tuple(t.shape) for t in tensors]}, the model's {[tuple(t.shape) for t in self.tensors]}"
            )
        worst = max(
            difference(t, expected) for t, expected in zip(tensors, self.tensors, strict=True)
        )
        if not worst <= TOLERANCE:
            raise Wrong(f"outputs differ by {worst:.1e}")
        return worst

    def compare_step(self, front: nn.Module, back: nn.Module, elements: int | None) -> float:
        """One training step over the cut leaves the same outputs, gradients and buffers as one over the whole."""
        self._start()
        sent = self._send(front, elements)
        received = tuple(t.detach().requires_grad_(t.is_floating_point()) for t in sent)
        output = back(*received)
        loss(output).backward()
        pairs = [
            (t, r.grad)
            for t, r in zip(sent, received, strict=True)
            if t.requires_grad and r.grad is not None
        ]
        if pairs:  # in front of all parameters nothing comes back
            torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])
        self._output_difference(output)
        worst, name = max(self._gradient_differences())
        if not worst <= TOLERANCE:
            raise Wrong(f"the gradient of {name} differs by {worst:.1e}")
        for name, buffer in self.model.named_buffers():
            if difference(buffer, self.after[name]) > TOLERANCE:
                raise Wrong(f"buffer {name} is not what the whole model leaves")
        return worst

    def _gradient_differences(self) -> Iterator[tuple[float, str]]:
        for name, p in self.model.named_parameters():
            expected = self.gradients[name]
            if p.grad is None and expected is None:
                continue
            expected = torch.zeros_like(p) if expected is None else expected
            yield difference(torch.zeros_like(p) if p.grad is None else p.grad, expected), name


def floats(output: Any) -> list[Tensor]:
    """The floating-point tensors of an output, without the keys and values that a decoder keeps for the next token."""
    if isinstance(output, Mapping):
        output = [value for key, value in output.items() if key not in CACHES]
    return [
        leaf
        for leaf in tree_leaves(output)
        if isinstance(leaf, Tensor) and leaf.is_floating_point()
    ]


def loss(output: Any) -> Tensor:
    """A fixed random weight for every number of the output."""
    numbers = torch.Generator().manual_seed(3)
    return sum((t * torch.randn(t.shape, generator=numbers)).sum() for t in floats(output))


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference relative to the largest element; not a number where either is not finite.

    >>> difference(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])), difference(torch.zeros(2), torch.zeros(2))
    (0.5, 0.0)
    """
    if expected.numel() == 0 or torch.equal(found, expected):
        return 0.0
    if not expected.is_floating_point():
        return float("inf")
    found, expected = found.detach(), expected.detach()
    return float((found - expected).abs().max()) / max(float(expected.abs().max()), 1e-30)
