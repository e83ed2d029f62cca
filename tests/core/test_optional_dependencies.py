"""Extras that are not installed: errors say which, and how to install them."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from airsplit.cli.app import main
from airsplit.core.errors import AirsplitError
from airsplit.core.optional_dependencies import EXTRAS, find_missing_modules, require_extra

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"

# Distributions whose module has another name.
PACKAGES = {"grpc": "grpcio", "google.protobuf": "protobuf"}


def test_the_extras_are_those_of_pyproject() -> None:
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    for extra, modules in EXTRAS.items():
        assert [line.split(">=")[0] for line in declared[extra]] == [
            PACKAGES.get(module, module) for module in modules
        ]


def test_installed_modules_are_not_missing() -> None:
    assert {extra: find_missing_modules(extra) for extra in EXTRAS} == {
        "network": [],
        "dashboard": [],
    }


def test_missing_modules_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(EXTRAS, "network", ("grpc", "no_such_package", "no_such.thing"))
    with pytest.raises(
        AirsplitError,
        match=r"not installed: no_such_package, no_such\.thing; pip install 'airsplit\[network\]'",
    ) as raised:
        require_extra("network")
    assert isinstance(raised.value, ImportError)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("dashboard", ["dashboard"]),
        ("network", ["serve", "demo"]),
        ("network", ["join", "127.0.0.1:7070"]),
        ("network", ["probe", "demo"]),
        ("network", ["status", "127.0.0.1:7070"]),
        ("network", ["identity", "init"]),
    ],
)
def test_a_command_without_its_extra_ends_with_one_line(
    extra: str,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(EXTRAS, extra, ("no_such_package",))
    for module in [
        name
        for name in sys.modules
        if name.startswith((f"airsplit.{extra}", "airsplit.network.server.serve"))
    ]:
        monkeypatch.delitem(sys.modules, module)
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"airsplit: this needs the extra [{extra}]; not installed: no_such_package; "
        f"pip install 'airsplit[{extra}]'"
    )
    assert list(tmp_path.iterdir()) == []
