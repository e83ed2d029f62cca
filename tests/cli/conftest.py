"""Fixtures of the command line's tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli.small_net import write_small_net


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a small scenario with code of its own that can be imported; return its path."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "small_net", raising=False)
    return write_small_net(tmp_path)
