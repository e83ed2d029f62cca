"""The lines that a terminal shows of a training."""

from __future__ import annotations

from rich.console import Console

from airsplit.cli.progress_view import ProgressView
from airsplit.runs.metric import Metric
from report.run_folders import a_record


def render_lines(view: ProgressView, left_s: float | None = None) -> list[str]:
    console = Console(width=120, color_system=None)
    with console.capture() as captured:
        console.print(view.render(left_s))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_before_the_first_round_there_are_no_results() -> None:
    assert render_lines(ProgressView(4, Metric())) == ["training …"]


def test_results_are_shown_as_they_come() -> None:
    view = ProgressView(4, Metric())
    for number in (1, 2):
        view.add(a_record(number))
    progress, accuracy, loss, devices = render_lines(view, 65.0)
    assert progress.startswith("round     " + "█" * 15)
    assert progress.endswith("2 of 4 · virtual time 8.00 s · 1:05 left")
    assert accuracy.split() == ["accuracy", "▁▂", "20.0", "%"]
    assert loss.split() == ["loss", "█▅", "1.050"]
    assert devices.endswith("25 % computing, 50 % on the air, 25 % waiting")
    assert devices.count("█") == 30


def test_a_round_that_no_device_finished_has_no_loss() -> None:
    view = ProgressView(4, Metric(), "training time")
    view.add(a_record(1, train_loss=None, test_accuracy=None))
    lines = render_lines(view)
    assert "training time" in lines[0]
    assert lines[1] == "no device has finished a round yet"


def test_a_custom_metric_replaces_accuracy() -> None:
    view = ProgressView(4, Metric("mean_error", "test_metric", "min"))
    for number in (1, 2, 3):
        view.add(a_record(number, test_metric=12.0 / number))
    _, metric, *_ = render_lines(view)
    # The name is too long for the label.
    assert metric.split() == ["metric", "█▃▁", "4"]
    view = ProgressView(4, Metric("error", "test_metric", "min"))
    view.add(a_record(1, test_metric=-0.5))
    assert render_lines(view)[1].split() == ["error", "▁", "-0.5"]
