"""Tables of profiles: a row for each split, and the cuts that are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, pairwise
from typing import NamedTuple, Protocol

from rich.table import Table
from rich.text import Text

from airsplit.cli.tables import make_table
from airsplit.core.arrays import Ints
from airsplit.core.formatting import format_bar, format_percent, format_quantity, pluralize
from airsplit.core.units import BYTES_PER_FLOAT32
from airsplit.system.profile import Profile

# Width that the bars may fill, even on a wider terminal.
WIDEST = 120

# Columns between two columns of the table.
GAP = 2

# Rows from which on blocks are set apart, and the headings are repeated below the table.
LONG = 40

# On a narrow terminal names keep this many letters before columns are dropped.
SHORTEST_NAME = 24

LONGEST_BAR = 20
WORK = "of the work"
RAW = "raw inputs"

# Columns to drop on a narrow terminal, in this order.
DROPPABLE = (WORK, "back", "layer", "memory", "trainable", "backward", "parameters")

CAPTION = (
    "For one sample: multiply-adds of the layer, of all layers so far, and of their backward "
    "pass; bytes sent over the cut and back, in float32; parameters of the layer; memory to "
    "train all layers so far"
)


class RefusalLike(Protocol):
    """A layer after which the model cannot be cut, and why."""

    @property
    def name(self) -> str: ...
    @property
    def reason(self) -> str: ...


def profile_report(profile: Profile, width: int) -> list[Text | Table]:
    """Return a row for each split, with as many columns as fit into a width."""
    columns = _choose_columns(profile, width)
    name_width = max(SHORTEST_NAME, width - _measure_width(columns))
    names = [_shorten(name, name_width) for name in profile.names]
    splits = [str(row + 1) for row in range(len(profile))]

    table = make_table("split", "name", *columns, words=("name", RAW, WORK))
    is_long = len(profile) > LONG
    ends = _find_block_ends(profile.names) if is_long else set()
    for row, cells in enumerate(zip(splits, names, *columns.values(), strict=True)):
        table.add_row(*cells, end_section=row in ends)
    # At the end of a long table, its headings are out of sight.
    table.show_footer = is_long
    for column in table.columns:
        column.footer = column.header

    notes = [Text(note) for note in _sent_input_notes(profile)]
    return [Text(describe_profile(profile), style="bold"), Text(CAPTION), table, *notes]


def _sent_input_notes(profile: Profile) -> Iterator[str]:
    """Yield what to know about inputs that cross some cuts unchanged."""
    if any(profile.raw_inputs):
        yield (
            "Raw inputs would be sent unchanged; plans leave out such splits, unless "
            "model.raw_inputs lets these inputs travel"
        )
    # Each input once, in the order in which splits send them.
    others = list(dict.fromkeys(chain(*profile.other_inputs)))
    if others:
        verb = "cross" if len(others) > 1 else "crosses"
        yield (
            f"{' and '.join(others)} {verb} some cuts unchanged, which plans allow: "
            "neither floating-point numbers nor indices into a table"
        )


def describe_profile(profile: Profile) -> str:
    """Return a profile's totals, on one line."""
    sample = "per sample"
    if profile.inputs:
        sample += f" of {' and '.join(profile.inputs)}"
    parts = [
        profile.model or "model",
        pluralize(len(profile), "split"),
        f"{format_quantity(int(profile.macs[-1]), 'MAC')} {sample}",
        f"{int(profile.parameters.sum()):,} parameters",
    ]
    return " · ".join(parts)


def _choose_columns(profile: Profile, width: int) -> dict[str, list[str]]:
    """Return the columns that fit into a width, with bars as long as they can be."""
    longest_name = max(map(len, ("name", *profile.names)))
    columns = _format_columns(profile)
    for key in DROPPABLE:
        # Bars only decorate, so names are not shortened for them.
        if key == WORK:
            does_fit = min(width, WIDEST) - _measure_width(columns) >= longest_name
        else:
            does_fit = width - _measure_width(columns) >= min(SHORTEST_NAME, longest_name)
        if not does_fit:
            columns.pop(key, None)

    if WORK in columns:
        room = min(width, WIDEST) - _measure_width(columns) - longest_name
        columns[WORK] = _format_work(profile, room)
    return columns


def _format_columns(profile: Profile) -> dict[str, list[str]]:
    """Return the cells of each column, by its heading."""
    columns = {
        "layer": _format_quantities(profile.layer_macs, ""),
        "so far": _format_quantities(profile.macs, ""),
        "backward": _format_quantities(profile.backward_macs, ""),
        "sent": _format_quantities(profile.activation_elements * BYTES_PER_FLOAT32, "B"),
        "back": _format_quantities(profile.gradient_elements * BYTES_PER_FLOAT32, "B"),
        "parameters": [f"{int(number):,}" for number in profile.parameters],
    }
    has_frozen_layers = (profile.trainable_parameters != profile.parameters).any()
    if has_frozen_layers:
        columns["trainable"] = [f"{int(number):,}" for number in profile.trainable_parameters]
    columns["memory"] = _format_quantities(profile.device_memory_bytes(1), "B")
    if any(profile.raw_inputs):
        columns[RAW] = [", ".join(names) for names in profile.raw_inputs]
    # Without bars for now: they get the room that all other columns leave.
    columns[WORK] = _format_work(profile, 0)
    return columns


def _format_quantities(values: Ints, unit: str) -> list[str]:
    return [format_quantity(int(value), unit).strip() for value in values]


def _format_work(profile: Profile, room: int) -> list[str]:
    """Return each layer's share of the work, with a bar if there is room for one."""
    shares = profile.layer_macs / max(1, int(profile.layer_macs.sum()))
    # The heading is wider than a percentage, which leaves some room for the bar.
    room = min(LONGEST_BAR, room + len(WORK) - 7)
    scale = room / max(shares.max(), 1e-9) if room >= 4 else 0.0
    return [
        f"{format_percent(share):>6} {format_bar(scale * share, 1)}".rstrip() for share in shares
    ]


def _measure_width(columns: dict[str, list[str]]) -> int:
    """Return the width of a table with these columns, not counting the names."""
    widths = [max(len(heading), *map(len, cells)) + GAP for heading, cells in columns.items()]
    return len("split") + 2 * GAP + sum(widths)


def _shorten(name: str, width: int) -> str:
    """
    >>> _shorten("model.layers.31.mlp.down_proj", 16)
    '…1.mlp.down_proj'
    """
    if len(name) <= width:
        return name
    return "…" + name[1 - width :]


def _find_block_ends(names: Sequence[str]) -> set[int]:
    """Return the last rows of the model's numbered blocks; none if most blocks are single rows.

    >>> names = ["embed", "layers.0.norm", "layers.0.mlp.0", "layers.0.mlp.1"]
    >>> sorted(_find_block_ends([*names, "layers.1.norm", "layers.1.mlp.0"]))
    [0, 3]
    """
    blocks = [_get_block(name) for name in names]
    ends = {row for row, (block, following) in enumerate(pairwise(blocks)) if block != following}
    if 2 * len(ends) >= len(names):
        return set()
    return ends


def _get_block(name: str) -> str:
    """Return the numbered block that a layer is in, or "".

    >>> _get_block("model.layers.31.mlp.down_proj"), _get_block("conv1"), _get_block("features.0")
    ('model.layers.31', '', '')
    """
    parts = name.split(".")
    for position, part in enumerate(parts[:-1]):
        if part.isdigit():
            return ".".join(parts[: position + 1])
    return ""


class SentInput(NamedTuple):
    """A split that sends an input of the model unchanged."""

    name: str
    reason: str


def cuts_report(profile: Profile, refusals: Sequence[RefusalLike]) -> list[Text | Table]:
    """Return the cuts that are impossible, and the splits that plans leave out, by reason."""
    sent = [
        SentInput(name, f"sends {' and '.join(raw)}")
        for name, raw in zip(profile.names, profile.raw_inputs, strict=True)
        if raw
    ]
    parts: list[Text | Table] = []
    if refusals:
        total = len(profile) + len(refusals)
        parts += [
            Text(f"{len(refusals)} of {total} cuts are left out, those after", style="bold"),
            _reasons_table(refusals),
        ]
    elif sent:
        parts.append(Text("The model can be cut after every layer"))
    else:
        parts.append(Text("No cut is left out: the model can be cut after every layer"))

    if sent:
        total_splits = pluralize(len(profile), "split")
        heading = (
            f"{len(sent)} of {total_splits} would send a raw input unchanged, "
            "so plans leave them out by default, those after"
        )
        parts += [Text(heading, style="bold"), _reasons_table(sent)]
    return parts


def _reasons_table(refusals: Sequence[RefusalLike]) -> Table:
    table = Table.grid(padding=(0, 3))
    for layers, reason in _group_by_reason(refusals):
        table.add_row(f"  {layers}", reason)
    return table


def _group_by_reason(refusals: Sequence[RefusalLike]) -> Iterator[tuple[str, str]]:
    """Yield the layers of each reason, and the reason."""
    # Consecutive layers with the same reason; a reason may come back later in the model.
    runs = [
        (reason, [refusal.name for refusal in run])
        for reason, run in groupby(refusals, key=lambda refusal: refusal.reason)
    ]
    for reason in dict.fromkeys(reason for reason, _ in runs):
        layers = [_abbreviate(names) for run_reason, names in runs if run_reason == reason]
        yield ", ".join(layers), reason


def _abbreviate(names: Sequence[str]) -> str:
    """Return consecutive layers, as a range if they are more than two.

    >>> _abbreviate(["a", "b"]), _abbreviate(["tokens", "blocks.0.norm", "blocks.1.norm"])
    ('a, b', 'tokens … blocks.1.norm (3)')
    """
    if len(names) < 3:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names)})"
