"""Proposal: the result of a planning method, and the check that it passes before it becomes a plan.

A method proposes splits and shares and names its objective. It states no latency, no value of the
objective and no bound: the package computes those, so that a plan's certificate never rests on a
method's word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import InvalidValue, show, unknown_name
from airsplit.planning.arguments import hint_permission, name_inputs
from airsplit.planning.blocks import shares_of_blocks
from airsplit.planning.problem import MOST_S, Problem
from airsplit.system.latency import LatencyLaw

# The objectives of a method, each with the argument of the problem that it needs.
OBJECTIVES: dict[str, str | None] = {
    "expected-max": None,
    "largest-mean": None,
    "quantile": "quantile",
    "device-quantile": "device_quantile",
}

# A sum of shares that exceeds one by this little was meant to be one.
SUM_TOLERANCE = 1e-9

# A share that is this close to a number of resource blocks was meant to be that.
BLOCK_TOLERANCE = 1e-6

LONGEST_STATUS = 200


@dataclass(frozen=True, eq=False)
class Proposal:
    """Splits and shares that a planning method proposes, and its objective.

    Attributes:
        splits: The split of each device, counted from one, or its name.
        shares: Each device's share of the band; together at most one.
        objective: "expected-max", "largest-mean", "quantile" or "device-quantile".
        status: How the method ended, in a few words.
        history: The objective after each iteration of the method, if it iterates.
    """

    splits: Sequence[int | str] | Ints
    shares: Sequence[float] | Floats
    objective: str = field(default="expected-max", kw_only=True)
    status: str = field(default="", kw_only=True)
    history: Sequence[float] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Bound:
    """A time that no plan within the problem's limits beats, and how that was proven."""

    lower_s: float
    how: str


@dataclass(frozen=True, eq=False)
class ProvenProposal(Proposal):
    """A proposal of one of our own solvers, whose search has proven a bound on the way."""

    bound: Bound = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class CheckedProposal:
    """A proposal that satisfies every rule, in the solvers' terms: rows count from zero."""

    rows: Ints
    shares: Floats
    objective: str
    status: str
    history: tuple[float, ...]


def describe_objective(problem: Problem, objective: str) -> str:
    """Return an objective in words; "the largest" is the latency of the last device.

    "mean of the largest" is E[max_k τ_k], "largest mean" is max_k E[τ_k].
    """
    words = {
        "expected-max": "mean of the largest",
        "largest-mean": "largest mean",
        "quantile": f"{problem.quantile} quantile of the largest",
        "device-quantile": f"largest {problem.device_quantile} quantile",
    }
    return words[objective]


def objective_s(problem: Problem, checked: CheckedProposal, law: LatencyLaw) -> float:
    """Return the value of a proposal's objective.

    Args:
        law: The law of an iteration's latency under the proposal.
    """
    if checked.objective == "largest-mean":
        return problem.worst_s(checked.rows, checked.shares, 1.0)
    if checked.objective == "device-quantile":
        return problem.worst_s(checked.rows, checked.shares, problem.risk)
    if checked.objective == "quantile" and problem.quantile is not None:
        return law.max_quantile_s(problem.quantile)
    return law.expected_max_s


def check_proposal(problem: Problem, method: str, proposal: object) -> CheckedProposal:
    """Raise one line with method, device, field, value and rule if a proposal breaks a rule."""
    who = f"method {method!r}"
    if not isinstance(proposal, Proposal):
        raise InvalidValue(
            f"{who} must return an airsplit.Proposal(splits, shares), got {show(proposal)}"
        )
    # Each field is read once: what is checked is what becomes the plan.
    objective = _check_objective(problem, who, proposal.objective)
    status = proposal.status
    if not isinstance(status, str) or not status.isprintable() or len(status) > LONGEST_STATUS:
        raise InvalidValue(
            f"{who}: status must be one line of at most {LONGEST_STATUS} printable characters, "
            f"got {show(status)}"
        )
    history = _to_floats(proposal.history)
    if history is None or not np.isfinite(history).all():
        raise InvalidValue(
            f"{who}: history must be a list of finite numbers, got {show(proposal.history)}"
        )

    rows = check_splits(problem, who, proposal.splits)
    shares = check_shares(problem, who, proposal.shares)
    if problem.blocks is not None:
        shares = check_blocks(problem, who, shares, problem.blocks)
    with np.errstate(all="ignore"):
        latency_s = problem.transmit_s(rows, shares) + problem.busy_s(rows, 1.0)
        is_finite = latency_s < MOST_S
    if not is_finite.all():
        # Such as with no share of the band.
        k = int(np.flatnonzero(~is_finite)[0])
        raise InvalidValue(
            f"{who}: share of device {problem.fleet.device_name(k)} must be enough to send its "
            f"activations within {MOST_S:g} s, got {show(shares[k])}"
        )
    return CheckedProposal(rows, shares, objective, status, tuple(history.tolist()))


def _check_objective(problem: Problem, who: str, given: object) -> str:
    """Return the name of an objective that the problem has."""
    # The known name, not the given object: a subclass of str may compare and print as it likes.
    matches = [known for known in OBJECTIVES if isinstance(given, str) and known == given]
    if not matches:
        raise unknown_name(f"{who}: objective", given, OBJECTIVES)
    objective = matches[0]
    option = OBJECTIVES[objective]
    if option is not None and getattr(problem, option) is None:
        raise InvalidValue(f'{who}: objective "{objective}" needs {option}, which is not given')
    return objective


def _to_floats(given: Any) -> Floats | None:
    """Return real numbers as an array of their own; None if they are something else."""
    try:
        entries = np.asarray(given)
    except (TypeError, ValueError, OverflowError):
        # Lists of different lengths, among others.
        return None
    if entries.ndim != 1 or (entries.size and entries.dtype.kind not in "fiu"):
        return None
    return entries.astype(np.float64)


def check_splits(problem: Problem, who: str, splits: Any) -> Ints:
    """Return one allowed row for each device."""
    entries = _require_one_for_each(problem, who, "splits", splits)
    is_array = isinstance(entries, np.ndarray) and entries.dtype.kind in "iu" and entries.ndim == 1
    if is_array and entries.min() >= 1 and entries.max() <= len(problem.options):
        # Numbers of splits, without a look at each: a fleet may have a million devices.
        rows: Ints = entries.astype(np.int64) - 1
    else:
        listed = entries.tolist() if isinstance(entries, np.ndarray) else entries
        names = map(problem.fleet.device_name, range(problem.devices))
        numbers = [
            problem.profile.split_of(split, f"{who}: split of device {name}")
            for split, name in zip(listed, names, strict=True)
        ]
        rows = np.array(numbers) - 1

    is_allowed = problem.allowed.includes(rows)
    if not is_allowed.all():
        k = int(np.flatnonzero(~is_allowed)[0])
        raise _refusal(problem, who, k, int(rows[k]))
    return rows


def _refusal(problem: Problem, who: str, k: int, row: int) -> InvalidValue:
    """Return why device k may not take a row."""
    field = f"{who}: split of device {problem.fleet.device_name(k)}"
    if not problem.profile.permitted_splits(problem.raw_inputs)[row]:
        names = problem.profile.raw_inputs[row]
        return InvalidValue(
            f"{field}, {row + 1} ({problem.profile.names[row]}), would send {name_inputs(names)} "
            "of the model to the server unchanged; take another split, or "
            f"{hint_permission(names)}"
        )
    return InvalidValue(
        f"{field} must be from {problem.min_split} to {problem.max_splits[k]}, got {row + 1}; "
        "see min_split, max_split and memory_bytes"
    )


def check_shares(problem: Problem, who: str, shares: Any) -> Floats:
    """Return shares that sum to at most one in any order of summation."""
    entries = _to_floats(_require_one_for_each(problem, who, "shares", shares))
    if entries is None:
        raise InvalidValue(f"{who}: shares must be one number for each device, got {show(shares)}")

    is_valid = np.isfinite(entries) & (entries >= 0)
    if not is_valid.all():
        k = int(np.flatnonzero(~is_valid)[0])
        raise InvalidValue(
            f"{who}: share of device {problem.fleet.device_name(k)} must be a finite number ≥ 0, "
            f"got {show(entries[k])}"
        )
    # Shares may be as large as 1e308 each: their sum is infinite, and too large.
    with np.errstate(over="ignore"):
        total = float(entries.sum())
    if total > 1 + SUM_TOLERANCE:
        raise InvalidValue(
            f"{who}: shares must sum to at most 1, got {total:.12g}; divide them by their sum"
        )
    # Blocks are counted, so that they are not scaled.
    room = 1 - problem.devices * float(np.finfo(np.float64).eps)
    if problem.blocks is not None or total <= room:
        return entries
    return entries * (room / total)


def check_blocks(problem: Problem, who: str, shares: Floats, blocks: int) -> Floats:
    """Return shares that are whole resource blocks exactly."""
    counts = np.round(shares * blocks)
    is_whole = np.abs(shares * blocks - counts) <= BLOCK_TOLERANCE
    if not is_whole.all():
        k = int(np.flatnonzero(~is_whole)[0])
        raise InvalidValue(
            f"{who}: share of device {problem.fleet.device_name(k)} must be a multiple of "
            f"1/{blocks}, because the cell has {blocks} resource blocks, got {show(shares[k])}"
        )
    if counts.sum() > blocks:
        raise InvalidValue(
            f"{who}: shares must be at most {blocks} resource blocks together, "
            f"got {counts.sum():.0f}"
        )
    return shares_of_blocks(counts.astype(np.int64), blocks)


def _require_one_for_each(problem: Problem, who: str, field: str, given: Any) -> Any:
    """Return a sequence with one entry for each device."""
    is_listed = isinstance(given, list | tuple | range) or (
        isinstance(given, np.ndarray) and given.ndim > 0
    )
    if not is_listed:
        raise InvalidValue(
            f"{who}: {field} must be a list or an array with one entry for each device, "
            f"got {show(given)}"
        )
    if len(given) != problem.devices:
        raise InvalidValue(
            f"{who}: {field} has {len(given)} entries for {problem.devices} devices; "
            "it needs one for each"
        )
    return given
