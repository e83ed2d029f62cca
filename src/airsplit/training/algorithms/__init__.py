"""The learning algorithms by name: the only registry of them."""

from __future__ import annotations

from dataclasses import replace

from airsplit.core.errors import InvalidValue, show
from airsplit.core.plugins import import_object, wrap_user_code
from airsplit.training.algorithms.algorithm import Algorithm
from airsplit.training.algorithms.fedavg import FEDAVG
from airsplit.training.algorithms.sfl import SFL
from airsplit.training.algorithms.split_learning import SPLIT_LEARNING
from airsplit.training.algorithms.splitfed import SPLITFED_V1, SPLITFED_V2

ALGORITHMS: dict[str, Algorithm] = {
    each.name: each for each in (SFL, FEDAVG, SPLIT_LEARNING, SPLITFED_V1, SPLITFED_V2)
}


def algorithm_of(name: str) -> Algorithm:
    """An algorithm by its name, or the one that "package.module:NAME" names.

    >>> algorithm_of("fedavg").in_turns
    False
    """
    if ":" not in name:
        return ALGORITHMS[name]
    found = import_object(name, "training.algorithm")
    if not isinstance(found, Algorithm):
        raise InvalidValue(
            f"training.algorithm {name!r} must be an airsplit.training.algorithms.algorithm.Algorithm, got {show(found)}"
        )
    what = f"training.algorithm {name!r}"
    return replace(
        found,
        boundary=wrap_user_code(found.boundary, what),
        round=wrap_user_code(found.round, what),
        charges=wrap_user_code(found.charges, what),
    )
