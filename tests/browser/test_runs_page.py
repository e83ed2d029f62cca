"""The runs page and the report in a browser."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from airsplit.dashboard.serving import Dashboard
from airsplit.report.page import write_report
from airsplit.results import RunFolder
from airsplit.scenario import Scenario
from airsplit.simulation import simulate
from dashboard.servers import a_dashboard
from report.run_folders import a_plan, a_record, a_run

NASTY = "<img src=x onerror=alert(1)>"


def test_runs_are_listed_and_compared(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.address + "runs")
    expect(page.locator("#list tbody tr")).to_have_count(2)
    for name in ("first", "second"):
        box = page.get_by_label(name, exact=True)
        if not box.is_checked():
            box.check()
    expect(page.locator("#compared tbody tr")).to_have_count(2)
    expect(page.locator("#accuracy")).to_have_attribute(
        "aria-label", re.compile("first: 40.0 %.*second: 40.0 %|second: 40.0 %.*first: 40.0 %")
    )
    page.get_by_label("rounds", exact=True).check()
    assert "over=round" in page.url
    page.reload()
    expect(page.locator("#compared tbody tr")).to_have_count(2)


def test_a_simulation_that_is_running_appears_and_grows(page: Page, tmp_path: Path) -> None:
    changes = {"fleet.devices": 2, "training.rounds": 3, "training.iterations_per_round": 1, "training.batch_size": 4}
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


def test_focus_stays_where_it_is_while_a_run_grows(page: Page, tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(1)])
    with a_dashboard(tmp_path) as dashboard:
        page.goto(dashboard.address + "runs")
        page.get_by_role("link", name="report").focus()
        RunFolder(tmp_path / "run").append(a_record(2))
        expect(page.locator("#list")).to_contain_text("2 of 4")
        expect(page.get_by_role("link", name="report")).to_be_focused()


def test_a_run_can_be_left_out_and_one_that_is_not_there_is_told(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.address + "runs?run=nowhere")
    expect(page.locator("#problems")).to_contain_text("nowhere")
    page.get_by_role("button", name="Leave it out").click()
    expect(page.locator("#problems")).to_be_empty()
    page.goto(dashboard.address + "runs")
    expect(page.locator("#compared tbody tr")).to_have_count(1)
    page.locator("#list input:checked").click()
    expect(page.locator("#compared tbody tr")).to_have_count(0)
    page.wait_for_timeout(2500)  # the list has come once more
    expect(page.locator("#list input:checked")).to_have_count(0)


def test_odd_names_lead_to_their_reports(page: Page, tmp_path: Path) -> None:
    for name in ("50 % #1?&+;", "über/sub", "."):
        a_run(tmp_path / name, [a_record(1)])
    with a_dashboard(tmp_path) as dashboard:
        page.goto(dashboard.address + "runs")
        expect(page.locator("#list tbody tr")).to_have_count(3)
        for at in range(3):
            page.goto(dashboard.address + "runs")
            page.get_by_role("link", name="report").nth(at).click()
            expect(page.locator("h1")).to_contain_text("SFL")


def test_script_in_names_is_only_text(page: Page, tmp_path: Path) -> None:
    a_run(tmp_path / NASTY, [a_record(1)], plan=a_plan(device_names=[NASTY, "b", "c"]))
    with a_dashboard(tmp_path) as dashboard:
        page.goto(dashboard.address + "runs")
        expect(page.locator("#compared")).to_contain_text("<img src=x")
        page.get_by_role("link", name="report").click()
        expect(page.locator("body")).to_contain_text("<img src=x")
        expect(page.locator("img")).to_have_count(0)


def test_a_server_that_goes_is_told(browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page()
    a_run(tmp_path / "run", [a_record(1)])
    with a_dashboard(tmp_path) as dashboard:
        page.goto(dashboard.address + "runs")
        expect(page.locator("#list")).to_contain_text("1 of 4")
    expect(page.locator("#state")).to_contain_text("does not answer")
    page.close()


def test_a_report_opens_offline(page: Page, tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(n) for n in range(1, 5)])
    report = write_report(RunFolder(tmp_path / "run").path)
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.context.set_offline(True)
    page.goto(report.as_uri())
    expect(page.locator("svg.chart").first).to_be_visible()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert page.evaluate("() => document.documentElement.scrollWidth <= document.documentElement.clientWidth")
