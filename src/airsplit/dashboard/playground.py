"""The playground: a request in, a plan and its explanation out. Plain values on both sides."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.errors import InvalidValue, require_integer
from airsplit.core.formatting import (
    format_percent,
    format_percent_bound,
    format_quantity,
    format_seconds,
    pluralize,
)
from airsplit.dashboard.plan_request import (
    MAX_DEVICES,
    METHODS,
    MODELS,
    PlanRequest,
    parse_request,
)
from airsplit.planning.methods import plan
from airsplit.planning.paper_algorithms import stopping_table
from airsplit.planning.plan import WORDS_OF_A_BOUND, Plan
from airsplit.planning.round_time import fedavg_round
from airsplit.system.compute import mean_compute_s
from airsplit.system.profile import Profile, RawInputs, load_shipped_profile

PLAN_KEYS = ("method", "status", "objective", "mean_latency_s", "expected_latency_s", "batch_size")


def list_choices() -> dict[str, Any]:
    """Return the models and methods of the page's menus."""
    models = [
        {"id": key, "title": title} | _describe_layers(load_shipped_profile(key))
        for key, (title, _) in MODELS.items()
    ]
    return {"models": models, "methods": METHODS, "most_devices": MAX_DEVICES}


def answer_request(content: Mapping[str, Any]) -> dict[str, Any]:
    """Plan what is asked for, and compare it with other methods.

    The headline, the bars and the best possible plan are all about the same quantity, the mean of
    the largest latency, E[max], even if the method minimizes another one.
    """
    start = time.perf_counter()
    request = parse_request(content)
    scenario = request.scenario
    chosen = _make_plan(request, scenario.plan.method)
    planning_s = time.perf_counter() - start

    # All methods, for the bars; the page's time is that of the chosen one.
    plans = {
        method: chosen if method == chosen.method else _make_plan(request, method)
        for method in METHODS
    }
    iterations = scenario.training.iterations_per_round
    fedavg = fedavg_round(
        request.profile,
        request.fleet,
        iterations=iterations,
        batch_size=scenario.training.batch_size,
    )
    round_s = {
        method: iterations * alternative.expected_latency_s for method, alternative in plans.items()
    }
    round_s["fedavg"] = fedavg.expected_max_s
    best = compare_with_best(chosen, plans["expected-max"])

    layers = _describe_layers(request.profile, scenario.model.raw_inputs)
    number = content.get("device")
    return {
        "planning_s": planning_s,
        "layers": layers | {"limit": _max_split(request)},
        "devices": describe_devices(request, chosen),
        "plan": {key: getattr(chosen, key) for key in PLAN_KEYS},
        "best_possible": best,
        "round_s": round_s,
        "sentences": describe_plan(request, chosen, best, round_s),
        "export": export_scenario(request),
        "device": None if number is None else explain_device(request, chosen, number),
    }


def _make_plan(request: PlanRequest, method: str) -> Plan:
    arguments = request.scenario.plan_arguments(method)
    if method == "expected-max":
        # A certificate takes longer than a slider should.
        arguments["certify"] = False
    return plan(request.profile, request.fleet, **arguments)


def compare_with_best(chosen: Plan, expected_max: Plan) -> dict[str, Any]:
    """Return how far a plan is above the bound on the mean of the largest latency.

    Args:
        chosen: The plan, of any method.
        expected_max: The plan of the method that knows this bound.
    """
    # Rounding can take a plan just below its bound.
    gap = max(0.0, chosen.expected_latency_s / expected_max.lower_bound_s - 1)
    return {
        "objective": expected_max.objective,
        "lower_bound_s": expected_max.lower_bound_s,
        "bound": expected_max.bound,
        "gap": gap,
        "at_most": format_percent_bound(gap),
    }


def _describe_layers(profile: Profile, raw_inputs: RawInputs = "refuse") -> dict[str, Any]:
    return {"names": list(profile.names), "deepest": profile.default_max_split(raw_inputs)}


def _max_split(request: PlanRequest) -> int:
    scenario = request.scenario
    return request.profile.resolve_max_split(
        scenario.plan.max_split,  # type: ignore[arg-type]
        scenario.model.raw_inputs,
        "plan.max_split",
    )


def describe_devices(request: PlanRequest, chosen: Plan) -> dict[str, Any]:
    """Return columns of names, paces, channels and planned numbers, in the fleet's order."""
    fleet = request.fleet
    columns = {
        "splits": chosen.splits,
        "shares": chosen.shares,
        "compute_s": chosen.compute_s,
        "transmit_s": chosen.transmit_s,
        "latency_s": chosen.latency_s,
        "seconds_per_mac": fleet.seconds_per_mac,
        "full_band_rate_bps": fleet.rate_bps(1.0),
    }
    names = [fleet.device_name(k) for k in range(len(fleet))]
    return {"names": names} | {key: column.tolist() for key, column in columns.items()}


def describe_plan(
    request: PlanRequest, chosen: Plan, best: Mapping[str, Any], round_s: Mapping[str, float]
) -> dict[str, str]:
    """Return the plan in sentences: its result, its bound, and what it gains."""
    splits = sorted(set(chosen.splits.tolist()))
    # Splits are counted from 1.
    names = [request.profile.names[split - 1] for split in splits]
    if len(names) == 1:
        where = f"all after {names[0]}"
    else:
        where = f"between {names[0]} and {names[-1]}, at {len(names)} different layers"

    own_s = round_s[chosen.method]
    gains = []
    # Equal times, mostly of the chosen method itself, are no gain.
    if round_s["equal"] != own_s:
        gains.append(_compare("With equal shares, a round", own_s, round_s["equal"]))
    if round_s["fedavg"] != own_s:
        name = "With federated averaging, the whole model on every device, a round"
        gains.append(_compare(name, own_s, round_s["fedavg"]))
    return {
        "result": (
            f"{pluralize(len(chosen), 'device')} cut the model {where}. "
            f"An iteration of {pluralize(chosen.batch_size, 'sample')} takes "
            f"{format_seconds(chosen.expected_latency_s)} on average "
            "until the last device is done."
        ),
        "bound": (
            f"This is at most {best['at_most']} longer than the best possible plan "
            f"({best['objective']}). The bound holds against {best['bound']}. "
            f"{WORDS_OF_A_BOUND} The method {chosen.method} minimizes the {chosen.objective}."
        ),
        "gain": " ".join(gains),
    }


def _compare(name: str, own_s: float, other_s: float) -> str:
    """Return how much longer, or shorter, something else would take.

    >>> _compare("It", 2.0, 5.0), _compare("It", 2.0, 1.0)
    ('It would take 2.5 times as long.', 'It would take 0.50 times as long.')
    """
    decimals = 1 if other_s > own_s else 2
    return f"{name} would take {other_s / own_s:.{decimals}f} times as long."


def export_scenario(request: PlanRequest) -> dict[str, str]:
    """Return the scenario as a file and a command, as far as files can express it."""
    if request.has_own_profile:
        note = (
            "The profile is from a file. "
            "A scenario needs the name of its model, as package.module:factory."
        )
        return {"toml": "", "command": "", "note": note}

    toml = request.scenario.to_toml()
    note = ""
    if request.has_own_fleet:
        scenario = request.scenario.replace(**{"fleet.file": "fleet.csv"})
        # A scenario makes its paths absolute, but a folder of this server is no business of the
        # reader, and holds no such file.
        toml = scenario.to_toml().replace(f'file = "{scenario.fleet.file}"', 'file = "fleet.csv"')
        note = "Save your CSV in the same folder as fleet.csv."
    return {"toml": toml, "command": "airsplit plan my.toml", "note": note}


def explain_device(request: PlanRequest, chosen: Plan, number: object) -> dict[str, Any]:
    """Return what each split would take with a device's share, and its stopping table.

    Raises:
        InvalidValue: There is no device of this number, or it has no share.
    """
    fleet = request.fleet
    profile = request.profile
    k = require_integer("device", number, low=0, high=len(fleet) - 1)
    pace = float(fleet.seconds_per_mac[k])
    fluctuation = float(fleet.fluctuation[k])
    rate_bps = float(fleet.rate_bps(chosen.shares)[k])
    if rate_bps == 0:
        raise InvalidValue(
            f"device {fleet.device_name(k)} has no share of the band, so every cut is equally slow"
        )

    batch_size = request.scenario.training.batch_size
    element_bits = request.scenario.element_bits
    limit = _max_split(request)
    table = stopping_table(
        profile,
        pace,
        fluctuation,
        rate_bps,
        max_split=limit,
        batch_size=batch_size,
        element_bits=element_bits,
    )
    macs = profile.macs[:limit].astype(np.float64) * batch_size
    compute_s = mean_compute_s(macs, np.full(limit, pace), np.full(limit, fluctuation))
    seconds_per_element = batch_size * element_bits / rate_bps
    transmit_s = profile.activation_elements[:limit].astype(np.float64) * seconds_per_element
    rows = {
        "names": list(profile.names[:limit]),
        "compute_s": compute_s.tolist(),
        "transmit_s": transmit_s.tolist(),
        "expected_s": table.expected_s.tolist(),
        # JSON has no infinity.
        "thresholds_s": [
            value if np.isfinite(value) else None for value in table.thresholds_s.tolist()
        ],
        "probabilities": table.probabilities.tolist(),
    }
    return {
        "name": fleet.device_name(k),
        "split": int(chosen.splits[k]),
        "rows": rows,
        "explanation": explain_cut(request, chosen, k, rate_bps, compute_s, transmit_s),
    }


def explain_cut(
    request: PlanRequest,
    chosen: Plan,
    k: int,
    rate_bps: float,
    compute_s: Floats,
    transmit_s: Floats,
) -> str:
    """Return in words how fast a device is, and how its cut compares with the others.

    Args:
        request: The request.
        chosen: The plan.
        k: Number of the device.
        rate_bps: Its rate with its share.
        compute_s: Mean time to compute the layers before each split.
        transmit_s: Mean time to send the data of each split.
    """
    paces = request.fleet.seconds_per_mac
    if len(paces) > 1:
        slower = float((paces < paces[k]).sum()) / (len(paces) - 1)
        rank = f"slower than {format_percent(slower, 0)} of the others"
    else:
        rank = "the only one"

    row = int(chosen.splits[k]) - 1
    names = request.profile.names
    # A cut that sends raw inputs may be faster, but would give the data away.
    permitted = request.profile.permitted_splits(request.scenario.model.raw_inputs)
    times_s = np.where(permitted[: len(compute_s)], compute_s + transmit_s, np.inf)
    fastest = int(times_s.argmin())
    if fastest == row:
        comparison = "With this share, no other permitted cut is faster."
    else:
        comparison = (
            f"With this share, a cut after {names[fastest]} would be faster; "
            "the plan weighs all devices together."
        )
    return (
        f"Device {request.fleet.device_name(k)} computes "
        f"{format_quantity(1 / float(paces[k]), 'MAC/s')} ({rank}) and sends "
        f"{format_quantity(rate_bps, 'bit/s')} with {format_percent(float(chosen.shares[k]), 2)} "
        f"of the band. Cut after {names[row]}, it computes for "
        f"{format_seconds(float(compute_s[row]))} and sends for "
        f"{format_seconds(float(transmit_s[row]))}. {comparison}"
    )
