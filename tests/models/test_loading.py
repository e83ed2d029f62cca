"""Models by name or path: built for what they take, without memory where that is possible, and every mistake in one line."""

import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from airsplit.core.errors import InvalidValue, UnknownName
from airsplit.core.plugins import import_factory
from airsplit.models.loading import (
    build_model,
    count_profile,
    explain_model,
    get_profile,
    load,
    resolve_inputs,
)
from airsplit.models.zoo.registry import (
    MODELS,
    SHIPPED,
    build_registered_model,
    default_input_shape,
    input_of,
    list_models,
    profile_name,
    shipped_name,
)
from airsplit.models.zoo.shipping import write_shipped
from airsplit.system.inputs import InputSpec, parse_input_spec
from airsplit.system.profile import Profile, list_shipped_profiles, load_shipped_profile

Write = Callable[[str, str], str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a module into the current folder, to be found by its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(
            "import torch\nfrom torch import nn\n\n" + textwrap.dedent(text)
        )
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return write


def specs(*texts: str) -> tuple[InputSpec, ...]:
    return tuple(parse_input_spec(text) for text in texts)


def on_meta(model: nn.Module) -> bool:
    return {p.device.type for p in model.parameters()} == {"meta"}


# ---- built-in models -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", list_models())
def test_a_built_in_model_remembers_what_it_takes(name: str) -> None:
    model = load(name)
    assert model.input_spec == InputSpec(MODELS[name].input_shape, MODELS[name].dtype)
    assert on_meta(model)
    assert "input_spec" not in model.state_dict()


def test_token_models_take_token_ids() -> None:
    assert load("gpt").input_spec == InputSpec((64,), "int64")
    assert load("gpt", inputs=specs("32")).input_spec == InputSpec((32,), "int64")


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
def test_a_model_with_other_channels_takes_what_its_first_layer_does(
    shape: Any, arguments: dict[str, Any], takes: tuple[int, ...]
) -> None:
    model = build_registered_model("alexnet32", shape, width=0.1, **arguments)
    assert model.input_spec == InputSpec(takes)
    assert model(torch.zeros(1, *takes)).shape == (1, 10)


def test_channels_that_are_not_those_of_the_input_are_refused() -> None:
    for make in (load, get_profile):
        with pytest.raises(
            InvalidValue,
            match="alexnet32 argument channels must be 3, because the input is 3x32x32, got 1; change one",
        ):
            make("alexnet32", inputs=specs("3x32x32"), arguments={"channels": 1})


@pytest.mark.parametrize("channels", [0, -1, True, 1.5, "one"])
def test_channels_that_are_no_number_of_channels_are_the_models_to_refuse(channels: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^alexnet32\.channels must be"):
        get_profile("alexnet32", None, {"channels": channels})


def test_an_argument_of_no_model_offers_the_nearest() -> None:
    with pytest.raises(
        UnknownName, match="gpt argument 'layer' is not known; did you mean 'layers'"
    ):
        load("gpt", arguments={"layer": 3})
    with pytest.raises(UnknownName, match="alexnet argument 'name' is not known"):
        load("alexnet", arguments={"name": "mine"})


def test_the_input_of_a_built_in_model_is_not_an_argument() -> None:
    for make in (load, get_profile):
        with pytest.raises(
            InvalidValue, match=r"vgg16 argument input_shape .* give that instead, e\.g\. 3x224x224"
        ):
            make("vgg16", arguments={"input_shape": [3, 32, 32]})


def test_a_built_in_model_takes_one_input() -> None:
    with pytest.raises(
        InvalidValue, match=r"^gpt takes one input, e\.g\. 64:int64, got 2; give one"
    ):
        get_profile("gpt", specs("64", "64"))


def test_an_unknown_name_offers_the_nearest() -> None:
    for make in (load, get_profile, explain_model):
        with pytest.raises(
            UnknownName, match="model 'resnet02' is not known; did you mean 'resnet20'"
        ):
            make("resnet02")


def test_with_weights_a_model_is_built_where_torch_builds() -> None:
    model = load("alexnet32", arguments={"width": 0.1}, device=None)
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    assert on_meta(load("alexnet32", arguments={"width": 0.1}, device="meta"))


# ---- those that ship -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "shape", "arguments"), SHIPPED)
def test_a_shipped_profile_is_what_is_counted_today(
    name: str, shape: tuple[int, ...], arguments: dict[str, Any]
) -> None:
    shipped = load_shipped_profile(profile_name(name, shape, arguments))
    assert count_profile(name, (input_of(name, shape),), arguments).to_json() == shipped.to_json()


def test_what_ships_is_what_is_written(tmp_path: Path) -> None:
    files = write_shipped(tmp_path)
    assert sorted(file.name.removesuffix(".json") for file in files) == list_shipped_profiles()
    assert all(Profile.from_json(file.read_text()).model in MODELS for file in files)
    assert {
        name
        for name, shape, arguments in SHIPPED
        if shape == default_input_shape(name) and not arguments
    } == set(MODELS)


@pytest.mark.parametrize(
    ("name", "shape", "arguments", "found"),
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
def test_a_profile_ships_by_name_shape_and_arguments(
    name: str, shape: Any, arguments: dict[str, Any], found: str | None
) -> None:
    assert shipped_name(name, shape, arguments) == found


def test_shipped_models_need_no_torch() -> None:
    program = """
        import sys
        from airsplit.system.inputs import input_spec
        from airsplit.models.loading import profile_of
        from airsplit.models.zoo.registry import model_names
        for name in model_names():
            profile_of(name)
        profile_of("vgg16", (input_spec("3x32x32"),))
        profile_of("vgg16", (input_spec("3x224x224:float32"),))
        profile_of("gpt", (input_spec("64:int64"),))
        profile_of("gpt", (input_spec("64"),))
        profile_of("alexnet32", None, {"width": 0.25, "channels": 1})
        print("torch" in sys.modules)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_another_variant_is_counted() -> None:
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


# ---- by path -------------------------------------------------------------------------------------------------------------
def test_a_factory_is_called_with_its_arguments_and_without_memory(module: Write) -> None:
    name = module(
        "by_path",
        "def make(size, bias=True):\n    return nn.Sequential(nn.Linear(8, size, bias=bias))\n",
    )
    model = load(f"{name}:make", arguments={"size": 4, "bias": False})
    assert on_meta(model)
    assert [tuple(p.shape) for p in model.parameters()] == [(4, 8)]
    found = get_profile(f"{name}:make", specs("8"), {"size": 4})
    assert (found.model, found.layer_macs.tolist(), found.parameters.tolist()) == (
        "by_path:make",
        [32],
        [36],
    )


def test_an_argument_that_a_factory_does_not_take_offers_the_nearest(module: Write) -> None:
    module(
        "picky",
        "from torch import nn\n\ndef make(blocks=2):\n    return nn.Linear(4, blocks)\n\ndef open(**rest):\n    return make(**rest)\n",
    )
    with pytest.raises(
        UnknownName, match="picky:make argument 'block' is not known; did you mean 'blocks'"
    ):
        load("picky:make", arguments={"block": 3})
    assert load("picky:open", arguments={"blocks": 3}).out_features == 3
    with pytest.raises(InvalidValue, match="model 'picky:open' failed: TypeError"):
        load("picky:open", arguments={"block": 3})


def test_a_class_and_a_nested_name_are_factories_too() -> None:
    assert get_profile(
        "torch.nn:Linear", specs("8"), {"in_features": 8, "out_features": 4}
    ).macs.tolist() == [32]
    assert inspect.unwrap(import_factory("torch:nn.modules.Linear")) is nn.Linear


def test_several_inputs_go_to_forward_in_their_order(module: Write) -> None:
    name = module(
        "two_inputs",
        """
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.image = nn.Embedding(50, 6), nn.Linear(4, 6)

            def forward(self, image, ids):
                return self.image(image) + self.words(ids).sum(1)
        """,
    )
    found = get_profile(f"{name}:Two", specs("4", "7:int64"))
    assert int(found.parameters.sum()) == 50 * 6 + 4 * 6 + 6
    with pytest.raises(InvalidValue):
        get_profile(f"{name}:Two", specs("7:int64", "4"))


def test_a_factory_that_cannot_do_without_weights_gets_them(module: Write) -> None:
    name = module(
        "needs_weights",
        """
        def make():
            rates = [rate.item() for rate in torch.linspace(0, 1, 3)]
            return nn.Sequential(nn.Linear(8, 4), nn.Dropout(rates[1]))
        """,
    )
    before = torch.get_rng_state()
    model = load(f"{name}:make")
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    assert get_profile(f"{name}:make", specs("8")).names == ("0", "1")
    assert torch.equal(torch.get_rng_state(), before)


def test_where_both_fail_the_error_of_the_cpu_is_shown(module: Write) -> None:
    name = module(
        "fails", 'def make():\n    raise RuntimeError(f"no luck on {torch.empty(1).device}")\n'
    )
    with pytest.raises(
        InvalidValue,
        match=r"^model 'fails:make' failed: RuntimeError: no luck on cpu \(fails\.py:5\)$",
    ):
        load(f"{name}:make")


def test_a_factory_that_reads_weights_does_so_without_a_warning(module: Write) -> None:
    name = module(
        "reads_weights",
        """
        WEIGHTS = nn.Linear(8, 4).state_dict()

        def make():
            model = nn.Linear(8, 4)
            model.load_state_dict(WEIGHTS)
            return model
        """,
    )
    assert on_meta(load(f"{name}:make"))  # warnings are errors here
    assert not on_meta(load(f"{name}:make", device=None))


def test_what_a_module_makes_when_it_is_imported_is_made_for_good(module: Write) -> None:
    name = module("constants", "SCALE = torch.ones(3)\n\ndef make():\n    return nn.Linear(3, 3)\n")
    load(f"{name}:make")
    assert sys.modules[name].SCALE.device.type == "cpu"


@pytest.mark.parametrize("spec", ['"8:int64"', '["8:int64"]', 'InputSpec((8,), "int64")'])
def test_a_model_that_says_what_it_takes_needs_no_input(module: Write, spec: str) -> None:
    name = module(
        "says_its_input",
        f"""
        from airsplit.system.inputs import InputSpec

        def make():
            model = nn.Sequential(nn.Embedding(9, 3))
            model.input_spec = {spec}
            return model
        """,
    )
    assert get_profile(f"{name}:make").activation_elements.tolist() == [8 * 3]
    assert get_profile(f"{name}:make", specs("5:int64")).activation_elements.tolist() == [5 * 3]


def test_a_model_that_does_not_say_must_be_given_its_input() -> None:
    for make in (get_profile, explain_model):
        with pytest.raises(
            InvalidValue,
            match=r"^model 'torch\.nn:ReLU' must be given its input.*give --input 3x32x32",
        ):
            make("torch.nn:ReLU")


def test_an_input_that_was_given_is_not_looked_for(module: Write) -> None:
    name = module("odd", "class Odd(nn.ReLU):\n    def input_spec(self):\n        return 3\n")
    model = load(f"{name}:Odd")
    assert resolve_inputs(f"{name}:Odd", model, specs("4")) == specs("4")
    with pytest.raises(InvalidValue, match="attribute input_spec must be"):
        resolve_inputs(f"{name}:Odd", model, None)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (
            "no_such_package.nets:make",
            r"cannot be imported: ModuleNotFoundError: No module named 'no_such_package'; is it installed",
        ),
        ("torch.nn:Linar", r"torch\.nn has no 'Linar'; did you mean 'Linear'"),
        ("torch:nn.Linar", r"torch has no 'Linar'; did you mean 'Linear'"),
        ("torch:__version__", "must be a function or class that returns a model"),
        ("torch.nn:", "model must be a name or package.module:factory, got 'torch.nn:'"),
        (":make", "model must be a name or package.module:factory"),
        ("builtins:dict", r"must return a torch\.nn\.Module, got \{\}"),
        ("torch.nn:Linear", r"failed: TypeError: .*missing 2 required positional arguments"),
    ],
)
def test_a_path_that_leads_nowhere_is_one_line(reference: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message) as caught:
        build_model(reference, {})
    assert "\n" not in str(caught.value)


def test_what_is_no_function_is_told_what_it_was_to_return() -> None:
    with pytest.raises(
        InvalidValue,
        match=r"training\.loss 'json:__name__' must be a function or class that returns the loss, got 'json'",
    ):
        import_factory("json:__name__", "training.loss", "the loss")


# ---- explained -----------------------------------------------------------------------------------------------------------
def test_an_explanation_has_the_same_profile_and_a_reason_for_every_cut_that_is_missing() -> None:
    free, none = explain_model("gpt", None, {"layers": 1})
    tied, refused = explain_model("gpt", None, {"layers": 1, "tied": True})
    assert free == get_profile("gpt", None, {"layers": 1})
    assert none == []
    assert set(free.names) == set(tied.names) | {each.name for each in refused}
    assert (free.model, tied.model) == ("gpt", "gpt")
    assert all("tokens.weight" in each.reason for each in refused)
