"""A metric of the user's own, of which less is better, through run, report and compare."""

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


def test_run_shows_the_metric_while_it_trains_and_at_the_end(run, scenario, tmp_path):
    code, printed, told = run("run", scenario, "--out", tmp_path / "run")
    assert code == 0
    found = metrics(tmp_path / "run")
    assert found[-1] < found[0]
    assert f"round 4 of 4 · error {found[-1]:.4g} · loss" in told
    assert f"{found[-1]:.4g} on the test set, mean over the devices' models (spread" in printed
    assert "accuracy" in printed  # labels are classes: that is known, too
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"error on the test set is {found[-1]:.4g} on average" in page.replace(
        "\N{NO-BREAK SPACE}", " "
    )


def test_json_has_the_metric_under_the_names_of_the_records(run, scenario, tmp_path):
    code, printed, _ = run("run", scenario, "--out", tmp_path / "run", "--json")
    found = json.loads(printed)
    assert code == 0
    assert found["metric"] == "small_net:error"
    assert found["test_metric"] == metrics(tmp_path / "run")[-1]
    assert found["test_metric_worst"] >= found["test_metric"]


def test_a_metric_that_fails_is_one_line(run, scenario, tmp_path):
    options = (
        "--set",
        "training.metric=small_net:broken",
        "--set",
        "training.metric_arguments=",
    )
    code, _, told = run("run", scenario, "--out", tmp_path / "run", *options)
    assert code == 2
    assert told.startswith(
        "airsplit: training.metric 'small_net:broken' failed: ZeroDivisionError: division by zero"
    )
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "run" / "rounds.jsonl").exists()


def test_compare_shows_who_first_has_so_little_of_it(run, scenario, tmp_path):
    out = tmp_path / "compared"
    code, printed, told = run(
        "compare",
        scenario,
        "--seeds",
        1,
        "--algorithms",
        "sfl,fedavg",
        "--jobs",
        1,
        "--out",
        out,
        "--json",
    )
    assert code == 0, told
    found = json.loads(printed)
    assert (found["metric"], found["metric_goal"]) == ("small_net:error", "min")
    last = {row["algorithm"]: row["metric"]["mean"] for row in found["algorithms"]}
    assert last == {
        algorithm: metrics(out / f"{algorithm}-seed0")[-1] for algorithm in ("sfl", "fedavg")
    }
    assert max(min(metrics(out / f"{algorithm}-seed0")) for algorithm in last) <= found["target"]
    assert all(row["reached"] == 1 for row in found["algorithms"])
    assert "After the last round error is" in found["headline"]
    assert (out / "compared.png").exists()
    assert "error over rounds" in (out / "report.html").read_text()

    code, printed, _ = run(
        "compare",
        scenario,
        "--seeds",
        1,
        "--algorithms",
        "sfl,fedavg",
        "--out",
        out,
        "--resume",
        "--target",
        3.5,
    )
    assert code == 0
    assert "final error" in printed
    assert "time to 3.5" in printed
    assert run("report", out)[0] == 0
    assert "to error 3.5" in (out / "report.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
