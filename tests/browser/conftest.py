"""A real browser: Debian's Chromium, driven by Playwright.  Every page must be free of errors on its console."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from airsplit.dashboard.server import Dashboard
from dashboard.servers import a_dashboard
from report.run_folders import a_record, a_run

OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
MISTAKES = "status of 422"  # Chromium notes down every answer that says so


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium")
    assert found is not None, "Chromium is missing; make test-browser installs it"
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found, args=list(OPTIONS))
        yield made
        made.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of 1280 pixels in an empty profile; at the end nothing may be on its console."""
    yield from _pages(browser, width=1280)


@pytest.fixture
def narrow(browser: Browser) -> Iterator[Page]:
    yield from _pages(browser, width=390)


@pytest.fixture(params=[1280, 1024, 400])
def any_width(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    yield from _pages(browser, width=request.param)


def _pages(browser: Browser, *, width: int) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": width, "height": 900})
    context.set_default_timeout(15_000)
    made, complaints = context.new_page(), list[str]()
    made.on(
        "console",
        lambda message: (
            complaints.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    made.on("pageerror", lambda error: complaints.append(str(error)))
    yield made
    context.close()
    assert [said for said in complaints if MISTAKES not in said] == []


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that are finished; tests add to them at their own peril."""
    root = tmp_path_factory.mktemp("runs")
    a_run(root / "first", [a_record(n) for n in range(1, 5)])
    a_run(
        root / "second", [a_record(n, virtual_time_s=2.0 * n, latency_s=2.0) for n in range(1, 5)]
    )
    return root


@pytest.fixture(scope="session")
def dashboard(runs: Path) -> Iterator[Dashboard]:
    with a_dashboard(runs) as made:
        yield made
