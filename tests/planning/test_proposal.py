"""Proposals: an accepted one has correct latencies and a correct bound, any other is one line."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import airsplit as air
from airsplit import Cell, Fleet, InvalidValue, Plan, Proposal
from airsplit.core.arrays import Floats, Ints
from airsplit.planning.methods import METHODS
from airsplit.planning.proposal import Bound, ProvenProposal
from planning.problems import ALEXNET, Case, Reference, cases, examples, make_profile
from planning.test_expected_max import law_of

FLEET = Fleet.sample(3, seed=0)
WORDS = {
    "expected-max": "mean of the largest",
    "largest-mean": "largest mean",
    "quantile": "0.9 quantile of the largest",
    "device-quantile": "largest 0.9 quantile",
}
QUANTILES = {"quantile": 0.9, "device_quantile": 0.9}

# What the method below returns next.
next_proposal: list[Any] = []


def propose(problem: air.Problem) -> Any:
    """A planning method by path: it returns whatever the test has put there."""
    return next_proposal[-1]


def plan_proposal(case: Case, proposal: Any, **options: Any) -> Plan:
    """Return the plan of a method by path that returns this proposal."""
    next_proposal[:] = [proposal]
    return case.plan(f"{__name__}:propose", **options)


def value_s(reference: Reference, objective: str, rows: Ints, shares: Floats) -> float:
    """Return the value of an objective, worked out from the raw columns."""
    if objective == "largest-mean":
        return reference.latency_s(rows, shares)
    law = law_of(reference, rows, shares)
    if objective == "device-quantile":
        return float(law.device_quantile_s(0.9).max())
    return law.expected_max_s if objective == "expected-max" else law.max_quantile_s(0.9)


def grid(case: Case, steps: int = 6) -> Iterator[tuple[Ints, Floats]]:
    """Every combination of splits with every way to divide the band in equal steps."""
    K = len(case.fleet)
    blocks = case.fleet.cell.resource_blocks or steps
    cuts = itertools.combinations(range(1, blocks), K - 1)
    shares = [np.diff([0, *cut, blocks]) / blocks for cut in cuts]
    for rows in Reference(case).choices:
        for share in shares:
            yield rows, share


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.integers(-3, 9),
    st.floats(),
    st.lists(st.floats(), max_size=2),
)
splits = st.lists(st.integers(-1, 6), max_size=4) | st.lists(anything, max_size=4) | anything
shares = (
    st.lists(st.floats(), max_size=4)
    | st.lists(st.floats(0, 1), max_size=4)
    | st.lists(anything, max_size=4)
    | anything
)


@examples(400)
@given(
    cases(),
    splits,
    shares,
    st.booleans(),
    st.sampled_from([*WORDS, "gap", "", None, 3]),
    anything,
    anything,
)
def test_any_proposal_becomes_a_valid_plan_or_a_one_line_error(
    case: Case, splits: Any, shares: Any, as_arrays: bool, objective: Any, status: Any, history: Any
) -> None:
    if as_arrays and isinstance(splits, list) and isinstance(shares, list):
        splits, shares = np.array(splits, dtype=object), np.array(shares, dtype=object)
    proposal = Proposal(splits, shares, objective=objective, status=status, history=history)
    refusal = None
    try:
        found = plan_proposal(case, proposal, certify=False, **QUANTILES)
    except InvalidValue as error:
        refusal = str(error)
    if refusal is None:
        require_true(case, found, objective)
    else:
        assert "\n" not in refusal
        assert f"method '{__name__}:propose'" in refusal


@examples(60)
@given(
    cases(most_rows=3),
    st.sampled_from([*WORDS]),
    st.integers(0, 2**32),
    st.sampled_from([0.2, 0.9, 1.0]),
    st.sampled_from([None, 5]),
)
def test_an_accepted_proposal_has_correct_latencies_and_a_correct_bound(
    case: Case, objective: str, seed: int, used: float, blocks: int | None
) -> None:
    rng = np.random.default_rng(seed)
    K = len(case.fleet)
    rows = np.array([rng.choice(allowed) for allowed in Reference(case).options])
    if blocks is None:
        parts = rng.exponential(size=K) + 1e-3
        given_shares = used * parts / parts.sum()
    else:
        assume(case.fleet.distance_m is not None)
        case = Case(
            case.profile, case.fleet.replace(cell=Cell(resource_blocks=blocks)), case.options
        )
        given_shares = rng.multinomial(blocks - K, np.full(K, 1 / K)) + 1
        given_shares = given_shares / blocks
    found = plan_proposal(case, Proposal(rows + 1, given_shares, objective=objective), **QUANTILES)
    assert (found.splits == rows + 1).all()
    assert found.shares == pytest.approx(given_shares, rel=1e-12)
    require_true(case, found, objective)

    reference = Reference(case)
    least = min(value_s(reference, objective, *plan) for plan in grid(case))
    assert found.lower_bound_s <= least * (1 + 1e-9)
    if objective == "largest-mean":
        assert found.lower_bound_s == pytest.approx(case.plan("exhaustive").objective_s, rel=1e-8)


def require_true(case: Case, found: Plan, objective: str) -> None:
    """Hold a plan against the formulas written out."""
    reference, rows = Reference(case), found.splits - 1
    assert all(row in allowed for row, allowed in zip(rows, reference.options, strict=True))
    assert (found.shares > 0).all()
    assert (
        max(float(found.shares.sum()), math.fsum(found.shares), sum(found.shares.tolist())) <= 1.0
    )
    assert found.transmit_s == pytest.approx(reference.air_s(rows, found.shares), rel=1e-9)
    assert found.compute_s == pytest.approx(
        reference.busy_s(rows) - reference.server_s[rows], rel=1e-9
    )
    assert found.mean_latency_s == pytest.approx(reference.latency_s(rows, found.shares), rel=1e-9)
    assert found.objective == WORDS[objective]
    assert found.objective_s == pytest.approx(
        value_s(reference, objective, rows, found.shares), rel=1e-9
    )
    assert 0 < found.lower_bound_s <= found.objective_s
    assert found.gap == found.objective_s / found.lower_bound_s - 1


class Unprintable:
    """An object of a user's class that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


THIRDS = [0.3, 0.3, 0.3]


@pytest.mark.parametrize(
    ("proposal", "message"),
    [
        (None, "must return an airsplit.Proposal(splits, shares), got None"),
        (Proposal([1, 1], THIRDS), "splits has 2 entries for 3 devices"),
        (
            Proposal(1, THIRDS),
            "splits must be a list or an array with one entry for each device, got 1",
        ),
        (
            Proposal([1, 1, 9], THIRDS),
            "split of device 2 must be from 1 to 8, got 9; see min_split, max_split and "
            "memory_bytes",
        ),
        (Proposal([1, 1, 21], THIRDS), "split of device 2 must be a whole number"),
        (Proposal(np.array([1, 0, 1]), THIRDS), "split of device 1 must be a whole number"),
        (
            Proposal([1, "pool9", 1], THIRDS),
            "split of device 1 'pool9' is not known; did you mean 'pool5'",
        ),
        (Proposal([1, 1.5, 1], THIRDS), "split of device 1 must be a whole number"),
        (
            Proposal([1, 1, 1], [1.0, 1.0, 1.0]),
            "shares must sum to at most 1, got 3; divide them by their sum",
        ),
        (
            Proposal([1, 1, 1], [0.5, -0.1, 0.5]),
            "share of device 1 must be a finite number ≥ 0, got -0.1",
        ),
        (
            Proposal([1, 1, 1], [0.5, 0.1, math.nan]),
            "share of device 2 must be a finite number ≥ 0, got nan",
        ),
        (
            Proposal([1, 1, 1], [0.5, 0.0, 0.5]),
            "share of device 1 must be enough to send its activations",
        ),
        (Proposal([1, 1, 1], [0.5]), "shares has 1 entries for 3 devices"),
        (Proposal([1, 1, 1], ["a", 0.1, 0.1]), "shares must be one number for each device"),
        (
            Proposal([1, 1, 1], THIRDS, objective="max"),
            "objective 'max' is not known. Known: device-quantile, expected-max, largest-mean, "
            "quantile",
        ),
        (
            Proposal([1, 1, 1], THIRDS, objective="quantile"),
            'objective "quantile" needs quantile, which is not given',
        ),
        (
            Proposal([1, 1, 1], THIRDS, objective="device-quantile"),
            'objective "device-quantile" needs device_quantile',
        ),
        (Proposal([1, 1, 1], THIRDS, status=3), "status must be one line"),  # type: ignore[arg-type]
        (
            Proposal([1, 1, 1], THIRDS, status="done\nbound  0 %"),
            "status must be one line of at most 200 printable characters",
        ),
        (
            Proposal([1, 1, 1], THIRDS, status="\x1b[2J"),
            "status must be one line of at most 200 printable characters",
        ),
        (
            Proposal([1, 1, 1], THIRDS, history=[1.0, math.inf]),
            "history must be a list of finite numbers, got [1.0, inf]",
        ),
        (Proposal([1, 1, 1], [10**400, 0, 0]), "shares must be one number for each device"),
        (Proposal([1, 1, 1], [0.1j, 0.1, 0.1]), "shares must be one number for each device"),  # type: ignore[list-item]
        (Proposal([1, 1, 1], ["0.1", "0.1", "0.1"]), "shares must be one number for each device"),  # type: ignore[list-item]
        (
            Proposal(np.array([1, 1, 1], dtype="m8[s]"), THIRDS),
            "split of device 0 must be a whole number",
        ),  # type: ignore[arg-type]
        (Proposal([Unprintable(), 1, 1], THIRDS), "split of device 0 must be a whole number"),  # type: ignore[list-item]
    ],
)
def test_an_error_names_method_device_field_and_value(proposal: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        plan_proposal(Case(ALEXNET, FLEET, {"max_split": 8}), proposal)
    assert str(raised.value).startswith(f"method '{__name__}:propose'")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_share_that_is_not_a_whole_number_of_blocks_is_rejected() -> None:
    case = Case(ALEXNET, Fleet.sample(3, seed=0, cell=Cell(resource_blocks=10)), {"max_split": 8})
    assert plan_proposal(case, Proposal([4, 4, 4], [0.5, 0.3, 0.2])).shares == pytest.approx(
        [0.5, 0.3, 0.2]
    )
    with pytest.raises(
        InvalidValue,
        match=r"share of device 1 must be a multiple of 1/10, .* 10 resource blocks, got 0\.25",
    ):
        plan_proposal(case, Proposal([4, 4, 4], [0.5, 0.25, 0.2]))


def test_a_method_by_path_cannot_state_a_bound() -> None:
    case = Case(ALEXNET, FLEET, {"max_split": 8})
    ours = case.plan("equal")
    boast = Bound(ours.objective_s, "trust me")
    found = plan_proposal(
        case, ProvenProposal(ours.splits, ours.shares, objective="largest-mean", bound=boast)
    )
    assert found.lower_bound_s == case.plan("exact").lower_bound_s < ours.objective_s
    assert "trust me" not in found.bound


def scribble(problem: air.Problem) -> Proposal:
    """A method that writes into the problem that it gets."""
    options = problem.options
    for array in (options.work, options.up_bits, options.down_bits, options.server_work):
        array *= 1e-9
    problem.server_s[:] = 0
    problem.allowed.sets[:] = True
    return next_proposal[-1]  # type: ignore[no-any-return]


def test_a_method_that_modifies_its_problem_does_not_change_the_checks() -> None:
    case = Case(ALEXNET, FLEET, {"max_split": 8})
    honest = plan_proposal(case, Proposal([4, 4, 4], THIRDS))
    wrote = case.plan(f"{__name__}:scribble")
    assert (wrote.objective_s, wrote.lower_bound_s) == (honest.objective_s, honest.lower_bound_s)
    assert wrote.mean_latency_s == honest.mean_latency_s
    next_proposal[:] = [Proposal([9, 9, 9], THIRDS)]
    with pytest.raises(InvalidValue, match="split of device 0 must be from 1 to 8, got 9"):
        case.plan(f"{__name__}:scribble")


class SaysYes(str):
    """Text that equals every other."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("expected-max")


def test_an_objective_that_equals_every_other_is_taken_as_one_of_them() -> None:
    found = plan_proposal(
        Case(ALEXNET, FLEET, {"max_split": 8}),
        Proposal([4, 4, 4], THIRDS, objective=SaysYes("largest-mean")),
    )
    assert (found.objective, found.objective_s) == ("mean of the largest", found.expected_latency_s)


def test_a_proposal_cannot_take_extra_blocks_through_rounding() -> None:
    K, blocks = 5000, 10_000_000
    case = Case(
        ALEXNET, Fleet.sample(K, seed=0, cell=Cell(resource_blocks=blocks)), {"max_split": 8}
    )
    counts = np.full(K, blocks / K)
    with pytest.raises(InvalidValue, match="must be a multiple of 1/10000000"):
        plan_proposal(case, Proposal(np.full(K, 4), (counts - 0.49) / blocks))


def test_a_bound_above_a_checked_plan_is_an_internal_error() -> None:
    def wrong(problem: air.Problem) -> Proposal:
        found = METHODS["exact"](problem)
        bound = Bound(1e9, "a broken solver")
        return ProvenProposal(found.splits, found.shares, objective="largest-mean", bound=bound)

    METHODS["broken"] = wrong
    try:
        with pytest.raises(RuntimeError, match=r"a broken solver.*this is a bug in Airsplit"):
            Case(ALEXNET, FLEET, {"max_split": 8}).plan("broken")
    finally:
        del METHODS["broken"]


def test_shares_that_sum_to_one_but_for_rounding_are_accepted() -> None:
    fleet = Fleet.sample(10, seed=0)
    found = plan_proposal(
        Case(ALEXNET, fleet, {"max_split": 8}),
        Proposal(np.full(10, 4), np.full(10, 0.1 * (1 + 1e-12))),
    )
    assert found.shares == pytest.approx(np.full(10, 0.1))
    assert math.fsum(found.shares) <= 1.0


def test_splits_may_be_names_and_the_default_objective_is_the_mean_of_the_largest() -> None:
    found = plan_proposal(
        Case(ALEXNET, FLEET, {"max_split": 8}),
        Proposal(["pool1", 4, "pool2"], THIRDS, status="by hand", history=(3, 2.5)),
    )
    assert found.splits.tolist() == [4, 4, 8]
    assert (found.objective, found.objective_s) == ("mean of the largest", found.expected_latency_s)
    assert (found.status, found.history, found.iterations) == ("by hand", (3.0, 2.5), 2)
    assert (
        found.lower_bound_s
        == Case(ALEXNET, FLEET, {"max_split": 8}).plan("expected-max").lower_bound_s
    )
    assert found.bound.startswith("any splits and fixed shares within the limits; ")


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("expected-max", {}, "mean of the largest"),
        ("expected-max", {"quantile": 0.95}, "0.95 quantile of the largest"),
        ("exact", {}, "largest mean"),
        ("exact", {"device_quantile": 0.95}, "largest 0.95 quantile"),
        ("paper", {}, "largest mean"),
        ("equal", {}, "largest mean"),
        ("random", {}, "largest mean"),
    ],
)
def test_every_plan_names_its_objective_and_the_scope_of_its_bound(
    method: str, options: dict[str, Any], words: str
) -> None:
    found = air.plan(ALEXNET, FLEET, method=method, max_split=8, **options)
    assert found.objective == words
    assert found.bound.startswith("any splits and fixed shares within the limits; ")
    assert found.to_dict()["objective"] == words
    assert found.to_dict()["bound"] == found.bound


@pytest.mark.parametrize(
    "options", [{}, {"quantile": 0.9}, {"method": "exact"}, {"method": "equal"}]
)
def test_in_whole_blocks_a_bound_holds_among_whole_blocks(options: dict[str, Any]) -> None:
    fleet = Fleet.sample(3, seed=0, cell=Cell(resource_blocks=4))
    found = air.plan(ALEXNET, fleet, max_split=8, **options)
    assert found.bound.startswith("any splits and fixed whole resource blocks within the limits; ")


def test_expected_max_is_the_default() -> None:
    assert air.plan(ALEXNET, FLEET, max_split=8).method == "expected-max"
    assert air.Scenario.load("demo").plan.method == "expected-max"
    assert air.Scenario.from_toml('[model]\nname = "alexnet"\n').plan.method == "expected-max"
    assert {
        name: air.Scenario.load(name).plan.method
        for name in ("paper-alexnet", "paper-vgg16", "paper-alexnet-no-limit")
    } == {
        "paper-alexnet": "exact",
        "paper-vgg16": "exact",
        "paper-alexnet-no-limit": "exact",
    }


def test_a_method_sees_the_limits_as_splits_that_count_from_one() -> None:
    problem = Case(
        make_profile([1, 2, 3], [3, 2, 1]),
        Fleet(seconds_per_mac=1.0, fluctuation=1.0, full_band_rate_bps=[1.0, 1.0]),
    ).problem(min_split=2, max_split=[2, 3])
    assert (problem.min_split, problem.max_splits.tolist()) == (2, [2, 3])
    assert problem.compute_s(np.array([2, 3])).tolist() == [2 * 3.0, 2 * 6.0]
