"""Profile: a checked value object that survives JSON and detects changes."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.errors import AirsplitError, FileProblem, InvalidValue, UnknownName
from airsplit.system.profile import Profile, list_shipped_profiles, load_shipped_profile

ROWS: dict[str, Any] = {
    "names": ["conv", "relu", "fc"],
    "layer_macs": [900, 0, 100],
    "matmul_macs": [800, 800, 900],
    "activation_elements": [50, 50, 10],
    "parameters": [9, 0, 5],
}


def tiny(**changes: Any) -> Profile:
    return Profile(**(ROWS | changes))


counts = st.integers(0, 10**12)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    L = draw(st.integers(1, 8))

    def column(low: int = 0) -> list[int]:
        return draw(st.lists(st.integers(low, 10**12), min_size=L, max_size=L))

    return Profile(
        names=draw(st.lists(st.text(min_size=1, max_size=8), min_size=L, max_size=L, unique=True)),
        layer_macs=column(),  # type: ignore[arg-type]
        matmul_macs=np.cumsum(column()),
        activation_elements=column(low=1),  # type: ignore[arg-type]
        parameters=column(),  # type: ignore[arg-type]
        stored_elements=np.cumsum(column()),
        model=draw(st.text(max_size=8)),
    )


def test_cumulative_work_is_the_running_sum_of_the_layers() -> None:
    assert tiny().macs.tolist() == [900, 900, 1000]


def test_stored_elements_default_to_the_sum_of_activations() -> None:
    assert tiny().stored_elements.tolist() == [50, 100, 110]
    assert tiny(stored_elements=[60, 110, 120]).stored_elements.tolist() == [60, 110, 120]


def test_training_memory_is_weights_twice_and_activations_for_every_sample() -> None:
    # split 3: 4 bytes · (2 · 14 weights + 8 samples · 110 kept elements)
    assert tiny().device_memory_bytes(batch_size=8).tolist()[-1] == 4 * (2 * 14 + 8 * 110)


def test_parameters_deeper_than_the_split_are_averaged() -> None:
    assert [tiny().averaged_parameters(split) for split in (1, 2, 3)] == [5, 5, 0]


def test_the_default_max_split_leaves_the_last_parameters() -> None:
    assert tiny().default_max_split() == 2
    assert tiny(parameters=[9, 0, 0]).default_max_split() == 1
    assert tiny(parameters=[0, 0, 0]).default_max_split() == 1
    assert load_shipped_profile("alexnet").default_max_split() == 19


def test_a_split_is_found_by_name_and_by_number() -> None:
    assert [tiny().split_of(split) for split in ("conv", "fc", 2)] == [1, 3, 2]


@pytest.mark.parametrize("split", [0, 4, -1, 1.5, True, None])
def test_a_split_out_of_range_says_how_many_there_are(split: Any) -> None:
    with pytest.raises(
        InvalidValue,
        match=r"plan\.split must be a whole number from 1 to 3, got .*; net has 3 splits",
    ):
        tiny(model="net").split_of(split, field="plan.split")


def test_an_unknown_split_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownName, match="split 'rel' is not known; did you mean 'relu'"):
        tiny().split_of("rel")


def test_equal_numbers_are_equal_profiles_whatever_the_label() -> None:
    assert tiny(model="a") == tiny(model="b")
    assert hash(tiny()) == hash(tiny())
    assert tiny() != tiny(parameters=[9, 0, 6])
    assert tiny() != "conv"


@pytest.mark.parametrize("column", list(ROWS))
def test_the_fingerprint_changes_with_every_column(column: str) -> None:
    other = (
        ["conv", "relu", "fc2"] if column == "names" else [*ROWS[column][:2], ROWS[column][2] + 1]
    )
    assert tiny(**{column: other}).fingerprint != tiny().fingerprint


@pytest.mark.parametrize(
    "column", ["layer_macs", "macs", "matmul_macs", "activation_elements", "parameters"]
)
def test_no_column_can_be_changed(column: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        getattr(tiny(), column)[0] = 7


def test_columns_are_copies_of_what_was_given() -> None:
    mine = np.array([900, 0, 100])
    profile = tiny(layer_macs=mine)
    mine[0] = 0
    assert profile.layer_macs.tolist() == [900, 0, 100]


def test_the_name_of_a_block_offers_its_last_split() -> None:
    profile = tiny(names=["block.conv", "block.add", "fc"])
    with pytest.raises(
        UnknownName,
        match=r"max_split 'block' is not the name of a split; the last within it is 'block\.add'",
    ):
        profile.split_of("block", "max_split")


@given(profiles())
def test_json_gives_the_same_profile_back(profile: Profile) -> None:
    again = Profile.from_json(profile.to_json())
    assert again == profile
    assert again.model == profile.model
    assert again.macs.tolist() == profile.macs.tolist()
    assert again.names == profile.names


def test_inputs_are_kept_and_are_no_part_of_the_fingerprint() -> None:
    profile = tiny(inputs=["3X32x32", "077:int64"])
    assert profile.inputs == ("3x32x32", "77:int64")
    assert Profile.from_json(profile.to_json()).inputs == profile.inputs
    assert profile == tiny()
    assert tiny().inputs == ()


@pytest.mark.parametrize("inputs", ["3x32x32", ["3 by 32"], [3], None, ["3:complex64"]])
def test_invalid_inputs_are_rejected(inputs: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^profile\.inputs "):
        tiny(inputs=inputs)


def test_json_keys_are_the_columns() -> None:
    data = json.loads(tiny().to_json())
    assert ROWS.keys() | {"macs", "fingerprint"} <= data.keys()
    assert data["macs"] == [900, 900, 1000]


@pytest.mark.parametrize(
    "column", ["names", "layer_macs", "macs", "matmul_macs", "activation_elements", "parameters"]
)
def test_a_changed_number_or_name_is_detected(column: str) -> None:
    data = json.loads(tiny().to_json())
    data[column][0] = "convx" if column == "names" else data[column][0] - 1
    with pytest.raises(AirsplitError, match=r"fingerprint|running sum|of which it is a part"):
        Profile.from_json(json.dumps(data))


def test_a_truncated_file_is_detected_at_any_length() -> None:
    text = tiny().to_json()
    for length in range(len(text) - 1):
        with pytest.raises(FileProblem, match="not JSON"):
            Profile.from_json(text[:length])


def test_json_needs_neither_sums_nor_fingerprint() -> None:
    assert Profile.from_json(json.dumps(ROWS)) == tiny()


@pytest.mark.parametrize("text", ["[]", "3", "null", '"x"', "{}", '{"names": ["a"]}'])
def test_json_of_something_else_lists_the_missing_columns(text: str) -> None:
    with pytest.raises(FileProblem, match=r"profile lacks .*parameters"):
        Profile.from_json(text)


def test_an_unknown_key_offers_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'parameters'"):
        Profile.from_json(json.dumps(ROWS | {"parameter": [1, 2, 3]}))


@pytest.mark.parametrize("column", ROWS)
@pytest.mark.parametrize("value", [None, 5, "abc", [], [None] * 3, {}, [[1], [1, 2], 3]])
def test_json_with_a_wrong_column_is_an_airsplit_error(column: str, value: Any) -> None:
    with pytest.raises(AirsplitError, match=rf"profile\.{column}"):
        Profile.from_json(json.dumps(ROWS | {column: value}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": []}, "names must be one or more"),
        ({"names": ["a", "", "c"]}, "names must be one or more"),
        ({"names": "abc"}, "names must be one or more"),
        ({"names": None}, "names must be one or more"),
        ({"names": ["a", "b", "a"]}, "names must differ from each other, got 'a' twice"),
        ({"layer_macs": [1, 2]}, "layer_macs must be 3 whole numbers"),
        ({"layer_macs": 5}, "layer_macs must be 3 whole numbers"),
        ({"layer_macs": [1.5, 2.0, 3.0]}, "layer_macs must be 3 whole numbers"),
        ({"layer_macs": [1.0, math.nan, 3.0]}, "layer_macs must be 3 whole numbers"),
        ({"layer_macs": [True, False, True]}, "layer_macs must be 3 whole numbers"),
        ({"layer_macs": [1, -2, 3]}, r"layer_macs\[1\] must be a whole number"),
        (
            {"layer_macs": np.array([1, 2**63, 3], dtype=np.uint64)},
            r"layer_macs\[1\] must be a whole number",
        ),
        ({"activation_elements": [5, 0, 5]}, r"activation_elements\[1\] must be a whole number"),
        ({"activation_elements": ["a", "b", "c"]}, "activation_elements must be 3 whole numbers"),
        ({"activation_elements": None}, "activation_elements must be 3 whole numbers"),
        ({"parameters": [-1, 0, 0]}, r"parameters\[0\] must be a whole number"),
        ({"matmul_macs": [3, 2, 1]}, "matmul_macs must not fall"),
        ({"stored_elements": [3, 2, 1]}, "stored_elements must not fall"),
    ],
)
def test_every_bad_column_names_its_rule(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=rf"^profile\.{message}"):
        tiny(**changes)


@pytest.mark.parametrize("name", ["alexnet", "alexnet32", "vgg16", "vgg16-3x32x32"])
def test_built_in_profiles_ship(name: str) -> None:
    assert name in list_shipped_profiles()
    assert load_shipped_profile(name).model == name.split("-")[0]


def test_an_unknown_model_offers_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'vgg16'"):
        load_shipped_profile("vgg61")
