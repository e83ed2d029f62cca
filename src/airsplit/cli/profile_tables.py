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

# Blanks between two columns of the table.
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


# Illegal splits and splits that send a raw input are listed in the same way.
class RefusalLike(Protocol):
    """A layer after which the model cannot be cut, and why."""

    @property
    def name(self) -> str: ...
    @property
    def reason(self) -> str: ...


def profile_report(profile: Profile, width: int) -> list[Text | Table]:
    """Return a row for each split, with as many columns as fit into a width."""
    columns = choose_columns(profile, width)
    # The end of a name tells layers apart, so a long one loses its beginning.
    name_width = max(SHORTEST_NAME, width - _measure_width(columns))
    names = [
        name if len(name) <= name_width else "…" + name[1 - name_width :] for name in profile.names
    ]
    splits = [str(row + 1) for row in range(len(profile))]

    table = make_table("split", "name", *columns, words=("name", RAW, WORK))
    is_long = len(profile) > LONG
    ends: set[int] = set()
    if is_long:
        ends = find_block_ends(profile.names)
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
    # Without duplicates, in the order in which splits send them.
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


def choose_columns(profile: Profile, width: int) -> dict[str, list[str]]:
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
    # For a batch of one, as everything in this table.
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
    # A model of activations and reshapes alone has no MACs at all.
    shares = profile.layer_macs / max(1, int(profile.layer_macs.sum()))
    # The heading is wider than a percentage, which leaves some room for the bar.
    room = min(LONGEST_BAR, room + len(WORK) - 7)
    # The longest bar fills the room; with less than four columns, bars hardly differ.
    scale = 0.0
    if room >= 4:
        scale = room / max(shares.max(), 1e-9)
    return [
        f"{format_percent(share):>6} {format_bar(scale * share, 1)}".rstrip() for share in shares
    ]


def _measure_width(columns: dict[str, list[str]]) -> int:
    """Return the width of a table with these columns, not counting the names."""
    widths = [max(len(heading), *map(len, cells)) + GAP for heading, cells in columns.items()]
    return len("split") + 2 * GAP + sum(widths)


def find_block_ends(names: Sequence[str]) -> set[int]:
    """Return the last rows of the model's numbered blocks; none if most blocks are single rows.

    >>> names = ["embed", "layers.0.norm", "layers.0.mlp.0", "layers.0.mlp.1"]
    >>> sorted(find_block_ends([*names, "layers.1.norm", "layers.1.mlp.0"]))
    [0, 3]
    """
    blocks = [get_block(name) for name in names]
    ends = {row for row, (block, following) in enumerate(pairwise(blocks)) if block != following}
    # Blocks of one layer each, as layers.0.add, layers.1.add …: rules would hide the rows.
    if 2 * len(ends) >= len(names):
        return set()
    return ends


def get_block(name: str) -> str:
    """Return the outermost numbered block that a layer is in, or "".

    >>> get_block("model.layers.31.mlp.down_proj"), get_block("conv1"), get_block("features.0")
    ('model.layers.31', '', '')
    """
    parts = name.split(".")
    # Not the last part: a layer that is itself numbered is no block.
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
    """Return a row for each reason: its layers, and the reason."""
    # Consecutive layers with the same reason; a reason may come back later in the model.
    runs = [
        (reason, [refusal.name for refusal in run])
        for reason, run in groupby(refusals, key=lambda refusal: refusal.reason)
    ]
    table = Table.grid(padding=(0, 3))
    # A dict instead of a set, as it keeps the order of the model.
    for reason in dict.fromkeys(reason for reason, _ in runs):
        layers = [abbreviate_layers(names) for run_reason, names in runs if run_reason == reason]
        table.add_row(f"  {', '.join(layers)}", reason)
    return table


def abbreviate_layers(names: Sequence[str]) -> str:
    """Return consecutive layers, as a range if they are more than two.

    >>> abbreviate_layers(["a", "b"])
    'a, b'
    >>> abbreviate_layers(["tokens", "blocks.0.norm", "blocks.1.norm"])
    'tokens … blocks.1.norm (3)'
    """
    if len(names) < 3:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names)})"
