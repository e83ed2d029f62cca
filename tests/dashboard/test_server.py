"""The server: what it hands out, and whom it refuses."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from airsplit.core import palette
from airsplit.core.errors import FileProblem, InvalidValue
from airsplit.dashboard.server import Dashboard
from airsplit.runs.folder import RunFolder
from airsplit.runs.history import TIMES
from airsplit.runs.wording import TIME_LABELS
from dashboard.servers import a_dashboard, request
from report.run_folders import a_plan, a_record, a_run

NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs")
    a_run(made / "demo", [a_record(1), a_record(2)])
    a_run(made / "nested" / NASTY, [a_record(1)], plan=a_plan(device_names=[NASTY, "b", "c"]))
    (made.parent / "secret.toml").write_text("secret")
    return made


@pytest.fixture(scope="module")
def local(root: Path) -> Iterator[Dashboard]:
    with a_dashboard(root) as made:
        yield made


@pytest.fixture(scope="module")
def public(root: Path) -> Iterator[Dashboard]:
    with a_dashboard(root, host="0.0.0.0", names=("Lab.Example.org",)) as made:  # noqa: S104
        yield made


def token_of(dashboard: Dashboard) -> str:
    return parse_qs(urlsplit(dashboard.address).query)["token"][0]


def cookie_of(dashboard: Dashboard) -> str:
    return f"airsplit-token-{urlsplit(dashboard.address).port}"


# ---- what it hands out ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/runs",
        "/static/playground.js",
        "/static/vendor/echarts.mjs",
        "/static/style.css",
        "/palette.css",
    ],
)
def test_pages_are_there_and_may_not_run_what_is_written_into_them(
    local: Dashboard, path: str
) -> None:
    found = request(local, path)
    assert found.status == 200
    policy = found.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert found.headers["x-content-type-options"] == "nosniff"
    assert b"<script>" not in found.body or path.endswith(".mjs")


def test_static_files_use_only_colors_that_the_palette_declares(local: Dashboard) -> None:
    declared = set(re.findall(r"--([\w-]+):", request(local, "/palette.css").body.decode()))
    assert palette.DASHBOARD_LIGHT.keys() == palette.DASHBOARD_DARK.keys()
    assert declared == palette.DASHBOARD_LIGHT.keys() | palette.DASHBOARD_ROLES.keys()
    for name in ("style.css", "common.js", "runs.js", "playground.js", "runs.html"):
        text = request(local, f"/static/{name}").body.decode()
        assert set(re.findall(r"var\(--([\w-]+)\)", text)) - {"row", "bar", "of-run"} <= declared
        assert not re.search(r"#[0-9a-fA-F]{6}\b", text)


def test_modules_come_as_javascript(local: Dashboard) -> None:
    assert "javascript" in request(local, "/static/vendor/echarts.mjs").headers["content-type"]


def test_the_runs_page_names_what_time_goes_to_as_reports_do(local: Dashboard) -> None:
    script = request(local, "/static/runs.js").body.decode()
    kinds = re.search(r"const KINDS = (.*);", script)
    assert kinds is not None
    assert {key: word for word, key, _ in json.loads(kinds[1])} == {
        key: TIME_LABELS[key.removesuffix("_s")] for key in TIMES
    }


def test_a_plan_is_answered(local: Dashboard) -> None:
    found = request(
        local, "/api/plan", {"model": "alexnet", "settings": {"fleet.devices": 3}, "device": 1}
    )
    assert found.status == 200
    assert len(found.json["devices"]["splits"]) == 3
    assert "Device 1" in found.json["device"]["said"]


def test_mistakes_are_told_with_the_line_of_a_csv(local: Dashboard) -> None:
    found = request(
        local, "/api/plan", {"csv": "seconds_per_mac,fluctuation,distance_m\n1e-9,2e9,far\n"}
    )
    assert (found.status, found.json["line"]) == (422, 2)
    assert "distance_m" in found.json["error"]


@pytest.mark.parametrize(
    "change",
    [
        {"csv": "seconds_per_mac,fluctuation,full_band_rate_bps\n1e-9,1e-300,1e6\n"},
        {"csv": "name,seconds_per_mac,fluctuation,full_band_rate_bps\n\ud800,1e-9,1e9,1e6\n"},
        {"settings": {"cell.bandwidth_hz": 1e308}},
        {"settings": {"fleet.seconds_per_mac": 1e300}},
        {"profile": "[" * 100_000},
        {"profile": "9" * 5000},
    ],
)
def test_numbers_beyond_reason_are_a_mistake_and_no_failure(
    local: Dashboard, change: dict[str, object]
) -> None:
    found = request(local, "/api/plan", change)
    assert found.status in (200, 422)
    assert found.status == 200 or found.json["error"]


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[]", 400), (b"[" * 100_000, 400), (b'{"settings": 3}', 422)],
)
def test_what_is_no_request_is_refused(local: Dashboard, body: bytes, status: int) -> None:
    assert request(local, "/api/plan", body).status == status


def test_a_request_is_json_and_says_so(local: Dashboard) -> None:
    assert request(local, "/api/plan", b"{}", content_type="text/plain").status == 415
    assert (
        request(local, "/api/plan", b"{}", content_type="application/x-www-form-urlencoded").status
        == 415
    )


def test_runs_and_reports(local: Dashboard) -> None:
    names = [run["name"] for run in request(local, "/api/runs").json]
    assert sorted(names) == ["demo", f"nested/{NASTY}"]
    assert request(local, "/api/run?run=demo").json["rounds"] == 2
    report = request(local, "/report?run=demo")
    assert report.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in report.headers["content-security-policy"]
    assert request(local, "/api/run?run=other").status == 404


def test_script_in_names_stays_text(local: Dashboard) -> None:
    report = request(local, "/report?run=nested/%3Cimg%20src=x%20onerror=alert(1)%3E")
    assert report.status == 200
    assert b"<img" not in report.body
    assert b"&lt;img" in report.body


# ---- events --------------------------------------------------------------------------------------------------------------------
def events(dashboard: Dashboard, path: str, count: int) -> list[tuple[str, object]]:
    """The first events of a stream."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", urlsplit(dashboard.address).port, timeout=20
    )
    connection.request("GET", path)
    stream, found, kind = connection.getresponse(), [], ""
    assert stream.headers["content-type"].startswith("text/event-stream")
    while len(found) < count:
        line = stream.readline().decode().strip()
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            found.append((kind, json.loads(line.removeprefix("data: "))))
    connection.close()
    return found


def test_a_stream_tells_of_runs_as_they_grow(tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(1)])
    with a_dashboard(tmp_path) as dashboard:
        later = threading.Timer(1.0, lambda: RunFolder(tmp_path / "run").append(a_record(2)))
        later.start()
        told = events(dashboard, "/api/events?run=run", 3)
        later.join()
    kinds = [kind for kind, _ in told]
    assert set(kinds) == {"run", "runs"}
    assert max(run["rounds"] for kind, run in told if kind == "run") == 2


def test_pages_may_come_and_go_while_others_listen(tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(1)])
    with a_dashboard(tmp_path) as dashboard:
        for number in range(2, 6):
            threads = [
                threading.Thread(target=events, args=(dashboard, "/api/events?run=run", 2))
                for _ in range(10)
            ]
            for thread in threads:
                thread.start()
            RunFolder(tmp_path / "run").append(a_record(number))
            for thread in threads:
                thread.join(20)
            assert not any(thread.is_alive() for thread in threads)


def test_a_run_that_is_not_there_is_told_in_the_stream(local: Dashboard) -> None:
    told = events(local, "/api/events?run=..%2Fsecret", 2)
    assert any("no run" in found["problem"] for kind, found in told if kind == "run")


def test_nothing_that_is_wrong_with_one_run_keeps_the_others_from_being_told_of(
    tmp_path: Path,
) -> None:
    a_run(tmp_path / "good", [a_record(1)])
    for name, plan in (("deep", "[" * 100_000), ("long", "9" * 5000), ("list", "[]")):
        a_run(tmp_path / name, [a_record(1)])
        (tmp_path / name / "plan.json").write_text(plan)
    a_run(tmp_path / "odd", [])
    (tmp_path / "odd" / "rounds.jsonl").write_text(
        '{"round": 1, "virtual_time_s": 1, "latency_s": 1, "participants": [[0]]}\n'
    )
    with a_dashboard(tmp_path) as dashboard:
        found = {run["name"]: run for run in request(dashboard, "/api/runs").json}
        told = dict(events(dashboard, "/api/events?run=deep", 2))
        assert len(events(dashboard, "/api/events?run=good", 2)) == 2  # the watcher goes on
    assert {name for name, run in found.items() if "problem" in run} == {
        "deep",
        "long",
        "list",
        "odd",
    }
    assert "problem" in told["run"]


# ---- whom it refuses -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "a@evil.example"],
)
def test_other_names_are_refused(local: Dashboard, host: str) -> None:
    assert request(local, "/api/runs", host=host).status in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080"])
def test_its_own_names_are_not(local: Dashboard, host: str) -> None:
    assert request(local, "/api/runs", host=host).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://[bad",
        "http://localhost:1",
        "https://127.0.0.1.evil.example",
    ],
)
def test_pages_of_others_are_refused(local: Dashboard, origin: str) -> None:
    assert request(local, "/api/plan", {}, origin=origin).status == 403


def test_a_browser_that_says_cross_site_is_refused(local: Dashboard) -> None:
    assert request(local, "/api/runs", sec_fetch_site="cross-site").status == 403
    assert request(local, "/api/runs", sec_fetch_site="same-origin").status == 200
    followed = {
        "sec_fetch_site": "cross-site",
        "sec_fetch_mode": "navigate",
        "sec_fetch_dest": "document",
    }
    assert request(local, "/runs", **followed).status == 200  # a link in a mail
    assert request(local, "/runs", **followed | {"sec_fetch_dest": "iframe"}).status == 403
    assert request(local, "/api/plan", {}, **followed).status == 403


def test_its_own_pages_are_not(local: Dashboard) -> None:
    where = urlsplit(local.address).netloc
    assert request(local, "/api/plan", {}, origin=f"http://{where}", host=where).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/report?run=../secret.toml",
        "/report?run=%2e%2e%2fsecret.toml",
        "/api/run?run=..%2f..%2fetc%2fpasswd",
        "/report?run=/etc",
        "/static//etc/passwd",
        "/nothing",
    ],
)
def test_no_path_leads_outside(local: Dashboard, path: str) -> None:
    assert request(local, path).status == 404


def test_other_methods_and_long_requests_are_refused(local: Dashboard) -> None:
    assert request(local, "/api/runs", method="DELETE").status == 405
    assert request(local, "/", method="POST", body=b"{}").status == 405
    long = request(local, "/api/plan", b"", content_length="99999999")
    assert long.status == 413


# ---- a token -------------------------------------------------------------------------------------------------------------------
def test_elsewhere_than_on_loopback_a_token_is_needed(public: Dashboard) -> None:
    assert request(public, "/").status == 401
    assert request(public, "/static/playground.js").status == 401
    for wrong in ("", "x", token_of(public)[:-1], token_of(public) + "x", "ü"):
        assert (
            request(
                public, "/api/runs", authorization=f"Bearer {wrong}".encode().decode("latin-1")
            ).status
            == 401
        )
        assert (
            request(
                public,
                "/api/runs",
                cookie=f"{cookie_of(public)}={wrong}".encode().decode("latin-1"),
            ).status
            == 401
        )
    assert request(public, "/api/runs", authorization=f"Bearer {token_of(public)}").status == 200


def test_the_address_with_the_token_leaves_it_in_a_cookie(public: Dashboard) -> None:
    found = request(public, f"/runs?run=demo&token={token_of(public)}")
    assert (found.status, found.headers["location"]) == (303, "/runs?run=demo")
    cookie = found.headers["set-cookie"]
    assert "httponly" in cookie.lower()
    assert "samesite=lax" in cookie.lower()
    assert request(public, "/runs", cookie=cookie.partition(";")[0]).status == 200
    assert request(public, "/runs?token=wrong").status == 401


def test_a_name_must_be_known_there_too(public: Dashboard) -> None:
    bearer = f"Bearer {token_of(public)}"
    assert request(public, "/api/runs", host="lab.example.org", authorization=bearer).status == 200
    assert (
        request(public, "/api/runs", host="LAB.example.org.:80", authorization=bearer).status == 200
    )
    assert request(public, "/api/runs", host="evil.example", authorization=bearer).status == 403


def test_a_token_in_the_address_is_no_way_out(public: Dashboard) -> None:
    """A redirect goes to the same server, whatever the path says."""
    found = request(public, f"//evil.example/?token={token_of(public)}")
    assert not found.headers.get("location", "/").startswith("//")


# ---- beginning -----------------------------------------------------------------------------------------------------------------
def test_a_folder_that_is_none_and_a_port_that_is_taken_are_told(
    root: Path, local: Dashboard
) -> None:
    with pytest.raises(FileProblem, match="not a folder"):
        Dashboard(root / "nowhere")
    with pytest.raises(InvalidValue, match="cannot be listened on"):
        Dashboard(root, port=urlsplit(local.address).port or 0)
    with pytest.raises(InvalidValue, match="cannot be listened on"):
        Dashboard(root, host="no such host")
    with pytest.raises(InvalidValue, match=r"host 'x+' and port 0 cannot be listened on: .*label"):
        Dashboard(root, host="x" * 64)
