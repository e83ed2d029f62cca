"""The built-in models by name. No torch here: a factory is imported when its model is built."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airsplit.core.errors import InvalidValue, require_choice, require_integer, unknown_name
from airsplit.system.inputs import InputSpec, Shape, format_shape, require_shape

if TYPE_CHECKING:
    from torch import nn

# Shapes of one sample, also the defaults of the factories, which cannot be imported here.
ALEXNET_INPUT: Shape = (3, 227, 227)
ALEXNET32_INPUT: Shape = (3, 32, 32)
GPT_INPUT: Shape = (64,)
RESNET20_INPUT: Shape = (3, 32, 32)
VGG16_INPUT: Shape = (3, 224, 224)
VIT_INPUT: Shape = (3, 32, 32)


@dataclass(frozen=True)
class ModelEntry:
    """A model's factory and its default input.

    Attributes:
        module: Module of the factory.
        input_shape: Default shape of one sample, without the batch axis.
        dtype: Type of the input; "" for the floating type of the weights.
        axes: Arguments that set one of the sizes: argument → axis.
    """

    module: str
    factory: str
    input_shape: Shape
    dtype: str = ""
    axes: Mapping[str, int] = field(default_factory=dict)


MODELS = {
    "alexnet": ModelEntry("airsplit.models.zoo.alexnet", "alexnet", ALEXNET_INPUT),
    "alexnet32": ModelEntry(
        "airsplit.models.zoo.alexnet", "alexnet32", ALEXNET32_INPUT, axes={"channels": 0}
    ),
    "gpt": ModelEntry("airsplit.models.zoo.gpt", "gpt", GPT_INPUT, dtype="int64"),
    "resnet20": ModelEntry("airsplit.models.zoo.resnet", "resnet20", RESNET20_INPUT),
    "vgg16": ModelEntry("airsplit.models.zoo.vgg", "vgg16", VGG16_INPUT),
    "vit": ModelEntry("airsplit.models.zoo.vit", "vit", VIT_INPUT),
}

# Name, input shape and arguments of the profiles that ship: every model with its defaults, VGG16
# for small images, and the model of the preset "demo".
SHIPPED: tuple[tuple[str, Shape, Mapping[str, Any]], ...] = (
    *((name, entry.input_shape, {}) for name, entry in MODELS.items()),
    ("vgg16", (3, 32, 32), {}),
    ("alexnet32", (1, 32, 32), {"width": 0.25}),
)


def list_models() -> list[str]:
    """Return the names of the built-in models, sorted.

    >>> list_models()
    ['alexnet', 'alexnet32', 'gpt', 'resnet20', 'vgg16', 'vit']
    """
    return sorted(MODELS)


def build_registered_model(
    name: str, /, input_shape: Sequence[int] | None = None, **arguments: Any
) -> nn.Module:
    """Build a model with fresh weights on torch's default device.

    Its attribute `input_spec` declares its input.

    >>> model = build_registered_model("alexnet32", width=0.1)
    >>> len(model), model.input_spec
    (20, InputSpec(shape=(3, 32, 32), dtype=''))
    """
    entry = _get_entry(name)
    factory = getattr(importlib.import_module(entry.module), entry.factory)
    known = inspect.signature(factory).parameters
    for argument in arguments:
        if argument not in known:
            raise unknown_name(f"{name} argument", argument, known)

    if input_shape is None:
        module: nn.Module = factory(**arguments)
    else:
        module = factory(input_shape=require_shape("input_shape", input_shape), **arguments)
    # torch types the attributes of a module as tensors and modules only.
    vars(module)["input_spec"] = get_input_spec(name, input_shape, arguments)
    return module


def get_input_spec(
    name: str, input_shape: Sequence[int] | None = None, arguments: Mapping[str, Any] | None = None
) -> InputSpec:
    """Return the input of a model that is built with these arguments.

    >>> get_input_spec("gpt")
    InputSpec(shape=(64,), dtype='int64')
    >>> get_input_spec("alexnet32", arguments={"channels": 1}).shape
    (1, 32, 32)
    """
    entry = _get_entry(name)
    arguments = arguments or {}
    if input_shape is None:
        sizes = list(entry.input_shape)
        for argument, axis in entry.axes.items():
            # A value that is not a size stays here for the factory to reject.
            sizes[axis] = _parse_size(arguments.get(argument)) or sizes[axis]
        return InputSpec(tuple(sizes), entry.dtype)

    shape = require_shape("input_shape", input_shape)
    for argument, axis in entry.axes.items():
        size = _parse_size(arguments.get(argument))
        if size is not None and axis < len(shape) and size != shape[axis]:
            raise InvalidValue(
                f"{name} argument {argument} must be {shape[axis]}, because the input is "
                f"{format_shape(shape)}, got {size}; change one of them"
            )
    return InputSpec(shape, entry.dtype)


def format_profile_name(
    name: str, input_shape: Shape, arguments: Mapping[str, Any] | None = None
) -> str:
    """Return the file name of a shipped profile: the model, then what differs from its defaults.

    >>> format_profile_name("vgg16", (3, 224, 224)), format_profile_name("vgg16", (3, 32, 32))
    ('vgg16', 'vgg16-3x32x32')
    >>> format_profile_name("alexnet32", (1, 32, 32), {"width": 0.25})
    'alexnet32-1x32x32-width0.25'
    """
    parts = [name]
    if input_shape != _get_entry(name).input_shape:
        parts.append(format_shape(input_shape))
    parts += [f"{key}{value}" for key, value in sorted((arguments or {}).items())]
    return "-".join(parts)


def find_shipped_name(
    name: str, input_shape: Sequence[int] | None, arguments: Mapping[str, Any]
) -> str | None:
    """Return the name of the profile that ships for these arguments; None if there is none.

    >>> find_shipped_name("alexnet32", None, {"channels": 1, "width": 0.25})
    'alexnet32-1x32x32-width0.25'
    >>> find_shipped_name("alexnet32", None, {"width": 0.5})
    """
    shape = get_input_spec(name, input_shape, arguments).shape
    axes = _get_entry(name).axes
    # An argument that only repeats a size of the shape does not make another model.
    others = {
        key: value
        for key, value in arguments.items()
        if key not in axes or _parse_size(value) != shape[axes[key]]
    }
    if (name, shape, others) not in SHIPPED:
        return None
    return format_profile_name(name, shape, others)


def _get_entry(name: str) -> ModelEntry:
    return MODELS[require_choice("model", name, MODELS)]


def _parse_size(value: object) -> int | None:
    """Return a whole number >= 1 as an int; None for anything else."""
    try:
        return require_integer("size", value, low=1)
    except InvalidValue:
        return None
