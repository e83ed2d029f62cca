"""Models by name or path: built without memory to be profiled, or with weights to be trained.

A name is that of a built-in model or "package.module:factory", a function or class that is called
with the arguments of the scenario. torch is imported only when a model is built.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airsplit.core.errors import InvalidValue, require_choice, show, unknown_name
from airsplit.core.plugins import import_factory, user_code
from airsplit.models.example_inputs import get_declared_inputs
from airsplit.models.zoo.registry import MODELS, build_registered_model, get_input_spec
from airsplit.system.inputs import InputSpec

if TYPE_CHECKING:
    from torch import nn

Inputs = tuple[InputSpec, ...]


def load_model(
    name: str,
    *,
    inputs: Inputs | None = None,
    arguments: Mapping[str, Any] | None = None,
    device: str | None = "meta",
) -> nn.Module:
    """Build a built-in model, or call "package.module:factory".

    Args:
        name: A built-in model or the path of a factory.
        inputs: Inputs in the order of forward's arguments. A built-in model is built for them.
        arguments: Arguments of the factory.
        device: "meta" for shapes without weights, unless the factory needs weights; None for
            torch's default device.

    >>> next(load_model("vgg16").parameters()).device
    device(type='meta')
    """
    arguments = dict(arguments or {})
    if ":" in name:
        return build_model(name, arguments, device)

    require_choice("model", name, MODELS)
    if "input_shape" in arguments:
        raise InvalidValue(
            f"{name} argument input_shape repeats the input of the model; "
            f"give that instead, e.g. {get_input_spec(name)}"
        )
    shape = None if inputs is None else require_one_input(name, inputs).shape
    return _call_factory(name, lambda: build_registered_model(name, shape, **arguments), device)


def build_model(
    reference: str, arguments: Mapping[str, Any], device: str | None = None
) -> nn.Module:
    """Call the factory at "package.module:factory" with these arguments."""
    # Import before a device is set: tensors that the module creates at import must be real ones.
    factory = import_factory(reference)
    require_known_arguments(reference, factory, arguments)
    return _call_factory(reference, lambda: factory(**arguments), device)


def resolve_inputs(name: str, module: nn.Module, inputs: Inputs | None) -> Inputs:
    """Return the inputs of a loaded model: `inputs` if given, else those that it declares."""
    if inputs is not None:
        if ":" in name:
            return inputs
        return (require_one_input(name, inputs),)
    declared = get_declared_inputs(module)
    if declared is None:
        raise InvalidValue(
            f"model {name!r} must be given its input, the sizes of one sample; "
            "give --input 3x32x32 or --input 128:int64 "
            "(in a scenario model.input_shape = [3, 32, 32]), or set its attribute input_spec"
        )
    return declared


def require_one_input(name: str, inputs: Sequence[InputSpec]) -> InputSpec:
    """Return the only input of a built-in model, with the model's dtype if it has none."""
    if len(inputs) != 1:
        raise InvalidValue(
            f"{name} takes one input, e.g. {get_input_spec(name)}, got {len(inputs)}; give one"
        )
    return replace(inputs[0], dtype=inputs[0].dtype or MODELS[name].dtype)


def require_known_arguments(
    reference: str, factory: Callable[..., Any], arguments: Mapping[str, Any]
) -> None:
    """Reject an argument that a factory does not take, with the nearest one that it does.

    >>> require_known_arguments("mine:build", lambda depth: None, {"depht": 2})
    Traceback (most recent call last):
    airsplit.core.errors.UnknownName: mine:build argument 'depht' is not known; did you mean \
'depth'? Known: depth
    """
    try:
        # A wrapper may take more arguments than the function it wraps.
        known = inspect.signature(factory, follow_wrapped=False).parameters
    except (TypeError, ValueError):
        # Some built-in callables have no signature; they reject arguments themselves.
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return
    for argument in arguments:
        if argument not in known:
            raise unknown_name(f"{reference} argument", argument, known)


def _call_factory(name: str, factory: Callable[[], Any], device: str | None) -> nn.Module:
    """Call a factory on a device; errors in the user's code become one line."""
    from torch import nn

    with user_code(f"model {name!r}"):
        module = _call_on_device(device, factory)
    if not isinstance(module, nn.Module):
        raise InvalidValue(f"model {name!r} must return a torch.nn.Module, got {show(module)}")
    return module


def _call_on_device(device: str | None, factory: Callable[[], Any]) -> Any:
    """Call a factory on a device; if it fails on "meta", call it again on the CPU."""
    import torch

    if device is None:
        return factory()
    if device != "meta":
        with torch.device(device):
            return factory()

    # A factory may read a value, load weights in its own way, or otherwise need storage.
    with (
        contextlib.suppress(Exception, SystemExit),
        torch.device("meta"),
        warnings.catch_warnings(),
    ):
        # Torch warns that weights loaded into a meta model have no effect.
        warnings.filterwarnings("ignore", ".*copying from a non-meta parameter.*", UserWarning)
        return factory()
    # This model is profiled, not trained, so it must not consume random numbers.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        return factory()
