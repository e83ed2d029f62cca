"""Jobs: which trainings there are behind the figures of accuracy, and that none is done twice."""

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
from airsplit.paper.figures import draw
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
    return {
        "round": number,
        "virtual_time_s": time_s,
        "latency_s": 1.0,
        "train_loss": 0.5,
        "test_accuracy": accuracy,
        "own_accuracy": accuracy,
    }


def tiny(self: Job, device: str = "cpu") -> Scenario:
    """A job's scenario, but one that trains in a moment."""
    changes = {
        "fleet.devices": 2,
        "training.rounds": 1,
        "training.iterations_per_round": 1,
        "training.batch_size": 2,
    }
    changes |= {
        "model.arguments": {"width": 0.02, "channels": 1},
        "training.seed": self.seed,
        "training.evaluate_samples": 20,
    }
    return Scenario.load("demo").replace(**changes)


def test_each_device_goes_through_its_samples_as_often_however_many_devices_there_are() -> None:
    for devices in jobs.DEVICES:
        for algorithm in ("sfl", "fedavg"):
            job = make_job(TUNED, "mnist", algorithm, devices=devices)
            batches = 60_000 // devices // jobs.BATCH_SIZE
            assert job.rounds * job.iterations_per_round == pytest.approx(
                jobs.EPOCHS["mnist"] * batches, rel=0.15
            )


def test_iterations_are_as_many_passes_over_a_devices_samples_as_in_the_search() -> None:
    assert [
        make_job(TUNED, "mnist", "fedavg", devices=devices).iterations_per_round
        for devices in (5, 20, 100)
    ] == [400, 100, 20]
    assert [
        make_job(TUNED, "mnist", "sfl", devices=devices).iterations_per_round
        for devices in (5, 20, 100)
    ] == [1, 1, 1]


def test_the_search_tries_as_much_for_each_algorithm() -> None:
    one, other = (search_jobs("cifar10", algorithm) for algorithm in ("sfl", "fedavg"))
    assert [replace(job, algorithm="fedavg") for job in one] == other
    assert len({(job.learning_rate, job.iterations_per_round) for job in one}) == len(one) == 12


def test_the_best_is_judged_by_the_time_at_which_the_first_has_seen_all_samples(
    tmp_path: Path,
) -> None:
    done = Done(tmp_path / "search.jsonl")
    for job in search_jobs("mnist", "fedavg"):
        slow = job.iterations_per_round == 1
        records = [
            record(0.3, 5.0),
            record(0.9 if slow else 0.5 + job.learning_rate, 100.0 if slow else 10.0, 2),
        ]
        done.add(job, {"records": records, "seconds": 1.0})
    rate, iterations = find_best("mnist", "fedavg", done)
    assert rate == max(job.learning_rate for job in search_jobs("mnist", "fedavg"))
    assert iterations == 10  # the most accurate of all comes too late; among equals the first


def test_nothing_is_best_before_the_search_is_complete(tmp_path: Path) -> None:
    done, (first, *_) = Done(tmp_path / "search.jsonl"), search_jobs("mnist", "sfl")
    done.add(first, {"records": [record(0.9, 1.0)]})
    with pytest.raises(
        FileProblem,
        match=r"search for sfl on mnist must be complete, but 11 of its 12 trainings are missing",
    ):
        find_best("mnist", "sfl", done)


def test_what_the_figures_use_is_what_the_search_found() -> None:
    done = Done(Path(__file__).parents[2] / "benchmarks" / "results" / "accuracy" / "search.jsonl")
    assert {key: find_best(*key, done) for key in jobs.TUNED} == jobs.TUNED


def test_a_curve_has_every_seed_that_is_done_in_order(tmp_path: Path) -> None:
    done, job = Done(tmp_path / "runs.jsonl"), Job("mnist", "sfl", 0.1, 1, 5)

    def seeds() -> list[int]:
        return [each.seed for each in jobs.add_finished_seeds(job, done)]

    assert seeds() == [0]  # which is trained if it is missing
    done.add(replace(job, seed=2), {"records": [record(0.9, 1.0)]})
    assert seeds() == [
        0
    ]  # else the second of this curve would be compared with the second of another
    done.add(replace(job, seed=1), {"records": [record(0.9, 1.0)]})
    assert seeds() == [0, 1, 2]


def test_a_seed_that_diverged_is_as_good_as_guessing_all_along(tmp_path: Path) -> None:
    done, (one, other) = (
        Done(tmp_path / "runs.jsonl"),
        (Job("mnist", "sfl", 0.1, 1, 5, seed=seed) for seed in (0, 1)),
    )
    done.add(one, {"records": [record(0.1, 0.0)], "diverged": "training stopped"})
    done.add(other, {"records": [record(0.8, 1.0, 3), record(0.9, 2.0, 6)]})
    for again in (done, Done(tmp_path / "runs.jsonl")):
        trials = again.trials([one, other])
        rounds, times, accuracies = trials.curve()
        assert rounds.tolist() == [3, 6]
        assert times.tolist() == [[1.0, 2.0], [1.0, 2.0]]
        assert accuracies.tolist() == [[0.1, 0.1], [0.8, 0.9]]
        assert trials.last("own_accuracy") == [0.1, 0.9]


def test_every_job_is_a_scenario_that_can_be_written_down() -> None:
    for job in dict.fromkeys((*figure_jobs("mnist", TUNED), *search_jobs("cifar10", "sfl"))):
        scenario = job.scenario("cuda")
        assert Scenario.from_toml(scenario.to_toml()) == scenario
        assert (scenario.training.precision, scenario.training.device) == ("bf16", "cuda")


def test_what_is_done_is_kept_and_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "scenario", tiny)
    file = tmp_path / "runs.jsonl"
    first, second = (Job("mnist", "sfl", 0.1, 1, 5, seed=seed) for seed in (0, 1))
    assert len(list(train_missing([first, first], Done(file)))) == 1
    assert len(list(train_missing([first, second], Done(file)))) == 1
    again = Done(file)
    assert list(train_missing([first, second], again)) == []
    assert len(file.read_text().splitlines()) == 2
    assert 0 <= again.trials([first, second]).last("test_accuracy")[0] <= 1


def test_nothing_is_begun_after_its_time_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "scenario", tiny)
    told = list(
        train_missing(
            [Job("mnist", "sfl", 0.1, 1, 5)],
            Done(tmp_path / "runs.jsonl"),
            until=time.monotonic() - 1,
        )
    )
    assert told == ["1 of 1 were not started: time is up"]
    assert not (tmp_path / "runs.jsonl").exists()


def test_a_training_that_diverges_counts_as_guessing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wild(self: Job, device: str = "cpu") -> Scenario:
        return tiny(self, device).replace(**{"training.learning_rate": 1e30, "training.rounds": 2})

    monkeypatch.setattr(Job, "scenario", wild)
    job, done = Job("mnist", "sfl", 0.1, 1, 5), Done(tmp_path / "runs.jsonl")
    (told,) = train_missing([job], done)
    assert "diverged: training stopped after round 1" in told
    assert "accuracy" not in told
    assert done[job][-1].test_accuracy == 0.1
    assert "not finite" in json.loads((tmp_path / "runs.jsonl").read_text())["diverged"]


class Failing(Job):
    """A job that fails every time at learning rate 1, and beside another job at learning rate 2."""

    def scenario(self, device: str = "cpu") -> Scenario:
        if self.learning_rate == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        if self.learning_rate == 2 and os.environ.get(PROCESSES) != "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return tiny(self, device)


def test_a_training_that_fails_ends_no_other_is_tried_again_alone_and_is_named_at_the_end(
    tmp_path: Path,
) -> None:
    hopeless, greedy, good, last = (
        Failing("mnist", "sfl", rate, 1, 5) for rate in (1, 2, 0.1, 0.2)
    )
    done, told = Done(tmp_path / "runs.jsonl"), list[str]()
    with pytest.raises(AirsplitError) as error:
        told.extend(train_missing([hopeless, greedy, good, last], done, at_a_time=2))
    assert [job in done for job in (hopeless, greedy, good, last)] == [False, True, True, True]
    assert isinstance(error.value, FailedTrainings)
    assert list(error.value.reasons) == [hopeless]
    assert str(error.value).startswith(
        f"1 of 4 trainings failed, the others are kept; {hopeless}: "
        "OutOfMemoryError: CUDA out of memory."
    )
    assert "\n" not in str(error.value)


def test_one_at_a_time_a_training_that_fails_ends_no_other_either(tmp_path: Path) -> None:
    hopeless, good = (Failing("mnist", "sfl", rate, 1, 5) for rate in (1, 0.1))
    done, told = Done(tmp_path / "runs.jsonl"), list[str]()
    with pytest.raises(AirsplitError, match=r"^1 of 2 trainings failed"):
        told.extend(train_missing([hopeless, good], done))
    assert (hopeless in done, good in done) == (False, True)
    assert told[0].startswith(f"1 of 2: {hopeless} failed: OutOfMemoryError: CUDA out of memory")
    assert told[1].startswith(f"2 of 2: {good} took")
    assert told[2] == "1 failed; each is retried alone"
    assert told[3].startswith(f"1 of 1: {hopeless} failed: ")


@pytest.mark.parametrize(
    "line", ["{", '{"job": {}}', '{"job": {"dataset": "mnist", "wrong": 1}, "records": []}', "[]"]
)
def test_a_bad_line_is_an_error_that_names_it(tmp_path: Path, line: str) -> None:
    (tmp_path / "runs.jsonl").write_text(line + "\n")
    with pytest.raises(
        FileProblem,
        match=r"runs\.jsonl.*line 1 must be one training as JSON, got .*; delete that line",
    ):
        Done(tmp_path / "runs.jsonl")


def test_figures_at_the_scale_of_the_paper_are_drawn_from_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In these records SFL finishes early, and deep splits are worse, more so with non-IID data.
    monkeypatch.setattr(jobs, "TUNED", TUNED)
    done = Done(tmp_path / "runs.jsonl")
    for job in figure_jobs("mnist", TUNED):
        worse = (
            0.01 * job.split * (2 if job.partition == "non-iid" else 1) * (job.algorithm == "sfl")
            + 0.001 * job.devices
        )
        moments = [1, max(2, job.rounds // 2), max(3, job.rounds)]
        speed = 1.0 if job.algorithm == "sfl" else 1000.0
        records = [
            record(0.99 - worse - 0.2 / at + 0.001 * job.seed, speed * at, number)
            for at, number in enumerate(moments, start=1)
        ]
        done.add(job, {"records": records, "seconds": 1.0})
    monkeypatch.setattr(jobs, "train_missing", lambda *_, **__: pytest.fail("nothing is missing"))
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
