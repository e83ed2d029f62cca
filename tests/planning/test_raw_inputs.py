"""Splits that would send a raw input of the model: no method takes one unless it is allowed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from airsplit import METHODS, AirsplitError, Fleet, plan
from airsplit.system.profile import Profile
from planning.problems import Case, make_profile, nothing_averaged

# Splits 2 and 4 are the cheapest in every respect, and send an input unchanged.
BASE = make_profile([100, 1, 100, 1, 100], [1000, 1, 900, 1, 800])
RAW = replace(
    BASE,
    raw_inputs=[[], ["context"], [], ["context", "position_ids"], []],
    input_names=["image", "context", "position_ids"],
)
FLEET = Fleet(seconds_per_mac=[0.5, 0.7], fluctuation=2.0, full_band_rate_bps=[64.0, 100.0])


def options_of(method: str) -> dict[str, Any]:
    return {"split": [1, 3]} if method == "fixed" else {}


@pytest.mark.parametrize("method", METHODS)
def test_no_method_takes_a_split_that_sends_a_raw_input(method: str) -> None:
    planned = plan(RAW, FLEET, method=method, **options_of(method))
    assert set(planned.splits.tolist()) <= {1, 3}
    # The bound holds for the splits that are left: were it over all five, it would be far below.
    assert (
        planned.lower_bound_s > 5 * plan(RAW, FLEET, method="exact", raw_inputs="allow").objective_s
    )


@pytest.mark.parametrize(
    ("raw_inputs", "split"),
    [("refuse", {1, 3}), (["context"], {2}), (["position_ids"], {1, 3}), ("allow", {2, 4})],
)
def test_a_plan_takes_splits_that_raw_inputs_allows(raw_inputs: Any, split: set[int]) -> None:
    assert set(plan(RAW, FLEET, method="exact", raw_inputs=raw_inputs).splits.tolist()) <= split


def test_random_splits_are_drawn_uniformly_from_the_permitted_ones() -> None:
    many = Fleet(seconds_per_mac=0.5, fluctuation=2.0, full_band_rate_bps=np.full(3000, 64.0))
    with nothing_averaged():
        drawn = plan(RAW, many, method="random", max_split=5).splits
    splits, counts = np.unique(drawn, return_counts=True)
    assert splits.tolist() == [1, 3, 5]
    assert counts.min() > 900


def test_a_fixed_split_that_sends_a_raw_input_is_rejected_with_the_input_s_name() -> None:
    message = (
        "split of device 1, 2 (r2), would send the input 'context' of the model to the server "
        'unchanged; take another split, or allow it by raw_inputs = ["context"]'
    )
    with pytest.raises(AirsplitError, match=re.escape(message)):
        plan(RAW, FLEET, method="fixed", split=[1, 2])
    assert plan(
        RAW, FLEET, method="fixed", split=[1, 2], raw_inputs=["context"]
    ).splits.tolist() == [1, 2]


def test_an_error_says_that_every_split_sends_a_raw_input_and_what_to_do() -> None:
    message = (
        "every split within the limits, 2, would send the input 'context' of the model to the "
        "server unchanged; raise max_split to 3 (r3) or more, or put a layer between the input and "
        'the cut, or allow it by raw_inputs = ["context"], in a scenario under [model]'
    )
    for method in METHODS:
        with pytest.raises(AirsplitError, match=f"^{re.escape(message)}$"):
            plan(RAW, FLEET, method=method, min_split=2, max_split=2, **options_of(method))
    with pytest.raises(
        AirsplitError, match="every split within the limits of device 1, 2, would send"
    ):
        plan(RAW, FLEET, min_split=2, max_split=[3, 2])
    everywhere = replace(RAW, raw_inputs=[["image", "context"]] * 5)
    message = (
        "every split within the limits, 1 to 4, would send the inputs 'image' and 'context' of the "
        "model to the server unchanged; put"
    )
    with pytest.raises(AirsplitError, match=message):
        plan(everywhere, FLEET)


def test_an_unknown_policy_is_an_error() -> None:
    with pytest.raises(
        AirsplitError,
        match=(
            r"raw_inputs 'contxt' is not known; did you mean 'context'\? "
            "Known: context, image, pos"
        ),
    ):
        plan(RAW, FLEET, raw_inputs=["contxt"])
    with pytest.raises(
        AirsplitError, match='raw_inputs must be "refuse", "allow" or a list of the inputs'
    ):
        plan(RAW, FLEET, raw_inputs="context")
    with pytest.raises(AirsplitError, match=r"raw_inputs must be .*, got 3"):
        plan(RAW, FLEET, raw_inputs=3)  # type: ignore[arg-type]
    with pytest.raises(AirsplitError, match="the profile does not name the model's inputs"):
        plan(BASE, FLEET, raw_inputs=["context"])


def test_an_input_that_never_crosses_may_be_listed() -> None:
    assert (
        plan(RAW, FLEET, raw_inputs=["image"]).splits.tolist() == plan(RAW, FLEET).splits.tolist()
    )


def test_limits_end_at_permitted_splits() -> None:
    problem = Case(RAW, FLEET, {"min_split": 2, "max_split": [4, 3]}).problem()
    assert problem.min_split == 3
    assert problem.max_splits.tolist() == [3, 3]
    assert problem.allowed.rows.tolist() == [2]
    assert [problem.allowed.includes(row).tolist() for row in (1, 2, 3)] == [
        [False, False],
        [True, True],
        [False, False],
    ]
    assert problem.allowed.includes(np.array([2, 3])).tolist() == [True, False]


def test_the_default_limit_is_a_permitted_split() -> None:
    assert [RAW.default_max_split(policy) for policy in ("refuse", ["context"], "allow")] == [
        3,
        3,
        4,
    ]
    assert BASE.default_max_split() == 4
    with pytest.warns(UserWarning, match="3 is the deepest split that averages something"):
        plan(RAW, FLEET, max_split=5)


def test_a_device_without_memory_for_the_first_permitted_split_is_rejected() -> None:
    first = RAW.device_memory_bytes(1)[1]
    small = FLEET.replace(memory_bytes=[first, 1e9])
    with pytest.raises(
        AirsplitError, match=r"device 0 has .* bytes of memory, but split 3 \(r3\) needs"
    ):
        plan(RAW, small, min_split=2)


def test_a_profile_without_the_column_sends_nothing_raw() -> None:
    assert BASE.raw_inputs == BASE.other_inputs == ((),) * 5
    assert BASE.permitted_splits().all()


def test_raw_inputs_are_in_the_json_and_not_in_the_fingerprint() -> None:
    assert RAW.fingerprint == BASE.fingerprint
    read = Profile.from_json(RAW.to_json())
    assert (read.raw_inputs, read.input_names) == (RAW.raw_inputs, RAW.input_names)
    with pytest.raises(
        AirsplitError,
        match=r"profile.raw_inputs must be 5 lists of names of inputs, one for each split",
    ):
        replace(BASE, raw_inputs=[["context"]])
    with pytest.raises(
        AirsplitError, match=r"profile.raw_inputs\[1\] must be a list of names of inputs"
    ):
        replace(BASE, raw_inputs=[[], "context", [], [], []])
