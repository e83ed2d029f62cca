"""Profiles as people read them: a row a split, and the cuts that are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, pairwise
from typing import NamedTuple, Protocol

from rich.table import Table
from rich.text import Text

from airsplit.cli.render import table
from airsplit.core.arrays import Ints
from airsplit.core.formatting import format_bar, format_percent, format_quantity, pluralize
from airsplit.core.units import BYTES_PER_FLOAT32
from airsplit.system.profile import Profile

WIDEST, GAP = 120, 2
LONG = 40  # rows from which a table has gaps between the model's blocks, and its header again at its foot
SHORTEST_NAME, LONGEST_BAR = 24, 20
WORK, RAW = "of the work", "raw inputs"
DROPPED = (
    WORK,
    "back",
    "layer",
    "memory",
    "trainable",
    "backward",
    "parameters",
)  # where the screen is narrow, in this order
CAPTION = (
    "For one sample: multiply-adds of the layer, of all so far, and of their backward pass; bytes sent over the cut and back, in "
    "float32; parameters of the layer; memory for training all so far"
)


class RefusalLike(Protocol):
    """A layer after which the model cannot be cut, and why."""

    @property
    def name(self) -> str: ...
    @property
    def reason(self) -> str: ...


def profile_table(profile: Profile, width: int) -> list[Text | Table]:
    """One row a split, and the work of each layer as a bar, as long as the width allows."""
    longest = max(map(len, ("name", *profile.names)))
    columns = _columns(profile)
    for key in DROPPED:
        within, needed = (
            (min(width, WIDEST), longest) if key == WORK else (width, min(SHORTEST_NAME, longest))
        )
        if within - _width(columns) < needed:
            columns.pop(key, None)
    if WORK in columns:
        columns[WORK] = _work(profile, min(width, WIDEST) - _width(columns) - longest)
    room = max(SHORTEST_NAME, width - _width(columns))
    names = [_shortened(name, room) for name in profile.names]
    splits = [str(row + 1) for row in range(len(profile))]
    made = table("split", "name", *columns, words=("name", RAW, WORK))
    ends = _ends_of_blocks(profile.names) if len(profile) > LONG else set()
    for row, cells in enumerate(zip(splits, names, *columns.values(), strict=True)):
        made.add_row(*cells, end_section=row in ends)
    made.show_footer = len(profile) > LONG
    for column in made.columns:
        column.footer = column.header
    return [
        Text(profile_line(profile), style="bold"),
        Text(CAPTION),
        made,
        *map(Text, _crossing_notes(profile)),
    ]


def _crossing_notes(profile: Profile) -> Iterator[str]:
    """What there is to know of inputs that cross some cuts unchanged."""
    if any(profile.raw_inputs):
        yield "Raw inputs would be sent unchanged; plans leave such splits out, unless model.raw_inputs lets these inputs travel"
    others = list(dict.fromkeys(chain(*profile.other_inputs)))
    if others:
        cross = "cross some cuts unchanged" if len(others) > 1 else "crosses some cuts unchanged"
        why = "no floating-point numbers, and no integers that look up rows of a table"
        yield f"{' and '.join(others)} {cross}, which plans allow: {why}"


def profile_line(profile: Profile) -> str:
    work, parameters = int(profile.macs[-1]), int(profile.parameters.sum())
    name, macs = profile.model or "model", format_quantity(work, "MAC")
    sample = f"a sample of {' and '.join(profile.inputs)}" if profile.inputs else "a sample"
    return (
        f"{name} · {pluralize(len(profile), 'split')} · {macs} {sample} · {parameters:,} parameters"
    )


def _columns(profile: Profile) -> dict[str, list[str]]:
    """The cells of each column of numbers, by its header."""
    frozen = (profile.trainable_parameters != profile.parameters).any()
    return {
        "layer": _quantities(profile.layer_macs, ""),
        "so far": _quantities(profile.macs, ""),
        "backward": _quantities(profile.backward_macs, ""),
        "sent": _quantities(profile.activation_elements * BYTES_PER_FLOAT32, "B"),
        "back": _quantities(profile.gradient_elements * BYTES_PER_FLOAT32, "B"),
        "parameters": [f"{int(number):,}" for number in profile.parameters],
        **(
            {"trainable": [f"{int(number):,}" for number in profile.trainable_parameters]}
            if frozen
            else {}
        ),
        "memory": _quantities(profile.device_memory_bytes(1), "B"),
        **(
            {RAW: [", ".join(names) for names in profile.raw_inputs]}
            if any(profile.raw_inputs)
            else {}
        ),
        WORK: _work(profile, 0),
    }


def _quantities(values: Ints, unit: str) -> list[str]:
    return [format_quantity(int(value), unit).strip() for value in values]


def _work(profile: Profile, room: int) -> list[str]:
    """Each layer's part of the work: in percent, and as a bar where there is room for one."""
    share = profile.layer_macs / max(1, int(profile.layer_macs.sum()))
    room = min(LONGEST_BAR, room + len(WORK) - 7)  # the header is longer than a percentage
    longest = room / max(share.max(), 1e-9) if room >= 4 else 0.0
    return [f"{format_percent(part):>6} {format_bar(longest * part, 1)}".rstrip() for part in share]


def _width(columns: dict[str, list[str]]) -> int:
    """How wide a table with these columns is, but for the letters of the names."""
    return (
        len("split")
        + 2 * GAP
        + sum(max(len(header), *map(len, cells)) + GAP for header, cells in columns.items())
    )


def _shortened(name: str, room: int) -> str:
    """
    >>> _shortened("model.layers.31.mlp.down_proj", 16)
    '…1.mlp.down_proj'
    """
    return name if len(name) <= room else "…" + name[1 - room :]


def _ends_of_blocks(names: Sequence[str]) -> set[int]:
    """The last rows of the model's numbered blocks; none where these are too small to be worth a gap.

    >>> sorted(_ends_of_blocks(["embed", "layers.0.norm", "layers.0.mlp.0", "layers.0.mlp.1", "layers.1.norm", "layers.1.mlp.0"]))
    [0, 3]
    """
    blocks = [_block(name) for name in names]
    ends = {row for row, (one, after) in enumerate(pairwise(blocks)) if one != after}
    return ends if 2 * len(ends) < len(names) else set()


def _block(name: str) -> str:
    """The numbered part of the model that a layer is in; "" for one that is in none.

    >>> _block("model.layers.31.mlp.down_proj"), _block("conv1"), _block("features.0")
    ('model.layers.31', '', '')
    """
    parts = name.split(".")
    numbered = next((at for at, part in enumerate(parts[:-1]) if part.isdigit()), -1)
    return ".".join(parts[: numbered + 1])


class Sent(NamedTuple):
    """A split that sends an input of the model unchanged."""

    name: str
    reason: str


def explanation(profile: Profile, refused: Sequence[RefusalLike]) -> list[Text | Table]:
    """Which cuts are left out, and why; those with the same reason together.  Then the splits that plans leave out."""
    everywhere = "the model can be cut after every layer"
    sent = [
        Sent(name, f"sends {' and '.join(raw)}")
        for name, raw in zip(profile.names, profile.raw_inputs, strict=True)
        if raw
    ]
    parts: list[Text | Table] = []
    if refused:
        parts += [
            Text(
                f"{len(refused)} of {len(profile) + len(refused)} cuts are left out, those after",
                style="bold",
            ),
            _reasons(refused),
        ]
    elif sent:
        parts += [Text(f"{everywhere[0].upper()}{everywhere[1:]}")]
    else:
        parts += [Text(f"No cut is left out: {everywhere}")]
    if sent:
        left_out = "would send a raw input unchanged, which plans leave out by default, those after"
        parts += [
            Text(f"{len(sent)} of {pluralize(len(profile), 'split')} {left_out}", style="bold"),
            _reasons(sent),
        ]
    return parts


def _reasons(refused: Sequence[RefusalLike]) -> Table:
    made = Table.grid(padding=(0, 3))
    for layers, reason in _grouped(refused):
        made.add_row(f"  {layers}", reason)
    return made


def _grouped(refused: Sequence[RefusalLike]) -> Iterator[tuple[str, str]]:
    """The layers of each reason, and the reason."""
    runs = [
        (reason, [each.name for each in run])
        for reason, run in groupby(refused, key=lambda each: each.reason)
    ]
    for reason in dict.fromkeys(reason for reason, _ in runs):
        yield ", ".join(_run(names) for why, names in runs if why == reason), reason


def _run(names: Sequence[str]) -> str:
    """Layers that follow each other.

    >>> _run(["a", "b"]), _run(["tokens", "blocks.0.norm", "blocks.1.norm"])
    ('a, b', 'tokens … blocks.1.norm (3)')
    """
    return ", ".join(names) if len(names) < 3 else f"{names[0]} … {names[-1]} ({len(names)})"
