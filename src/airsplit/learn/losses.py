"""What training minimises, and how many answers are right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from airsplit.errors import InvalidValue, show
from airsplit.references import factory

Loss = Callable[[Any, Tensor], Tensor]
"""A model's output and the labels → one number, a mean over the batch."""


def loss_of(name: str) -> Loss:
    """The loss of a scenario: "cross-entropy", or "package.module:function"."""
    return factory(name, "training.loss", "the loss") if ":" in name else cross_entropy


def cross_entropy(output: Any, labels: Tensor) -> Tensor:
    """The mean of -ln p(label), over the batch and, where a sample has several labels, over those.

    >>> import torch
    >>> round(float(cross_entropy(torch.zeros(2, 10), torch.tensor([3, 4]))), 4)
    2.3026
    """
    scores = widened(logits_of(output))
    if scores.shape[:-1] != labels.shape:
        want, got = f"{(*labels.shape, 'classes')}", tuple(scores.shape)
        raise InvalidValue(
            f'training.loss "cross-entropy" needs scores of shape {want} for labels of shape {tuple(labels.shape)}, '
            f'got {got}; take training.loss = "package.module:function" for another kind of answer'
        )
    try:
        return functional.cross_entropy(scores.flatten(0, -2), labels.flatten())
    except IndexError:
        require_classes(int(labels.max()), scores.shape[-1])
        raise


def widened(scores: Tensor) -> Tensor:
    """Scores in float32 at least: in sixteen bits a loss would have three digits."""
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def require_classes(label: int, classes: int) -> None:
    """Raise where a label is beyond the classes that a model tells apart."""
    if label >= classes:
        raise InvalidValue(
            f"labels must be below the number of classes that the model tells apart, {classes}, got {label}; give the model more classes"
        ) from None


def right_answers(output: Any, labels: Tensor) -> Tensor | None:
    """For each label whether its class has the highest score; None where the output is no scores of two classes or more.

    >>> import torch
    >>> right_answers(torch.tensor([[1.0, 2.0], [5.0, 0.0]]), torch.tensor([1, 1]))
    tensor([ True, False])
    """
    scores = logits_of(output)
    if scores.shape[:-1] != labels.shape or scores.shape[-1] < 2:
        return None
    return scores.argmax(dim=-1) == labels


def logits_of(output: Any) -> Tensor:
    """The scores in a model's output: a tensor, what is called logits, or the first tensor.

    >>> import torch
    >>> logits_of({"hidden": torch.zeros(1), "logits": torch.ones(1)})
    tensor([1.])
    """
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        several = [output["logits"]] if "logits" in output else list(output.values())
    else:
        named = getattr(output, "logits", None)
        several = [named] if named is not None else list(output) if isinstance(output, tuple | list) else []
    for each in several:
        if isinstance(each, Tensor):
            return each
    raise InvalidValue(f"the model's output must be a tensor, or have one, to compute a loss, got {show(type(output).__name__)}")
