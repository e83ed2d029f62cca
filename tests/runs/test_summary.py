"""Totals of a run, and its final scores."""

from __future__ import annotations

from pathlib import Path

from airsplit.runs.summary import summarize_run
from report.run_folders import a_record, a_run, a_scenario


def test_a_summary_adds_up_devices_and_rounds(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run", [a_record(1), a_record(2)])

    summary = summarize_run(folder)

    # Two rounds of three devices, each of which computes 1 s, sends 2 s and 1,000 bytes.
    assert summary["rounds"] == 2
    assert summary["virtual_time_s"] == 8.0
    assert (summary["compute_s"], summary["transmit_s"], summary["idle_s"]) == (6.0, 12.0, 6.0)
    assert (summary["sent_bytes"], summary["received_bytes"]) == (6000, 3000)
    assert summary["macs"] == 6e6


def test_scores_are_those_of_the_last_evaluated_round(tmp_path: Path) -> None:
    not_evaluated = a_record(2, test_loss=None, test_accuracy=None)
    folder = a_run(tmp_path / "run", [a_record(1), not_evaluated])

    summary = summarize_run(folder)

    assert summary["rounds"] == 2
    assert (summary["test_accuracy"], summary["test_loss"]) == (0.1, 2.0)


def test_energy_is_known_only_if_that_of_computing_is(tmp_path: Path) -> None:
    records = [a_record(1)]
    without = a_run(tmp_path / "without", records)
    scenario = a_scenario(fleet__joules_per_mac=1e-9)
    complete = a_run(tmp_path / "complete", records, scenario)

    assert summarize_run(without)["energy_j"] is None
    assert summarize_run(complete)["energy_j"] == 1.5
