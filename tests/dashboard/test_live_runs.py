"""Live runs: runs are listed, read as they grow and thinned; nothing outside is read."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airsplit.core.errors import AirsplitError, UnknownName
from airsplit.dashboard.live_runs import LiveRun, LiveRuns
from airsplit.report.scales import MOST_POINTS
from airsplit.runs.folder import Divergence, RunFolder
from airsplit.runs.history import History
from airsplit.runs.record import RoundRecord
from report.run_folders import a_long_run, a_plan, a_record, a_run, a_scenario


def test_runs_are_listed_from_any_depth_newest_first(tmp_path: Path) -> None:
    a_run(tmp_path / "old", [a_record(1)])
    a_run(tmp_path / "compared" / "sfl-seed0", [a_record(1), a_record(2)])
    (tmp_path / "no run").mkdir()
    summaries = LiveRuns(tmp_path).overview()
    assert {run["name"] for run in summaries} == {"old", "compared/sfl-seed0"}
    assert summaries[0]["name"] == "compared/sfl-seed0"
    assert (summaries[0]["rounds"], summaries[0]["of_rounds"], summaries[0]["devices"]) == (2, 4, 3)


def test_a_folder_that_is_a_run_itself_is_listed(tmp_path: Path) -> None:
    a_run(tmp_path, [a_record(1)])
    assert [run["name"] for run in LiveRuns(tmp_path).overview()] == ["."]
    assert LiveRuns(tmp_path).run(".").summary()["rounds"] == 1


def test_a_growing_run_has_more_points_in_every_series(tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(1)])
    run = LiveRuns(tmp_path).run("run")
    before = run.series()
    # Without new records, the same text is returned.
    assert run.series() is before
    RunFolder(tmp_path / "run").append(a_record(2))
    after = json.loads(run.series())
    assert [point[0] for point in after["lines"]["test_accuracy"]] == [1, 2]
    assert after["version"] > json.loads(before)["version"]


def test_a_summary_has_the_gap_of_the_plan_and_its_objective(
    tmp_path: Path,
) -> None:
    a_run(
        tmp_path / "run",
        [a_record(1)],
        plan=a_plan(3, gap=0.000301, objective="mean of the largest"),
    )
    summary = LiveRuns(tmp_path).run("run").summary()
    assert (summary["at_most"], summary["objective"]) == ("0.031 %", "mean of the largest")


def test_a_run_is_shown_with_its_own_metric(tmp_path: Path) -> None:
    wanted = a_scenario(training__metric="mine:mean_error", training__metric_goal="min")
    a_run(tmp_path / "own", [a_record(1, test_metric=2.0), a_record(2, test_metric=0.5)], wanted)
    a_run(tmp_path / "usual", [a_record(1)])
    own, usual = (json.loads(LiveRuns(tmp_path).run(name).series()) for name in ("own", "usual"))
    assert own["metric"] == {"name": "mean_error", "field": "test_metric", "goal": "min"}
    assert own["test_metric"] == 0.5
    assert [point[2] for point in own["lines"]["test_metric"]] == [2.0, 0.5]
    assert usual["metric"]["field"] == "test_accuracy"
    assert (usual["test_metric"], usual["lines"]["test_metric"]) == (None, [])


def test_the_series_of_a_long_run_has_few_points(tmp_path: Path) -> None:
    a_long_run(tmp_path / "run", 3000, 5)
    runs = LiveRuns(tmp_path)
    while json.loads(runs.run("run").series())["rounds"] < 3000:
        pass
    text = runs.run("run").series()
    lines = json.loads(text)["lines"]
    assert all(2 <= len(points) <= MOST_POINTS for points in lines.values() if points)
    assert lines["latency_s"][-1][0] == 3000
    assert len(text) < 200_000


def test_reading_stops_after_its_budget_and_continues_the_next_time(tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(n) for n in range(1, 200)])
    run = LiveRuns(tmp_path).run("run")
    seen = [run.summary(1e-9)["rounds"] for _ in range(5)]
    assert seen[0] < 199
    assert seen == sorted(seen)
    assert seen[-1] == 199


def test_a_replaced_run_is_read_from_the_start(tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(1), a_record(2)])
    runs = LiveRuns(tmp_path)
    assert runs.run("run").summary()["rounds"] == 2
    for file in (tmp_path / "run").iterdir():
        file.unlink()
    a_run(tmp_path / "run", [a_record(1, devices=5)], devices=5)
    assert runs.run("run").summary()["devices"] == 5


def test_a_diverged_run_says_so_at_once(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run", [a_record(1)])
    run = LiveRuns(tmp_path).run("run")
    assert json.loads(run.series())["diverged"] is None
    RunFolder(folder).write_divergence(Divergence(2, "the loss is not finite"))
    assert json.loads(run.series())["diverged"] == {"round": 2, "why": "the loss is not finite"}
    assert run.summary()["diverged"]["round"] == 2


def test_a_broken_run_is_listed_with_its_problem(tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(1)])
    (tmp_path / "run" / "rounds.jsonl").write_text("{\n")
    (summary,) = LiveRuns(tmp_path).overview()
    assert "line 1" in summary["problem"]
    assert str(tmp_path) not in summary["problem"]


def test_the_report_is_of_the_whole_run(tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(n) for n in range(1, 120)])
    assert "119 rounds" in LiveRuns(tmp_path).run("run").report()


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "/etc",
        "run/../../secret",
        "run/.",
        "./run",
        "",
        "run/",
        "a/b/c/d/e",
        ".hidden",
        "run\x00",
        "%2e%2e/secret",
    ],
)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    a_run(tmp_path / "secret", [a_record(1)])
    a_run(tmp_path / "runs" / "run", [a_record(1)])
    with pytest.raises(UnknownName):
        LiveRuns(tmp_path / "runs").run(name)


def test_links_are_not_followed(tmp_path: Path) -> None:
    a_run(tmp_path / "secret", [a_record(1)])
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "secret")
    a_run(tmp_path / "runs" / "half", [])
    (tmp_path / "runs" / "half" / "rounds.jsonl").symlink_to(tmp_path / "secret" / "rounds.jsonl")
    assert LiveRuns(tmp_path / "runs").overview() == []


def test_a_divergence_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "runs" / "run", [a_record(1)])
    (tmp_path / "secret").write_text('{"round": 1, "why": "secret"}')
    (folder / "diverged.json").symlink_to(tmp_path / "secret")
    assert LiveRuns(tmp_path / "runs").overview() == []


def test_a_file_that_becomes_a_link_is_not_read(tmp_path: Path) -> None:
    a_run(tmp_path / "secret", [a_record(1), a_record(2)])
    a_run(tmp_path / "runs" / "run", [a_record(1)])
    run = LiveRuns(tmp_path / "runs").run("run")
    file = tmp_path / "runs" / "run" / "rounds.jsonl"
    file.unlink()
    file.symlink_to(tmp_path / "secret" / "rounds.jsonl")
    with pytest.raises(AirsplitError, match="links"):
        run.summary()


def test_a_run_resumed_for_more_rounds_shows_their_number(tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(1)])
    runs = LiveRuns(tmp_path)
    assert runs.run("run").summary()["of_rounds"] == 4
    RunFolder(tmp_path / "run").rewrite_scenario(a_scenario(training__rounds=60).to_toml())
    assert runs.run("run").summary()["of_rounds"] == 60


def test_an_invalid_record_is_reported_every_time(tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(1), a_record(2, devices=5), a_record(3)])
    runs = LiveRuns(tmp_path)
    for _ in range(3):
        assert "5 compute_s" in runs.overview()[0]["problem"]


def test_known_records_are_not_read_again(tmp_path: Path, count_calls: Any) -> None:
    for number in range(3):
        a_run(tmp_path / f"run{number}", [a_record(1)])
    opened = count_calls(History, "__init__")
    parsed = count_calls(RoundRecord, "from_json")
    runs = LiveRuns(tmp_path)
    for _ in range(2):
        assert len(runs.overview()) == 3
        assert (len(opened), len(parsed)) == (3, 3)
    RunFolder(tmp_path / "run1").append(a_record(2))
    assert len(runs.overview()) == 3
    assert (len(opened), len(parsed)) == (3, 4)


class Meeting:
    """Detects two threads in one function: each waits there a moment for the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.happened = False
        self._both = threading.Barrier(2)
        function = getattr(owner, name)

        def slow(*given: Any, **more: Any) -> Any:
            with suppress(threading.BrokenBarrierError):
                self._both.wait(0.1)
                self.happened = True
            return function(*given, **more)

        monkeypatch.setattr(owner, name, slow)


def call_in_parallel(*calls: Callable[[], Any]) -> list[Any]:
    """Return the results of calls made at the same time, each in its thread."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


@pytest.mark.parametrize("name", ["summary", "series", "report"])
def test_a_run_is_read_by_one_thread_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    a_run(tmp_path / "run", [a_record(1)])
    run = LiveRuns(tmp_path).run("run")
    RunFolder(tmp_path / "run").append(a_record(2))
    meeting = Meeting(monkeypatch, History, "update")
    call_in_parallel(getattr(run, name), run.summary)
    assert not meeting.happened
    assert run.summary()["rounds"] == 2


def test_threads_that_open_a_run_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_run(tmp_path / "run", [a_record(1)])
    runs = LiveRuns(tmp_path)
    meeting = Meeting(monkeypatch, LiveRun, "__init__")
    first, second = call_in_parallel(*[lambda: runs.run("run")] * 2)
    assert first is second
    assert not meeting.happened


class Known(dict[str, LiveRun]):
    """A dict whose methods can be replaced, unlike those of a plain one."""


def test_threads_that_miss_a_run_forget_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(tmp_path / "run", [a_record(1)])
    runs = LiveRuns(tmp_path)
    runs.overview()
    shutil.rmtree(tmp_path / "run")
    runs._runs = Known(runs._runs)
    meeting = Meeting(monkeypatch, runs._runs, "keys")
    assert call_in_parallel(runs.overview, runs.overview) == [[], []]
    assert not meeting.happened


def test_a_run_deleted_while_it_is_shown_is_an_error_with_a_reason(tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(1)])
    run = LiveRuns(tmp_path).run("run")
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(AirsplitError, match="gone"):
        run.series()
