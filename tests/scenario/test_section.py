"""Section: strict tables, inherited settings, one-line errors."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

import airsplit as air
from airsplit.core.declared_settings import number
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.section import INHERITED, Section
from airsplit.scenario.settings import FleetSettings

MODEL = '[model]\nname = "alexnet"\n'


def read(text: str) -> Scenario:
    return Scenario.from_toml(MODEL + text)


def draw_dish(width_m: Annotated[float, number(above=0)] = 1.5, kind: str = "round") -> None:
    """Draw a dish.

    Args:
        width_m: Width.
        kind: Kind of the dish.
    """


class DishSettings(Section):
    """A table that is in no scenario.

    Attributes:
        kind: Kind in a scenario.
    """

    source = draw_dish
    width_m: float = INHERITED
    kind: str = "flat"


def test_a_setting_inherits_default_rule_and_help_from_its_source() -> None:
    settings = DishSettings.declarations()
    width = settings["width_m"]
    assert width.rule is not None
    assert (width.default, width.rule.words, width.help) == (1.5, "number > 0", "Width.")
    assert (settings["kind"].default, settings["kind"].help) == ("flat", "Kind in a scenario.")
    assert DishSettings().width_m == 1.5
    with pytest.raises(air.InvalidValue, match=r"width_m must be a finite number > 0, got 0\.0"):
        DishSettings(width_m=0)


def test_a_table_alone_raises_the_same_errors():
    with pytest.raises(
        air.InvalidValue, match=r"fleet\.devices must be a whole number, got 'many'"
    ):
        FleetSettings(devices="many")


def test_settings_cannot_be_changed_in_place():
    scenario = read("")
    with pytest.raises(ValueError, match="frozen"):
        scenario.fleet.devices = 3


def test_all_settings_that_do_not_apply_are_named_in_one_error():
    with pytest.raises(
        air.InvalidValue,
        match=r"fleet\.devices and fleet\.file exclude .*, got 3; likewise fleet\.mean_distance_m$",
    ):
        read('[fleet]\nfile = "a.csv"\ndevices = 3\nmean_distance_m = 9.0\n')


@pytest.mark.parametrize(
    ("table", "key", "built_in", "words"),
    [
        ("cell", "path_loss", "free-space", "a path loss of your own"),
        ("plan", "method", "exact", "a method of your own"),
        ("training", "loss", "cross-entropy", "a loss of your own"),
        ("training", "metric", "accuracy", "a metric of your own"),
        ("training", "partition", "shards", "a partition of your own"),
    ],
)
def test_only_code_by_path_takes_arguments(table: str, key: str, built_in: str, words: str) -> None:
    name = f"{table}.{key}"
    plain = Scenario.from_toml(MODEL)
    custom = plain.replace(**{name: "mine:code", f"{name}_arguments.level": 0.5})
    assert getattr(getattr(custom, table), f"{key}_arguments") == {"level": 0.5}
    assert Scenario.from_toml(custom.to_toml()) == custom
    assert custom.code_paths() == {name: "mine:code"}

    restored = custom.replace(**{name: built_in})
    assert getattr(getattr(restored, table), f"{key}_arguments") == {}
    message = rf"{table}\.{key}_arguments is for {words}, {table}\.{key} = .package\.module"
    for change in (f"{name}_arguments.level", f"{name}_arguments"):
        value: Any = 0.5 if change.endswith("level") else {"level": 0.5}
        with pytest.raises(air.InvalidValue, match=message):
            plain.replace(**{name: built_in, change: value})
    with pytest.raises(air.InvalidValue, match=rf"{key}_arguments\.level must be a finite number"):
        custom.replace(**{f"{name}_arguments.level": float("nan")})
