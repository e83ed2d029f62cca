"""A browser for tests: Chromium, driven by Playwright. No page may write errors to its console."""

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
# Chromium logs every response with this status, which pages show as a user's mistake.
MISTAKES = "status of 422"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = shutil.which("chromium")
    assert executable is not None, "Chromium is missing; make test-browser installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(OPTIONS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page 1280 pixels wide in an empty profile."""
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
    page = context.new_page()
    complaints = list[str]()
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert [text for text in complaints if MISTAKES not in text] == []


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two finished runs. All tests share it, so none may change it."""
    root = tmp_path_factory.mktemp("runs")
    a_run(root / "first", [a_record(n) for n in range(1, 5)])
    a_run(
        root / "second", [a_record(n, virtual_time_s=2.0 * n, latency_s=2.0) for n in range(1, 5)]
    )
    return root


@pytest.fixture(scope="session")
def dashboard(runs: Path) -> Iterator[Dashboard]:
    with a_dashboard(runs) as dashboard:
        yield dashboard
