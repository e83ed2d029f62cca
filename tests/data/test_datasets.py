"""Built-in data sets, adapted to the inputs of the model."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from airsplit.core.errors import FileProblem, InvalidValue, UnknownName
from airsplit.data.datasets import Standardize, load_dataset, pass_through
from airsplit.system.inputs import InputSpec, parse_input_spec
from data.small_sets import small_cifar, small_mnist


def specs(*texts: str) -> list[InputSpec]:
    return [parse_input_spec(text) for text in texts]


@pytest.mark.parametrize("shape", ["1x8x8", "1x32x32", "3x32x32", "3x9x40"])
def test_digits_are_adapted_to_the_model(shape: str) -> None:
    digits = load_dataset("digits", specs(shape))
    assert (len(digits.train), len(digits.test), digits.classes, digits.given) == (
        1437,
        360,
        10,
        None,
    )
    (images,), labels = digits.train.batch(torch.arange(50))
    assert tuple(images.shape[1:]) == specs(shape)[0].shape
    assert (images.dtype, labels.dtype, images.is_contiguous()) == (
        torch.float32,
        torch.int64,
        True,
    )
    assert (images == images[:, :1]).all()
    assert abs(float(images.mean())) < 0.1
    assert 0.7 < float(images.std()) < 1.1


def test_digits_of_their_own_size_are_standardized_by_hand() -> None:
    from sklearn.datasets import load_digits

    digits = load_dataset("digits", specs("1x8x8"))
    (images,), _ = digits.train.batch(slice(None))
    assert float(images.mean()) == pytest.approx(0, abs=0.01)
    assert float(images.std()) == pytest.approx(1, abs=0.01)
    raw = (images * 0.3760 + 0.3050) * 16
    known = {bytes(row) for row in load_digits().data.astype(np.uint8)}
    assert all(bytes(row) in known for row in raw.round().reshape(-1, 64).numpy().astype(np.uint8))


def test_digits_resized_are_the_bilinear_ones_of_torch() -> None:
    small, large = (load_dataset("digits", specs(shape)).test for shape in ("1x8x8", "1x32x32"))
    (low,), (high,) = (samples.batch(slice(0, 20))[0] for samples in (small, large))
    wanted = torch.nn.functional.interpolate(
        low, size=(32, 32), mode="bilinear", align_corners=False
    )
    assert (high - wanted).abs().max() < 1.1 / 255 / 0.376  # half a step of a byte each


def test_images_are_stored_as_bytes() -> None:
    digits = load_dataset("digits", specs("3x32x32"))
    (stored,) = digits.train.inputs
    assert (stored.dtype, tuple(stored.shape)) == (torch.uint8, (1437, 1, 32, 32))


def test_grey_images_get_a_border_and_are_repeated_in_three_channels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pixels, labels), _ = small_mnist(monkeypatch, tmp_path)
    mnist = load_dataset("mnist", specs("3x32x33"), folder=tmp_path)
    (images,), actual_labels = mnist.train.batch(torch.tensor([7, 3]))
    background = (0 - 0.1307) / 0.3081
    wanted = np.full((2, 3, 32, 33), background)
    wanted[:, :, 2:30, 2:30] = (pixels[[7, 3], None] / 255 - 0.1307) / 0.3081
    assert images.numpy() == pytest.approx(wanted, abs=1e-5)
    assert actual_labels.tolist() == labels[[7, 3]].tolist()


def test_color_images_are_standardized_channel_by_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (pixels, labels) = small_cifar(monkeypatch, tmp_path)
    cifar = load_dataset("cifar10", specs("3x32x32"), folder=tmp_path)
    (images,), actual_labels = cifar.test.batch(slice(None))
    mean, std = (
        np.array(values).reshape(3, 1, 1)
        for values in ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    )
    assert images.numpy() == pytest.approx(
        (pixels.reshape(-1, 3, 32, 32) / 255 - mean) / std, abs=1e-5
    )
    assert actual_labels.tolist() == labels.tolist()
    assert cifar.train.inputs[0].dtype == torch.uint8


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_images_have_the_type_of_the_models_input(dtype: str) -> None:
    (images,), _ = load_dataset("digits", specs(f"1x8x8:{dtype}")).train.batch(slice(0, 3))
    assert images.dtype == getattr(torch, dtype)
    (exact,), _ = load_dataset("digits", specs("1x8x8:float64")).train.batch(slice(0, 3))
    assert (images.double() - exact).abs().max() < 0.01


def test_the_folder_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_mnist(monkeypatch, tmp_path)
    monkeypatch.setenv("AIRSPLIT_DATA", str(tmp_path))
    assert len(load_dataset("mnist", specs("1x28x28")).train) == 60


def test_missing_files_are_a_file_problem(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match=r"`airsplit data cifar10` downloads it"):
        load_dataset("cifar10", specs("3x32x32"), folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("mnist", "1x27x28", "takes 1 or 3 channels and at least 28x28, e.g. 1x32x32, got 1x27x28"),
        ("mnist", "2x28x28", "takes 1 or 3 channels .* got 2x28x28"),
        (
            "cifar10",
            "1x32x32",
            "takes 3 channels and at least 32x32, e.g. 3x32x32, got 1x32x32: "
            "its images are 3x32x32, and are never cropped",
        ),
        ("cifar10", "3x32x31", "got 3x32x31"),
        ("digits", "1x4x4", "at least 8x8"),
    ],
)
def test_images_are_not_cropped_shrunk_or_turned_to_grey(
    name: str, shape: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(
        InvalidValue,
        match=rf"^training\.dataset '{name}' needs a model that .*{message}.*; "
        r"set model\.input_shape",
    ):
        load_dataset(name, specs(shape), folder=tmp_path)


@pytest.mark.parametrize(
    "inputs", [["64"], ["3x32x32:int64"], ["3x32x32", "3x32x32"], ["1x1x32x32"], []]
)
def test_a_model_without_image_input_is_rejected(inputs: list[str]) -> None:
    with pytest.raises(
        InvalidValue,
        match=r"'digits' needs a model with one input of channels x height x width "
        r"in a floating type.*got ",
    ):
        load_dataset("digits", specs(*inputs))


def test_an_unknown_data_set_offers_the_nearest_one() -> None:
    with pytest.raises(
        UnknownName, match=r"^training\.dataset 'digit' is not known; did you mean 'digits'\?"
    ):
        load_dataset("digit", specs("1x8x8"))


def test_a_built_in_set_has_no_partition_of_its_own() -> None:
    with pytest.raises(
        InvalidValue, match=r'^training\.partition "given" needs a dataset factory, got \'digits\''
    ):
        load_dataset("digits", specs("1x8x8"), given=True)


def test_prepare_functions_can_be_pickled() -> None:
    prepare = Standardize((3, 4, 4), (0.5,), (0.5,), torch.float32)
    images = (torch.arange(4, dtype=torch.uint8).reshape(1, 1, 2, 2),)
    assert torch.equal(pickle.loads(pickle.dumps(prepare))(images)[0], prepare(images)[0])  # noqa: S301 - our own
    assert pickle.loads(pickle.dumps(pass_through)) is pass_through  # noqa: S301


def test_images_are_prepared_on_the_device_that_they_are_on() -> None:
    prepare = Standardize((3, 32, 32), (0.5,), (0.5,), torch.float16)
    (images,) = prepare((torch.empty(2, 1, 28, 28, dtype=torch.uint8, device="meta"),))
    assert (images.device.type, images.dtype, tuple(images.shape)) == (
        "meta",
        torch.float16,
        (2, 3, 32, 32),
    )


def test_an_image_does_not_depend_on_the_rest_of_its_batch() -> None:
    samples = load_dataset("digits", specs("1x32x32")).train
    (together,), _ = samples.batch(torch.arange(64))
    (alone,), _ = samples.batch(torch.tensor([40]))
    assert torch.equal(together[40], alone[0])
