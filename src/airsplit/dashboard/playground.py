"""The playground: what sliders are set to in, a plan and what it gains out.  Plain values on both sides; the web is elsewhere."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from airsplit.core.errors import (
    AirsplitError,
    InvalidValue,
    require_choice,
    require_integer,
    show,
    unknown_name,
)
from airsplit.core.formatting import (
    format_percent,
    format_percent_bound,
    format_quantity,
    format_seconds,
    pluralize,
)
from airsplit.planning.methods import DEFAULT_METHOD, plan
from airsplit.planning.paper_algorithms import stopping_table
from airsplit.planning.plan import WORDS_OF_A_BOUND, Plan
from airsplit.planning.round_time import fedavg_round
from airsplit.scenario.scenario import Scenario
from airsplit.system.compute import mean_compute_s
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile, RawInputs, load_shipped_profile

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
"""Models whose profiles ship with the package: what people read, and the settings that name it."""

METHODS = {
    "expected-max": "expected-max: mean of the largest, what an iteration takes",
    "exact": "exact: largest mean, the paper's objective",
    "paper": "paper: the paper's alternation",
    "equal": "equal: the same share for all",
    "random": "random: random splits",
}

SLIDERS = (
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
"""Settings that a page may change.  No files and no names of code among them."""

PLAN_KEYS = ("method", "status", "objective", "mean_latency_s", "expected_latency_s", "batch_size")
MOST_DEVICES = 1000
MOST_LAYERS = 2000
_LINE = re.compile(r"line (\d+)")
_INDEX = re.compile(r"fleet\.\w+\[(\d+)\]|fleet device (\d+)")


@dataclass(frozen=True, eq=False)
class Asked:
    """What a page asks for, checked."""

    scenario: Scenario
    profile: Profile
    fleet: Fleet
    from_csv: bool
    own_profile: bool


class BadRow(InvalidValue):
    """Something is wrong with one line of a CSV."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def list_choices() -> dict[str, Any]:
    """What can be chosen, for the page's menus."""
    models = [
        {"id": key, "title": title} | _layers(load_shipped_profile(key))
        for key, (title, _) in MODELS.items()
    ]
    return {"models": models, "methods": METHODS, "most_devices": MOST_DEVICES}


def read(asked: Mapping[str, Any]) -> Asked:
    """Check what a page sent: `model`, `settings` under their dotted names, and where somebody brought them `csv` and `profile`.

    `device`, the number of the one that is chosen, is checked where the plan is known.
    """
    unknown = asked.keys() - {"model", "settings", "csv", "profile", "device"}
    if unknown:
        raise InvalidValue(f"a request has no {show(min(unknown))}")
    settings = asked.get("settings", {})
    if not isinstance(settings, dict):
        raise InvalidValue(f"settings must be an object, got {show(settings)}")
    for key in settings:
        if key not in SLIDERS:
            raise unknown_name("settings", str(key), SLIDERS)
    require_choice("plan.method", settings.get("plan.method", DEFAULT_METHOD), tuple(METHODS))
    own = asked.get("profile")
    if own is not None and not isinstance(own, str):
        raise InvalidValue("profile must be the text of a file that airsplit profile --json wrote")
    model = asked.get("model", "alexnet")
    if own is None:
        require_choice("model", model, tuple(MODELS))
    profile = load_shipped_profile(model) if own is None else Profile.from_json(own)
    if len(profile) > MOST_LAYERS:
        raise InvalidValue(
            f"the playground takes profiles of up to {MOST_LAYERS:,} splits, this one has {len(profile):,}"
        )
    named = (
        MODELS[model][1] if own is None else {"model.name": "alexnet"}
    )  # any: its profile is the one that was brought
    text = asked.get("csv")
    scenario = Scenario.from_toml('[model]\nname = "alexnet"\n').replace(
        **named, **_without_fleet(settings, text is not None)
    )
    fleet = _fleet(scenario, text)
    if len(fleet) > MOST_DEVICES:
        raise InvalidValue(
            f"the playground takes up to {MOST_DEVICES:,} devices, got {len(fleet):,}; airsplit plan takes millions"
        )
    return Asked(scenario, profile, fleet, text is not None, own is not None)


def _without_fleet(settings: Mapping[str, Any], from_csv: bool) -> dict[str, Any]:
    return {
        key: value for key, value in settings.items() if not (from_csv and key.startswith("fleet."))
    }


def _fleet(scenario: Scenario, text: Any) -> Fleet:
    if text is None:
        require_integer("fleet.devices", scenario.fleet.devices, low=1, high=MOST_DEVICES)
        return scenario.make_fleet()
    if not isinstance(text, str):
        raise InvalidValue("csv must be the text of a fleet file")
    try:
        fleet = Fleet.parse(text, cell=scenario.make_cell())
        fleet.link()  # says which device has no channel at all
    except AirsplitError as error:
        line = _line_of(str(error), text)
        if line is None:
            raise
        raise BadRow(str(error), line) from None
    return fleet


def _line_of(message: str, text: str) -> int | None:
    """The line of a CSV that an error is about, from one."""
    if found := _LINE.search(message):
        return int(found[1])
    if found := _INDEX.search(message):
        reader = csv.reader(io.StringIO(text))
        filled = [reader.line_num for row in reader if row]
        return filled[int(found[1] or found[2]) + 1]
    return None


# ---- the answer ----------------------------------------------------------------------------------------------------------------
def plan_request(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The plan that was asked for, what others would take, the same as a scenario to be run, and where one is chosen, about a device.

    Headline, bars and best possible are one quantity, whatever the method aims at: the mean of the largest latency, E[max].
    """
    start = time.perf_counter()
    given = read(asked)
    chosen = _plan(given, given.scenario.plan.method)
    took = time.perf_counter() - start
    plans = {
        method: chosen if method == chosen.method else _plan(given, method) for method in METHODS
    }
    iterations = given.scenario.training.iterations_per_round
    fedavg = fedavg_round(
        given.profile,
        given.fleet,
        iterations=iterations,
        batch_size=given.scenario.training.batch_size,
    )
    rounds = {method: iterations * made.expected_latency_s for method, made in plans.items()}
    best = _best_possible(chosen, plans["expected-max"])
    return {
        "planning_s": took,
        "layers": _layers(given.profile, given.scenario.model.raw_inputs)
        | {"limit": _limit(given)},
        "devices": _devices(given, chosen),
        "plan": {key: getattr(chosen, key) for key in PLAN_KEYS},
        "best_possible": best,
        "round_s": rounds | {"fedavg": fedavg.expected_max_s},
        "said": _said(given, chosen, best, rounds, fedavg.expected_max_s),
        "export": _exported(given),
        "device": None if asked.get("device") is None else _device(given, chosen, asked["device"]),
    }


def _plan(given: Asked, method: str) -> Plan:
    arguments = given.scenario.plan_arguments(method)
    return plan(
        given.profile,
        given.fleet,
        **arguments | ({"certify": False} if method == "expected-max" else {}),
    )


def _best_possible(chosen: Plan, expected_max: Plan) -> dict[str, Any]:
    """Return how far a plan is from the least mean of the largest latency that fixed shares allow."""
    gap = max(0.0, chosen.expected_latency_s / expected_max.lower_bound_s - 1)
    kept = {
        "objective": expected_max.objective,
        "lower_bound_s": expected_max.lower_bound_s,
        "bound": expected_max.bound,
    }
    return kept | {"gap": gap, "at_most": format_percent_bound(gap)}


def _layers(profile: Profile, raw_inputs: RawInputs = "refuse") -> dict[str, Any]:
    return {"names": list(profile.names), "deepest": profile.default_max_split(raw_inputs)}


def _limit(given: Asked) -> int:
    scenario = given.scenario
    return given.profile.resolve_max_split(
        scenario.plan.max_split,  # type: ignore[arg-type]
        scenario.model.raw_inputs,
        "plan.max_split",
    )


def _devices(given: Asked, made: Plan) -> dict[str, Any]:
    fleet = given.fleet
    columns = {
        "splits": made.splits,
        "shares": made.shares,
        "compute_s": made.compute_s,
        "transmit_s": made.transmit_s,
        "latency_s": made.latency_s,
        "seconds_per_mac": fleet.seconds_per_mac,
        "full_band_rate_bps": fleet.rate_bps(1.0),
    }
    return {"names": [fleet.device_name(k) for k in range(len(fleet))]} | {
        key: column.tolist() for key, column in columns.items()
    }


def _said(
    given: Asked, made: Plan, best: Mapping[str, Any], rounds: Mapping[str, float], fedavg_s: float
) -> dict[str, str]:
    """The plan in sentences."""
    splits, batch = sorted(set(made.splits.tolist())), pluralize(made.batch_size, "sample")
    names = [given.profile.names[split - 1] for split in splits]
    where = (
        f"all after {names[0]}"
        if len(names) == 1
        else f"between {names[0]} and {names[-1]}, at {len(names)} different layers"
    )
    ours = rounds[made.method]
    return {
        "result": f"{pluralize(len(made), 'device')} cut the model {where}. An iteration of {batch} takes {format_seconds(made.expected_latency_s)} "
        f"on average until the last one is done.",
        "bound": f"It takes at most {best['at_most']} longer than the best possible plan ({best['objective']}). The bound holds against "
        f"{best['bound']}. {WORDS_OF_A_BOUND} The method {made.method} minimizes the {made.objective}.",
        "gain": " ".join(
            _compared(name, ours, theirs)
            for name, theirs in (
                ("With equal shares, a round", rounds["equal"]),
                ("With federated averaging, the whole model on every device, a round", fedavg_s),
            )
            if theirs != ours
        ),
    }


def _compared(name: str, ours: float, theirs: float) -> str:
    """
    >>> _compared("It", 2.0, 5.0), _compared("It", 2.0, 1.0)
    ('It would take 2.5 times as long.', 'It would take 0.50 times as long.')
    """
    return f"{name} would take {theirs / ours:.{1 if theirs > ours else 2}f} times as long."


def _exported(given: Asked) -> dict[str, str]:
    """The same as a scenario file and a command; without what only the page has."""
    if given.own_profile:
        note = "A profile was loaded: name the model that it is of, as package.module:factory."
        return {"toml": "", "command": "", "note": note}
    scenario = (
        given.scenario.replace(**{"fleet.file": "fleet.csv"}) if given.from_csv else given.scenario
    )
    note = "Save your CSV beside it as fleet.csv." if given.from_csv else ""
    return {"toml": scenario.to_toml(), "command": "airsplit plan my.toml", "note": note}


# ---- one device ----------------------------------------------------------------------------------------------------------------
def _device(given: Asked, made: Plan, number: object) -> dict[str, Any]:
    """Why a device is cut where it is: what each split would take with its share, and its stopping table."""
    k = require_integer("device", number, low=0, high=len(given.fleet) - 1)
    batch, bits = given.scenario.training.batch_size, given.scenario.element_bits
    a, eps = float(given.fleet.seconds_per_mac[k]), float(given.fleet.fluctuation[k])
    rate = float(given.fleet.rate_bps(made.shares)[k])
    if rate == 0:
        raise InvalidValue(
            f"device {given.fleet.device_name(k)} has no share of the band, so there is nothing to choose"
        )
    limit = _limit(given)
    table = stopping_table(
        given.profile, a, eps, rate, max_split=limit, batch_size=batch, element_bits=bits
    )
    work = given.profile.macs[:limit].astype(np.float64) * batch
    compute = mean_compute_s(work, np.full(limit, a), np.full(limit, eps))
    transmit = given.profile.activation_elements[:limit] * (batch * bits / rate)
    rows = {
        "names": list(given.profile.names[:limit]),
        "compute_s": compute.tolist(),
        "transmit_s": transmit.tolist(),
        "expected_s": table.expected_s.tolist(),
        "thresholds_s": [
            value if np.isfinite(value) else None for value in table.thresholds_s.tolist()
        ],
        "probabilities": table.probabilities.tolist(),
    }
    split = int(made.splits[k])
    return {
        "name": given.fleet.device_name(k),
        "split": split,
        "rows": rows,
        "said": _why(given, made, k, rate, compute, transmit),
    }


def _why(
    given: Asked, made: Plan, k: int, rate: float, compute: np.ndarray, transmit: np.ndarray
) -> str:
    pace = given.fleet.seconds_per_mac
    slower = float((pace < pace[k]).sum()) / max(1, len(pace) - 1)
    name, cut = given.fleet.device_name(k), given.profile.names[made.splits[k] - 1]
    standing = (
        f"slower than {format_percent(slower, 0)} of the others" if len(pace) > 1 else "alone"
    )
    row = int(made.splits[k]) - 1
    permitted = given.profile.permitted_splits(given.scenario.model.raw_inputs)[: len(compute)]
    best = int(np.where(permitted, compute + transmit, np.inf).argmin())
    other = (
        "No other cut that is allowed would let it finish sooner with this share."
        if best == row
        else f"With this share it would finish sooner by a cut after {given.profile.names[best]}; the plan does not let it have both."
    )
    return (
        f"Device {name} computes {format_quantity(1 / float(pace[k]), 'MAC')} a second ({standing}) and sends {format_quantity(rate, 'bit')} a second "
        f"with {format_percent(float(made.shares[k]), 2)} of the band. Cut after {cut} it computes for {format_seconds(float(compute[row]))} and sends "
        f"for {format_seconds(float(transmit[row]))}. {other}"
    )
