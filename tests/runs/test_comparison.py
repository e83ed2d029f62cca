"""Comparisons: means over seeds, columns, and the result in words."""

from __future__ import annotations

from dataclasses import replace

from airsplit.runs.comparison import Comparison
from airsplit.runs.folder import Divergence
from airsplit.runs.metric import get_metric
from airsplit.runs.seeds import Trials
from report.run_folders import a_comparison, a_record, a_scenario


def test_the_headline_has_the_final_accuracy_of_each_algorithm() -> None:
    comparison = a_comparison()
    ahead = Trials(
        tuple(
            tuple(a_record(n, virtual_time_s=3.0 * n, test_accuracy=0.2 * n) for n in range(1, 5))
            for _ in range(2)
        )
    )
    headline = replace(comparison, trials=comparison.trials | {"fedavg": ahead}).headline
    assert headline.startswith(
        "After the last round FedAvg gets 80.0 % right, SFL 40.0 %. "
        "The first to get 40 % right is SFL, after 4.00 s;"
    )
    alone = replace(comparison, trials={"sfl": comparison.trials["sfl"]}).to_dict()
    assert (
        alone["headline"] == "After the last round SFL gets 40.0 % right. "
        "The first to get 40 % right is SFL, after 4.00 s."
    )
    assert comparison.columns[:3] == ["final accuracy", "worst device", "time to 40 %"]


def test_received_data_and_energy_are_compared_only_if_they_are_counted() -> None:
    comparison = a_comparison()
    assert comparison.columns[3:] == ["all rounds", "sent up", "devices' work"]
    assert comparison.rows[0].energy_j is None
    both = replace(comparison, scenario=a_scenario(clock__downlink=True), has_energy=True)
    assert both.columns[3:] == ["all rounds", "sent up", "received", "devices' work", "energy"]
    assert both.format_row(both.rows[0])[4:] == ["12.0 kB", "6.00 kB", "12.0 MMAC", "6.00 J"]


def test_diverged_seeds_are_left_out_of_means() -> None:
    comparison = a_comparison()
    partly = replace(
        comparison,
        trials=comparison.trials | {"fedavg": Trials(comparison.trials["fedavg"].runs[:1])},
        diverged={"sfl": {}, "fedavg": {1: Divergence(2, "the loss is not finite")}},
    )
    assert partly.format_row(partly.rows[1])[:4] == [
        "40.0 % (1 of 2 diverged)",
        "5.0 %",
        "only 1 of 2",
        "12.0 s",
    ]
    assert (
        "FedAvg does so with only 1 of 2 seeds. Diverged: FedAvg with seed 1 in round 2."
        in partly.headline
    )
    assert (partly.rows[1].reached, partly.rows[1].diverged) == (1, {1: 2})


def test_an_algorithm_that_always_diverges_has_no_numbers() -> None:
    comparison = a_comparison()
    nan = "the loss is not finite"
    diverged = replace(
        comparison,
        trials=comparison.trials | {"fedavg": Trials(())},
        diverged={"sfl": {}, "fedavg": {0: Divergence(3, nan), 1: Divergence(2, nan)}},
    )
    row = diverged.format_row(diverged.rows[1])
    assert row == ["diverged in rounds 2, 3", "–", "never", "–", "–", "–"]


def test_a_target_metric_that_no_algorithm_reaches_is_named() -> None:
    scenario = a_scenario(training__metric="mine:mean_error", training__metric_goal="min")
    runs = {"sfl": Trials(((a_record(1, test_metric=4.0),),), get_metric(scenario.training))}
    comparison = Comparison(scenario, (0,), 2.0, runs, {}, has_energy=False)
    assert (
        comparison.headline
        == "After the last round mean_error is 4 with SFL. None of them gets to mean_error 2."
    )
    assert comparison.format_row(comparison.rows[0])[2] == "never"
