"""Figures drawn once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from paper.tiny_figures import draw_all


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with every figure at a tiny scale."""
    out: Path = tmp_path_factory.mktemp("figures")
    draw_all(out)
    return out
