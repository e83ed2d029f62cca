"""The playground's request: models, methods and settings to choose from, and their checks."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airsplit.core.errors import (
    AirsplitError,
    InvalidValue,
    require_choice,
    require_integer,
    show,
    unknown_name,
)
from airsplit.planning.methods import DEFAULT_METHOD
from airsplit.scenario.scenario import Scenario
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile, load_shipped_profile

# Models with profiles that ship with the package: title, and settings that name the model.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "alexnet": ("AlexNet, 224×224 pixels", {"model.name": "alexnet"}),
    "vgg16": ("VGG16, 224×224 pixels", {"model.name": "vgg16"}),
    "vgg16-3x32x32": (
        "VGG16, 32×32 pixels",
        {"model.name": "vgg16", "model.input_shape": [3, 32, 32]},
    ),
    "alexnet32": ("AlexNet for 32×32 pixels", {"model.name": "alexnet32"}),
    "alexnet32-1x32x32-width0.25": (
        "AlexNet for 32×32 pixels, a quarter as wide",
        {"model.name": "alexnet32", "model.arguments": {"width": 0.25, "channels": 1}},
    ),
    "resnet20": ("ResNet-20", {"model.name": "resnet20"}),
    "vit": ("Vision transformer", {"model.name": "vit"}),
    "gpt": ("GPT", {"model.name": "gpt"}),
}

METHODS = {
    "expected-max": "expected-max: mean time until all devices are done",
    "exact": "exact: mean time of the slowest device, the paper's objective",
    "paper": "paper: the paper's alternating algorithm",
    "equal": "equal: the same share for every device",
    "random": "random: random splits",
}

# The settings that a page may change. None of them names a file or code.
SETTINGS = (
    "fleet.devices",
    "fleet.mean_distance_m",
    "fleet.distance_spread",
    "fleet.seconds_per_mac",
    "fleet.seed",
    "cell.bandwidth_hz",
    "plan.method",
    "plan.max_split",
    "training.batch_size",
    "training.iterations_per_round",
)

# Larger requests would take too long for a slider.
MAX_DEVICES = 1000
MAX_LAYERS = 2000

# Where errors about a fleet name a line of the CSV, or a device.
_LINE = re.compile(r"line (\d+)")
_INDEX = re.compile(r"fleet\.\w+\[(\d+)\]|fleet device (\d+)")


class BadRow(InvalidValue):
    """One line of a CSV is invalid."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, eq=False)
class PlanRequest:
    """A request for a plan, checked.

    Attributes:
        has_own_fleet: Whether the fleet is from a CSV.
        has_own_profile: Whether the profile is from a file; the scenario's model is then no more
            than a placeholder.
    """

    scenario: Scenario
    profile: Profile
    fleet: Fleet
    has_own_fleet: bool
    has_own_profile: bool


def parse_request(content: Mapping[str, Any]) -> PlanRequest:
    """Check the content of a request.

    Args:
        content: `model` and `settings`, under their dotted names, and the texts `csv` and `profile`
            if the user loaded files. `device` is checked once there is a plan.
    """
    unknown = content.keys() - {"model", "settings", "csv", "profile", "device"}
    if unknown:
        raise InvalidValue(f"a request has no {show(min(unknown))}")
    settings = content.get("settings", {})
    if not isinstance(settings, dict):
        raise InvalidValue(f"settings must be an object, got {show(settings)}")
    for key in settings:
        if key not in SETTINGS:
            raise unknown_name("settings", str(key), SETTINGS)
    require_choice("plan.method", settings.get("plan.method", DEFAULT_METHOD), tuple(METHODS))

    text = content.get("csv")
    if text is not None:
        # The sliders of the sampled fleet keep their values, but do not apply.
        settings = {key: v for key, v in settings.items() if not key.startswith("fleet.")}
    profile, model_settings = choose_model(content.get("model", "alexnet"), content.get("profile"))
    scenario = Scenario.from_toml('[model]\nname = "alexnet"\n')
    scenario = scenario.replace(**model_settings, **settings)
    fleet = make_fleet(scenario, text)
    if len(fleet) > MAX_DEVICES:
        raise InvalidValue(
            f"the playground takes up to {MAX_DEVICES:,} devices, got {len(fleet):,}; "
            "airsplit plan takes millions"
        )
    has_own_profile = content.get("profile") is not None
    return PlanRequest(scenario, profile, fleet, text is not None, has_own_profile)


def choose_model(model: object, text: object) -> tuple[Profile, dict[str, Any]]:
    """Return the profile and the settings of a model, or of a profile's text if there is one.

    Args:
        model: One of MODELS.
        text: A profile as JSON; None to use the one that ships with the package.
    """
    if text is None:
        name = require_choice("model", model, tuple(MODELS))
        profile = load_shipped_profile(name)
        _, settings = MODELS[name]
    elif isinstance(text, str):
        profile = Profile.from_json(text)
        # Any model will do, since nothing but the profile is planned with.
        settings = {"model.name": "alexnet"}
    else:
        raise InvalidValue("profile must be the text of a file that airsplit profile --json wrote")

    if len(profile) > MAX_LAYERS:
        raise InvalidValue(
            f"the playground takes profiles of up to {MAX_LAYERS:,} splits, "
            f"this one has {len(profile):,}"
        )
    return profile, settings


def make_fleet(scenario: Scenario, text: object) -> Fleet:
    """Return the fleet of a CSV, or the scenario's if there is none.

    Raises:
        BadRow: A line of the CSV is invalid.
    """
    if text is None:
        require_integer("fleet.devices", scenario.fleet.devices, low=1, high=MAX_DEVICES)
        return scenario.make_fleet()
    if not isinstance(text, str):
        raise InvalidValue("csv must be the text of a fleet file")
    try:
        fleet = Fleet.parse(text, cell=scenario.make_cell())
        # Raises for a device that has no channel at all.
        fleet.link()
    except AirsplitError as error:
        line = find_line(str(error), text)
        if line is None:
            raise
        raise BadRow(str(error), line) from None
    return fleet


def find_line(message: str, text: str) -> int | None:
    """Return the number of the CSV's line that an error is about, from 1; None if unknown.

    >>> text = "distance_m,fluctuation\\n100,1e9\\n\\n-5,1e9\\n"
    >>> find_line("fleet.distance_m[1] must be > 0", text), find_line("line 3 is short", text)
    (4, 3)
    """
    if match := _LINE.search(message):
        return int(match[1])
    if match := _INDEX.search(message):
        reader = csv.reader(io.StringIO(text))
        # A quoted cell may have several lines, and empty rows are no devices. The first row is
        # the header, hence + 1 below.
        lines = [reader.line_num for row in reader if row]
        return lines[int(match[1] or match[2]) + 1]
    return None
