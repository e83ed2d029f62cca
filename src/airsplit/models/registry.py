"""The built-in models by name.  No torch here: a factory is imported when its model is built."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airsplit.errors import require_choice, unknown_name
from airsplit.models.shapes import ALEXNET32_INPUT, ALEXNET_INPUT, VGG16_INPUT, Shape, shape_text

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Entry:
    """Where a model's factory is, and the shape of one sample unless another is asked for."""

    module: str
    factory: str
    input_shape: Shape


MODELS = {
    "alexnet": Entry("airsplit.models.alexnet", "alexnet", ALEXNET_INPUT),
    "alexnet32": Entry("airsplit.models.alexnet", "alexnet32", ALEXNET32_INPUT),
    "vgg16": Entry("airsplit.models.vgg", "vgg16", VGG16_INPUT),
}


def model_names() -> list[str]:
    """
    >>> model_names()
    ['alexnet', 'alexnet32', 'vgg16']
    """
    return sorted(MODELS)


def default_input_shape(name: str) -> Shape:
    """
    >>> default_input_shape("vgg16")
    (3, 224, 224)
    """
    return MODELS[require_choice("model", name, MODELS)].input_shape


def build(name: str, input_shape: Shape | None = None, **arguments: Any) -> nn.Sequential:
    """A built-in model with fresh weights, on torch's default device.

    >>> len(build("alexnet32", width=0.1))
    20
    """
    entry = MODELS[require_choice("model", name, MODELS)]
    factory = getattr(importlib.import_module(entry.module), entry.factory)
    known = inspect.signature(factory).parameters
    for argument in arguments:
        if argument not in known:
            raise unknown_name(f"{name} argument", argument, known)
    if input_shape is not None:
        arguments["input_shape"] = input_shape
    return factory(**arguments)  # type: ignore[no-any-return]


def profile_name(name: str, input_shape: Shape) -> str:
    """What the profile of a model is called among those that ship: its name, and its input shape where it is unusual.

    >>> profile_name("vgg16", (3, 224, 224)), profile_name("vgg16", (3, 32, 32))
    ('vgg16', 'vgg16-3x32x32')
    """
    return name if input_shape == default_input_shape(name) else f"{name}-{shape_text(input_shape)}"
