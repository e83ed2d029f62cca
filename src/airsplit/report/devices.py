"""The devices of a run: how they spent their time, and who took part."""

from __future__ import annotations

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.core.formatting import format_percent, format_quantity, format_seconds, pluralize
from airsplit.report.charts import bar, bar_legend
from airsplit.report.markup import Html, details, join, name, paragraph, table, tag
from airsplit.runs.history import TIMES, History, waiting_fraction
from airsplit.runs.wording import TIME_LABELS

# Of a large fleet, the devices that wait longest.
MOST_BARS = 40
MOST_ROWS = 200


def describe_splits(run: History, device: int) -> str:
    """Return where a device's model was cut, in the order of its plans; FedAvg has no cut."""
    if run.scenario.training.algorithm == "fedavg":
        return "whole model"
    splits = run.splits_of(device)
    if len(splits) > 2:
        return f"{len(splits)} splits"
    return " → ".join(map(run.split_name, splits))


def device_times(run: History) -> Html:
    """Return the section with a bar for each device; empty before a device has computed."""
    parts: dict[str, Floats] = {key.removesuffix("_s"): run.totals[key] for key in TIMES}
    if not run.records or not parts["compute"].any():
        return Html()

    # The rest of the virtual time is absence. Rounding can make it slightly negative.
    present = sum(parts.values(), start=np.zeros(len(run)))
    parts["absent"] = np.maximum(run.virtual_time_s - present, 0.0)

    devices = _longest_waiting(run, MOST_BARS)
    if len(devices) == len(run):
        caption = "Each bar is a device, with its split"
    else:
        caption = f"The {len(devices)} of {len(run):,} devices that wait longest"
    caption += f", summed over {pluralize(len(run.records), 'round')}."
    caption += f" The full width is the total {run.time_name}."

    # Kinds of time that would be invisible are left out.
    least = 1e-3 * max(run.virtual_time_s, 1e-300)
    kinds = {kind: TIME_LABELS[kind] for kind, column in parts.items() if column.max() > least}
    figure = tag(
        "figure",
        bar_legend(kinds),
        tag("ul", *device_bars(run, parts, kinds, devices), class_="bars"),
        tag("figcaption", caption),
    )
    heading = tag("h2", "Where the time goes")
    return join(heading, paragraph(time_sentence(parts)), figure, time_table(run))


def _longest_waiting(run: History, most: int) -> Ints:
    """Return all devices in their order, or the `most` that wait longest."""
    if len(run) <= most:
        return np.arange(len(run))
    # Stable, so that devices that wait equally long keep their order.
    return np.argsort(-run.totals["idle_s"], kind="stable")[:most]


def device_bars(
    run: History, parts: dict[str, Floats], kinds: dict[str, str], devices: Ints
) -> list[Html]:
    """Return a row with a bar for each of these devices, and one for the mean of a larger fleet.

    Args:
        run: The run.
        parts: Seconds of each kind and device.
        kinds: The kinds to draw.
        devices: The devices to draw.
    """
    # The longest bar has the full width; devices of a networked run may have different totals.
    total_s = max(float(np.sum(list(parts.values()), axis=0).max()), 1e-300)
    ends = tag("span", tag("span", "0"), tag("span", format_seconds(total_s)), class_="ends")
    rows = [_row(tag("span", "device, split", class_="who head"), ends, "waits")]
    if len(devices) < len(run):
        # Of the whole fleet, to compare the longest waiting devices with.
        mean = {kind: float(parts[kind].mean()) / total_s for kind in kinds}
        label = tag("span", tag("b", "mean of all"), class_="who")
        rows.append(_row(label, bar(mean), _waiting(parts, slice(None))))

    for k in devices.tolist():
        split = describe_splits(run, k)
        inside = (name(run.names[k]), " ", tag("small", split))
        # The style sheet cuts long names off; the tooltip has all of them.
        label = tag("span", *inside, class_="who", title=f"{run.names[k]}, {split}")
        shares = {kind: float(parts[kind][k]) / total_s for kind in kinds}
        rows.append(_row(label, bar(shares), _waiting(parts, slice(k, k + 1))))
    return rows


def _waiting(parts: dict[str, Floats], devices: slice) -> str:
    """Return the fraction of the time in which devices take part that they wait."""
    sums = {key: float(parts[key.removesuffix("_s")][devices].sum()) for key in TIMES}
    return format_percent(waiting_fraction(sums), 0)


def _row(label: Html, drawing: Html, number: str) -> Html:
    return tag("li", label, drawing, tag("span", number, class_="number"))


def time_sentence(parts: dict[str, Floats]) -> str:
    """Return the fractions of the time that devices spent while they took part.

    >>> time_sentence({"compute": np.array([1.0]), "idle": np.array([3.0])})
    'While taking part, devices spent 25 % computing and 75 % waiting for the slowest one.'
    """
    present = {kind: float(column.sum()) for kind, column in parts.items() if kind != "absent"}
    total_s = sum(present.values())
    # Kinds that took no time are not worth a word.
    shares = [
        f"{format_percent(value / total_s, 0)} {TIME_LABELS[kind]}"
        for kind, value in present.items()
        if value > 0
    ]
    text = shares[-1]
    if len(shares) > 1:
        text = f"{', '.join(shares[:-1])} and {text}"
    # Waiting is the last of the kinds, so this ends the sentence.
    if present["idle"] > 0:
        text += " for the slowest one"
    return f"While taking part, devices spent {text}."


def time_table(run: History) -> Html:
    """Return the table of the numbers in the bars."""
    devices = _longest_waiting(run, MOST_ROWS)
    heading = "The numbers behind these bars"
    if len(devices) < len(run):
        heading += f" (the {len(devices)} devices that wait longest)"

    times = {TIME_LABELS[key.removesuffix("_s")]: key for key in TIMES}
    # Title, and field and unit of a total.
    amounts = {
        "sent": ("sent_bytes", "B"),
        "received": ("received_bytes", "B"),
        "work": ("macs", "MAC"),
    }
    if run.has_energy:
        amounts["energy"] = ("energy_j", "J")
    body = (
        [
            name(run.names[k]),
            describe_splits(run, k),
            *(format_seconds(float(run.totals[key][k])) for key in times.values()),
            *(format_quantity(float(run.totals[key][k]), unit) for key, unit in amounts.values()),
        ]
        for k in devices.tolist()
    )
    columns = ["device", "split", *times, *amounts]
    return details(heading, table(columns, body, words=("device", "split")))


def participation(run: History) -> Html:
    """Return the section on who took part; empty if all devices finished all rounds."""
    selected = run.count_rounds("participants")
    dropped = run.count_rounds("dropped")
    is_complete = not dropped.any() and (selected == len(run.records)).all()
    if not run.records or is_complete:
        return Html()

    finished = run.rounds_finished
    body = (
        [name(run.names[k]), f"{selected[k]:,}", f"{finished[k]:,}", f"{dropped[k]:,}"]
        for k in range(min(len(run), MOST_ROWS))
    )
    heading = "Each device"
    if len(run) > MOST_ROWS:
        heading = f"The first {MOST_ROWS} devices"
    columns = ["device", "rounds selected", "finished", "dropped out"]
    numbers = details(heading, table(columns, body, words=("device",)))
    sentence = paragraph(participation_sentence(run, selected, dropped))
    return join(tag("h2", "Participation"), sentence, numbers)


def participation_sentence(run: History, selected: Ints, dropped: Ints) -> str:
    """Return how many devices were selected, finished and dropped out per round.

    Args:
        run: The run.
        selected: Number of rounds for which each device was selected.
        dropped: Number of rounds in which each device dropped out.
    """
    rounds = len(run.records)
    text = f"On average, {selected.sum() / rounds:.3g} of {pluralize(len(run), 'device')}"
    text += " were selected for a round"
    if not dropped.any():
        return f"{text}, and none dropped out."

    count = int(dropped.sum())
    fraction = format_percent(count / max(selected.sum(), 1))
    # Continues the sentence; the next ones stand alone.
    text += f" and {run.rounds_finished.sum() / rounds:.3g} finished it. "
    text += f"Dropouts: {count:,}, {fraction} of those selected."
    # If all devices dropped out, a round changed no model.
    empty = sum(len(record.dropped) >= len(record.participants) for record in run.records)
    if empty:
        text += f" In {pluralize(empty, 'round')} no device finished."
    return text
