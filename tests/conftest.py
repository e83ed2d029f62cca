"""What all tests share: one thread for each process, and commands that run in this one."""

import json
import os
import signal

import pytest

os.environ["OMP_NUM_THREADS"] = (
    "1"  # before torch is loaded: there are as many processes as cores, and sums are in one order
)


@pytest.fixture
def run(capsys):
    """Run a command: exit code, stdout, stderr."""
    from airsplit.cli.app import main

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


@pytest.fixture
def ignored_signals():
    """Ignore SIGINT and SIGTERM, as a command inherits it from a script that has started it in the background."""
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def count_calls(monkeypatch):
    """Count the calls of a function: a list with an entry for each call so far."""

    def start(owner, name):
        calls = []
        function = getattr(owner, name)

        def counted(*given, **more):
            calls.append(name)
            return function(*given, **more)

        monkeypatch.setattr(owner, name, counted)
        return calls

    return start
