"""profile: the three ways to name a model, its shipped profiles, and every mistake."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from airsplit.core.errors import InvalidValue, UnknownName
from airsplit.models.profiling import (
    explain_model,
    get_profile,
    profile,
    write_shipped_profiles,
)
from airsplit.models.zoo.registry import (
    MODELS,
    SHIPPED,
    format_profile_name,
    get_input_spec,
    list_models,
)
from airsplit.system.inputs import InputSpec, parse_input_spec
from airsplit.system.profile import Profile, list_shipped_profiles, load_shipped_profile


def small() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))


def specs(*texts: str) -> tuple[InputSpec, ...]:
    return tuple(parse_input_spec(text) for text in texts)


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("name", list_models())
def test_a_name_alone_is_its_own_input_size(name: str) -> None:
    assert profile(name) == profile(name, MODELS[name].input_shape) == load_shipped_profile(name)
    assert profile(name).model == name


def test_built_in_names_load_no_torch() -> None:
    printed = run(
        """
        import sys
        from airsplit.models.profiling import profile
        from airsplit.models.zoo.registry import list_models
        for name in list_models():
            profile(name)
        profile("vgg16", (3, 32, 32))
        profile("alexnet", [3, 227, 227])
        print("torch" in sys.modules)
        """
    )
    assert printed == "False\n"


def test_a_shape_that_ships_is_not_counted_again() -> None:
    assert profile("vgg16", (3, 32, 32)) == load_shipped_profile("vgg16-3x32x32")


def test_another_shape_rebuilds_the_model() -> None:
    # conv1_1 at 64 x 64: 9 · 3 · 64 · 64²; pool5 leaves 2 x 2, so that fc6 has 512 · 4 inputs
    other = profile("vgg16", (3, 64, 64))
    assert other.model == "vgg16"
    assert other.names == profile("vgg16").names
    assert other.layer_macs[0] == 9 * 3 * 64 * 64**2
    assert other.layer_macs[other.split_of("fc6") - 1] == 512 * 4 * 4096


def test_the_number_of_channels_may_differ_too() -> None:
    grey = profile("alexnet32", (1, 28, 28))
    assert grey.layer_macs[0] == 25 * 1 * 96 * 28 * 28


def test_work_on_an_image_grows_with_its_area() -> None:
    convolutions = slice(0, 31)
    small_image, large_image = profile("vgg16", (3, 32, 32)), profile("vgg16", (3, 64, 64))
    assert (large_image.macs[convolutions] == 4 * small_image.macs[convolutions]).all()


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownName, match="model 'vgg61' is not known; did you mean 'vgg16'"):
        profile("vgg61")


def test_a_module_is_known_by_its_class() -> None:
    class Net(nn.Sequential):
        pass

    assert profile(small(), (3, 8, 8)).model == "Sequential"
    assert profile(Net(nn.Linear(3, 2)), (3,)).model == "Net"


@pytest.mark.parametrize("batch", [0, 1, 32])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_columns_are_per_sample_whatever_the_batch(batch: int, device: str) -> None:
    by_inputs = profile(small(), inputs=torch.empty(batch, 3, 8, 8, device=device))
    assert (
        by_inputs
        == profile(small(), (3, 8, 8))
        == profile(small(), inputs=(torch.empty(batch, 3, 8, 8),))
    )


def test_token_inputs_keep_their_type() -> None:
    model = nn.Sequential(nn.Embedding(100, 8), nn.Linear(8, 4))
    assert profile(model, inputs=torch.zeros(2, 5, dtype=torch.int64)).layer_macs.tolist() == [
        0,
        5 * 8 * 4,
    ]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_shape_alone_takes_the_type_of_the_weights(dtype: torch.dtype) -> None:
    assert profile(small().to(dtype), (3, 8, 8)) == profile(small(), (3, 8, 8))


def test_a_module_without_weights_can_be_profiled() -> None:
    assert profile(nn.Sequential(nn.ReLU()), (5,)).layer_macs.tolist() == [5]


def test_a_built_in_model_as_a_module_has_the_profile_of_its_name() -> None:
    from airsplit.models.zoo.registry import build_registered_model

    assert profile(build_registered_model("alexnet32"), (3, 32, 32)) == profile("alexnet32")


@pytest.mark.parametrize(
    "shape", [(), [], "3x8x8", 8, {3}, (3, 0), (3, -8, 8), (3, 8.0, 8), (3, True, 8), (3, None)]
)
@pytest.mark.parametrize("model", ["alexnet", small()], ids=["name", "module"])
def test_a_shape_is_positive_whole_numbers(model: Any, shape: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^input_shape(\[\d\])? must be"):
        profile(model, shape)


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (small(), {}, "needs input_shape or inputs, got neither; write e.g. input_shape="),
        (
            small(),
            {"input_shape": (3,), "inputs": torch.zeros(1, 3)},
            "needs input_shape or inputs, got both",
        ),
        (
            "alexnet",
            {"inputs": torch.zeros(1, 3, 227, 227)},
            "inputs belong to a module.*give input_shape",
        ),
        (small(), {"inputs": [[1.0]]}, "inputs must be a tensor or a tuple of tensors"),
        (small(), {"inputs": ()}, "inputs must be a tensor or a tuple of tensors"),
        (
            small(),
            {"inputs": torch.tensor(1.0)},
            "inputs must be one tensor or more, the first with a batch axis",
        ),
        (
            3,
            {"input_shape": (3,)},
            "model must be the name of a built-in model or a torch.nn.Module, got 3",
        ),
        (None, {}, "model must be the name"),
        (nn.Sequential, {"input_shape": (3,)}, "model must be the name"),
        (
            small(),
            {"input_shape": (4, 8, 8)},
            r"input_shape \(4, 8, 8\) .*layer '0' \(Conv2d\) fails",
        ),
        (
            small(),
            {"input_shape": (3, 9, 9)},
            r"input_shape \(3, 9, 9\) .*layer '3' \(Linear\) fails",
        ),
        (
            small(),
            {"inputs": torch.zeros(1, 3, 8, 8, dtype=torch.int64)},
            r"torch.int64 .*layer '0' \(Conv2d\) fails",
        ),
        ("alexnet", {"input_shape": (3, 32, 32)}, r"alexnet\.input_shape must be large enough"),
        (
            "vgg16",
            {"input_shape": (3, 224)},
            r"vgg16\.input_shape must be channels, height and width",
        ),
    ],
)
def test_every_mistake_is_one_line_that_names_it(
    model: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidValue, match=message) as caught:
        profile(model, **arguments)
    assert "\n" not in str(caught.value)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(torch.view_as_real(x).flatten(1) if x.is_complex() else x)
        return out * scale.reshape(-1, 1)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ((torch.zeros(2, 4), torch.zeros(2, 1)), ("4", "1")),
        ((torch.zeros(2, 4), torch.zeros(2, 1, dtype=torch.int64)), ("4", "1:int64")),
        ((torch.zeros(2, 4), torch.zeros(2)), ()),
        ((torch.zeros(2, 2, dtype=torch.complex64), torch.zeros(2, 1)), ()),
    ],
)
def test_a_profile_names_its_inputs_if_the_input_option_can_spell_them(
    inputs: tuple[torch.Tensor, ...], expected: tuple[str, ...]
) -> None:
    assert profile(Scaled(), inputs=inputs).inputs == expected


def test_the_profile_of_a_built_in_model_names_its_input() -> None:
    assert profile("gpt").inputs == ("64:int64",)
    assert profile("vgg16", (3, 32, 32)).inputs == ("3x32x32",)


@pytest.mark.parametrize(("name", "shape", "arguments"), SHIPPED)
def test_a_shipped_profile_equals_a_fresh_count(
    name: str, shape: tuple[int, ...], arguments: dict[str, Any]
) -> None:
    shipped = load_shipped_profile(format_profile_name(name, shape, arguments))
    assert (
        explain_model(name, (get_input_spec(name, shape),), arguments)[0].to_json()
        == shipped.to_json()
    )


def test_all_shipped_profiles_are_written_and_no_others(tmp_path: Path) -> None:
    files = write_shipped_profiles(tmp_path)
    assert sorted(file.name.removesuffix(".json") for file in files) == list_shipped_profiles()
    assert all(Profile.from_json(file.read_text()).model in MODELS for file in files)
    assert {
        name
        for name, shape, arguments in SHIPPED
        if shape == MODELS[name].input_shape and not arguments
    } == set(MODELS)


def test_shipped_models_need_no_torch() -> None:
    program = """
        import sys
        from airsplit.system.inputs import parse_input_spec
        from airsplit.models.profiling import get_profile
        from airsplit.models.zoo.registry import list_models
        for name in list_models():
            get_profile(name)
        get_profile("vgg16", (parse_input_spec("3x32x32"),))
        get_profile("vgg16", (parse_input_spec("3x224x224:float32"),))
        get_profile("gpt", (parse_input_spec("64:int64"),))
        get_profile("gpt", (parse_input_spec("64"),))
        get_profile("alexnet32", None, {"width": 0.25, "channels": 1})
        print("torch" in sys.modules)
        """
    assert run(program) == "False\n"


def test_a_variant_that_does_not_ship_is_counted() -> None:
    narrow, wide = (
        get_profile("alexnet32", None, {"channels": 1, "width": width}) for width in (0.25, 0.5)
    )
    assert (wide.model, wide.names) == ("alexnet32", narrow.names)
    assert wide.macs[-1] > 2 * narrow.macs[-1]
    assert get_profile("gpt", None, {"layers": 2}).macs[-1] < get_profile("gpt").macs[-1]


def test_half_as_many_tokens_are_about_half_the_work() -> None:
    half, whole = get_profile("gpt", specs("32")), get_profile("gpt")
    assert half.activation_elements[-1] * 2 == whole.activation_elements[-1]
    assert 0.4 < half.macs[-1] / whole.macs[-1] < 0.5


def test_an_explanation_has_the_same_profile_and_a_reason_for_every_missing_cut() -> None:
    free, none = explain_model("gpt", None, {"layers": 1})
    tied, illegal = explain_model("gpt", None, {"layers": 1, "tied": True})
    assert free == get_profile("gpt", None, {"layers": 1})
    assert none == []
    assert set(free.names) == set(tied.names) | {split.name for split in illegal}
    assert (free.model, tied.model) == ("gpt", "gpt")
    assert all("tokens.weight" in split.reason for split in illegal)
