"""Fixtures of the command line's tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.small_net import write_small_net


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a small scenario with code of its own that can be imported; return its path."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "small_net", raising=False)
    return write_small_net(tmp_path)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """Return a function that writes a module into the folder in which commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return write


@pytest.fixture
def mistake(run: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Run a command that must fail with exit code 2; return its one line on stderr."""

    def call(*words: object) -> str:
        code, out, err = run(*words)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("airsplit: ")
        return err

    return call
