"""The built-in models by name.  No torch here: a factory is imported when its model is built."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airsplit.core.errors import InvalidValue, require_choice, require_integer, unknown_name
from airsplit.models.zoo.shapes import (
    ALEXNET32_INPUT,
    ALEXNET_INPUT,
    GPT_INPUT,
    RESNET20_INPUT,
    VGG16_INPUT,
    VIT_INPUT,
)
from airsplit.system.inputs import InputSpec, Shape, format_shape, require_shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Entry:
    """Where a model's factory is, and one sample unless another is asked for.

    input_shape  its sizes, without the batch axis
    dtype        its type; "" for the floating type of the weights
    axes         arguments that say one of these sizes: argument → axis
    """

    module: str
    factory: str
    input_shape: Shape
    dtype: str = ""
    axes: Mapping[str, int] = field(default_factory=dict)


MODELS = {
    "alexnet": Entry("airsplit.models.zoo.alexnet", "alexnet", ALEXNET_INPUT),
    "alexnet32": Entry(
        "airsplit.models.zoo.alexnet", "alexnet32", ALEXNET32_INPUT, axes={"channels": 0}
    ),
    "gpt": Entry("airsplit.models.zoo.gpt", "gpt", GPT_INPUT, dtype="int64"),
    "resnet20": Entry("airsplit.models.zoo.resnet", "resnet20", RESNET20_INPUT),
    "vgg16": Entry("airsplit.models.zoo.vgg", "vgg16", VGG16_INPUT),
    "vit": Entry("airsplit.models.zoo.vit", "vit", VIT_INPUT),
}

# name, input shape, arguments: every model as it is, VGG16 for small images, and the model of the preset "demo"
SHIPPED: tuple[tuple[str, Shape, Mapping[str, Any]], ...] = (
    *((name, entry.input_shape, {}) for name, entry in MODELS.items()),
    ("vgg16", (3, 32, 32), {}),
    ("alexnet32", (1, 32, 32), {"width": 0.25}),
)


def list_models() -> list[str]:
    """
    >>> list_models()
    ['alexnet', 'alexnet32', 'gpt', 'resnet20', 'vgg16', 'vit']
    """
    return sorted(MODELS)


def default_input_shape(name: str) -> Shape:
    """
    >>> default_input_shape("vgg16")
    (3, 224, 224)
    """
    return _entry(name).input_shape


def input_of(
    name: str, input_shape: Sequence[int] | None = None, arguments: Mapping[str, Any] | None = None
) -> InputSpec:
    """The one input of a built-in model that is built with these arguments.

    >>> input_of("gpt"), input_of("alexnet32", arguments={"channels": 1}).shape
    (InputSpec(shape=(64,), dtype='int64'), (1, 32, 32))
    """
    entry = _entry(name)
    if input_shape is not None:
        shape = require_shape("input_shape", input_shape)
        for argument, axis in entry.axes.items():
            said = _size((arguments or {}).get(argument))
            if said is not None and axis < len(shape) and said != shape[axis]:
                takes = f"the input is {format_shape(shape)}"
                raise InvalidValue(
                    f"{name} argument {argument} must be {shape[axis]}, because {takes}, got {said}; change one of them"
                )
        return InputSpec(shape, entry.dtype)
    sizes = list(entry.input_shape)
    for argument, axis in entry.axes.items():
        sizes[axis] = (
            _size((arguments or {}).get(argument)) or sizes[axis]
        )  # what is no size is the factory's to refuse
    return InputSpec(tuple(sizes), entry.dtype)


def build_registered_model(
    name: str, /, input_shape: Sequence[int] | None = None, **arguments: Any
) -> nn.Module:
    """A built-in model with fresh weights, on torch's default device; its attribute `input_spec` says what it takes.

    >>> model = build_registered_model("alexnet32", width=0.1)
    >>> len(model), model.input_spec
    (20, InputSpec(shape=(3, 32, 32), dtype=''))
    """
    entry = _entry(name)
    factory = getattr(importlib.import_module(entry.module), entry.factory)
    known = inspect.signature(factory).parameters
    for argument in arguments:
        if argument not in known:
            raise unknown_name(f"{name} argument", argument, known)
    shape = (
        {} if input_shape is None else {"input_shape": require_shape("input_shape", input_shape)}
    )
    module: nn.Module = factory(**shape, **arguments)
    vars(module)["input_spec"] = input_of(name, input_shape, arguments)
    return module


def profile_name(name: str, input_shape: Shape, arguments: Mapping[str, Any] | None = None) -> str:
    """What the profile of a model is called among those that ship: its name, and where it is unusual its input and arguments.

    >>> profile_name("vgg16", (3, 224, 224)), profile_name("vgg16", (3, 32, 32))
    ('vgg16', 'vgg16-3x32x32')
    >>> profile_name("alexnet32", (1, 32, 32), {"width": 0.25})
    'alexnet32-1x32x32-width0.25'
    """
    shape = [] if input_shape == default_input_shape(name) else [format_shape(input_shape)]
    return "-".join(
        [name, *shape, *(f"{key}{value}" for key, value in sorted((arguments or {}).items()))]
    )


def shipped_name(
    name: str, input_shape: Sequence[int] | None, arguments: Mapping[str, Any]
) -> str | None:
    """The name of the profile that ships for a model with these arguments; None where it must be counted.

    >>> shipped_name("alexnet32", None, {"channels": 1, "width": 0.25}), shipped_name("alexnet32", None, {"width": 0.5})
    ('alexnet32-1x32x32-width0.25', None)
    """
    shape, axes = input_of(name, input_shape, arguments).shape, _entry(name).axes
    said = {key for key, axis in axes.items() if _size(arguments.get(key)) == shape[axis]}
    rest = {key: value for key, value in arguments.items() if key not in said}
    return profile_name(name, shape, rest) if (name, shape, rest) in SHIPPED else None


def _entry(name: str) -> Entry:
    return MODELS[require_choice("model", name, MODELS)]


def _size(value: object) -> int | None:
    """A whole number >= 1, or None."""
    try:
        return require_integer("size", value, low=1)
    except InvalidValue:
        return None
