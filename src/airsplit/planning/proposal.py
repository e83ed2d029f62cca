"""Proposals: what a planning method returns, and the check that it passes before it becomes a plan.

A method proposes splits and shares and says what it aims at. It states no latency, no objective and
no bound: the package computes those, so that a plan's certificate never rests on a method's word.
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

# What a method may aim at, and what the option of the problem is that it needs.
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
    """Splits and shares that a planning method proposes, and what it aims at.

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
    """A time that no plan within the problem's limits beats in an objective, and how that was proven."""

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


def objective_words(problem: Problem, objective: str) -> str:
    """Return an objective as people read it, where "the largest" is the latency of the last device.

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
    """Return the value of a proposal's objective; `law` is that of an iteration's latency."""
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
    objective = _checked_objective(problem, who, proposal.objective)
    status = proposal.status
    if not isinstance(status, str) or not status.isprintable() or len(status) > LONGEST_STATUS:
        raise InvalidValue(
            f"{who}: status must be one line of at most {LONGEST_STATUS} printable characters, got {show(status)}"
        )
    history = _numbers(proposal.history)
    if history is None or not np.isfinite(history).all():
        raise InvalidValue(
            f"{who}: history must be a list of finite numbers, got {show(proposal.history)}"
        )

    rows = _checked_rows(problem, who, proposal.splits)
    shares = _checked_shares(problem, who, proposal.shares)
    _require_finite_latency(problem, who, rows, shares)
    return CheckedProposal(rows, shares, objective, status, tuple(history.tolist()))


def _checked_objective(problem: Problem, who: str, given: object) -> str:
    """Return the name of an objective that the problem has."""
    objective = next(
        (known for known in OBJECTIVES if isinstance(given, str) and known == given), None
    )
    if objective is None:
        raise unknown_name(f"{who}: objective", given, OBJECTIVES)
    option = OBJECTIVES[objective]
    if option is not None and getattr(problem, option) is None:
        raise InvalidValue(f'{who}: objective "{objective}" needs {option}, which is not given')
    return objective


def _numbers(given: Any) -> Floats | None:
    """Return real numbers as an array of their own; None if they are something else."""
    try:
        entries = np.asarray(given)
    except (TypeError, ValueError, OverflowError):  # lists of different lengths
        return None
    if entries.ndim != 1 or (entries.size and entries.dtype.kind not in "fiu"):
        return None
    return entries.astype(np.float64)


def _checked_rows(problem: Problem, who: str, splits: Any) -> Ints:
    """Return one allowed row for each device."""
    entries = _one_for_each(problem, who, "splits", splits)
    if _are_splits(problem, entries):
        rows = np.asarray(entries).astype(np.int64) - 1
    else:
        entries = entries.tolist() if isinstance(entries, np.ndarray) else entries
        fields = (
            f"{who}: split of device {problem.fleet.device_name(k)}" for k in range(problem.devices)
        )
        rows = (
            np.array(
                [problem.profile.split_of(*pair) for pair in zip(entries, fields, strict=True)]
            )
            - 1
        )

    _require_allowed(problem, who, rows)
    return rows


def _require_allowed(problem: Problem, who: str, rows: Ints) -> None:
    """Raise if a device may not take its row, and say why."""
    refused = np.flatnonzero(~problem.allowed.includes(rows))
    if not len(refused):
        return
    k = int(refused[0])
    row = int(rows[k])
    field = f"{who}: split of device {problem.fleet.device_name(k)}"
    if not problem.profile.permitted_splits(problem.raw_inputs)[row]:
        names = problem.profile.raw_inputs[row]
        raise InvalidValue(
            f"{field}, {row + 1} ({problem.profile.names[row]}), would send {name_inputs(names)} "
            "of the model to the server unchanged; take another split, or "
            f"{hint_permission(names)}"
        )
    raise InvalidValue(
        f"{field} must be from {problem.min_split} to {problem.max_splits[k]}, got {row + 1}; "
        "see min_split, max_split and memory_bytes"
    )


def _are_splits(problem: Problem, entries: Any) -> bool:
    """Return whether these are splits in numbers, told without a look at each: a fleet may have a million devices."""
    if not isinstance(entries, np.ndarray) or entries.dtype.kind not in "iu" or entries.ndim != 1:
        return False
    return bool(entries.min() >= 1 and entries.max() <= len(problem.profile))


def _checked_shares(problem: Problem, who: str, shares: Any) -> Floats:
    """Return shares that sum to at most one in whatever order they are added up."""
    entries = _one_for_each(problem, who, "shares", shares)
    found = _numbers(entries)
    if found is None:
        raise InvalidValue(f"{who}: shares must be one number for each device, got {show(shares)}")

    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(bad):
        k = int(bad[0])
        raise InvalidValue(
            f"{who}: share of device {problem.fleet.device_name(k)} must be a finite number ≥ 0, got {show(found[k])}"
        )
    with np.errstate(over="ignore"):
        total = float(found.sum())
    if total > 1 + SUM_TOLERANCE:
        raise InvalidValue(
            f"{who}: shares must sum to at most 1, got {total:.12g}; divide them by their sum"
        )
    if problem.blocks is not None:
        return _whole_blocks(problem, who, found, problem.blocks)
    room = 1 - problem.devices * float(np.finfo(np.float64).eps)
    return found if total <= room else found * (room / total)


def _whole_blocks(problem: Problem, who: str, shares: Floats, blocks: int) -> Floats:
    """Return shares that are whole resource blocks exactly."""
    counts = np.round(shares * blocks)
    bad = np.flatnonzero(np.abs(shares * blocks - counts) > BLOCK_TOLERANCE)
    if len(bad):
        k = int(bad[0])
        raise InvalidValue(
            f"{who}: share of device {problem.fleet.device_name(k)} must be a multiple of 1/{blocks}, because the cell has {blocks} "
            f"resource blocks, got {show(shares[k])}"
        )
    if counts.sum() > blocks:
        raise InvalidValue(
            f"{who}: shares must be at most {blocks} resource blocks together, got {counts.sum():.0f}"
        )
    return shares_of_blocks(counts.astype(np.int64), blocks)


def _one_for_each(problem: Problem, who: str, field: str, given: Any) -> Any:
    """Return a sequence with one entry for each device."""
    listed = isinstance(given, list | tuple | range) or (
        isinstance(given, np.ndarray) and given.ndim > 0
    )
    if not listed:
        raise InvalidValue(
            f"{who}: {field} must be a list or an array with one entry for each device, got {show(given)}"
        )
    if len(given) != problem.devices:
        raise InvalidValue(
            f"{who}: {field} has {len(given)} entries for {problem.devices} devices; it needs one for each"
        )
    return given


def _require_finite_latency(problem: Problem, who: str, rows: Ints, shares: Floats) -> None:
    """Raise if a device would never be done, such as with no share of the band."""
    with np.errstate(all="ignore"):
        latency = problem.transmit_s(rows, shares) + problem.busy_s(rows, 1.0)
        never = np.flatnonzero(~(latency < MOST_S))
    if len(never):
        k = int(never[0])
        raise InvalidValue(
            f"{who}: share of device {problem.fleet.device_name(k)} must be enough to send its activations within {MOST_S:g} s, "
            f"got {show(shares[k])}"
        )
