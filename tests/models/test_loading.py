"""Models by name or path: built for their inputs, on meta if possible; each mistake in one line."""

import inspect
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from airsplit.core.errors import InvalidValue, UnknownName
from airsplit.core.plugins import import_factory
from airsplit.models.loading import build_model, load_model, resolve_inputs
from airsplit.models.profiling import explain_model, get_profile
from airsplit.system.inputs import InputSpec, parse_input_spec

Write = Callable[[str, str], str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a module into the current folder, so that it can be imported by name."""
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


def test_token_models_take_token_ids() -> None:
    assert load_model("gpt").input_spec == InputSpec((64,), "int64")
    assert load_model("gpt", inputs=specs("32")).input_spec == InputSpec((32,), "int64")


def test_the_shape_of_a_built_in_model_is_not_an_argument() -> None:
    for make in (load_model, get_profile):
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
    for make in (load_model, get_profile, explain_model):
        with pytest.raises(
            UnknownName, match="model 'resnet02' is not known; did you mean 'resnet20'"
        ):
            make("resnet02")


def test_a_model_with_weights_is_built_on_torchs_default_device() -> None:
    model = load_model("alexnet32", arguments={"width": 0.1}, device=None)
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    assert on_meta(load_model("alexnet32", arguments={"width": 0.1}, device="meta"))


def test_a_factory_is_called_with_its_arguments_and_without_memory(module: Write) -> None:
    name = module(
        "by_path",
        "def make(size, bias=True):\n    return nn.Sequential(nn.Linear(8, size, bias=bias))\n",
    )
    model = load_model(f"{name}:make", arguments={"size": 4, "bias": False})
    assert on_meta(model)
    assert [tuple(p.shape) for p in model.parameters()] == [(4, 8)]
    profile = get_profile(f"{name}:make", specs("8"), {"size": 4})
    assert (profile.model, profile.layer_macs.tolist(), profile.parameters.tolist()) == (
        "by_path:make",
        [32],
        [36],
    )


def test_an_unknown_argument_of_a_factory_offers_the_nearest_one(module: Write) -> None:
    module(
        "picky",
        """
        def make(blocks=2):
            return nn.Linear(4, blocks)

        def open(**rest):
            return make(**rest)
        """,
    )
    with pytest.raises(
        UnknownName, match="picky:make argument 'block' is not known; did you mean 'blocks'"
    ):
        load_model("picky:make", arguments={"block": 3})
    assert load_model("picky:open", arguments={"blocks": 3}).out_features == 3
    with pytest.raises(InvalidValue, match="model 'picky:open' failed: TypeError"):
        load_model("picky:open", arguments={"block": 3})


def test_a_class_and_a_nested_name_are_factories_too() -> None:
    assert get_profile(
        "torch.nn:Linear", specs("8"), {"in_features": 8, "out_features": 4}
    ).macs.tolist() == [32]
    assert inspect.unwrap(import_factory("torch:nn.modules.Linear")) is nn.Linear


def test_several_inputs_are_passed_to_forward_in_order(module: Write) -> None:
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
    profile = get_profile(f"{name}:Two", specs("4", "7:int64"))
    assert int(profile.parameters.sum()) == 50 * 6 + 4 * 6 + 6
    with pytest.raises(InvalidValue):
        get_profile(f"{name}:Two", specs("7:int64", "4"))


def test_a_factory_that_needs_weights_gets_them_on_the_cpu(module: Write) -> None:
    name = module(
        "needs_weights",
        """
        def make():
            rates = [rate.item() for rate in torch.linspace(0, 1, 3)]
            return nn.Sequential(nn.Linear(8, 4), nn.Dropout(rates[1]))
        """,
    )
    before = torch.get_rng_state()
    model = load_model(f"{name}:make")
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    assert get_profile(f"{name}:make", specs("8")).names == ("0", "1")
    assert torch.equal(torch.get_rng_state(), before)


def test_if_meta_and_cpu_both_fail_the_error_on_the_cpu_is_shown(module: Write) -> None:
    name = module(
        "fails", 'def make():\n    raise RuntimeError(f"no luck on {torch.empty(1).device}")\n'
    )
    with pytest.raises(
        InvalidValue,
        match=r"^model 'fails:make' failed: RuntimeError: no luck on cpu \(fails\.py:5\)$",
    ):
        load_model(f"{name}:make")


def test_a_factory_that_loads_weights_causes_no_warning(module: Write) -> None:
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
    assert on_meta(load_model(f"{name}:make"))  # warnings are errors here
    assert not on_meta(load_model(f"{name}:make", device=None))


def test_tensors_created_at_import_are_real(module: Write) -> None:
    name = module("constants", "SCALE = torch.ones(3)\n\ndef make():\n    return nn.Linear(3, 3)\n")
    load_model(f"{name}:make")
    assert sys.modules[name].SCALE.device.type == "cpu"


@pytest.mark.parametrize("spec", ['"8:int64"', '["8:int64"]', 'InputSpec((8,), "int64")'])
def test_a_model_that_declares_its_input_needs_no_other(module: Write, spec: str) -> None:
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


def test_a_model_that_declares_no_input_must_be_given_one() -> None:
    for make in (get_profile, explain_model):
        with pytest.raises(
            InvalidValue,
            match=r"^model 'torch\.nn:ReLU' must be given its input.*give --input 3x32x32",
        ):
            make("torch.nn:ReLU")


def test_a_given_input_overrides_the_declared_one(module: Write) -> None:
    name = module("odd", "class Odd(nn.ReLU):\n    def input_spec(self):\n        return 3\n")
    model = load_model(f"{name}:Odd")
    assert resolve_inputs(f"{name}:Odd", model, specs("4")) == specs("4")
    with pytest.raises(InvalidValue, match="attribute input_spec must be"):
        resolve_inputs(f"{name}:Odd", model, None)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (
            "no_such_package.nets:make",
            r"cannot be imported: ModuleNotFoundError: No module named 'no_such_package'; "
            "is it installed",
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
def test_an_invalid_path_is_an_error_of_one_line(reference: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message) as caught:
        build_model(reference, {})
    assert "\n" not in str(caught.value)


def test_a_path_to_something_else_than_a_function_names_what_it_should_return() -> None:
    with pytest.raises(
        InvalidValue,
        match=r"training\.loss 'json:__name__' must be a function or class that returns the loss, "
        "got 'json'",
    ):
        import_factory("json:__name__", "training.loss", "the loss")
