"""Models by name or path: built without memory to be counted, or with weights to be trained.

A name is a built-in model's or "package.module:factory", a function or class that is called with `arguments`.  torch is
imported only where a model must be built.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airsplit.core.errors import InvalidValue, require_choice, show, unknown_name
from airsplit.core.plugins import import_factory, user_code
from airsplit.models.inputs import recorded_inputs, samples
from airsplit.models.zoo.registry import MODELS, build_registered_model, input_of, shipped_name
from airsplit.system.inputs import InputSpec
from airsplit.system.profile import Profile, list_shipped_profiles, load_shipped_profile

if TYPE_CHECKING:
    from torch import nn

    from airsplit.models.splits import IllegalSplit
    from airsplit.scenario.scenario import Scenario

Inputs = tuple[InputSpec, ...]


def get_profile(
    name: str, inputs: Inputs | None = None, arguments: Mapping[str, Any] | None = None
) -> Profile:
    """What a model costs at each split.  Needs no torch where its profile ships with the package.

    >>> get_profile("alexnet32", arguments={"channels": 1, "width": 0.25}).names[3]
    'pool1'
    """
    shipped = _shipped(name, inputs, arguments or {})
    return (
        count_profile(name, inputs, arguments) if shipped is None else load_shipped_profile(shipped)
    )


def profile_scenario(scenario: Scenario) -> Profile:
    """What the model of a scenario costs; an error where it is not the one that the scenario was written down for."""
    profile = get_profile(
        scenario.model.name, scenario.model.input_specs(), scenario.model.arguments
    )
    scenario.require_model(profile)
    return profile


def count_profile(
    name: str, inputs: Inputs | None = None, arguments: Mapping[str, Any] | None = None
) -> Profile:
    """The same, counted afresh."""
    from airsplit.models.profiling import profile

    module = load(name, inputs=inputs, arguments=arguments)
    return replace(
        profile(module, inputs=samples(resolve_inputs(name, module, inputs), module)), model=name
    )


def explain_model(
    name: str, inputs: Inputs | None = None, arguments: Mapping[str, Any] | None = None
) -> tuple[Profile, list[IllegalSplit]]:
    """What a model costs at each split, and after which layers it cannot be cut, and why."""
    from airsplit.models.profiling import explain

    module = load(name, inputs=inputs, arguments=arguments)
    found, refused = explain(module, inputs=samples(resolve_inputs(name, module, inputs), module))
    return replace(found, model=name), refused


def load(
    name: str,
    *,
    inputs: Inputs | None = None,
    arguments: Mapping[str, Any] | None = None,
    device: str | None = "meta",
) -> nn.Module:
    """The model itself.

    inputs  what it is to take, in the order of the arguments of forward; a built-in model is built for it
    device  "meta": shapes but no weights, unless the factory cannot do without; None: torch's default device

    >>> next(load("vgg16").parameters()).device
    device(type='meta')
    """
    given = dict(arguments or {})
    if ":" in name:
        return build_model(name, given, device)
    require_choice("model", name, MODELS)
    if "input_shape" in given:
        raise InvalidValue(
            f"{name} argument input_shape says the same as its input; give that instead, e.g. {input_of(name)}"
        )
    shape = None if inputs is None else _one(name, inputs).shape
    return _made(name, lambda: build_registered_model(name, shape, **given), device)


def resolve_inputs(name: str, module: nn.Module, inputs: Inputs | None) -> Inputs:
    """What a model that was loaded takes: `inputs`, or else what the model itself says."""
    if inputs is not None:
        return inputs if ":" in name else (_one(name, inputs),)
    recorded = recorded_inputs(module)
    if recorded is None:
        way = "give --input 3x32x32 or --input 128:int64 (in a scenario model.input_shape = [3, 32, 32]), or let it have an input_spec"
        raise InvalidValue(
            f"model {name!r} must be given its input, the sizes of one sample; {way}"
        )
    return recorded


def build_model(
    reference: str, arguments: Mapping[str, Any], device: str | None = None
) -> nn.Module:
    """The model that "package.module:factory" makes with these arguments."""
    make = import_factory(
        reference
    )  # outside of any device: a module keeps the tensors that its import makes
    _require_arguments(reference, make, arguments)
    return _made(reference, lambda: make(**arguments), device)


def _require_arguments(
    reference: str, make: Callable[..., Any], arguments: Mapping[str, Any]
) -> None:
    """Raise where a factory does not take an argument; those that do not say what they take find out themselves."""
    try:
        known = inspect.signature(
            make, follow_wrapped=False
        ).parameters  # a wrapper may take more than what it wraps
    except (TypeError, ValueError):
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return
    for argument in arguments:
        if argument not in known:
            raise unknown_name(f"{reference} argument", argument, known)


def _shipped(name: str, inputs: Inputs | None, arguments: Mapping[str, Any]) -> str | None:
    """The profile that ships for this model; None where it must be counted."""
    if ":" in name or "input_shape" in arguments:
        return None
    require_choice("model", name, MODELS)
    wanted = None if inputs is None else _one(name, inputs)
    if wanted is not None and wanted.dtype not in ("", MODELS[name].dtype or "float32"):
        return None
    found = shipped_name(name, None if wanted is None else wanted.shape, arguments)
    return found if found in list_shipped_profiles() else None


def _one(name: str, inputs: Sequence[InputSpec]) -> InputSpec:
    """The one input of a built-in model, of its own type where none is said."""
    if len(inputs) != 1:
        raise InvalidValue(
            f"{name} takes one input, e.g. {input_of(name)}, got {len(inputs)}; give one"
        )
    return replace(inputs[0], dtype=inputs[0].dtype or MODELS[name].dtype)


def _made(name: str, make: Callable[[], Any], device: str | None) -> nn.Module:
    """What a factory returns.  Whatever goes wrong in it becomes one line."""
    from torch import nn

    with user_code(f"model {name!r}"):
        module = _on(device, make)
    if not isinstance(module, nn.Module):
        raise InvalidValue(f"model {name!r} must return a torch.nn.Module, got {show(module)}")
    return module


def _on(device: str | None, make: Callable[[], Any]) -> Any:
    """Call a factory on a device.  One that cannot work without weights, on "meta", is called again on the CPU."""
    import torch

    if device is None:
        return make()
    if device != "meta":
        with torch.device(device):
            return make()
    with contextlib.suppress(Exception, SystemExit), torch.device("meta"), _no_word_of_weights():
        return make()
    with (
        torch.random.fork_rng(devices=[]),
        torch.device("cpu"),
    ):  # to be looked at, not trained: no random number is used up
        return make()


@contextlib.contextmanager
def _no_word_of_weights() -> Iterator[None]:
    """Without the warning that weights which are read into a model without memory go nowhere: so they should."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*copying from a non-meta parameter.*", UserWarning)
        yield
