"""Commands, run in this process."""

import json

import pytest

from airsplit.cli.app import main


@pytest.fixture
def run(capsys):
    """Run a command: exit code, stdout, stderr."""

    def call(*words):
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def document(run):
    """Run a command that must print one JSON document and nothing else."""

    def call(*words):
        code, out, err = run(*words, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call
