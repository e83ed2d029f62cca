"""Arguments of `plan`: a wrong one raises one line that names the field, before any work starts."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from airsplit import AirsplitError, Cell, Clock, Fleet, Infeasible, InvalidValue, UnknownName, plan
from airsplit.planning.arguments import make_problem
from planning.problems import ALEXNET, make_profile

TWO = Fleet.sample(2, seed=0)


def test_a_problem_has_the_defaults_of_plan() -> None:
    of_plan = inspect.signature(plan).parameters
    for name, parameter in inspect.signature(make_problem).parameters.items():
        assert (parameter.default, parameter.annotation) == (
            of_plan[name].default,
            of_plan[name].annotation,
        ), name


def error_of(
    kind: type[AirsplitError], words: str, fleet: Any = TWO, profile: Any = ALEXNET, **options: Any
) -> None:
    with pytest.raises(kind) as caught:
        plan(profile, fleet, **options)
    message = str(caught.value)
    assert re.search(words, message), message
    assert "\n" not in message
    assert len(message) < 400
    assert type(caught.value) is kind
    assert isinstance(caught.value, ValueError) or kind is Infeasible


@pytest.mark.parametrize("field", ["max_split", "min_split", "split"])
@pytest.mark.parametrize(
    "bad", [0, -1, 21, 10**30, 2.0, 2.5, math.nan, math.inf, True, b"pool1", {}, {4}, object()]
)
def test_a_split_out_of_range_or_not_a_whole_number_is_rejected(field: str, bad: object) -> None:
    method = "fixed" if field == "split" else "exact"
    error_of(
        InvalidValue,
        f"^{field} must be a whole number from 1 to 20, got ",
        **{field: bad},
        method=method,
    )


@pytest.mark.parametrize("field", ["max_split", "split"])
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([4, 0], r"\[1\] must be a whole number from 1 to 20, got 0"),
        ([21, 4], r"\[0\] must be a whole number from 1 to 20, got 21"),
        ([None, 4], r"\[0\] must be a whole number"),
        ([4, math.nan], r"\[1\] must be a whole number"),
        (np.array([3.0, 5.0]), r"\[0\] must be a whole number"),
        ([[4], [4]], r"\[0\] must be a whole number"),
        ([4, [4]], r".* must be a whole number"),
        ([4], r" has 1 entries for 2 devices"),
        ([4, 4, 4], r" has 3 entries for 2 devices"),
        ([], r" has 0 entries for 2 devices"),
    ],
)
def test_a_list_of_splits_needs_one_valid_entry_per_device(
    field: str, bad: object, words: str
) -> None:
    error_of(
        InvalidValue,
        f"^{field}{words}",
        **{field: bad},
        method="fixed" if field == "split" else "exact",
    )


@pytest.mark.parametrize("field", ["max_split", "min_split", "split"])
def test_an_unknown_layer_suggests_the_nearest_name(field: str) -> None:
    method = "fixed" if field == "split" else "exact"
    error_of(
        UnknownName,
        f"^{field} 'poool1' is not known; did you mean 'pool1'\\?",
        **{field: "poool1"},
        method=method,
    )
    error_of(
        UnknownName, f"^{field} 'xyz' is not known\\. Known: conv1", **{field: "xyz"}, method=method
    )


def test_contradictory_limits_are_rejected() -> None:
    error_of(
        InvalidValue, "^max_split of device 0 is 3, below min_split 5", max_split=3, min_split=5
    )
    error_of(
        InvalidValue,
        "^max_split of device 1 is 4, below min_split 5",
        max_split=[9, 4],
        min_split=5,
    )
    error_of(InvalidValue, "below min_split 20", min_split=20)  # no limit is 19
    error_of(
        InvalidValue,
        "split of device 1 must be from 2 to 8, got 9",
        method="fixed",
        split=[2, 9],
        min_split=2,
        max_split=8,
    )
    error_of(
        InvalidValue, "split of device 0 must be from 1 to 19, got 20", method="fixed", split=20
    )


@pytest.mark.parametrize("bad", [0, -3, 1.5, math.nan, "8", None, True, [8]])
def test_a_batch_must_be_a_whole_number_of_samples(bad: object) -> None:
    error_of(
        InvalidValue,
        "^batch_size must be a whole number from 1 to 1000000000, got ",
        batch_size=bad,
    )


@pytest.mark.parametrize("bad", [0, 65, 16.0, None, "32"])
def test_an_element_has_one_to_sixty_four_bits(bad: object) -> None:
    error_of(
        InvalidValue, "^element_bits must be a whole number from 1 to 64, got ", element_bits=bad
    )


@pytest.mark.parametrize("bad", [-1, 0.5, None, "x", math.nan])
def test_a_seed_must_be_a_whole_number(bad: object) -> None:
    error_of(InvalidValue, "^seed must be a whole number >= 0, got ", seed=bad, method="random")


@pytest.mark.parametrize("bad", [0, 1, -0.1, 1.1, math.nan, math.inf, 0.0, 1.0])
@pytest.mark.parametrize(
    ("field", "method"), [("quantile", "expected-max"), ("device_quantile", "exact")]
)
def test_a_probability_lies_between_zero_and_one(field: str, method: str, bad: float) -> None:
    error_of(
        InvalidValue,
        f"^{field} must be a finite number > 0 and < 1, got ",
        method=method,
        **{field: bad},
    )


@pytest.mark.parametrize("bad", ["0.9", [0.9], True])
@pytest.mark.parametrize(
    ("field", "method"), [("quantile", "expected-max"), ("device_quantile", "exact")]
)
def test_a_probability_is_one_number(field: str, method: str, bad: object) -> None:
    error_of(InvalidValue, f"^{field} must be ", method=method, **{field: bad})


@pytest.mark.parametrize("bad", ["exat", "Exact", "expected_max", "papers"])
def test_an_unknown_method_suggests_the_nearest_name(bad: str) -> None:
    near = {"exat": "exact", "Exact": "exact", "expected_max": "expected-max", "papers": "paper"}[
        bad
    ]
    error_of(
        UnknownName,
        f"^method '{bad}' is not known; did you mean '{near}'\\? Known: equal, exact, exhaustive",
        method=bad,
    )


@pytest.mark.parametrize("bad", [None, 3, ["exact"], "qqqq"])
def test_an_unknown_method_without_a_near_name_lists_all_methods(bad: object) -> None:
    error_of(
        UnknownName,
        r"^method .* is not known.* "
        "Known: equal, exact, exhaustive, expected-max, fixed, paper, random",
        method=bad,
    )


@pytest.mark.parametrize(
    ("option", "owner", "method"),
    [
        ({"quantile": 0.9}, "expected-max", "exact"),
        ({"quantile": 0.9}, "expected-max", "paper"),
        ({"device_quantile": 0.9}, "exact", "expected-max"),
        ({"device_quantile": 0.9}, "exact", "equal"),
        ({"split": 4}, "fixed", "exact"),
        ({"split": 4}, "fixed", "random"),
    ],
)
def test_an_argument_of_another_method_is_rejected_with_its_owner(
    option: dict[str, Any], owner: str, method: str
) -> None:
    (name,) = option
    error_of(
        InvalidValue,
        f'^{name} belongs to the method "{owner}", but the method is "{method}"',
        method=method,
        **option,
    )


def test_fixed_needs_a_split() -> None:
    error_of(InvalidValue, '^split must be given for the method "fixed"', method="fixed")


def test_exhaustive_search_rejects_too_many_combinations_before_starting() -> None:
    forty = Fleet.sample(40, seed=0)
    error_of(
        Infeasible,
        '^"exhaustive" would try [0-9]+ combinations, more than 200000',
        fleet=forty,
        method="exhaustive",
    )
    blocks = Fleet.sample(3, seed=0, cell=Cell(resource_blocks=1000))
    error_of(Infeasible, '^"exhaustive" would try', fleet=blocks, method="exhaustive", max_split=4)


@pytest.mark.parametrize(("blocks", "combinations"), [(None, 4**3), (6, 4**3 * 10)])
def test_exhaustive_search_counts_its_combinations(
    monkeypatch: pytest.MonkeyPatch, blocks: int | None, combinations: int
) -> None:
    """Four splits for each of three devices; six blocks go to them in (5 over 2) ways."""
    fleet = Fleet.sample(3, seed=0, cell=Cell(resource_blocks=blocks))
    monkeypatch.setattr("airsplit.planning.baselines.MOST_COMBINATIONS", combinations)
    plan(ALEXNET, fleet, method="exhaustive", max_split=4)
    monkeypatch.setattr("airsplit.planning.baselines.MOST_COMBINATIONS", combinations - 1)
    error_of(
        Infeasible,
        f"would try {combinations} combinations",
        fleet=fleet,
        method="exhaustive",
        max_split=4,
    )


@pytest.mark.parametrize(
    "method", ["exact", "expected-max", "paper", "equal", "random", "exhaustive"]
)
def test_fewer_blocks_than_devices_are_rejected(method: str) -> None:
    fleet = Fleet.sample(5, seed=0, cell=Cell(resource_blocks=4))
    error_of(
        Infeasible,
        "^cell.resource_blocks must be at least the number of devices, 5, got 4",
        fleet=fleet,
        method=method,
    )


def test_optimizer_state_needs_memory_on_the_device() -> None:
    needed = ALEXNET.device_memory_bytes(8, optimizer_slots=2)
    fleet = TWO.replace(memory_bytes=[1e12, float(needed[3])])
    plain = plan(ALEXNET, fleet, batch_size=8, method="fixed", split=[4, 4], optimizer_slots=2)
    assert plain.splits.tolist() == [4, 4]
    error_of(
        InvalidValue,
        "split of device 1 must be from 1 to 4, got 5",
        fleet,
        batch_size=8,
        method="fixed",
        split=5,
        optimizer_slots=2,
    )
    error_of(
        InvalidValue,
        "optimizer_slots must be a whole number from 0 to 16, got -1",
        optimizer_slots=-1,
    )


def test_only_gradients_of_trained_layers_come_back() -> None:
    frozen = replace(ALEXNET, gradient_elements=np.zeros_like(ALEXNET.gradient_elements))
    there_and_back, there = (
        plan(each, TWO, clock=Clock(downlink=True)).transmit_s for each in (ALEXNET, frozen)
    )
    assert (there < there_and_back).all()
    assert there == pytest.approx(plan(frozen, TWO).transmit_s)


def test_a_device_without_memory_for_any_split_is_named() -> None:
    needed = ALEXNET.device_memory_bytes(8)
    short = TWO.replace(memory_bytes=[1e12, float(needed[0] - 1)], name=["phone", "watch"])
    error_of(
        Infeasible,
        r"device watch has \d+ bytes of memory, but split 1 \(conv1\) needs \d+ to train",
        fleet=short,
        batch_size=8,
    )
    enough = TWO.replace(memory_bytes=[1e12, float(needed[0])])
    assert plan(ALEXNET, enough, batch_size=8).splits[1] == 1
    error_of(Infeasible, r"device 1 .* split 5 \(conv2\)", fleet=enough, min_split=5, batch_size=8)


def test_a_wrong_type_of_profile_or_fleet_is_rejected() -> None:
    error_of(InvalidValue, "^profile must be an airsplit.Profile, got 'alexnet'", profile="alexnet")
    error_of(InvalidValue, "^fleet must be an airsplit.Fleet, got ", fleet=[1, 2])
    error_of(InvalidValue, "^fleet must be an airsplit.Fleet, got None", fleet=None)


@pytest.mark.parametrize("bad", ["round", 1, {}, {"barrier": "round"}, Clock])
def test_a_wrong_type_of_clock_is_rejected(bad: object) -> None:
    error_of(InvalidValue, "^clock must be an airsplit.Clock, got ", clock=bad)


@pytest.mark.parametrize("bad", ["yes", None, 1, 0.0])
def test_certify_is_true_or_false(bad: object) -> None:
    error_of(
        InvalidValue, "^certify must be True or False, got ", certify=bad, method="expected-max"
    )


GOOD: dict[str, Any] = {
    "seconds_per_mac": [1e-9, 1e-9],
    "fluctuation": [2e9, 2e9],
    "distance_m": [100.0, 200.0],
}


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "field", ["seconds_per_mac", "fluctuation", "distance_m", "fading", "memory_bytes"]
)
def test_columns_must_be_positive_and_finite(field: str, bad: float) -> None:
    with pytest.raises(
        InvalidValue,
        match=rf"^fleet\.{field}\[1\] must be a finite number > 0, got {re.escape(str(bad))}$",
    ):
        Fleet(**(GOOD | {field: [1.0, bad]}))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_measured_rates_must_be_positive_and_finite(bad: float) -> None:
    with pytest.raises(
        InvalidValue, match=r"^fleet\.full_band_rate_bps\[0\] must be a finite number > 0"
    ):
        Fleet(seconds_per_mac=1e-9, fluctuation=2e9, full_band_rate_bps=[bad, 1e6])  # type: ignore[arg-type]


def test_columns_of_different_lengths_and_empty_fleets_are_rejected() -> None:
    with pytest.raises(
        InvalidValue, match=r"^fleet\.distance_m has 3 entries, but fleet\.seconds_per_mac has 2"
    ):
        Fleet(**(GOOD | {"distance_m": [1.0, 2.0, 3.0]}))
    with pytest.raises(InvalidValue, match=r"^fleet must have at least one device"):
        Fleet(seconds_per_mac=[], fluctuation=[], distance_m=[])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"barrier": "epoch"}, "^clock.barrier 'epoch' is not known.* Known: iteration, round"),
        (
            {"iterations_per_round": 0},
            "^clock.iterations_per_round must be a whole number >= 1, got 0",
        ),
        ({"downlink": "yes"}, "^clock.downlink must be True or False, got 'yes'"),
        (
            {"backward_macs_ratio": -1.0},
            "^clock.backward_macs_ratio must be a finite number >= 0, got -1.0",
        ),
        (
            {"backward_macs_ratio": math.nan},
            "^clock.backward_macs_ratio must be a finite number >= 0, got nan",
        ),
        (
            {"server_seconds_per_mac": math.inf},
            "^clock.server_seconds_per_mac must be a finite number >= 0, got inf",
        ),
        ({"server_parallel": 0}, "^clock.server_parallel must be a whole number >= 1, got 0"),
    ],
)
def test_an_invalid_clock_is_rejected(option: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        Clock(**option)


def test_a_device_without_a_downlink_is_rejected_before_planning() -> None:
    unheard = Fleet(**(GOOD | {"distance_m": [100.0, 1e15]}))
    error_of(InvalidValue, r"^fleet device 1 at 1e\+15 m has .* bit/s of uplink", fleet=unheard)


def test_a_ragged_profile_is_rejected() -> None:
    with pytest.raises(
        InvalidValue, match=r"^profile\.activation_elements must be 2 whole numbers"
    ):
        make_profile([1, 2], [1])


@pytest.mark.parametrize(
    "columns",
    [
        {"seconds_per_mac": 1e300},
        {"fluctuation": 1e-300},
        {"full_band_rate_bps": 1e-300},
        {"seconds_per_mac": 1e-300, "fluctuation": 1e300, "full_band_rate_bps": 1e300},
    ],
)
def test_a_device_with_absurd_times_is_named(columns: dict[str, float]) -> None:
    sane = {"seconds_per_mac": 1e-9, "fluctuation": 1e9, "full_band_rate_bps": 1e6}
    strange = Fleet(
        **{column: [value, columns.get(column, value)] for column, value in sane.items()}
    )
    with pytest.raises(
        InvalidValue,
        match=r"fleet device 1 would take .* s for an iteration .* look at its seconds_per_mac",
    ):
        plan(ALEXNET, strange)


def test_the_warning_of_a_limit_that_averages_nothing_points_at_the_caller() -> None:
    with pytest.warns(UserWarning, match="nothing is averaged") as caught:
        plan(ALEXNET, TWO, max_split=20)
    assert caught[0].filename == __file__
