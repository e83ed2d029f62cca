"""Take the pictures of the dashboard that the documentation shows; needs Debian's Chromium.

python benchmarks/screenshots.py    train the demo with three algorithms (two minutes), and write
                                    docs/images
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import FloatRect, Page, expect, sync_playwright

from airsplit.dashboard.server import Dashboard
from airsplit.scenario.scenario import Scenario
from airsplit.simulation.compare import compare

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 1280
ALGORITHMS = ("sfl", "fedavg", "splitfed-v1")


def take_screenshots(page: Page, address: str) -> None:
    """Write a picture of the playground and one of the page that compares runs."""
    expect.set_options(timeout=60_000)
    page.goto(address)
    # The playground plans with every method, and expected-max takes the longest.
    expect(page.locator("#rounds")).to_have_attribute("aria-label", re.compile("expected-max"))
    charts = page.locator(".charts").bounding_box()
    assert charts is not None
    top: FloatRect = {"x": 0, "y": 0, "width": WIDTH, "height": charts["y"] + charts["height"]}
    page.screenshot(path=IMAGES / "playground.png", clip=top, full_page=True)

    page.goto(f"{address}runs?" + "&".join(f"run={algorithm}-seed0" for algorithm in ALGORITHMS))
    expect(page.locator("#compared tbody tr")).to_have_count(len(ALGORITHMS))
    # Charts are canvases, without an element to wait for.
    page.wait_for_timeout(500)
    page.screenshot(path=IMAGES / "runs.png", full_page=True)


def main() -> None:
    """Train, serve the runs on a dashboard, and take its pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        root = Path(folder)
        compare(Scenario.load("demo"), out=root, seeds=1, algorithms=ALGORITHMS, tell=print)

        dashboard = Dashboard(root)
        thread = threading.Thread(target=dashboard.run, daemon=True)
        thread.start()
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        take_screenshots(page, dashboard.address)
        browser.close()
        dashboard.stop()
        thread.join()


if __name__ == "__main__":
    main()
