"""The commands report and figures."""

import json

import pytest

from airsplit.runs.folder import RunFolder
from airsplit.runs.record import RoundRecord
from airsplit.scenario.scenario import Scenario


def test_figures_writes_files_and_checks_the_claims(run, tmp_path):
    code, out, err = run("figures", "3", "--out", tmp_path, "--json")
    assert code == 0
    claims = json.loads(out)
    assert all(claim.keys() == {"id", "claim", "measured", "holds"} for claim in claims)
    assert claims == json.loads((tmp_path / "claims.json").read_text())
    assert (tmp_path / "fig03.svg").exists()
    assert err.startswith("airsplit: figure 3")
    assert "C1" in run("figures", "3", "--out", tmp_path)[1]


MISTAKES = [
    (["figures", "99"], "figure '99' is not known. Known: 3"),
    (["figures", "three"], "figure 'three' is not known"),
    (["figures", "--scale", "papr"], "--scale 'papr' is not known; did you mean 'paper'"),
]


@pytest.mark.parametrize(
    ("words", "message"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES]
)
def test_a_mistake_is_one_line_and_writes_nothing(mistake, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in mistake(*words)
    assert list(tmp_path.iterdir()) == []


PLAN = {
    "gap": 0.0,
    "mean_latency_s": 1.0,
    "expected_latency_s": 1.0,
    "batch_size": 32,
    "averaged_parameters": 1,
    "splits": [1],
    "split_names": ["conv1"],
    "shares": [1.0],
    "compute_s": [0.5],
    "transmit_s": [0.5],
    "server_s": [0.0],
}


@pytest.fixture
def folder(tmp_path):
    """Return a run folder of one round."""
    run = RunFolder(tmp_path / "run")
    run.begin(Scenario.load("demo").to_toml(), PLAN)
    run.write_records([RoundRecord(round=1, virtual_time_s=1.0, latency_s=1.0, train_loss=2.0)])
    return run.path


def test_report_writes_the_page_and_prints_its_path(run, folder):
    assert run("report", folder) == (0, f"{folder / 'report.html'}\n", "")
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_report_as_json(document, folder):
    assert document("report", folder) == {"report": str(folder / "report.html")}


def test_report_rejects_a_folder_without_a_run(mistake, tmp_path):
    assert (
        "scenario.toml' does not exist; name a folder that airsplit run, serve or compare wrote"
        in mistake("report", tmp_path)
    )
