"""The plan, how good it can be at best, and the plans that followed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from airsplit.history import History
from airsplit.quantities import at_most_percent, counted, digits, percent, repeated, seconds
from airsplit.report.markup import Html, folded, name, prose, table, tag, together
from airsplit.report.scales import spread_rows

MOST_SHOWN = 40  # devices; a larger fleet is shown in quantiles first
MOST_ROWS = 200
QUANTILES = {"least": 0.0, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "greatest": 1.0}


def the_plan(run: History) -> Html:
    """What was planned before the first round."""
    first = " of round 1" if run.plans else ""
    said = [prose(text) for text in (*_not_used(run), _bound(run), _times(run), *_averaged(run)) if text]
    few = len(run) <= MOST_SHOWN
    rows = _device_table(run, min(len(run), MOST_ROWS))
    some = f"the first {MOST_ROWS} devices; plan.json has all" if len(run) > MOST_ROWS else "each device"
    tables = [rows] if few else [_split_table(run), _quantile_table(run), folded(f"The plan, {some}", rows)]
    return together(tag("h2", f"The plan{first}"), *said, *tables)


def _not_used(run: History) -> Iterator[str]:
    """What the algorithm does not take from the plan."""
    if run.scenario.training.algorithm == "fedavg":
        yield "FedAvg trains the whole model on each device, so this plan was not used: it is what split training would have done."
    elif run.scenario.training.algorithm == "split-learning":
        yield "Split learning takes the plan's splits; devices take turns with the whole band, so its shares and times were not used."


def _bound(run: History) -> str:
    plan = run.plan
    return (
        f"Method {plan.get('method')}: {plan.get('status')}. No plan can be more than {at_most_percent(plan['gap'])} faster in {_aim(run)}."
    )


def _aim(run: History) -> str:
    """What the method minimised."""
    settings = run.scenario.plan
    if settings.quantile is not None:
        return f"the time that {100 * settings.quantile:g} % of iterations keep to"
    if settings.device_quantile is not None:
        return f"the time that each device keeps to in {100 * settings.device_quantile:g} % of iterations"
    return "the mean time of an iteration" if run.plan.get("method") == "expected-max" else "the mean time of the slowest device"


def _times(run: History) -> str:
    slowest, last = (seconds(run.plan[key]) for key in ("mean_latency_s", "expected_latency_s"))
    samples = counted(run.plan["batch_size"], "sample")
    return f"An iteration of {samples} takes {slowest} on average on the slowest device, and {last} until the last device is done."


def _averaged(run: History) -> Iterator[str]:
    if run.scenario.training.algorithm == "sfl":
        number, deepest = run.plan["averaged_parameters"], run.split_name(max(run.plan["splits"]))
        yield (
            f"Averaged are {counted(number, 'parameter')}, those behind {deepest}, the deepest split." if number else "Nothing is averaged."
        )


def _columns(run: History) -> dict[str, str]:
    """Times of the plan; the server's only where it takes any."""
    server = {"server": "server_s"} if any(run.plan["server_s"]) else {}
    return {"computing": "compute_s", "on the air": "transmit_s"} | server


def _device_table(run: History, count: int) -> Html:
    plan, times = run.plan, _columns(run)
    body = (
        [
            name(run.names[k]),
            name(plan["split_names"][k]),
            percent(plan["shares"][k], 2),
            *(seconds(plan[key][k]) for key in times.values()),
            seconds(sum(plan[key][k] for key in times.values())),
        ]
        for k in range(count)
    )
    return table(["device", "split", "share", *times, "in all"], body, words=("device", "split"))


def _quantile_table(run: History) -> Html:
    """How shares and times are spread over a large fleet."""
    levels = list(QUANTILES.values())
    shares = ["share of the band", *(f"{digits(100 * q)} %" for q in np.quantile(run.plan["shares"], levels).tolist())]
    times = ([word, *map(seconds, np.quantile(run.plan[key], levels).tolist())] for word, key in _columns(run).items())
    return table(["over the devices", *QUANTILES], [shares, *times], words=("over the devices",))


def _split_table(run: History) -> Html:
    """How many devices take each split; the rarest are left out where there are too many."""
    counts = Counter(run.plan["splits"]).most_common(MOST_SHOWN)
    body = ([name(run.split_name(split)), f"{count:,}", percent(count / len(run))] for split, count in sorted(counts))
    return table(["split", "devices", "of the fleet"], body, words=("split",))


# ---- the plans that followed ---------------------------------------------------------------------------------------------
def new_plans(run: History) -> Html:
    """What changed from plan to plan; nothing where there was one."""
    made = run.plans
    if not made:
        return Html()
    splits = [run.plan["splits"], *(list(record.splits or ()) for record in made)]
    shares = [run.plan["shares"], *(list(record.shares or run.plan["shares"]) for record in made)]
    rows = spread_rows(len(made), MOST_ROWS)
    body = (
        [
            f"{made[row].round:,}",
            counted(sum(a != b for a, b in zip(splits[row], splits[row + 1], strict=True)), "device"),
            run.split_name(max(splits[row + 1])),
            f"{percent(min(shares[row + 1]), 2)} – {percent(max(shares[row + 1]), 2)}",
        ]
        for row in rows
    )
    every = run.scenario.training.replan_every
    said = f"The plan was made anew {counted(len(made), 'time')}" + (f", {repeated(every, 'round')}." if every else ".")
    columns = ["round", "another split", "deepest split", "shares of the band"]
    some = "" if len(rows) == len(made) else f", {len(rows)} of {len(made):,}"
    return together(tag("h2", "New plans"), prose(said), folded(f"Each new plan{some}", table(columns, body)))
