"""Settings that dataclasses and functions declare: rules, defaults and help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Annotated, Any

import pytest

from airsplit.core.declared_settings import (
    Rule,
    check_arguments,
    check_settings,
    flag,
    number,
    one_of,
    parse_helps,
    read_settings,
    whole_number,
)
from airsplit.core.errors import InvalidValue, UnknownName


@dataclass
class Antenna:
    """An antenna.

    Attributes:
        gain_db: Gain, in every
            direction.
        kind: Kind of the antenna.
    """

    gain_db: Annotated[float | None, number(low=0, high=60)]
    kind: Annotated[str, one_of(("dipole", "patch"))] = "dipole"
    extras: Mapping[str, Any] = field(default_factory=dict)


@check_arguments("mast")
def build(
    height_m: Annotated[float, number(above=0, word="tall")], *, sides: int = 3, guyed: bool = True
) -> str:
    """Build a mast.

    Args:
        height_m, sides: Its size.

    Returns:
        guyed: A word.
    """
    return f"{height_m} {sides}"


def test_settings_of_a_dataclass_have_rule_default_and_help() -> None:
    settings = read_settings(Antenna)
    assert list(settings) == ["gain_db", "kind", "extras"]
    gain = settings["gain_db"]
    assert gain.rule is not None
    assert (gain.rule.words, gain.help) == ("number >= 0 and <= 60", "Gain, in every direction.")
    assert gain.default is MISSING
    assert (settings["kind"].default, settings["kind"].type) == ("dipole", str)
    assert (settings["extras"].default, settings["extras"].rule) == ({}, None)


def test_settings_of_a_decorated_function_are_those_of_the_function() -> None:
    settings = read_settings(build)
    assert [(s.name, s.default, s.help) for s in settings.values()] == [
        ("height_m", MISSING, "Its size."),
        ("sides", 3, "Its size."),
        ("guyed", True, ""),
    ]


def test_values_are_checked_by_the_rules_of_their_names() -> None:
    check_settings("antenna", Antenna, {"gain_db": 3, "kind": "patch", "colour": "red"})
    check_settings("antenna", Antenna, {"gain_db": None})
    with pytest.raises(InvalidValue, match=r"^antenna\.gain_db must be a finite number >= 0"):
        check_settings("antenna", Antenna, {"gain_db": -1})
    with pytest.raises(UnknownName, match=r"^kind 'pach' is not known; did you mean 'patch'"):
        check_settings("", Antenna, {"kind": "pach"})


def test_none_is_left_to_the_type() -> None:
    with pytest.raises(UnknownName, match=r"^antenna\.kind None is not known"):
        check_settings("antenna", Antenna, {"kind": None})


def test_arguments_are_checked_wherever_they_stand_in_the_call() -> None:
    assert build(4.0, sides=4) == build(height_m=4.0, sides=4) == "4.0 4"
    assert build("tall") == "tall 3"  # type: ignore[arg-type]
    for wrong in ({"height_m": 0}, {"height_m": "small"}, {"height_m": None}):
        with pytest.raises(InvalidValue, match=r'^mast\.height_m must be .*; or write "tall"$'):
            build(**wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing a required argument: 'height_m'"):
        build()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("rule", "good", "bad", "words"),
    [
        (whole_number(low=0, high=16), 16, 17, "whole number from 0 to 16"),
        (whole_number(low=1), 1, True, "whole number >= 1"),
        (number(), -1.5, float("inf"), "number"),
        (number(low=0, word="counted"), "counted", "guessed", 'number >= 0, or "counted"'),
        (one_of(("a", "b"), or_path=True), "mine:a", "c", '"a", "b", or "package.module:name"'),
        (flag(), False, 0, "true or false"),
    ],
    # The default ids have addresses in them, which differ between processes of xdist.
    ids=lambda value: getattr(value, "words", str(value)),
)
def test_a_rule_accepts_what_its_words_say(
    rule: Rule, good: object, bad: object, words: str
) -> None:
    assert rule.words == words
    assert rule.check is not None
    rule.check("field", good)
    with pytest.raises(InvalidValue, match=r"^field "):
        rule.check("field", bad)


def test_a_docstring_without_entries_gives_no_help() -> None:
    assert parse_helps("") == parse_helps("Nothing.") == {}
    assert parse_helps("Args:\n    a: First.\n\n    b: Second.") == {"a": "First.", "b": "Second."}
