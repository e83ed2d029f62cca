"""Studies: trainings are shared and kept, and their clock needs no training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from airsplit.paper import jobs, studies
from airsplit.paper.figures import draw
from airsplit.paper.jobs import Done, Job, figure_jobs
from airsplit.paper.studies import SMOKE, Case, SmokeStudy, difference, find_round_ends
from airsplit.training.coordinator import Training

TUNED = {("mnist", "sfl"): (0.002, 1), ("mnist", "fedavg"): (0.001, 100)}


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> SmokeStudy:
    """Return a study with trainings of three short rounds."""
    base = {
        "model.arguments.width": 0.02,
        "training.rounds": 3,
        "training.iterations_per_round": 1,
        "training.batch_size": 2,
        "training.evaluate_devices": 1,
    }
    monkeypatch.setattr(studies, "BASE", base)
    monkeypatch.setattr(studies, "SEEDS", 2)
    monkeypatch.setattr(studies, "JOBS", 1)
    return SmokeStudy(SMOKE)


def test_a_case_is_trained_once_with_each_seed(study: SmokeStudy) -> None:
    case = Case("digits", devices=2)
    lines: list[str] = []
    first = study.train([case, case], lines.append)[case]
    assert len(first.runs) == 2
    assert first.runs[0] != first.runs[1]
    assert lines

    lines.clear()
    assert study.train([case], lines.append)[case].runs == first.runs
    assert lines == []


@pytest.mark.parametrize("algorithm", ["sfl", "fedavg", "splitfed-v1"])
def test_rounds_end_without_training_when_they_do_with_it(
    study: SmokeStudy, algorithm: str
) -> None:
    scenario = study.scenario(Case("digits", algorithm, devices=2))
    trained_s = [record.virtual_time_s for record in Training(scenario).rounds()]
    assert find_round_ends(scenario).tolist() == trained_s


def test_seeds_are_compared_in_pairs() -> None:
    compared = difference([0.5, 0.75, 0.1], [0.25, 0.25])
    assert compared["mean"] == pytest.approx(0.375)
    assert compared["least"] == pytest.approx(0.25)
    assert compared["seeds"] == 2
    # Student's quantile for two values, times their standard deviation over √2.
    assert compared["half_width"] == pytest.approx(
        12.706 * np.std([0.25, 0.5], ddof=1) / 2**0.5, 1e-4
    )


def records(job: Job) -> list[dict[str, float]]:
    """Return records in which SFL finishes early, and deep splits lose, more so if non-IID."""
    loss = 0.001 * job.devices
    if job.algorithm == "sfl":
        loss += 0.01 * job.split * (2 if job.partition == "non-iid" else 1)
    seconds_per_evaluation = 1.0 if job.algorithm == "sfl" else 1000.0
    numbers = [1, max(2, job.rounds // 2), max(3, job.rounds)]
    return [
        {
            "round": number,
            "virtual_time_s": seconds_per_evaluation * count,
            "latency_s": 1.0,
            "train_loss": 0.5,
            "test_accuracy": 0.99 - loss - 0.2 / count + 0.001 * job.seed,
            "own_accuracy": 0.9,
        }
        for count, number in enumerate(numbers, start=1)
    ]


def test_figures_at_the_scale_paper_are_drawn_from_kept_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "TUNED", TUNED)
    monkeypatch.setattr(jobs, "train_missing", lambda *_, **__: pytest.fail("nothing is missing"))
    done = Done(tmp_path / "runs.jsonl")
    for job in figure_jobs("mnist", TUNED):
        done.add(job, {"records": records(job), "seconds": 1.0})

    claims = {claim.id: claim for claim in draw([9, 10], tmp_path, "paper", lambda _: None)}

    assert {name: claim.holds for name, claim in claims.items()} == {
        "C9": True,
        "C10": True,
        "C11": True,
    }
    assert "3 seeds (20 devices), one seed elsewhere" in claims["C9"].measured
    drawn = json.loads((tmp_path / "fig09.json").read_text())
    assert [(panel["dataset"], panel["devices"]) for panel in drawn["panels"]] == [
        ("mnist", 5),
        ("mnist", 20),
        ("mnist", 100),
    ]
