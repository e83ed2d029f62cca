"""The table of splits of any model, given as a module or by name.

torch is imported only when a model is traced: the profiles of the built-in models ship with the
package. `python -m airsplit.models.profiling` counts those profiles again and writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airsplit.core.errors import InvalidValue, require_choice
from airsplit.core.files import write_text
from airsplit.models.example_inputs import describe_inputs, make_example_inputs, make_meta_inputs
from airsplit.models.loading import Inputs, load_model, require_one_input, resolve_inputs
from airsplit.models.zoo.registry import (
    MODELS,
    SHIPPED,
    find_shipped_name,
    format_profile_name,
    get_input_spec,
)
from airsplit.system.inputs import InputSpec, require_shape
from airsplit.system.profile import Profile, list_shipped_profiles, load_shipped_profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from airsplit.models.splits import IllegalSplit
    from airsplit.scenario.scenario import Scenario

SHIPPED_FOLDER = Path(__file__).parent / "zoo" / "profiles"


def profile(
    model: str | nn.Module,
    input_shape: Sequence[int] | None = None,
    *,
    inputs: Tensor | tuple[Tensor, ...] | None = None,
) -> Profile:
    """Return the costs of a model at each split.

    Args:
        model: A built-in name, or a torch.nn.Module, which is neither run nor changed.
        input_shape: Shape of one sample, without the batch axis. Optional for a built-in model.
        inputs: For a module, instead of a shape: a tensor, or a tuple of tensors, with a batch
            axis; of any dtype, on any device including meta.

    >>> alexnet = profile("alexnet")
    >>> len(alexnet), alexnet.names[3], int(alexnet.activation_elements[3])
    (20, 'pool1', 69984)
    >>> int(alexnet.matmul_macs[-1])
    1135256096
    """
    if not isinstance(model, str):
        return explain(model, input_shape, inputs=inputs)[0]
    if inputs is not None:
        raise InvalidValue(
            f"inputs belong to a module, got them with the name {model!r}; give input_shape instead"
        )
    if input_shape is None:
        return get_profile(model)
    return get_profile(model, (InputSpec(require_shape("input_shape", input_shape)),))


def explain(
    model: nn.Module,
    input_shape: Sequence[int] | None = None,
    *,
    inputs: Tensor | tuple[Tensor, ...] | None = None,
) -> tuple[Profile, list[IllegalSplit]]:
    """Return a module's profile, and the places where it cannot be cut, each with the reason."""
    # Imports torch.
    from airsplit.models.splits import find_splits

    examples = make_example_inputs(model, input_shape, inputs)
    splits = find_splits(model, examples)
    return replace(splits.profile(), inputs=describe_inputs(examples, model)), splits.illegal_splits


def get_profile(
    name: str, inputs: Inputs | None = None, arguments: Mapping[str, Any] | None = None
) -> Profile:
    """Return the profile of a named model. Needs no torch if it ships with the package.

    Args:
        name: A built-in model, or "package.module:factory".
        inputs: Inputs of the model; optional for a built-in one.
        arguments: Arguments of the factory.

    >>> get_profile("alexnet32", arguments={"channels": 1, "width": 0.25}).names[3]
    'pool1'
    """
    shipped = find_shipped_profile(name, inputs, arguments or {})
    if shipped is not None:
        return load_shipped_profile(shipped)
    return explain_model(name, inputs, arguments)[0]


def explain_model(
    name: str, inputs: Inputs | None = None, arguments: Mapping[str, Any] | None = None
) -> tuple[Profile, list[IllegalSplit]]:
    """Trace a named model, even if its profile ships; otherwise like `explain`."""
    module = load_model(name, inputs=inputs, arguments=arguments)
    examples = make_meta_inputs(resolve_inputs(name, module, inputs), module)
    counted, illegal = explain(module, inputs=examples)
    return replace(counted, model=name), illegal


def profile_scenario(scenario: Scenario) -> Profile:
    """Return the profile of a scenario's model, and check that it is the scenario's own."""
    settings = scenario.model
    counted = get_profile(settings.name, settings.input_specs(), settings.arguments)
    scenario.require_model(counted)
    return counted


def write_shipped_profiles(folder: Path = SHIPPED_FOLDER) -> list[Path]:
    """Count all profiles that ship with the package, and write them to a folder."""
    files = []
    for name, shape, arguments in SHIPPED:
        counted, _ = explain_model(name, (get_input_spec(name, shape),), arguments)
        file = folder / f"{format_profile_name(name, shape, arguments)}.json"
        write_text(file, counted.to_json() + "\n")
        files.append(file)
    return files


def find_shipped_profile(
    name: str, inputs: Inputs | None, arguments: Mapping[str, Any]
) -> str | None:
    """Return the name of the shipped profile of this model; None if it must be counted.

    >>> find_shipped_profile("vgg16", (InputSpec((3, 32, 32)),), {})
    'vgg16-3x32x32'
    >>> find_shipped_profile("vgg16", (InputSpec((3, 32, 32), "float16"),), {})
    """
    if ":" in name or "input_shape" in arguments:
        return None
    require_choice("model", name, MODELS)

    shape = None
    if inputs is not None:
        # Shipped profiles are of float32 weights, and of token ids where a model takes those.
        spec = require_one_input(name, inputs)
        if spec.dtype not in ("", MODELS[name].dtype or "float32"):
            return None
        shape = spec.shape
    shipped = find_shipped_name(name, shape, arguments)
    return shipped if shipped in list_shipped_profiles() else None


if __name__ == "__main__":
    for written in write_shipped_profiles():
        print(written.name)
