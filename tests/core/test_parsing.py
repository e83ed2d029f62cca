"""JSON and TOML: bounded before parsing, and every failure a FileProblem on one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.errors import FileProblem
from airsplit.core.parsing import MAX_DEPTH, parse_json, parse_toml, read_json

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(), inside, max_size=4),
    max_leaves=20,
)


@given(PLAIN)
def test_json_that_python_writes_is_read_back_unchanged(value: object) -> None:
    assert parse_json(json.dumps(value), "value") == value
    assert parse_json(json.dumps(value, ensure_ascii=False, indent=1), "value") == value


@given(st.text(alphabet='[]{}":,\\ae1.-+nN0\n'))
def test_any_text_is_parsed_or_rejected_on_one_line(text: str) -> None:
    for parse in (parse_json, parse_toml):
        try:
            parse(text, "text")
        except FileProblem as error:
            message = str(error)
            assert message.startswith("text")
            assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested deeper than 32 levels"),
        ('{"a":' * 33 + "1" + "}" * 33, "nested deeper than 32 levels"),
        ("[" * 33 + "]" * 33, "nested deeper than 32 levels"),
        ("9" * 4000, "an integer beyond 64 bits"),
        ("-9223372036854775809", "an integer beyond 64 bits"),
        ("18446744073709551616", "an integer beyond 64 bits"),
        ("1" + "0" * 400, "an integer beyond 64 bits"),
        ("1e400", "a number that is not finite, '1e400'"),
        ("[0.5, -1e999]", "a number that is not finite, '-1e999'"),
        ("[NaN]", "a number that is not finite, NaN"),
        ("-Infinity", "a number that is not finite, -Infinity"),
        ("", "is not JSON"),
        ('{"a": 1', "is not JSON"),
        ('"' + "[" * 100, "is not JSON"),
    ],
)
def test_json_beyond_the_bounds_is_rejected(text: str, why: str) -> None:
    with pytest.raises(FileProblem) as caught:
        parse_json(text, "plan of the run 'x'")
    assert str(caught.value).startswith("plan of the run 'x' is not JSON")
    assert why in str(caught.value)
    assert len(str(caught.value)) < 200


def test_json_within_the_bounds_is_read() -> None:
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH, "x")
    assert parse_json(json.dumps([[1]] * 1000), "x") == [[1]] * 1000
    assert parse_json(json.dumps(["[" * 1000, '\\"[' * 1000]), "x") == ["[" * 1000, '\\"[' * 1000]
    numbers = "[9223372036854775807, 18446744073709551615, 1e308, 0.0000000000000000000000001]"
    assert parse_json(numbers, "x")[1] == 2**64 - 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = " + "[" * 100_000, "nested deeper than 32 levels"),
        ("a = " + "{b=" * 500 + "1" + "}" * 500, "nested deeper than 32 levels"),
        (".".join("a" * 100_000) + " = 1", "nested deeper than 32 levels"),
        ("[" + ".".join(['"a"'] * 40) + "]", "nested deeper than 32 levels"),
        (
            "[a.b.c.d.e.f.g.h.i.j.k.l]\n" + ".".join("a" * 25) + " = 1",
            "nested deeper than 32 levels",
        ),
        ("a = " + "9" * 4400, "a number of more than 1,000 digits"),
        ("a = " + "9" * 400, "an integer beyond 64 bits"),
        ("a = 0x" + "f" * 17, "an integer beyond 64 bits"),
        ("a = ", "not valid TOML"),
        (
            "# model\nname = alexnet\n",
            "not valid TOML: Invalid value (at line 2, column 8): name = alexnet; "
            "text must be in quotes",
        ),
        ("bandwidth_hz = 20 MHz", "(at line 1, column 19): bandwidth_hz = 20 MHz"),
        ('a = "', "not valid TOML"),
    ],
)
def test_toml_beyond_the_bounds_is_rejected(text: str, why: str) -> None:
    with pytest.raises(FileProblem) as caught:
        parse_toml(text)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 200


def test_toml_within_the_bounds_is_read() -> None:
    text = (
        'a = "[[[[" # [[[[\nb = """\n'
        + "[" * 50
        + "\"\"\"\nc = '''"
        + "{" * 50
        + "'''\nd = 1.5e-7\ne = '["
        + "a." * 40
        + "'\n"
    )
    assert parse_toml(text)["d"] == 1.5e-7


def test_parsing_time_is_linear_in_the_length() -> None:
    # Each of these made a naive pattern start over at every character.
    for text in (
        '"' * 10**6,
        '"\\' * 10**6,
        "a" * 10**6,
        "'''" + "'a" * 10**6,
        '"""' + '"a' * 10**6,
        "\\" * 10**6,
    ):
        for parse in (parse_json, parse_toml):
            with pytest.raises(FileProblem):
                parse(text, "x")


def test_a_file_larger_than_the_limit_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("[1, 2]")
    assert read_json(file, what="numbers", limit_bytes=6) == [1, 2]
    with pytest.raises(FileProblem, match=r"numbers .* is larger than 5 bytes"):
        read_json(file, what="numbers", limit_bytes=5)


@pytest.mark.skipif(sys.platform == "win32", reason="no /dev/zero")
def test_an_endless_file_is_rejected() -> None:
    with pytest.raises(FileProblem, match="is larger than 1000 bytes"):
        read_json("/dev/zero", what="numbers", limit_bytes=1000)
