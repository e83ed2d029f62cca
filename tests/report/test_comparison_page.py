"""The page of a comparison: headline, table, curves and links, and its folder."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from airsplit.core import palette
from airsplit.core.errors import FileProblem
from airsplit.report.comparison_page import is_comparison, read_comparison, write_comparison
from airsplit.runs.comparison import Comparison
from airsplit.runs.folder import Divergence, RunFolder
from airsplit.runs.metric import get_metric
from airsplit.runs.seeds import Trials
from airsplit.scenario.settings import ALGORITHMS
from report.run_folders import a_comparison, a_record, a_run, a_scenario


def test_the_page_names_the_first_algorithm_and_links_to_each_run(tmp_path: Path) -> None:
    page = write_comparison(a_comparison(), tmp_path).read_text()
    assert "<h1>SFL and FedAvg side by side</h1>" in page
    text = page.replace("\N{NO-BREAK SPACE}", " ")
    assert (
        "The first to get 40 % right is SFL, after 4.00 s; FedAvg takes 3.0 times as long." in text
    )
    links = re.findall(r'href="([^"]*report\.html)"', page)
    assert links == [
        f"{algorithm}-seed{seed}/report.html" for algorithm in ("sfl", "fedavg") for seed in (0, 1)
    ]
    assert len(re.findall(r'role="img" aria-label="[^"]*FedAvg: 40.0 % at the end', page)) == 2


def test_the_page_names_algorithms_that_diverged(tmp_path: Path) -> None:
    comparison = a_comparison()
    nan = "the loss is not finite"
    both = {0: Divergence(3, nan), 1: Divergence(2, nan)}
    diverged = replace(
        comparison,
        trials=comparison.trials | {"fedavg": Trials(())},
        diverged={"sfl": {}, "fedavg": both},
    )
    page = write_comparison(diverged, tmp_path).read_text()
    assert (
        "FedAvg never does. Diverged: FedAvg with seed 0 in round 3, FedAvg with seed 1 in round 2."
        in page
    )
    assert "After the last round SFL gets 40.0\N{NO-BREAK SPACE}% right." in page


def test_times_far_apart_are_drawn_on_a_logarithmic_axis(tmp_path: Path) -> None:
    assert "logarithmic" not in write_comparison(a_comparison(), tmp_path).read_text()
    assert (
        "virtual time in s, logarithmic"
        in write_comparison(a_comparison(slower=100.0), tmp_path).read_text()
    )


def test_without_an_accuracy_there_are_no_curves(tmp_path: Path) -> None:
    page = write_comparison(a_comparison(test_accuracy=None), tmp_path).read_text()
    assert "There is no accuracy that all of them reach." in page
    assert "Learning curves" not in page


def test_algorithms_that_never_reach_the_target_are_named(tmp_path: Path) -> None:
    comparison = a_comparison()
    worse = Trials(
        tuple(tuple(a_record(n, test_accuracy=0.1) for n in range(1, 5)) for _ in range(2))
    )
    page = write_comparison(
        replace(comparison, trials=comparison.trials | {"splitfed-v1": worse}), tmp_path
    ).read_text()
    assert "FedAvg takes 3.0 times as long; SplitFed V1 never does." in page
    page = write_comparison(replace(comparison, target=0.9), tmp_path).read_text()
    assert "None of them gets 90\N{NO-BREAK SPACE}% right." in page


def a_folder(comparison: Comparison, folder: Path) -> Path:
    """Write a folder as `airsplit compare` does, without the page."""
    for algorithm, trials in comparison.trials.items():
        for seed, records in zip(comparison.seeds, trials.runs, strict=True):
            scenario = comparison.scenario.replace(
                **{"training.algorithm": algorithm, "training.seed": seed}
            )
            a_run(folder / f"{algorithm}-seed{seed}", list(records), scenario)
    (folder / "comparison.json").write_text(json.dumps(comparison.to_dict()))
    return folder


def test_the_folder_of_a_comparison_gives_the_same_page_again(tmp_path: Path) -> None:
    folder = a_folder(a_comparison(), tmp_path / "compared")
    first = write_comparison(a_comparison(), tmp_path).read_text()
    assert is_comparison(folder)
    assert write_comparison(read_comparison(folder), folder).read_text() == first


def test_the_folder_of_a_comparison_has_its_divergences(tmp_path: Path) -> None:
    folder = a_folder(a_comparison(), tmp_path)
    run = RunFolder(folder / "fedavg-seed1")
    run.write_records([a_record(1)])
    run.write_divergence(Divergence(2, "the loss is not finite"))
    assert read_comparison(folder).diverged == {
        "sfl": {},
        "fedavg": {1: Divergence(2, "the loss is not finite")},
    }


def test_the_folder_of_a_run_is_no_comparison(tmp_path: Path) -> None:
    assert not is_comparison(tmp_path)
    assert not is_comparison(a_folder(a_comparison(), tmp_path) / "sfl-seed0")


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"algorithms": [{"algorithm": "sgd"}], "seeds": [0], "target": 0.5}']
)
def test_an_invalid_comparison_file_is_a_file_problem(tmp_path: Path, text: str) -> None:
    folder = a_folder(a_comparison(), tmp_path)
    (folder / "comparison.json").write_text(text)
    with pytest.raises(FileProblem, match=r"comparison.json'"):
        read_comparison(folder)


def test_incomplete_runs_are_named(tmp_path: Path) -> None:
    folder = a_folder(a_comparison(), tmp_path)
    RunFolder(folder / "fedavg-seed1").write_records([a_record(1)])
    with pytest.raises(FileProblem, match="runs of fedavg"):
        read_comparison(folder)


def test_a_metric_is_compared_in_the_direction_of_its_goal(tmp_path: Path) -> None:
    # Lower is better, and FedAvg is better and slower.
    scenario = a_scenario(training__metric="mine:mean_error", training__metric_goal="min")
    runs = {
        algorithm: Trials(
            (
                tuple(
                    a_record(n, virtual_time_s=slow * n, test_metric=start / n) for n in range(1, 5)
                ),
            ),
            get_metric(scenario.training),
        )
        for algorithm, slow, start in (("sfl", 1.0, 8.0), ("fedavg", 9.0, 4.0))
    }
    comparison = Comparison(scenario, (0,), 2.0, runs, {}, has_energy=False)
    page = write_comparison(comparison, tmp_path).read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert "After the last round mean_error is 1 with FedAvg, 2 with SFL." in page
    assert (
        "The first to get to mean_error 2 is SFL, after 4.00 s; FedAvg takes 4.5 times as long."
        in page
    )
    assert "mean_error over rounds" in page
    assert "FedAvg: 1 at the end" in page
    assert comparison.columns[:3] == ["final mean_error", "worst device", "time to 2"]
    assert [comparison.format_row(row)[0] for row in comparison.rows] == ["2", "1"]


def test_every_algorithm_has_its_own_color_in_plots_and_pages() -> None:
    assert palette.ALGORITHMS.keys() == set(ALGORITHMS)
    assert len(set(palette.ALGORITHMS.values())) == len(ALGORITHMS)
    assert set(palette.ALGORITHMS.values()) <= palette.LIGHT.keys()
    assert len({palette.get_algorithm_color(algorithm) for algorithm in ALGORITHMS}) == 5
