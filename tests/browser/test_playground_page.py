"""The playground in a browser: sliders, files and their errors, and use by keyboard."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import Page, expect

from airsplit.dashboard.server import Dashboard
from airsplit.system.profile import load_shipped_profile

CSV = "name,seconds_per_mac,fluctuation,distance_m\npi,1e-9,2e9,100\nphone,{pace},1e10,50\n"


@pytest.fixture
def play(page: Page, dashboard: Dashboard) -> Page:
    page.goto(dashboard.address)
    expect(page.locator("#sentences")).to_contain_text("20 devices cut the model")
    return page


def test_the_page_paints_within_a_second(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.address)
    expect(page.locator("#sentences")).to_contain_text("devices cut the model")
    painted = page.evaluate(
        "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    assert painted < 1000


def test_a_slider_changes_the_plan_and_the_address(play: Page) -> None:
    before = play.locator("#tiles").inner_text()
    play.locator("#devices").focus()
    play.keyboard.press("End")
    expect(play.locator("#sentences")).to_contain_text("200 devices cut the model")
    assert play.locator("#tiles").inner_text() != before
    assert "devices=200" in play.url
    expect(play.locator("#rounds")).to_have_attribute(
        "aria-label", re.compile("expected-max: .* s")
    )


def test_the_address_restores_the_settings(play: Page) -> None:
    play.locator("#bandwidth").focus()
    play.keyboard.press("Home")
    play.locator("#method").select_option("equal")
    play.locator("#model").select_option("alexnet")
    expect(play.locator("#sentences")).to_contain_text("all after fc6")
    address = play.url
    sentences = play.locator("#sentences").inner_text()
    play.goto("about:blank")
    play.goto(address)
    expect(play.locator("#sentences")).to_have_text(sentences)
    assert play.locator("#method").input_value() == "equal"


def test_a_click_selects_a_device_and_explains_its_cut(play: Page) -> None:
    area = play.locator("#cuts")
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    play.mouse.click(box["x"] + 0.4 * box["width"], box["y"] + 60)
    expect(play.locator("#device-name")).to_contain_text("Why device")
    expect(play.locator("#explanation")).to_contain_text("of the band")
    expect(play.locator("#stopping tbody tr")).not_to_have_count(0)
    play.get_by_role("button", name="Close").click()
    expect(play.locator("#device")).to_be_hidden()


def test_a_selected_device_takes_no_request_of_its_own(page: Page, dashboard: Dashboard) -> None:
    requests: list[str] = []
    page.on(
        "request", lambda request: requests.append(request.url) if "/api/" in request.url else None
    )
    page.goto(dashboard.address + "?device=3")
    expect(page.locator("#device-name")).to_contain_text("Why device 3")
    expect(page.locator("#rounds")).to_have_attribute(
        "aria-label", re.compile("expected-max: .* s")
    )
    assert [url.rpartition("/")[2] for url in requests] == ["choices", "plan"]
    page.locator("#devices").focus()
    page.keyboard.press("Home")
    expect(page.locator("#sentences")).to_contain_text("1 device")
    expect(page.locator("#device")).to_be_hidden()


def test_the_deepest_cut_of_a_profile_leaves_parameters_to_average(
    play: Page, tmp_path: Path
) -> None:
    # The last two layers have none, so the deepest cut is before the one ahead of them.
    known = json.loads(load_shipped_profile("alexnet").to_json())
    rows = len(known["names"])
    known["parameters"] = [*known["parameters"][: rows - 3], 7, 0, 0]
    for key in ("trainable_parameters", "fingerprint"):
        known.pop(key, None)
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(known))
    with play.expect_response("**/api/plan") as answer:
        play.locator("#profile").set_input_files(file)
    assert answer.value.status == 200, answer.value.json()
    assert (
        play.locator("#limit").get_attribute("max")
        == str(answer.value.json()["layers"]["deepest"])
        == str(rows - 3)
    )


def test_the_page_can_be_used_by_keyboard(play: Page) -> None:
    play.locator("body").press("Tab")
    assert play.evaluate("() => document.activeElement.textContent") == "To the plan"
    reached = set()
    for _ in range(40):
        play.keyboard.press("Tab")
        reached.add(
            play.evaluate("() => document.activeElement.id || document.activeElement.tagName")
        )
    assert {
        "model",
        "limit",
        "devices",
        "distance",
        "bandwidth",
        "method",
        "csv",
        "order",
    } <= reached
    play.locator("summary", has_text="All devices as a table").focus()
    play.keyboard.press("Enter")
    play.keyboard.press("Tab")
    play.keyboard.press("Tab")
    play.keyboard.press("Enter")  # the first device of the table
    expect(play.locator("#device-name")).to_be_focused()


def test_a_csv_is_used_and_a_bad_row_is_shown_with_its_error(play: Page, tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.csv", tmp_path / "good.csv"
    bad.write_text(CSV.format(pace="-3"))
    good.write_text(CSV.format(pace="2e-10"))
    with play.expect_response("**/api/plan") as refused:
        play.locator("#csv").set_input_files(bad)
    assert refused.value.status == 422
    expect(play.locator("#csv-rows .bad")).to_contain_text("phone,-3")
    expect(play.locator("#csv-rows .why")).to_contain_text("seconds_per_mac")
    play.locator("#csv").set_input_files(good)
    expect(play.locator("#sentences")).to_contain_text("2 devices cut the model")
    expect(play.locator("#csv-rows .bad")).to_have_count(0)
    play.get_by_role("button", name="Back to sampled devices").click()
    expect(play.locator("#sentences")).to_contain_text("20 devices")


def test_a_csv_can_be_dropped(play: Page) -> None:
    play.evaluate(
        """(text) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([text], "fleet.csv", { type: "text/csv" }));
          const options = { dataTransfer, bubbles: true, cancelable: true };
          document.getElementById("drop").dispatchEvent(new DragEvent("drop", options));
        }""",
        CSV.format(pace="2e-10"),
    )
    expect(play.locator("#sentences")).to_contain_text("2 devices cut the model")


def test_an_error_in_a_file_is_shown_beside_it(play: Page, tmp_path: Path) -> None:
    file = tmp_path / "wrong"
    file.write_text("speed\n3\n")
    play.locator("#csv").set_input_files(file)
    expect(play.locator("#csv-error")).to_contain_text("speed")
    expect(play.locator("#csv-rows")).to_be_empty()
    play.get_by_role("button", name="Back to sampled devices").click()
    expect(play.locator("#csv-error")).to_be_empty()
    expect(play.locator("#csv")).to_be_focused()
    file.write_text('{"names": ["a", "b"], "parameters": [1, 1]}')
    play.locator("#profile").set_input_files(file)
    expect(play.locator("#profile-error")).to_contain_text("profile")
    play.get_by_role("button", name="Back to the network above").click()
    expect(play.locator("#sentences")).to_contain_text("20 devices")
    expect(play.locator("#profile-error")).to_be_empty()


@pytest.mark.parametrize(
    "address",
    [
        "?method=toString",
        "?device=abc",
        "?device=-1",
        "?limit=99",
        "?limit=x&devices=7.5",
        "?model=constructor",
    ],
)
def test_invalid_addresses_fall_back_to_valid_settings(
    page: Page, dashboard: Dashboard, address: str
) -> None:
    page.goto(dashboard.address + address)
    expect(page.locator("#sentences")).to_contain_text("20 devices cut the model")
    expect(page.locator("#error")).to_be_empty()


def test_the_newest_settings_win(play: Page) -> None:
    play.locator("#method").select_option("expected-max")
    play.locator("#devices").focus()
    for _ in range(12):
        play.keyboard.press("ArrowLeft")
    expect(play.locator("#sentences")).to_contain_text("8 devices cut the model")
    assert "devices=8" in play.url


def test_names_from_a_csv_are_text(play: Page, tmp_path: Path) -> None:
    file = tmp_path / "fleet.csv"
    file.write_text(CSV.format(pace="2e-10").replace("phone", "<img src=x onerror=alert(1)>"))
    play.locator("#csv").set_input_files(file)
    play.locator("summary", has_text="All devices as a table").click()
    expect(play.locator("#devices-table")).to_contain_text("<img src=x")
    expect(play.locator("#devices-table img")).to_have_count(0)


def test_the_exported_file_is_a_scenario(play: Page) -> None:
    address = play.locator("#download").get_attribute("href") or ""
    scenario = tomllib.loads(unquote(address.partition(",")[2]))
    assert scenario["fleet"]["devices"] == 20
    assert scenario["model"]["name"] == "vgg16"


def test_no_page_scrolls_sideways_at_any_width(any_width: Page, dashboard: Dashboard) -> None:
    for path in ("", "?device=3", "runs"):
        any_width.goto(dashboard.address + path)
        any_width.wait_for_load_state()
        expect(any_width.locator("canvas").first).to_be_visible()
        assert any_width.evaluate(
            "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )


def test_a_menu_shows_its_whole_text_at_any_width(any_width: Page, dashboard: Dashboard) -> None:
    any_width.goto(dashboard.address)
    expect(any_width.locator("#sentences")).to_contain_text("20 devices")
    for name in ("model", "method", "order"):
        menu = any_width.locator(f"#{name}")
        for value in menu.locator("option").evaluate_all(
            "(all) => all.map((option) => option.value)"
        ):
            long = menu.locator(f'option[value="{value}"]').evaluate(
                "(option) => option.textContent += ', as long as some text may be'"
            )
            menu.select_option(value)
            text = any_width.locator(f".choice:has(#{name}) > span")
            expect(text).to_have_text(long)
            assert text.evaluate(IS_WHOLE)


IS_WHOLE = """(text) => {
  const inner = text.getBoundingClientRect(), outer = text.parentElement.getBoundingClientRect();
  return inner.left >= outer.left && inner.right <= outer.right
    && inner.top >= outer.top && inner.bottom <= outer.bottom
    && outer.right <= document.documentElement.clientWidth;
}"""


def test_no_text_in_a_chart_is_cut_off_at_any_width(
    any_width: Page, dashboard: Dashboard, tmp_path: Path
) -> None:
    file = tmp_path / "fleet.csv"
    file.write_text(
        CSV.format(pace="2e-10").replace(
            "phone", "a telephone with a name as long as nobody would give it"
        )
    )
    for address in ("?device=3", "?model=vit&device=3", "?devices=200"):
        any_width.goto(dashboard.address + address)
        expect(any_width.locator("#rounds")).to_have_attribute(
            "aria-label", re.compile("expected-max: .* s")
        )
        assert any_width.evaluate(TEXTS_CUT_OFF) == []
    any_width.locator("#csv").set_input_files(file)
    expect(any_width.locator("#sentences")).to_contain_text("2 devices")
    assert any_width.evaluate(TEXTS_CUT_OFF) == []


# Texts that reach beyond the edge of their chart, or were shortened.
TEXTS_CUT_OFF = """async () => {
  const { chartOf } = await import("/static/common.js"), cutOff = [];
  for (const id of ["cuts", "times", "shares", "rounds", "device-cuts"]) {
    const chart = chartOf(id);
    const device = document.getElementById("device");
    if (!chart || device.hidden && device.contains(chart.getDom())) continue;
    for (const part of chart.getZr().storage.getDisplayList(true)) {
      if (part.type !== "tspan" || part.invisible) continue;
      const box = part.getBoundingRect().clone();
      if (part.transform) box.applyTransform(part.transform);
      const inside = box.x >= -1 && box.y >= -1
        && box.x + box.width <= chart.getWidth() + 1
        && box.y + box.height <= chart.getHeight() + 1;
      if (!inside || part.style.text.includes("...")) cutOff.push([id, part.style.text]);
    }
  }
  return cutOff;
}"""


def test_the_axes_of_charts_are_named(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.address + "?device=3")
    expect(page.locator("#rounds")).to_have_attribute(
        "aria-label", re.compile("expected-max: .* s")
    )
    named = page.evaluate(AXES)
    assert named == {
        "cuts": ["cut after layer", "device"],
        "times": ["seconds", "device"],
        "shares": ["percent of the band", "device"],
        "device-cuts": ["cut after layer", "seconds"],
        "rounds": ["seconds", ""],
    }


AXES = """async () => {
  const { chartOf } = await import("/static/common.js"), names = {};
  for (const id of ["cuts", "times", "shares", "device-cuts", "rounds"]) {
    const { xAxis: [x], yAxis: [y] } = chartOf(id).getOption();
    names[id] = [x.name, y.name];
  }
  return names;
}"""


def test_rounds_far_apart_are_points_instead_of_bars(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.address + "?model=vit&devices=40&distance=2000&method=random")
    expect(page.locator("#rounds")).to_have_attribute(
        "aria-label", re.compile("expected-max: .* s")
    )
    option = page.evaluate(
        "async () => (await import('/static/common.js')).chartOf('rounds').getOption()"
    )
    assert (option["xAxis"][0]["type"], option["series"][0]["type"]) == ("log", "scatter")


def test_a_cut_longer_than_the_chart_is_high_is_marked(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.address + "?device=3&limit=20")
    expect(page.locator("#device-cuts-note")).to_contain_text("longer than the chart is high")
    taken = page.locator("#device-cuts").get_attribute("aria-label") or ""
    long = [cut for cut in taken.split(", ") if "conv1" in cut or "relu1" in cut]
    series = page.evaluate(
        "async () => (await import('/static/common.js')).chartOf('device-cuts').getOption().series"
    )
    assert [at for at, _ in series[2]["data"]] == list(range(len(long)))
