"""airsplit report: a page and its path, or one line and 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airsplit.cli.app import main
from airsplit.runs.folder import RunFolder
from airsplit.runs.record import RoundRecord
from airsplit.scenario.scenario import Scenario

PLAN = {"gap": 0.0, "mean_latency_s": 1.0, "expected_latency_s": 1.0, "batch_size": 32, "averaged_parameters": 1, "splits": [1],
        "split_names": ["conv1"], "shares": [1.0], "compute_s": [0.5], "transmit_s": [0.5], "server_s": [0.0]}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = RunFolder(tmp_path / "run")
    run.begin(Scenario.load("demo").to_toml(), PLAN)
    run.write_records([RoundRecord(round=1, virtual_time_s=1.0, latency_s=1.0, train_loss=2.0)])
    return run.path


def test_report_writes_the_page_and_prints_its_path(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr() == (f"{folder / 'report.html'}\n", "")
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_report_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(folder / "report.html")}


def test_a_folder_that_is_not_a_run_is_one_line_and_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert (
        "scenario.toml' does not exist; name a folder that airsplit run, serve or compare wrote"
        in err
    )


def test_the_help_has_an_example_and_no_long_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--help"]) == 0
    out = capsys.readouterr().out
    assert "Examples:\n    airsplit report" in out
    assert max(map(len, out.splitlines())) <= 80
