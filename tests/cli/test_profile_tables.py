"""Tables of profiles: fit to the terminal, readable with long names and many rows."""

from dataclasses import dataclass

import pytest
from rich.console import Console

from airsplit.cli.profile_tables import cuts_report, profile_report
from airsplit.system.profile import Profile


@dataclass(frozen=True)
class Refusal:
    name: str
    reason: str


def make_profile(names, **columns):
    count = len(names)
    macs = [10**9 * (row % 7 + 1) for row in range(count)]
    usual = {"activation_elements": [4096] * count, "parameters": [16_777_216] * count}
    return Profile(
        names,
        macs,
        matmul_macs=[sum(macs[: row + 1]) for row in range(count)],
        model="mine",
        **usual | columns,
    )


def name_transformer_layers(blocks):
    layers = ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")
    return [
        "model.embed_tokens",
        *(f"model.layers.{block}.{layer}" for block in range(blocks) for layer in layers),
        "lm_head",
    ]


def print_lines(parts, width=200):
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    return [line.rstrip() for line in captured.get().splitlines()]


def rows(lines):
    return [line for line in lines if line.split() and line.split()[0].isdigit()]


def header(lines):
    return next(line for line in lines if line.split()[:1] == ["split"]).split()


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([], "3.00 GMAC per sample ·"),
        (["8"], "per sample of 8 ·"),
        (["3x8", "5:int64"], "per sample of 3x8 and 5:int64 ·"),
    ],
)
def test_the_headline_says_what_a_sample_is(inputs, text):
    assert text in print_lines(profile_report(make_profile(["conv", "fc"], inputs=inputs), 100))[0]


@pytest.mark.parametrize(
    "names",
    [["conv1", "relu1", "fc"], name_transformer_layers(4), [f"layer{i}" for i in range(30)]],
)
def test_a_table_of_usual_names_fits_120_columns(names):
    lines = print_lines(profile_report(make_profile(names), 200))
    table = lines[2:]
    assert max(map(len, table)) <= 120
    assert len(rows(table)) == len(names)
    assert "…" not in "".join(table)
    assert header(lines) == [
        "split",
        "name",
        "layer",
        "so",
        "far",
        "backward",
        "sent",
        "back",
        "parameters",
        "memory",
        "of",
        "the",
        "work",
    ]


@pytest.mark.parametrize("width", [60, 70, 80, 90, 100, 110, 120, 140])
@pytest.mark.parametrize(
    "names",
    [
        ["conv1", "relu1"],
        name_transformer_layers(20),
        ["a.very.long.name." * 6 + str(i) for i in range(3)],
    ],
)
def test_a_narrow_table_drops_columns_and_shortens_names_but_cuts_no_number(width, names):
    profile = make_profile(names)
    lines = print_lines(profile_report(profile, width), width)
    assert max(map(len, lines)) <= width
    assert all(" G " in row and "16.4 kB" in row for row in rows(lines))
    assert width < 80 or all("16,777,216" in row for row in rows(lines))
    assert all(name[-12:] in row for name, row in zip(names, rows(lines), strict=True))
    assert all(row.count("…") <= 1 for row in rows(lines))


def test_a_long_table_has_gaps_between_blocks_and_repeats_its_header():
    names = name_transformer_layers(80)
    lines = print_lines(profile_report(make_profile(names), 120), 120)
    assert len(rows(lines)) == 322
    assert sum(line.split()[:1] == ["split"] for line in lines) == 2
    first = next(at for at, line in enumerate(lines) if "model.embed_tokens" in line)
    assert [bool(line) for line in lines[first : first + 8]] == [
        True,
        False,
        True,
        True,
        True,
        True,
        False,
        True,
    ]


def test_a_long_table_without_blocks_has_no_gaps():
    lines = print_lines(
        profile_report(make_profile([f"layers.{i}.add" for i in range(60)]), 120), 120
    )
    first = next(at for at, line in enumerate(lines) if "layers.0.add" in line)
    assert all(lines[first : first + 60])


def test_frozen_parameters_are_shown_if_there_are_any():
    assert "trainable" not in header(print_lines(profile_report(make_profile(["a", "b"]), 120)))
    lines = print_lines(profile_report(make_profile(["a", "b"], trainable_parameters=[0, 5]), 120))
    assert "trainable" in header(lines)
    assert "16,777,216" in rows(lines)[1]
    assert " 5 " in rows(lines)[1]


def test_gradients_and_the_backward_pass_have_their_own_columns():
    lines = print_lines(
        profile_report(
            make_profile(["a"], gradient_elements=[1024], backward_macs=[3 * 10**9]), 120
        )
    )
    assert rows(lines)[0].split()[:10] == [
        "1",
        "a",
        "1.00",
        "G",
        "1.00",
        "G",
        "3.00",
        "G",
        "16.4",
        "kB",
    ]
    assert "4.10 kB" in rows(lines)[0]


def test_cuts_with_the_same_reason_are_grouped_and_ranges_abbreviated():
    refused = [Refusal(name, "torn") for name in ("a", "b", "c", "d")] + [
        Refusal("e", "no batch"),
        Refusal("f", "torn"),
    ]
    lines = print_lines(cuts_report(make_profile(["x", "y"]), refused))
    assert lines == [
        "6 of 8 cuts are left out, those after",
        "  a … d (4), f   torn",
        "  e              no batch",
    ]


def test_two_cuts_are_both_named():
    assert "  a, b   torn" in print_lines(
        cuts_report(make_profile(["x"]), [Refusal("a", "torn"), Refusal("b", "torn")])
    )


def test_a_model_without_illegal_cuts_gets_one_line():
    assert print_lines(cuts_report(make_profile(["x"]), [])) == [
        "No cut is left out: the model can be cut after every layer"
    ]


def test_long_reasons_wrap_and_lose_nothing():
    reason = "the weight tokens.weight is used on both sides, by tokens and by head, " * 3
    lines = print_lines(
        cuts_report(make_profile(["x"]), [Refusal(f"blocks.{i}.mlp", reason) for i in range(9)]), 80
    )
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()).count("by tokens and by head") >= 1


RAW = {
    "raw_inputs": [[], ["image", "context"], ["context"]],
    "other_inputs": [["mask"], ["mask", "lengths"], []],
}


@pytest.mark.parametrize("width", [60, 90, 200])
def test_a_table_names_the_raw_inputs_of_each_split(width):
    lines = print_lines(profile_report(make_profile(["a", "b", "c"], **RAW), width), width)
    assert [word for word in header(lines) if word in ("raw", "inputs")] == ["raw", "inputs"]
    assert [row.count("image, context") for row in rows(lines)] == [0, 1, 0]
    assert [row.count("context") for row in rows(lines)] == [0, 1, 1]
    text = " ".join(lines)
    assert (
        "Raw inputs would be sent unchanged; plans leave out such splits, "
        "unless model.raw_inputs lets these" in text
    )
    assert "mask and lengths cross some cuts unchanged, which plans allow" in text


def test_a_model_that_sends_no_input_gets_no_note():
    text = " ".join(print_lines(profile_report(make_profile(["a"]), 200)))
    assert "raw" not in text
    assert "plans" not in text


def test_the_splits_that_plans_leave_out_are_named():
    names = ["a", "b", "c", "d", "e"]
    raw = [["context"]] * 3 + [[], ["image", "context"]]
    assert print_lines(cuts_report(make_profile(names, raw_inputs=raw), [])) == [
        "The model can be cut after every layer",
        "4 of 5 splits would send a raw input unchanged, so plans leave them out by default, "
        "those after",
        "  a … c (3)   sends context",
        "  e           sends image and context",
    ]
    both = print_lines(cuts_report(make_profile(names, raw_inputs=raw), [Refusal("f", "torn")]))
    assert both[:2] == ["1 of 6 cuts are left out, those after", "  f   torn"]
    assert both[2].startswith("4 of 5 splits would send a raw input unchanged")
