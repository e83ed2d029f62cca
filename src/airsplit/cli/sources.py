"""What the words on the command line stand for: models, shapes and settings."""

from __future__ import annotations

import difflib
import importlib
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airsplit.errors import FileProblem, InvalidValue, UnknownName, show
from airsplit.files import read_text
from airsplit.profiles import Profile

if TYPE_CHECKING:
    from airsplit.scenario import Scenario
from airsplit.settings import ModelSettings


def setting(text: str) -> tuple[str, Any]:
    """A dotted key and its value: TOML where it is TOML, else text; nothing stands for the default.

    >>> setting("plan.split=[1, 2]"), setting("plan.method=equal"), setting("plan.max_split=")
    (('plan.split', [1, 2]), ('plan.method', 'equal'), ('plan.max_split', None))
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not key or not equals:
        raise InvalidValue(f"--set must be key=value, e.g. fleet.devices=5, got {show(text)}")
    if not value:
        return key, None
    try:
        table = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        return key, value
    return key, table["value"] if len(table) == 1 else value


def shape(text: str) -> tuple[int, ...]:
    """
    >>> shape("3x224x224")
    (3, 224, 224)
    """
    sizes = text.lower().split("x")
    if not all(size.isascii() and size.isdigit() and int(size) > 0 for size in sizes):
        raise InvalidValue(f"--input must be the sizes of one sample, without the batch axis, e.g. 3x224x224, got {show(text)}")
    return tuple(int(size) for size in sizes)


def scenario(name: str, method: str | None, settings: list[str]) -> Scenario:
    """The scenario of a command: a preset or file, with what the command line changes."""
    from airsplit.scenario import Scenario

    changes = dict(setting(text) for text in settings)
    if method is not None and "plan.method" in changes:
        raise InvalidValue(f"--method {method} and --set plan.method={changes['plan.method']} exclude each other; leave one out")
    if method == "all" and changes.get("plan.split") is not None:
        changes["plan.method"] = "fixed"
    elif method not in (None, "all"):
        changes["plan.method"] = method
    loaded = Scenario.load(name)
    return loaded.replace(**changes) if changes else loaded


def profile_of(model: str, input_shape: tuple[int, ...] | None) -> Profile:
    """The profile of what a person names: a built-in model, a factory, or a file that `to_json` wrote."""
    from airsplit.models.profiling import profile

    if ":" in model:
        if input_shape is None:
            raise InvalidValue(f"--input must be given for the factory {model!r}, e.g. --input 3x32x32")
        return _counted(model, built(model, {}), input_shape)
    if model.endswith(".json"):
        if input_shape is not None:
            raise InvalidValue(f"--input does not go with a profile file, got it with {model!r}; leave it out")
        return _read_profile(model)
    return profile(model, input_shape)


def _read_profile(path: str) -> Profile:
    try:
        return Profile.from_json(read_text(path, what="profile file"))
    except (FileProblem, InvalidValue) as error:
        named = str(error) if path in str(error) else f"profile file {path!r}: {error}"
        raise type(error)(named) from None


def profile_of_settings(model: ModelSettings) -> Profile:
    """The profile of a scenario's model.  Needs torch unless it is a built-in one as it ships."""
    from airsplit.models.profiling import profile

    if ":" in model.name:
        assert model.input_shape is not None  # noqa: S101 - ModelSettings checks it
        return _counted(model.name, built(model.name, model.arguments), model.input_shape)
    return _variant(model) if model.arguments else profile(model.name, model.input_shape)


def _variant(model: ModelSettings) -> Profile:
    """A built-in model with other arguments, built without memory."""
    from airsplit.models.registry import build, default_input_shape

    channels, *sizes = model.input_shape or default_input_shape(model.name)
    if model.input_shape is None:
        channels = model.arguments.get("channels", channels)
    import torch

    with torch.device("meta"):
        return _counted(model.name, build(model.name, model.input_shape, **model.arguments), (channels, *sizes))


def _counted(name: str, module: Any, input_shape: tuple[int, ...]) -> Profile:
    from torch import nn

    from airsplit.models.profiling import profile

    if not isinstance(module, nn.Module):
        raise InvalidValue(f"model {name!r} must return a torch.nn.Module, got {show(module)}")
    return replace(profile(module, input_shape), model=name)


def built(reference: str, arguments: dict[str, Any]) -> Any:
    """What a factory returns.  Whatever goes wrong in it becomes one line."""
    make = factory(reference)
    try:
        return make(**arguments)
    except (Exception, SystemExit) as error:
        raise InvalidValue(f"model {reference!r} failed: {_line(error)}; call it in Python to see where") from error


def factory(reference: str) -> Callable[..., Any]:
    """The object that "package.module:factory" names; modules in the current folder are found too."""
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise InvalidValue(f"model must be a name or package.module:factory, got {show(reference)}")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InvalidValue(f"model {reference!r} cannot be imported: {_line(error)}; is it installed, or in this folder?") from error
    for part in path.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UnknownName(f"model {reference!r}: {module_name} has no {part!r}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise InvalidValue(f"model {reference!r} must be a function or class that returns a model, got {show(found)}")
    return found  # type: ignore[no-any-return]


def _line(error: BaseException) -> str:
    """
    >>> _line(ValueError("two\\nlines"))
    'ValueError: two lines'
    """
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
