"""A custom metric that is minimized, through run, report and compare."""

import json

import pytest

METRIC = """
learning_rate = 0.5
metric = "small_net:error"
metric_goal = "min"
metric_arguments = { scale = 10.0 }
"""


@pytest.fixture
def scenario(scenario):
    """Return the small scenario with a metric, and one more round."""
    # The scenario ends with its [training] table.
    text = scenario.read_text().replace("rounds = 3", "rounds = 4")
    scenario.write_text(text + METRIC)
    return scenario


def metrics(folder):
    return [
        json.loads(line)["test_metric"]
        for line in (folder / "rounds.jsonl").read_text().splitlines()
    ]


def test_run_shows_the_metric_during_and_after_training(run, scenario, tmp_path):
    code, printed, err = run("run", scenario, "--out", tmp_path / "run")
    assert code == 0
    result = metrics(tmp_path / "run")
    assert result[-1] < result[0]
    assert f"round 4 of 4 · error {result[-1]:.4g} · loss" in err
    assert f"{result[-1]:.4g} on the test set, mean over the devices' models (spread" in printed
    assert "accuracy" in printed  # labels are classes: that is known, too
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"error on the test set is {result[-1]:.4g} on average" in page.replace(
        "\N{NO-BREAK SPACE}", " "
    )


def test_json_has_the_metric_by_the_names_of_the_records(run, scenario, tmp_path):
    code, printed, _ = run("run", scenario, "--out", tmp_path / "run", "--json")
    result = json.loads(printed)
    assert code == 0
    assert result["metric"] == "small_net:error"
    assert result["test_metric"] == metrics(tmp_path / "run")[-1]
    assert result["test_metric_worst"] >= result["test_metric"]


def test_a_metric_that_fails_is_one_line(run, scenario, tmp_path):
    options = ["--set", "training.metric=small_net:broken", "--set", "training.metric_arguments="]
    code, _, err = run("run", scenario, "--out", tmp_path / "run", *options)
    assert code == 2
    assert err.startswith(
        "airsplit: training.metric 'small_net:broken' failed: ZeroDivisionError: division by zero"
    )
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "run" / "rounds.jsonl").exists()


def test_compare_times_a_target_that_is_a_minimum(run, scenario, tmp_path):
    out = tmp_path / "compared"
    words = ["compare", scenario, "--seeds", 1, "--algorithms", "sfl,fedavg", "--out", out]
    code, printed, err = run(*words, "--jobs", 1, "--json")
    assert code == 0, err
    result = json.loads(printed)
    assert (result["metric"], result["metric_goal"]) == ("small_net:error", "min")
    last = {row["algorithm"]: row["metric"]["mean"] for row in result["algorithms"]}
    assert last == {
        algorithm: metrics(out / f"{algorithm}-seed0")[-1] for algorithm in ("sfl", "fedavg")
    }
    assert max(min(metrics(out / f"{algorithm}-seed0")) for algorithm in last) <= result["target"]
    assert all(row["reached"] == 1 for row in result["algorithms"])
    assert "After the last round error is" in result["headline"]
    assert (out / "compared.png").exists()
    assert "error over rounds" in (out / "report.html").read_text()

    code, printed, _ = run(*words, "--resume", "--target", 3.5)
    assert code == 0
    assert "final error" in printed
    assert "time to 3.5" in printed
    assert run("report", out)[0] == 0
    assert "to error 3.5" in (out / "report.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
