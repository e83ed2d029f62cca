"""The registry of built-in models: their inputs, arguments and shipped profiles."""

from typing import Any

import numpy as np
import pytest
import torch

from airsplit.core.errors import InvalidValue, UnknownName
from airsplit.models.loading import load_model
from airsplit.models.profiling import get_profile
from airsplit.models.zoo.registry import (
    MODELS,
    build_registered_model,
    find_shipped_name,
    list_models,
)
from airsplit.system.inputs import InputSpec, parse_input_spec


@pytest.mark.parametrize("name", list_models())
def test_a_built_in_model_declares_its_input(name: str) -> None:
    model = load_model(name)
    assert model.input_spec == InputSpec(MODELS[name].input_shape, MODELS[name].dtype)
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert "input_spec" not in model.state_dict()


@pytest.mark.parametrize(
    ("shape", "arguments", "takes"),
    [
        (None, {}, (3, 32, 32)),
        (None, {"channels": 1}, (1, 32, 32)),
        (None, {"channels": np.int64(2)}, (2, 32, 32)),
        ((1, 28, 28), {}, (1, 28, 28)),
        ([1, 28, 28], {"channels": 1}, (1, 28, 28)),
    ],
)
def test_the_declared_input_has_the_channels_of_the_first_layer(
    shape: Any, arguments: dict[str, Any], takes: tuple[int, ...]
) -> None:
    model = build_registered_model("alexnet32", shape, width=0.1, **arguments)
    assert model.input_spec == InputSpec(takes)
    assert model(torch.zeros(1, *takes)).shape == (1, 10)


def test_channels_that_contradict_the_input_are_rejected() -> None:
    for make in (load_model, get_profile):
        with pytest.raises(
            InvalidValue,
            match="alexnet32 argument channels must be 3, because the input is 3x32x32, got 1; "
            "change one",
        ):
            make("alexnet32", inputs=(parse_input_spec("3x32x32"),), arguments={"channels": 1})


@pytest.mark.parametrize("channels", [0, -1, True, 1.5, "one"])
def test_invalid_channels_are_rejected_by_the_model(channels: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^alexnet32\.channels must be"):
        get_profile("alexnet32", None, {"channels": channels})


def test_an_unknown_argument_offers_the_nearest_one() -> None:
    with pytest.raises(
        UnknownName, match="gpt argument 'layer' is not known; did you mean 'layers'"
    ):
        load_model("gpt", arguments={"layer": 3})
    with pytest.raises(UnknownName, match="alexnet argument 'name' is not known"):
        load_model("alexnet", arguments={"name": "mine"})


@pytest.mark.parametrize(
    ("name", "shape", "arguments", "expected"),
    [
        ("alexnet", None, {}, "alexnet"),
        ("vgg16", (3, 32, 32), {}, "vgg16-3x32x32"),
        ("vgg16", (3, 224, 224), {}, "vgg16"),
        ("vgg16", (3, 33, 32), {}, None),
        ("alexnet32", None, {"channels": 3}, "alexnet32"),
        ("alexnet32", None, {"channels": 1}, None),
        ("alexnet32", None, {"channels": 1, "width": 0.25}, "alexnet32-1x32x32-width0.25"),
        ("alexnet32", (1, 32, 32), {"width": 0.25}, "alexnet32-1x32x32-width0.25"),
        ("alexnet32", (1, 32, 32), {"width": 0.25, "channels": 1}, "alexnet32-1x32x32-width0.25"),
        ("alexnet32", (1, 32, 32), {"width": 0.25, "channels": "1"}, None),
        ("alexnet32", None, {"width": 0.25}, None),
        ("alexnet32", None, {"channels": 1, "width": "0.25"}, None),
        ("alexnet32", None, {"channels": True, "width": 0.25}, None),
    ],
)
def test_a_shipped_profile_is_found_by_name_shape_and_arguments(
    name: str, shape: Any, arguments: dict[str, Any], expected: str | None
) -> None:
    assert find_shipped_name(name, shape, arguments) == expected
