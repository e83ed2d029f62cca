"""Fixtures of all tests: commands that run in this process, signals, and counted calls."""

import json
import os
import signal

import hypothesis
import pytest

# No test asserts a time: a busy machine must not fail an example.
hypothesis.settings.register_profile("airsplit", deadline=None)
hypothesis.settings.load_profile("airsplit")

# Before torch is loaded: there are as many test processes as cores, and one thread sums in one
# order.
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture
def run(capsys):
    """Return a function that runs a command and returns its exit code, stdout and stderr."""
    from airsplit.cli.app import main

    def call(*words):
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def document(run):
    """Return a function that runs a command with --json and returns its document."""

    def call(*words):
        code, out, err = run(*words, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


@pytest.fixture
def ignored_signals():
    """Ignore SIGINT and SIGTERM, as a shell script does for a command in the background."""
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def count_calls(monkeypatch):
    """Return a function that patches another to count its calls, in a list with one entry each."""

    def patch(owner, name):
        calls = []
        function = getattr(owner, name)

        def count(*args, **kwargs):
            calls.append(name)
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, count)
        return calls

    return patch
