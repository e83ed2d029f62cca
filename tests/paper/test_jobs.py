"""Jobs: equal effort for all of them, no training twice, and failures that end no other."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from airsplit.core.errors import AirsplitError, FileProblem
from airsplit.paper import jobs
from airsplit.paper.jobs import (
    Done,
    FailedTrainings,
    Job,
    figure_jobs,
    find_best,
    make_job,
    search_jobs,
    train_missing,
)
from airsplit.scenario.scenario import Scenario
from airsplit.training.memory import PROCESSES

TUNED = {("mnist", "sfl"): (0.002, 1), ("mnist", "fedavg"): (0.001, 100)}


def record(accuracy: float, time_s: float, number: int = 1) -> dict[str, float]:
    """Return a record as it is kept in the file."""
    return {
        "round": number,
        "virtual_time_s": time_s,
        "latency_s": 1.0,
        "train_loss": 0.5,
        "test_accuracy": accuracy,
        "own_accuracy": accuracy,
    }


def tiny_scenario(self: Job, device: str = "cpu") -> Scenario:
    """Return a scenario in place of a job's that trains in a moment."""
    changes = {
        "model.arguments": {"width": 0.02, "channels": 1},
        "fleet.devices": 2,
        "training.rounds": 1,
        "training.iterations_per_round": 1,
        "training.batch_size": 2,
        "training.seed": self.seed,
        "training.evaluate_samples": 20,
    }
    return Scenario.load("demo").replace(**changes)


def test_passes_over_the_samples_do_not_depend_on_the_number_of_devices() -> None:
    for devices in jobs.DEVICES:
        for algorithm in ("sfl", "fedavg"):
            job = make_job(TUNED, "mnist", algorithm, devices=devices)
            batches = 60_000 // devices // jobs.BATCH_SIZE
            assert job.rounds * job.iterations_per_round == pytest.approx(
                jobs.EPOCHS["mnist"] * batches, rel=0.15
            )


def test_iterations_per_round_scale_with_the_samples_of_a_device() -> None:
    for algorithm, expected in (("fedavg", [400, 100, 20]), ("sfl", [1, 1, 1])):
        iterations = [
            make_job(TUNED, "mnist", algorithm, devices=devices).iterations_per_round
            for devices in (5, 20, 100)
        ]
        assert iterations == expected


def test_the_search_tries_the_same_settings_for_each_algorithm() -> None:
    sfl = search_jobs("cifar10", "sfl")
    fedavg = search_jobs("cifar10", "fedavg")
    assert [replace(job, algorithm="fedavg") for job in sfl] == fedavg
    assert len({(job.learning_rate, job.iterations_per_round) for job in sfl}) == len(sfl) == 12


def test_settings_are_compared_at_the_time_at_which_the_first_training_ends(tmp_path: Path) -> None:
    done = Done(tmp_path / "search.jsonl")
    for job in search_jobs("mnist", "fedavg"):
        if job.iterations_per_round == 1:
            end = record(0.9, 100.0, 2)
        else:
            end = record(0.5 + job.learning_rate, 10.0, 2)
        done.add(job, {"records": [record(0.3, 5.0), end], "seconds": 1.0})

    rate, iterations = find_best("mnist", "fedavg", done)

    assert rate == max(job.learning_rate for job in search_jobs("mnist", "fedavg"))
    # One iteration per round is the most accurate, but too late. 10 and 100 are equal, and the
    # first of them wins.
    assert iterations == 10


def test_an_incomplete_search_has_no_best_settings(tmp_path: Path) -> None:
    done = Done(tmp_path / "search.jsonl")
    done.add(search_jobs("mnist", "sfl")[0], {"records": [record(0.9, 1.0)]})
    with pytest.raises(
        FileProblem,
        match=r"search for sfl on mnist must be complete, but 11 of its 12 trainings are missing",
    ):
        find_best("mnist", "sfl", done)


def test_the_figures_use_the_best_settings_of_the_stored_search() -> None:
    done = Done(Path(__file__).parents[2] / "benchmarks" / "results" / "accuracy" / "search.jsonl")
    assert {key: find_best(*key, done) for key in jobs.TUNED} == jobs.TUNED


def test_a_curve_has_its_finished_seeds_without_a_gap(tmp_path: Path) -> None:
    done = Done(tmp_path / "runs.jsonl")
    job = Job("mnist", "sfl", 0.1, 1, 5)

    def list_seeds() -> list[int]:
        return [seeded.seed for seeded in jobs.add_finished_seeds(job, done)]

    # The first seed is trained if it is missing.
    assert list_seeds() == [0]
    # Seed 2 alone would be compared with seed 1 of another curve.
    done.add(replace(job, seed=2), {"records": [record(0.9, 1.0)]})
    assert list_seeds() == [0]
    done.add(replace(job, seed=1), {"records": [record(0.9, 1.0)]})
    assert list_seeds() == [0, 1, 2]


def test_a_seed_that_diverged_counts_as_guessing_in_all_rounds(tmp_path: Path) -> None:
    done = Done(tmp_path / "runs.jsonl")
    diverged, finished = (Job("mnist", "sfl", 0.1, 1, 5, seed=seed) for seed in (0, 1))
    done.add(diverged, {"records": [record(0.1, 0.0)], "diverged": "training stopped"})
    done.add(finished, {"records": [record(0.8, 1.0, 3), record(0.9, 2.0, 6)]})
    for trainings in (done, Done(tmp_path / "runs.jsonl")):
        trials = trainings.trials([diverged, finished])
        rounds, times, accuracies = trials.curve()
        assert rounds.tolist() == [3, 6]
        assert times.tolist() == [[1.0, 2.0], [1.0, 2.0]]
        assert accuracies.tolist() == [[0.1, 0.1], [0.8, 0.9]]
        assert trials.last("own_accuracy") == [0.1, 0.9]


def test_every_job_is_a_scenario_that_can_be_written_and_read() -> None:
    for job in dict.fromkeys((*figure_jobs("mnist", TUNED), *search_jobs("cifar10", "sfl"))):
        scenario = job.scenario("cuda")
        assert Scenario.from_toml(scenario.to_toml()) == scenario
        assert scenario.training.precision == "bf16"
        assert scenario.training.device == "cuda"


def test_a_finished_training_is_kept_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "scenario", tiny_scenario)
    file = tmp_path / "runs.jsonl"
    first, second = (Job("mnist", "sfl", 0.1, 1, 5, seed=seed) for seed in (0, 1))
    assert len(list(train_missing([first, first], Done(file)))) == 1
    assert len(list(train_missing([first, second], Done(file)))) == 1
    reread = Done(file)
    assert list(train_missing([first, second], reread)) == []
    assert len(file.read_text().splitlines()) == 2
    assert 0 <= reread.trials([first, second]).last("test_accuracy")[0] <= 1


def test_no_training_starts_after_its_time_and_progress_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "scenario", tiny_scenario)
    job = Job("mnist", "sfl", 0.1, 1, 5)
    done = Done(tmp_path / "runs.jsonl")
    lines = list(train_missing([job], done, until=time.monotonic() - 1))
    assert lines == ["1 of 1 were not started: time is up"]
    assert not (tmp_path / "runs.jsonl").exists()


def test_a_training_that_diverges_counts_as_guessing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverging_scenario(self: Job, device: str = "cpu") -> Scenario:
        changes = {"training.learning_rate": 1e30, "training.rounds": 2}
        return tiny_scenario(self, device).replace(**changes)

    monkeypatch.setattr(Job, "scenario", diverging_scenario)
    job = Job("mnist", "sfl", 0.1, 1, 5)
    done = Done(tmp_path / "runs.jsonl")
    (line,) = train_missing([job], done)
    assert "diverged: training stopped after round 1" in line
    assert "accuracy" not in line
    assert done[job][-1].test_accuracy == 0.1
    assert "not finite" in json.loads((tmp_path / "runs.jsonl").read_text())["diverged"]


class Failing(Job):
    """A job that fails every time at learning rate 1, and beside another job at learning rate 2."""

    def scenario(self, device: str = "cpu") -> Scenario:
        if self.learning_rate == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        if self.learning_rate == 2 and os.environ.get(PROCESSES) != "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return tiny_scenario(self, device)


def test_a_failed_training_ends_no_other_is_retried_alone_and_is_named_at_the_end(
    tmp_path: Path,
) -> None:
    trainings = [Failing("mnist", "sfl", rate, 1, 5) for rate in (1, 2, 0.1, 0.2)]
    hopeless = trainings[0]
    done = Done(tmp_path / "runs.jsonl")
    with pytest.raises(AirsplitError) as error:
        list(train_missing(trainings, done, at_a_time=2))
    assert [job in done for job in trainings] == [False, True, True, True]
    assert isinstance(error.value, FailedTrainings)
    assert list(error.value.reasons) == [hopeless]
    assert str(error.value).startswith(
        f"1 of 4 trainings failed, the others are kept; {hopeless}: "
        "OutOfMemoryError: CUDA out of memory."
    )
    assert "\n" not in str(error.value)


def test_with_one_training_at_a_time_a_failed_one_ends_no_other_either(tmp_path: Path) -> None:
    hopeless, good = (Failing("mnist", "sfl", rate, 1, 5) for rate in (1, 0.1))
    done = Done(tmp_path / "runs.jsonl")
    lines: list[str] = []
    with pytest.raises(AirsplitError, match=r"^1 of 2 trainings failed"):
        lines.extend(train_missing([hopeless, good], done))
    assert hopeless not in done
    assert good in done
    assert lines[0].startswith(f"1 of 2: {hopeless} failed: OutOfMemoryError: CUDA out of memory")
    assert lines[1].startswith(f"2 of 2: {good} took")
    assert lines[2] == "1 failed; each is retried alone"
    assert lines[3].startswith(f"1 of 1: {hopeless} failed: ")


@pytest.mark.parametrize(
    "line", ["{", '{"job": {}}', '{"job": {"dataset": "mnist", "wrong": 1}, "records": []}', "[]"]
)
def test_an_invalid_line_is_rejected_by_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "runs.jsonl").write_text(line + "\n")
    with pytest.raises(
        FileProblem,
        match=r"runs\.jsonl.*line 1 must be one training as JSON, got .*; delete that line",
    ):
        Done(tmp_path / "runs.jsonl")
