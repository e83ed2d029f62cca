"""Where each device's time went, and who took part."""

from __future__ import annotations

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.core.formatting import format_percent, format_quantity, format_seconds, pluralize
from airsplit.report.charts import bar, swatches
from airsplit.report.markup import Html, folded, name, prose, table, tag, together
from airsplit.runs.history import TIMES, History, waiting_fraction
from airsplit.runs.wording import TIME_LABELS

MOST_BARS = 40
MOST_ROWS = 200  # of a table of devices


def split_of(run: History, device: int) -> str:
    """Where a device's model was cut, in the words of its plans; FedAvg cuts nowhere."""
    if run.scenario.training.algorithm == "fedavg":
        return "whole model"
    splits = run.splits_of(device)
    return " → ".join(map(run.split_name, splits)) if len(splits) <= 2 else f"{len(splits)} splits"


# ---- time ----------------------------------------------------------------------------------------------------------------
def time_spent(run: History) -> Html:
    """A bar for each device; of a large fleet for those that wait most."""
    parts = _parts(run)
    if not run.records or not parts["compute"].any():
        return Html()
    shown = _shown(run, MOST_BARS)
    kinds = {
        kind: TIME_LABELS[kind]
        for kind, column in parts.items()
        if column.max() > 1e-3 * max(run.virtual_time_s, 1e-300)
    }
    figure = tag(
        "figure",
        swatches(kinds),
        tag("ul", *_bars(run, parts, kinds, shown), class_="bars"),
        tag("figcaption", _caption(run, shown)),
    )
    return together(
        tag("h2", "Where the time goes"), prose(_sentence(parts)), figure, _time_table(run)
    )


def _parts(run: History) -> dict[str, Floats]:
    """Seconds of each kind and device; what is left of the virtual time is absence."""
    spent = {key.removesuffix("_s"): run.totals[key] for key in TIMES}
    left: Floats = np.maximum(
        run.virtual_time_s - sum(spent.values(), start=np.zeros(len(run))), 0.0
    )
    return spent | {"absent": left}


def _shown(run: History, most: int) -> Ints:
    """All devices in their order, or those that wait most."""
    return (
        np.arange(len(run))
        if len(run) <= most
        else np.argsort(-run.totals["idle_s"], kind="stable")[:most]
    )


def _bars(run: History, parts: dict[str, Floats], kinds: dict[str, str], shown: Ints) -> list[Html]:
    whole = max(float(np.sum(list(parts.values()), axis=0).max()), 1e-300)
    rows = [
        _row(
            tag("span", "device, split", class_="who head"),
            tag("span", tag("span", "0"), tag("span", format_seconds(whole)), class_="ends"),
            "waits",
        )
    ]
    if len(shown) < len(run):
        mean = {kind: float(parts[kind].mean()) / whole for kind in kinds}
        rows.append(
            _row(
                tag("span", tag("b", "mean of all"), class_="who"),
                bar(mean),
                _waits(parts, slice(None)),
            )
        )
    for k in shown.tolist():
        shares = {kind: float(parts[kind][k]) / whole for kind in kinds}
        who = tag(
            "span",
            name(run.names[k]),
            " ",
            tag("small", split_of(run, k)),
            class_="who",
            title=f"{run.names[k]}, {split_of(run, k)}",
        )
        rows.append(_row(who, bar(shares), _waits(parts, slice(k, k + 1))))
    return rows


def _waits(parts: dict[str, Floats], devices: slice) -> str:
    """Return how much of the time in which they take part some devices wait."""
    return format_percent(
        waiting_fraction(
            {key: float(parts[key.removesuffix("_s")][devices].sum()) for key in TIMES}
        ),
        0,
    )


def _row(who: Html, drawn: Html, number: str) -> Html:
    return tag("li", who, drawn, tag("span", number, class_="number"))


def _caption(run: History, shown: Ints) -> str:
    which = (
        "Each bar is a device, with its split"
        if len(shown) == len(run)
        else f"The {len(shown)} of {len(run):,} devices that wait most"
    )
    return f"{which}, summed over {pluralize(len(run.records), 'round')}; full width: the whole {run.time_name}."


def _sentence(parts: dict[str, Floats]) -> str:
    present = {kind: float(column.sum()) for kind, column in parts.items() if kind != "absent"}
    whole = sum(present.values())
    words = [
        f"{format_percent(value / whole, 0)} {TIME_LABELS[kind]}"
        for kind, value in present.items()
        if value > 0
    ]
    said = ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else words[0]
    until = " until the last of them was done" if present["idle"] > 0 else ""
    return f"While taking part, the devices spent {said}{until}."


def _time_table(run: History) -> Html:
    """The table behind the bars."""
    shown = _shown(run, MOST_ROWS)
    spent = {TIME_LABELS[key.removesuffix("_s")]: key for key in TIMES}
    amounts = {
        "sent up": ("sent_bytes", "B"),
        "received": ("received_bytes", "B"),
        "work": ("macs", "MAC"),
    }
    if run.has_energy:
        amounts["energy"] = ("energy_j", "J")
    body = (
        [
            name(run.names[k]),
            split_of(run, k),
            *(format_seconds(float(run.totals[key][k])) for key in spent.values()),
            *(format_quantity(float(run.totals[key][k]), unit) for key, unit in amounts.values()),
        ]
        for k in shown.tolist()
    )
    some = "" if len(shown) == len(run) else f" (the {len(shown)} devices that wait most)"
    return folded(
        f"The numbers behind these bars{some}",
        table(["device", "split", *spent, *amounts], body, words=("device", "split")),
    )


# ---- participation -------------------------------------------------------------------------------------------------------
def participation(run: History) -> Html:
    """Who was asked, who finished and who dropped out; nothing where all always finished."""
    asked, lost = run.count_rounds("participants"), run.count_rounds("dropped")
    if not run.records or (not lost.any() and (asked == len(run.records)).all()):
        return Html()
    finished = run.rounds_finished
    body = (
        [name(run.names[k]), f"{asked[k]:,}", f"{finished[k]:,}", f"{lost[k]:,}"]
        for k in range(min(len(run), MOST_ROWS))
    )
    some = "" if len(run) <= MOST_ROWS else f" (the first {MOST_ROWS})"
    numbers = folded(
        f"Each device{some}",
        table(["device", "rounds asked", "finished", "dropped out"], body, words=("device",)),
    )
    return together(tag("h2", "Who took part"), prose(_took_part(run, asked, lost)), numbers)


def _took_part(run: History, asked: Ints, lost: Ints) -> str:
    rounds = len(run.records)
    each = f"On average {asked.sum() / rounds:.3g} of {pluralize(len(run), 'device')} were asked to take part in a round"
    if not lost.any():
        return f"{each}, and none dropped out."
    each = f"{each} and {run.rounds_finished.sum() / rounds:.3g} finished it"
    nobody = sum(len(record.dropped) >= len(record.participants) for record in run.records)
    times = f"{pluralize(int(lost.sum()), 'time')} a device dropped out, {format_percent(lost.sum() / max(asked.sum(), 1))} of those asked"
    return f"{each}; {times}." + (
        f" In {pluralize(nobody, 'round')} nobody finished." if nobody else ""
    )
