"""The server: its pages, plans, runs and events, and the requests that it rejects."""

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
    root = tmp_path_factory.mktemp("runs")
    a_run(root / "demo", [a_record(1), a_record(2)])
    a_run(root / "nested" / NASTY, [a_record(1)], plan=a_plan(device_names=[NASTY, "b", "c"]))
    (root.parent / "secret.toml").write_text("secret")
    return root


@pytest.fixture(scope="module")
def local(root: Path) -> Iterator[Dashboard]:
    with a_dashboard(root) as dashboard:
        yield dashboard


@pytest.fixture(scope="module")
def public(root: Path) -> Iterator[Dashboard]:
    with a_dashboard(root, host="0.0.0.0", names=("Lab.Example.org",)) as dashboard:  # noqa: S104
        yield dashboard


def token_of(dashboard: Dashboard) -> str:
    return parse_qs(urlsplit(dashboard.address).query)["token"][0]


def cookie_of(dashboard: Dashboard) -> str:
    return f"airsplit-token-{urlsplit(dashboard.address).port}"


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
def test_pages_run_no_inline_scripts(local: Dashboard, path: str) -> None:
    answer = request(local, path)
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert b"<script>" not in answer.body or path.endswith(".mjs")


def test_static_files_use_only_colors_that_the_palette_declares(local: Dashboard) -> None:
    declared = set(re.findall(r"--([\w-]+):", request(local, "/palette.css").body.decode()))
    assert palette.DASHBOARD_LIGHT.keys() == palette.DASHBOARD_DARK.keys()
    assert declared == palette.DASHBOARD_LIGHT.keys() | palette.DASHBOARD_ROLES.keys()
    for name in ("style.css", "common.js", "runs.js", "playground.js", "runs.html"):
        text = request(local, f"/static/{name}").body.decode()
        assert set(re.findall(r"var\(--([\w-]+)\)", text)) - {"row", "bar", "of-run"} <= declared
        assert not re.search(r"#[0-9a-fA-F]{6}\b", text)


def test_modules_have_the_content_type_of_javascript(local: Dashboard) -> None:
    assert "javascript" in request(local, "/static/vendor/echarts.mjs").headers["content-type"]


def test_the_runs_page_names_times_as_reports_do(local: Dashboard) -> None:
    script = request(local, "/static/runs.js").body.decode()
    kinds = re.search(r"const KINDS = (.*?);", script, re.DOTALL)
    assert kinds is not None
    assert {key: word for word, key, _ in json.loads(kinds[1])} == {
        key: TIME_LABELS[key.removesuffix("_s")] for key in TIMES
    }


def test_a_plan_is_returned_with_the_explanation_of_a_device(local: Dashboard) -> None:
    answer = request(
        local, "/api/plan", {"model": "alexnet", "settings": {"fleet.devices": 3}, "device": 1}
    )
    assert answer.status == 200
    assert len(answer.json["devices"]["splits"]) == 3
    assert "Device 1" in answer.json["device"]["explanation"]


def test_a_mistake_in_a_csv_is_returned_with_its_line(local: Dashboard) -> None:
    answer = request(
        local, "/api/plan", {"csv": "seconds_per_mac,fluctuation,distance_m\n1e-9,2e9,far\n"}
    )
    assert (answer.status, answer.json["line"]) == (422, 2)
    assert "distance_m" in answer.json["error"]


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
def test_extreme_numbers_are_an_error_with_a_reason(
    local: Dashboard, change: dict[str, object]
) -> None:
    answer = request(local, "/api/plan", change)
    assert answer.status in (200, 422)
    assert answer.status == 200 or answer.json["error"]


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[]", 400), (b"[" * 100_000, 400), (b'{"settings": 3}', 422)],
)
def test_malformed_requests_are_rejected(local: Dashboard, body: bytes, status: int) -> None:
    assert request(local, "/api/plan", body).status == status


def test_a_request_must_declare_itself_as_json(local: Dashboard) -> None:
    assert request(local, "/api/plan", b"{}", content_type="text/plain").status == 415
    assert (
        request(local, "/api/plan", b"{}", content_type="application/x-www-form-urlencoded").status
        == 415
    )


def test_runs_and_reports_are_returned(local: Dashboard) -> None:
    names = [run["name"] for run in request(local, "/api/runs").json]
    assert sorted(names) == ["demo", f"nested/{NASTY}"]
    assert request(local, "/api/run?run=demo").json["rounds"] == 2
    report = request(local, "/report?run=demo")
    assert report.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in report.headers["content-security-policy"]
    assert request(local, "/api/run?run=other").status == 404


def test_scripts_in_names_stay_text(local: Dashboard) -> None:
    report = request(local, "/report?run=nested/%3Cimg%20src=x%20onerror=alert(1)%3E")
    assert report.status == 200
    assert b"<img" not in report.body
    assert b"&lt;img" in report.body


def events(dashboard: Dashboard, path: str, count: int) -> list[tuple[str, object]]:
    """Return the first events of a stream."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", urlsplit(dashboard.address).port, timeout=20
    )
    connection.request("GET", path)
    stream = connection.getresponse()
    received: list[tuple[str, object]] = []
    kind = ""
    assert stream.headers["content-type"].startswith("text/event-stream")
    while len(received) < count:
        line = stream.readline().decode().strip()
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            received.append((kind, json.loads(line.removeprefix("data: "))))
    connection.close()
    return received


def test_a_stream_has_an_event_when_a_run_grows(tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(1)])
    with a_dashboard(tmp_path) as dashboard:
        later = threading.Timer(1.0, lambda: RunFolder(tmp_path / "run").append(a_record(2)))
        later.start()
        received = events(dashboard, "/api/events?run=run", 3)
        later.join()
    kinds = [kind for kind, _ in received]
    assert set(kinds) == {"run", "runs"}
    assert max(run["rounds"] for kind, run in received if kind == "run") == 2


def test_pages_may_open_and_close_while_others_listen(tmp_path: Path) -> None:
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


def test_a_missing_run_is_a_problem_in_the_stream(local: Dashboard) -> None:
    received = events(local, "/api/events?run=..%2Fsecret", 2)
    assert any("no run" in message["problem"] for kind, message in received if kind == "run")


def test_a_problem_with_one_run_does_not_stop_events_of_others(
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
        listed = {run["name"]: run for run in request(dashboard, "/api/runs").json}
        received = dict(events(dashboard, "/api/events?run=deep", 2))
        assert len(events(dashboard, "/api/events?run=good", 2)) == 2  # the watcher goes on
    assert {name for name, run in listed.items() if "problem" in run} == {
        "deep",
        "long",
        "list",
        "odd",
    }
    assert "problem" in received["run"]


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "a@evil.example"],
)
def test_foreign_host_names_are_rejected(local: Dashboard, host: str) -> None:
    assert request(local, "/api/runs", host=host).status in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080"])
def test_its_own_host_names_are_accepted(local: Dashboard, host: str) -> None:
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
def test_requests_from_other_origins_are_rejected(local: Dashboard, origin: str) -> None:
    assert request(local, "/api/plan", {}, origin=origin).status == 403


def test_cross_site_requests_are_rejected_except_followed_links(local: Dashboard) -> None:
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


def test_its_own_pages_may_send_requests(local: Dashboard) -> None:
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
def test_no_path_leads_out_of_the_folder(local: Dashboard, path: str) -> None:
    assert request(local, path).status == 404


def test_other_methods_and_long_requests_are_rejected(local: Dashboard) -> None:
    assert request(local, "/api/runs", method="DELETE").status == 405
    assert request(local, "/", method="POST", body=b"{}").status == 405
    long = request(local, "/api/plan", b"", content_length="99999999")
    assert long.status == 413


def test_a_token_is_needed_except_on_loopback(public: Dashboard) -> None:
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


def test_the_token_moves_from_the_address_to_a_cookie(public: Dashboard) -> None:
    answer = request(public, f"/runs?run=demo&token={token_of(public)}")
    assert (answer.status, answer.headers["location"]) == (303, "/runs?run=demo")
    cookie = answer.headers["set-cookie"]
    assert "httponly" in cookie.lower()
    assert "samesite=lax" in cookie.lower()
    assert request(public, "/runs", cookie=cookie.partition(";")[0]).status == 200
    assert request(public, "/runs?token=wrong").status == 401


def test_a_token_does_not_open_foreign_host_names(public: Dashboard) -> None:
    bearer = f"Bearer {token_of(public)}"
    assert request(public, "/api/runs", host="lab.example.org", authorization=bearer).status == 200
    assert (
        request(public, "/api/runs", host="LAB.example.org.:80", authorization=bearer).status == 200
    )
    assert request(public, "/api/runs", host="evil.example", authorization=bearer).status == 403


def test_the_redirect_after_a_token_stays_on_the_server(public: Dashboard) -> None:
    answer = request(public, f"//evil.example/?token={token_of(public)}")
    assert not answer.headers.get("location", "/").startswith("//")


def test_a_missing_folder_and_a_busy_port_are_errors_with_a_reason(
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
