"""The doctor tries each part, and says how to install what is absent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airsplit.cli.app import main
from airsplit.cli.doctor import Finding, examine
from airsplit.core.optional_dependencies import EXTRAS
from airsplit.data.image_sets import IMAGE_SETS


def by_part(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.part: finding for finding in findings}


def test_everything_the_tests_install_works(tmp_path: Path) -> None:
    findings = by_part(examine(tmp_path / "data", tmp_path / "runs"))
    works = {part for part, finding in findings.items() if finding.state == "works"}
    assert works >= {
        "airsplit",
        "planner",
        "torch",
        "network",
        "dashboard",
        "digits",
        "data folder",
        "runs",
    }
    assert not [finding for finding in findings.values() if finding.state == "broken"]
    assert list(tmp_path.iterdir()) == []  # a check leaves nothing behind


def test_missing_data_sets_are_absent(tmp_path: Path) -> None:
    findings = by_part(examine(tmp_path))
    for name in (name for name, known in IMAGE_SETS.items() if known.files):
        assert findings[name] == Finding(name, "absent", f"not in {tmp_path}: airsplit data {name}")


def test_an_extra_that_is_not_installed_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXTRAS, "dashboard", ("starlette", "no_such_package"))
    assert by_part(examine(tmp_path))["dashboard"] == Finding(
        "dashboard", "absent", "no_such_package not installed: pip install 'airsplit[dashboard]'"
    )


def test_an_extra_that_cannot_be_imported_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cut_short.py").write_text("raise OSError('libgrpc.so is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(EXTRAS, "network", ("cut_short",))
    assert by_part(examine(tmp_path))["network"] == Finding(
        "network", "broken", "OSError: libgrpc.so is missing"
    )


def test_a_read_only_folder_is_broken_and_exits_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "--data", "/proc/none/data", "--json"]) == 1
    findings = by_part([Finding(**finding) for finding in json.loads(capsys.readouterr().out)])
    assert findings["data folder"].state == "broken"
    assert findings["data folder"].says.endswith("choose another with --data or AIRSPLIT_DATA")


def test_the_table_has_a_row_for_each_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--data", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert all(
        any(line.split()[:1] == [part.split()[0]] for line in printed.splitlines())
        for part in by_part(examine(tmp_path))
    )
