"""Data sets of users: what a factory may return, and each mistake in one line."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from airsplit.core.errors import AirsplitError, InvalidValue
from airsplit.data.datasets import Dataset, load_dataset
from airsplit.system.inputs import InputSpec, parse_input_spec

Load = Callable[..., Dataset]


def specs(*texts: str) -> list[InputSpec]:
    return [parse_input_spec(text) for text in texts]


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load a data set by a factory in the current folder that returns an expression."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_set", raising=False)

    def load(expression: str, *inputs: str, before: str = "", given: bool = False) -> Dataset:
        text = (
            "import numpy as np, torch\n"
            + textwrap.dedent(before)
            + f"\ndef make():\n    return {expression}\n"
        )
        (tmp_path / "own_set.py").write_text(text)
        return load_dataset("own_set:make", specs(*inputs), given=given)

    return load


def get_array_of_factory() -> Any:
    return sys.modules["own_set"].array  # type: ignore[attr-defined]


def test_arrays_become_samples(factory: Load) -> None:
    data = factory(
        "(np.arange(12.).reshape(4, 3), np.array([0, 2, 1, 0])), "
        "(np.zeros((2, 3)), np.array([5, 0]))",
        "3",
    )
    (inputs,), labels = data.train.batch(torch.tensor([2, 0]))
    assert inputs.tolist() == [[6, 7, 8], [0, 1, 2]]
    assert (inputs.dtype, labels.dtype, labels.tolist()) == (torch.float32, torch.int64, [1, 0])
    assert (len(data.train), len(data.test), data.classes, data.given) == (4, 2, 6, None)


def test_several_inputs_of_several_types(factory: Load) -> None:
    both = (
        "([torch.ones(4, 3), np.arange(8, dtype=np.int32).reshape(4, 2), "
        "torch.ones(4, 1, dtype=bool)], torch.zeros(4))"
    )
    data = factory(f"{both}, {both}", "3:float16", "2:int64", "1:bool")
    inputs, labels = data.test.batch(slice(1, 3))
    assert [tensor.dtype for tensor in inputs] == [torch.float16, torch.int64, torch.bool]
    assert inputs[1].tolist() == [[2, 3], [4, 5]]
    assert (labels.dtype, data.classes) == (torch.float16, None)


def test_labels_that_are_sequences_are_not_classes(factory: Load) -> None:
    pair = "(torch.zeros(3, 5, dtype=torch.int64), torch.full((3, 5), -100))"
    data = factory(f"{pair}, {pair}", "5:int64")
    assert (data.classes, tuple(data.train.labels.shape)) == (None, (3, 5))


def test_whole_numbers_too_large_for_classes_are_rejected(factory: Load) -> None:
    with pytest.raises(
        InvalidValue,
        match="are classes, which must be below 1,000,000, got 2,000,000,000; "
        "make them floats if they are quantities",
    ):
        factory(
            "(np.zeros((2, 3)), np.array([0, 1])), (np.zeros((1, 3)), np.array([2_000_000_000]))",
            "3",
        )


def test_given_devices_become_rows_of_one_training_set(factory: Load) -> None:
    data = factory(
        "[(np.full((n, 2), float(n)), np.arange(n)) for n in (3, 1, 2)], "
        "(np.zeros((1, 2)), np.array([0]))",
        "2",
        given=True,
    )
    assert data.given is not None
    assert [rows.tolist() for rows in data.given] == [[0, 1, 2], [3], [4, 5]]
    assert data.train.labels.tolist() == [0, 1, 2, 0, 0, 1]
    for rows, n in zip(data.given, (3, 1, 2), strict=True):
        assert (data.train.inputs[0][torch.from_numpy(rows)] == n).all()


@pytest.mark.parametrize(
    "make",
    [
        "np.ones((4, 3), np.float32)",
        "np.ones((4, 3))",
        "torch.ones(4, 3)",
        "torch.ones(4, 3, requires_grad=True)",
    ],
)
def test_samples_share_no_memory_with_the_factory(factory: Load, make: str) -> None:
    data = factory(
        "(array, labels), (array, labels)",
        "3",
        before=f"array = {make}; labels = np.array([0, 1, 0, 1])",
    )
    with torch.no_grad():
        get_array_of_factory()[:] = 5
    sys.modules["own_set"].labels[:] = 3  # type: ignore[attr-defined]
    assert (data.train.inputs[0] == 1).all()
    assert data.test.labels.tolist() == [0, 1, 0, 1]
    data.train.inputs[0][:] = 7
    assert bool((get_array_of_factory() == 5).all())
    assert not data.train.inputs[0].requires_grad


ODD_ARRAYS = {
    "read only": "np.broadcast_to(np.float32(2), (4, 3))",
    "backwards": "np.full((4, 3), 2.0)[::-1, ::-1]",
    "of another byte order": "np.full((4, 3), 2, '>f8')",
    "transposed": "np.full((3, 4), 2.0).T",
    "wide": "np.full((4, 3), 2, np.longdouble)",
    "narrow": "np.full((4, 3), 2, np.float16)",
    "a tensor with strides": "torch.full((3, 4), 2.).T",
    "expanded": "torch.full((1, 3), 2.).expand(4, 3)",
}


@pytest.mark.parametrize("make", ODD_ARRAYS.values(), ids=ODD_ARRAYS)
def test_arrays_of_every_layout_are_read_without_a_warning(factory: Load, make: str) -> None:
    data = factory(
        "(array, np.zeros(4, '>i2')), (array, np.zeros(4, np.uint16))",
        "3",
        before=f"array = {make}",
    )
    (inputs,), labels = data.train.batch(slice(None))
    assert (inputs == 2).all()
    assert (inputs.dtype, inputs.is_contiguous(), labels.dtype) == (
        torch.float32,
        True,
        torch.int64,
    )


GOOD = "(np.zeros((4, 3)), np.zeros(4, int))"
X, Y = "np.zeros((4, 3))", "np.zeros(4, int)"
# What a factory returns, and the error that it causes.
MISTAKES = [
    ("None", r"must be \(train, test\), each a pair \(inputs, labels\), got None"),
    (GOOD, r"train must be a pair \(inputs, labels\), got ndarray of shape \(4, 3\)"),
    (f"{GOOD}, {GOOD}, {GOOD}", r"must be \(train, test\).*got tuple of 3"),
    (f"{GOOD}, {X}", r"test must be a pair \(inputs, labels\), got ndarray of shape \(4, 3\)"),
    (
        f"({X}, np.zeros(3, int)), {GOOD}",
        r"train inputs must have a row for each of the 3 labels, got 4",
    ),
    (
        f"(np.zeros((0, 3)), np.zeros(0, int)), {GOOD}",
        r"train inputs must have a row for each sample, and at least one, got shape \(0, 3\)",
    ),
    (f"(np.zeros(()), {Y}), {GOOD}", r"train inputs must have a row for each sample"),
    (
        f"(np.zeros((4, 5)), {Y}), {GOOD}",
        r"train inputs must have the shape samples x 3, as the model expects, got 4x5",
    ),
    (f"([{X}, {X}], {Y}), {GOOD}", r"train must have as many inputs as the model, 1 \(3\), got 2"),
    (
        f"(np.full((4, 3), np.nan), {Y}), {GOOD}",
        r"train inputs\[0\]\[0\] must be a finite number that float32 can hold, got nan",
    ),
    (
        f"(np.full((4, 3), 1e300), {Y}), {GOOD}",
        r"train inputs\[0\]\[0\] must be a finite number that float32 can hold, got 1e\+300",
    ),
    (
        f"(np.zeros((4, 3), np.uint8), {Y}), {GOOD}",
        r"train inputs must be floats, as the model expects \(float32\), got uint8; convert",
    ),
    (
        f"(np.zeros((4, 3), complex), {Y}), {GOOD}",
        r"train inputs must be an array of numbers, got complex128",
    ),
    (
        f"(np.full((4, 3), None), {Y}), {GOOD}",
        r"train inputs must be an array of numbers, got object",
    ),
    (
        f"([[1, 2, 3]], {Y}), {GOOD}",
        r"train inputs must be a tensor or numpy array with values in it, got list of 3",
    ),
    (
        f"(torch.zeros(4, 3, device='meta'), {Y}), {GOOD}",
        r"train inputs must be a tensor or numpy array with values",
    ),
    (
        f"(torch.zeros(4, 3).to_sparse(), {Y}), {GOOD}",
        r"train inputs must be a tensor or numpy array with values",
    ),
    (
        f"({X}, [0, 1, 0, 1]), {GOOD}",
        r"train labels must be a tensor or numpy array with values in it, got list of 4",
    ),
    (
        f"({X}, np.array([0, 1, -1, 0])), {GOOD}",
        r"train labels must be classes, numbered from 0, got -1",
    ),
    (
        f"({X}, np.array([0, 1, 2**64 - 1, 0], np.uint64)), {GOOD}",
        r"train labels\[2\] must be a number that int64 can hold",
    ),
    (
        f"({X}, torch.zeros(4, dtype=torch.complex64)), {GOOD}",
        r"train labels must be whole numbers or floats, got complex64",
    ),
    (f"({X}, np.full(4, np.inf)), {GOOD}", r"train labels\[0\] must be a finite number"),
    (
        f"{GOOD}, ({X}, np.zeros(4))",
        r"test labels must have the type and shape of those of .* train, int64 of shape \(\) "
        r"per sample, got float32",
    ),
    (
        f"{GOOD}, ({X}, np.zeros((4, 2), int))",
        r"test labels must have the type and shape of those of .* got int64 of shape \(2,\) "
        r"per sample",
    ),
    ("1 / 0", r"failed: ZeroDivisionError: division by zero \(own_set.py:\d+\)"),
    ("exit(3)", r"failed: SystemExit: 3"),
]


@pytest.mark.parametrize(("expression", "message"), MISTAKES)
def test_a_mistake_of_a_factory_is_an_error_of_one_line(
    factory: Load, expression: str, message: str
) -> None:
    with pytest.raises(
        InvalidValue, match=rf"^training\.dataset 'own_set:make' {message}"
    ) as error:
        factory(expression, "3")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (GOOD + ", " + GOOD, r"devices\[0\] must be a pair \(inputs, labels\), got ndarray"),
        (
            f"[], {GOOD}",
            r"devices must be a list with a pair \(inputs, labels\) for each device, got \[\]",
        ),
        (
            f"[{GOOD}, ({X}, np.zeros(9, int))], {GOOD}",
            r"devices\[1\] inputs must have a row for each of the 9 labels, got 4",
        ),
        (
            f"[{GOOD}, ({X}, np.zeros(4))], {GOOD}",
            r"devices\[1\] labels must have the type and shape of those of .*devices\[0\], int64",
        ),
        ("3", r"must be \(devices, test\), a list with a pair"),
    ],
)
def test_a_mistake_in_given_devices_is_an_error_of_one_line(
    factory: Load, expression: str, message: str
) -> None:
    with pytest.raises(InvalidValue, match=rf"^training\.dataset 'own_set:make' {message}"):
        factory(expression, "3", given=True)


@pytest.mark.parametrize(
    ("values", "spec", "message"),
    [
        (
            "np.zeros((4, 3))",
            "3:int64",
            r"must be whole numbers, as the model expects \(int64\), got float64",
        ),
        (
            "np.full((4, 3), 300)",
            "3:uint8",
            r"inputs\[0\]\[0\] must be a number that uint8 can hold, got 300",
        ),
        (
            "np.full((4, 3), -1)",
            "3:uint8",
            r"inputs\[0\]\[0\] must be a number that uint8 can hold, got -1",
        ),
        (
            "np.zeros((4, 3), int)",
            "3:bool",
            r"must be bools, as the model expects \(bool\), got int64",
        ),
        (
            "np.zeros((4, 3), bool)",
            "3:int64",
            r"must be whole numbers, as the model expects \(int64\), got bool",
        ),
        (
            "np.full((4, 3), 1e5)",
            "3:float16",
            r"must be a finite number that float16 can hold, got 100000.0",
        ),
    ],
)
def test_values_that_the_models_type_cannot_hold_are_rejected(
    factory: Load, values: str, spec: str, message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        factory(f"({values}, {Y}), ({values}, {Y})", spec)


def test_an_airsplit_error_in_a_factory_passes_unchanged(factory: Load) -> None:
    with pytest.raises(AirsplitError, match=r"^training\.dataset 'nothing' is not known"):
        factory(
            "load_dataset('nothing', [])",
            "3",
            before="from airsplit.data.datasets import load_dataset",
        )


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (
            "no_such_package:make",
            r"^training\.dataset 'no_such_package:make' cannot be imported: ModuleNotFoundError",
        ),
        (
            "json:lods",
            r"^training\.dataset 'json:lods': json has no 'lods'; did you mean 'loads'\?",
        ),
        (
            "json:__name__",
            r"^training\.dataset 'json:__name__' must be a function or class that returns data, "
            r"got 'json'",
        ),
        ("json:", r"^training\.dataset must be a name or package\.module:factory, got 'json:'"),
    ],
)
def test_an_invalid_path_names_the_setting(reference: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        load_dataset(reference, specs("3"))
