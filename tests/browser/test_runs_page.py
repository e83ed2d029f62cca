"""The runs page and the report in a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from airsplit.dashboard.server import Dashboard
from airsplit.report.page import write_report
from airsplit.runs.folder import Divergence, RunFolder
from airsplit.scenario.scenario import Scenario
from airsplit.simulation.simulate import simulate
from dashboard.servers import a_dashboard
from report.run_folders import a_plan, a_record, a_run, a_scenario

NASTY = "<img src=x onerror=alert(1)>"


def test_runs_are_listed_and_compared(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.address + "runs")
    expect(page.locator("#list tbody tr")).to_have_count(2)
    for name in ("first", "second"):
        box = page.get_by_label(name, exact=True)
        if not box.is_checked():
            box.check()
    expect(page.locator("#compared tbody tr")).to_have_count(2)
    expect(page.locator("#compared")).to_contain_text("0.03 % (largest mean)")
    expect(page.locator("#accuracy")).to_have_attribute(
        "aria-label", re.compile("first: 40.0 %.*second: 40.0 %|second: 40.0 %.*first: 40.0 %")
    )
    page.get_by_label("rounds", exact=True).check()
    assert "over=round" in page.url
    page.reload()
    expect(page.locator("#compared tbody tr")).to_have_count(2)


def test_a_diverged_run_says_so_in_the_list_and_the_table(page: Page, tmp_path: Path) -> None:
    a_run(tmp_path / "fine", [a_record(1)])
    RunFolder(a_run(tmp_path / "bad", [a_record(1)])).write_divergence(
        Divergence(2, "the loss is not finite")
    )
    with a_dashboard(tmp_path) as dashboard:
        page.goto(dashboard.address + "runs?run=fine&run=bad")
        expect(page.locator("#list tbody tr", has_text="bad")).to_contain_text(
            "1 of 4, diverged in round 2"
        )
        expect(page.locator("#compared tbody tr", has_text="bad")).to_contain_text(
            "diverged in round 2"
        )
        expect(page.locator("#compared tbody tr", has_text="fine")).not_to_contain_text("diverged")


def test_every_line_chart_has_a_legend_with_its_lines(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.address + "runs?run=first&run=second")
    expect(page.locator("#compared tbody tr")).to_have_count(2)
    for chart in ("accuracy", "loss", "latency"):
        legend = page.locator(f"figure:has(#{chart}) .legend > span")
        expect(legend).to_have_text(["first", "second"])
        strokes = legend.locator("path").evaluate_all(STROKES)
        assert len({tuple(stroke) for stroke in strokes}) == 2
        assert strokes[0][0] != strokes[1][0]


# The color and the dashes of each line.
STROKES = """(all) => all.map((path) =>
  [getComputedStyle(path).stroke, path.getAttribute("stroke-dasharray")])"""


def test_runs_on_different_data_have_no_common_target(page: Page, tmp_path: Path) -> None:
    for name, dataset, step_s in (
        ("slow", "digits", 3.0),
        ("quick", "digits", 1.0),
        ("other", "mnist", 2.0),
    ):
        rounds = 4 if name != "quick" else 2
        records = [a_record(n, virtual_time_s=step_s * n) for n in range(1, rounds + 1)]
        a_run(tmp_path / name, records, a_scenario(training__dataset=dataset))
    with a_dashboard(tmp_path) as dashboard:
        page.goto(dashboard.address + "runs?run=slow&run=quick&run=other")
        expect(page.locator("#compared tbody tr")).to_have_count(3)
        expect(page.locator("#compared thead")).to_contain_text("time to the target")
        expect(page.locator("#targets")).to_contain_text("20.0 % on digits, 40.0 % on mnist")
        expect(page.locator("#compared tbody td:nth-child(7)")).to_have_text(
            ["6.00 s", "2.00 s", "8.00 s"]
        )
        expect(page.locator("figure:has(#accuracy) .legend")).to_contain_text("other (mnist)")
        page.get_by_label("other", exact=True).uncheck()
        expect(page.locator("#compared thead")).to_contain_text("time to 20.0 %")
        expect(page.locator("#targets")).to_be_empty()


def test_an_own_metric_takes_the_place_of_accuracy(page: Page, tmp_path: Path) -> None:
    scenario = a_scenario(training__metric="scores:error", training__metric_goal="min")
    for name, step in (("one", 0.1), ("two", 0.05)):
        records = [a_record(n, test_accuracy=None, test_metric=0.5 - step * n) for n in range(1, 5)]
        a_run(tmp_path / name, records, scenario)
    a_run(tmp_path / "three", [a_record(1)])
    with a_dashboard(tmp_path) as dashboard:
        page.goto(dashboard.address + "runs?run=one&run=two&run=three")
        expect(page.locator("#compared tbody tr")).to_have_count(3)
        expect(page.locator("#metric")).to_have_text("error on the test set")
        expect(page.locator("#metric-note")).to_contain_text(
            "runs with another metric are left out"
        )
        expect(page.locator("#accuracy")).to_have_attribute(
            "aria-label", "one: 0.100 in round 4; two: 0.300 in round 4"
        )
        expect(page.locator("#compared tbody td:nth-child(6)")).to_have_text(
            ["0.100", "0.300", "10.0 %"]
        )
        expect(page.locator("#compared tbody td:nth-child(7)")).to_have_text(
            ["8.00 s", "16.0 s", "4.00 s"]
        )
        expect(page.locator("#targets")).to_contain_text(
            "0.300 on digits (error), 10.0 % on digits"
        )


@pytest.mark.parametrize("width", ["page", "narrow"])
def test_the_list_scrolls_by_whole_rows(
    request: pytest.FixtureRequest, tmp_path: Path, width: str
) -> None:
    page: Page = request.getfixturevalue(width)
    for number in range(25):
        a_run(tmp_path / f"run-{number}", [a_record(1)])
    with a_dashboard(tmp_path) as dashboard:
        page.goto(dashboard.address + "runs")
        expect(page.locator("#list tbody tr")).to_have_count(25)
        for wheel in (0, 77, 210, 5000):
            page.locator("#all").hover()
            page.mouse.wheel(0, wheel)
            page.wait_for_timeout(500)  # scrolling is smooth
            seen = page.evaluate(ROWS_SEEN)
            assert seen == {"whole": 10, "cut": 0}


# How many rows of the list are seen completely below its heading, and how many are cut.
ROWS_SEEN = """() => {
  const place = document.getElementById("all"), box = place.getBoundingClientRect();
  const top = box.top + place.querySelector("thead").getBoundingClientRect().height;
  const bottom = box.top + place.clientHeight;
  const rows = [...place.querySelectorAll("tbody tr")].map((row) => row.getBoundingClientRect());
  const whole = rows.filter((row) => row.top >= top - 1 && row.bottom <= bottom + 1).length;
  const seen = rows.filter((row) => row.bottom > top + 1 && row.top < bottom - 1).length;
  return { whole, cut: seen - whole };
}"""


def test_a_running_simulation_appears_and_grows(page: Page, tmp_path: Path) -> None:
    changes = {
        "fleet.devices": 2,
        "training.rounds": 3,
        "training.iterations_per_round": 1,
        "training.batch_size": 4,
    }
    scenario = Scenario.load("demo").replace(**changes)
    with a_dashboard(tmp_path) as dashboard:
        page.goto(dashboard.address + "runs")
        expect(page.locator("#state")).to_contain_text("No run yet")
        records = simulate(scenario, out=tmp_path / "live")
        next(records)
        expect(page.locator("#list")).to_contain_text("1 of 3")
        expect(page.locator("#latency")).to_have_attribute("aria-label", re.compile("in round 1"))
        list(records)
        expect(page.locator("#list")).to_contain_text("3 of 3")
        expect(page.locator("#latency")).to_have_attribute("aria-label", re.compile("in round 3"))
        page.get_by_role("link", name="report").click()
        expect(page.locator("h1")).to_contain_text("SFL")


def test_the_focus_stays_while_a_run_grows(page: Page, tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(1)])
    with a_dashboard(tmp_path) as dashboard:
        page.goto(dashboard.address + "runs")
        page.get_by_role("link", name="report").focus()
        RunFolder(tmp_path / "run").append(a_record(2))
        expect(page.locator("#list")).to_contain_text("2 of 4")
        expect(page.get_by_role("link", name="report")).to_be_focused()


def test_a_missing_run_is_shown_and_runs_can_be_removed(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.address + "runs?run=nowhere")
    expect(page.locator("#problems")).to_contain_text("nowhere")
    page.get_by_role("button", name="Remove").click()
    expect(page.locator("#problems")).to_be_empty()
    page.goto(dashboard.address + "runs")
    expect(page.locator("#compared tbody tr")).to_have_count(1)
    page.locator("#list input:checked").click()
    expect(page.locator("#compared tbody tr")).to_have_count(0)
    page.wait_for_timeout(2500)  # until the next event of the list
    expect(page.locator("#list input:checked")).to_have_count(0)


def test_runs_with_special_characters_link_to_their_reports(page: Page, tmp_path: Path) -> None:
    for name in ("50 % #1?&+;", "über/sub", "."):
        a_run(tmp_path / name, [a_record(1)])
    with a_dashboard(tmp_path) as dashboard:
        page.goto(dashboard.address + "runs")
        expect(page.locator("#list tbody tr")).to_have_count(3)
        for at in range(3):
            page.goto(dashboard.address + "runs")
            page.get_by_role("link", name="report").nth(at).click()
            expect(page.locator("h1")).to_contain_text("SFL")


def test_scripts_in_names_stay_text(page: Page, tmp_path: Path) -> None:
    a_run(tmp_path / NASTY, [a_record(1)], plan=a_plan(device_names=[NASTY, "b", "c"]))
    with a_dashboard(tmp_path) as dashboard:
        page.goto(dashboard.address + "runs")
        expect(page.locator("#compared")).to_contain_text("<img src=x")
        page.get_by_role("link", name="report").click()
        expect(page.locator("body")).to_contain_text("<img src=x")
        expect(page.locator("img")).to_have_count(0)


def test_a_stopped_server_is_reported(browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page()
    a_run(tmp_path / "run", [a_record(1)])
    with a_dashboard(tmp_path) as dashboard:
        page.goto(dashboard.address + "runs")
        expect(page.locator("#list")).to_contain_text("1 of 4")
    expect(page.locator("#state")).to_contain_text("does not respond")
    page.close()


def test_a_report_opens_offline(page: Page, tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(n) for n in range(1, 5)])
    report = write_report(RunFolder(tmp_path / "run").path)
    requests = list[str]()
    page.on("request", lambda request: requests.append(request.url))
    page.context.set_offline(True)
    page.goto(report.as_uri())
    expect(page.locator("svg.chart").first).to_be_visible()
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert page.evaluate(
        "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
