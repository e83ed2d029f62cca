"""The command line as a whole: help, exit codes, and a mistake in one line on stderr."""

import os
import subprocess
import sys

import pytest

import airsplit as air
from airsplit.scenario.settings import ALGORITHMS

COMMANDS = ("profile", "plan", "run", "compare", "export", "report", "data", "presets", "figures")


def script(*words):
    """The code of a new interpreter that runs a command."""
    return [
        sys.executable,
        "-c",
        "import sys; from airsplit.cli.app import main; sys.exit(main())",
        *words,
    ]


def test_version_prints_the_version(run):
    assert run("--version") == (0, f"airsplit {air.__version__}\n", "")


def test_help_lists_every_command_and_where_to_start(run):
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    assert all(command in out for command in COMMANDS)
    assert "airsplit plan paper-alexnet" in out
    assert "..." not in out.partition("Commands:")[2]  # a summary that does not fit is cut


def test_without_a_command_it_prints_the_help(run):
    assert run() == run("--help")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_examples_and_fits_80_columns(run, command):
    code, out, err = run(command, "--help")
    assert (code, err) == (0, "")
    assert f"Examples:\n    airsplit {command}" in out
    assert "--json" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_help_of_plan_names_every_method(run):
    text = " ".join(run("plan", "--help")[1].split())
    assert all(method in text for method in air.METHODS)


def test_the_help_of_compare_names_every_algorithm(run):
    assert f"(default: {', '.join(ALGORITHMS)})" in " ".join(run("compare", "--help")[1].split())


def test_ctrl_c_exits_with_130_and_no_traceback(run, module):
    module("patient_net", "raise KeyboardInterrupt\n")
    code, out, err = run("profile", "patient_net:make", "--input", "8")
    assert (code, out) == (130, "")
    assert "Traceback" not in err


def test_a_closed_pipe_is_not_an_error():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            script("plan", "paper-alexnet"), stdout=closed, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_terminal_without_unicode_still_gets_output():
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        script("plan", "paper-alexnet"), capture_output=True, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"20 devices" in done.stdout


MISTAKES = [
    (["fly"], "No such command 'fly'"),
    (["plam"], "Did you mean 'plan'?"),
]


@pytest.mark.parametrize(
    ("words", "message"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES]
)
def test_a_mistake_is_one_line_and_writes_nothing(mistake, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in mistake(*words)
    assert list(tmp_path.iterdir()) == []
