"""What training minimizes, and how many answers are right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from airsplit.core.errors import InvalidValue, show
from airsplit.core.plugins import import_factory

Loss = Callable[[Any, Tensor], Tensor]
"""A model's output and the labels → one number, a mean over the batch."""

# The label that torch's cross_entropy leaves out: a pixel of no class, or padding.
IGNORED_LABEL = -100


def loss_of(name: str, arguments: Mapping[str, Any] | None = None) -> Loss:
    """Return the loss of a scenario: "cross-entropy", or "package.module:function"."""
    if ":" not in name:
        return cross_entropy
    return partial(import_factory(name, "training.loss", "the loss"), **(arguments or {}))


def cross_entropy(output: Any, labels: Tensor) -> Tensor:
    """The mean of -ln p(label), over the batch and, where a sample has several labels, over those.

    >>> import torch
    >>> round(float(cross_entropy(torch.zeros(2, 10), torch.tensor([3, 4]))), 4)
    2.3026
    """
    given = widened(logits_of(output))
    scores = classes_last(given, labels)
    if scores is None:
        raise _unfit(given, labels)
    try:
        return functional.cross_entropy(scores.flatten(0, -2), labels.flatten())
    except IndexError:
        require_classes(labels, scores.shape[-1])
        raise


def _unfit(scores: Tensor, labels: Tensor) -> InvalidValue:
    """An error that names the shapes that were found and wanted."""
    shape = tuple(labels.shape)
    wanted = _shape_text((*shape, "classes"))
    if len(shape) > 1:
        wanted += f" or {_shape_text((shape[0], 'classes', *shape[1:]))}"
    return InvalidValue(
        f'training.loss "cross-entropy" needs scores of shape {wanted} for labels of shape {_shape_text(shape)}, '
        f'got {_shape_text(tuple(scores.shape))}; take training.loss = "package.module:function" for another kind of answer'
    )


def _shape_text(shape: Sequence[int | str]) -> str:
    """
    >>> _shape_text((4, "classes")), _shape_text((4,))
    ('(4, classes)', '(4,)')
    """
    inside = ", ".join(map(str, shape))
    return f"({inside},)" if len(shape) == 1 else f"({inside})"


def class_axes(scores: Sequence[int], labels: Sequence[int]) -> list[int]:
    """Return the axes of scores of this shape that may be the classes, the one that is taken first.

    That is the last axis. The one behind the batch, where torch has it, counts only if the last does not fit.

    >>> class_axes((4, 8, 8, 3), (4, 8, 8)), class_axes((4, 3, 8, 8), (4, 8, 8))
    ([3], [1])
    >>> class_axes((4, 8, 8, 8), (4, 8, 8)), class_axes((4, 3), (4,)), class_axes((4, 3), (3, 4))
    ([3, 1], [1], [])
    """
    candidates = dict.fromkeys((len(scores) - 1, 1))
    return [
        axis
        for axis in candidates
        if 1 <= axis < len(scores) and (*scores[:axis], *scores[axis + 1 :]) == tuple(labels)
    ]


def classes_last(scores: Tensor, labels: Tensor) -> Tensor | None:
    """Return scores with their class axis moved to the end; None if no axis fits the labels."""
    axes = class_axes(scores.shape, labels.shape)
    return scores.movedim(axes[0], -1) if axes else None


def require_comparable(output: Any, labels: Tensor) -> list[int]:
    """Return the axes of an output that may be the classes; raise where cross-entropy cannot compare it with such labels."""
    scores = logits_of(output)
    if labels.is_floating_point():
        dtype = str(labels.dtype).removeprefix("torch.")
        raise InvalidValue(
            f'training.loss "cross-entropy" needs labels that are whole numbers, got {dtype}; '
            'take training.loss = "package.module:function" for quantities'
        )
    axes = class_axes(scores.shape, labels.shape)
    if not axes:
        raise _unfit(scores, labels)
    return axes


def widened(scores: Tensor) -> Tensor:
    """Scores in float32 at least: in sixteen bits a loss would have three digits."""
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def require_classes(labels: Tensor, classes: int) -> None:
    """Raise where a label is none of the classes that a model tells apart."""
    counted = labels[labels != IGNORED_LABEL]
    if not counted.numel():
        return
    lowest, highest = int(counted.min()), int(counted.max())
    ignored = (
        ""
        if labels.dim() == 1
        else f", or write {IGNORED_LABEL} where a label is to count for nothing"
    )
    if highest >= classes:
        raise InvalidValue(
            f"labels must be below the number of classes that the model tells apart, {classes}, got {highest}; give the model more classes"
            f"{ignored}"
        ) from None
    if lowest < 0:
        raise InvalidValue(
            f"labels must be classes, numbered from 0, got {lowest}; number them anew{ignored}"
        ) from None


def right_answers(output: Any, labels: Tensor) -> Tensor | None:
    """For each label whether its class has the highest score; None where the output is no scores of two classes or more.

    >>> import torch
    >>> right_answers(torch.tensor([[1.0, 2.0], [5.0, 0.0]]), torch.tensor([1, 1]))
    tensor([ True, False])
    """
    found = _scores_in(output)
    scores = None if found is None else classes_last(found, labels)
    if scores is None or scores.shape[-1] < 2:
        return None
    return scores.argmax(dim=-1) == labels


def logits_of(output: Any) -> Tensor:
    """The scores in a model's output: a tensor, what is called logits, or the first tensor.

    >>> import torch
    >>> logits_of({"hidden": torch.zeros(1), "logits": torch.ones(1)})
    tensor([1.])
    """
    scores = _scores_in(output)
    if scores is None:
        raise InvalidValue(
            f"the model's output must be a tensor, or have one, to compute a loss, got {show(type(output).__name__)}"
        )
    return scores


def _scores_in(output: Any) -> Tensor | None:
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        several = [output["logits"]] if "logits" in output else list(output.values())
    else:
        named = getattr(output, "logits", None)
        several = (
            [named]
            if named is not None
            else list(output)
            if isinstance(output, tuple | list)
            else []
        )
    return next((each for each in several if isinstance(each, Tensor)), None)
