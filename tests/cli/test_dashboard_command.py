"""The command dashboard: its notes, and how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from airsplit.dashboard.server import Dashboard


@pytest.fixture
def stop_when_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a dashboard as soon as it is ready."""
    run = Dashboard.run

    def run_and_stop(dashboard: Dashboard, on_ready: Callable[[], None]) -> None:
        run(dashboard, lambda: (on_ready(), dashboard.stop()))

    monkeypatch.setattr(Dashboard, "run", run_and_stop)


@pytest.mark.usefixtures("stop_when_ready")
def test_it_prints_its_address_and_creates_the_default_folder(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, printed, err = run("dashboard", "--port", "0")
    assert (code, printed) == (0, "")
    assert "the dashboard is at http://127.0.0.1:" in err
    assert "token" not in err
    assert (tmp_path / "runs").is_dir()


@pytest.mark.usefixtures("stop_when_ready")
def test_beyond_loopback_its_address_has_a_token(run, tmp_path):
    assert "/?token=" in run("dashboard", str(tmp_path), "--host", "0.0.0.0", "--port", "0")[2]  # noqa: S104


@pytest.mark.usefixtures("stop_when_ready")
def test_it_can_open_a_browser(run, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    run("dashboard", str(tmp_path), "--port", "0", "--open")
    assert urlsplit(opened[0]).hostname == "127.0.0.1"


def test_a_missing_folder_is_one_line(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("dashboard", "nowhere")
    assert code == 2
    assert err.count("\n") == 1
    (tmp_path / "runs").write_text("")
    assert run("dashboard")[0] == 2


def test_a_folder_that_cannot_be_created_is_one_line(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def refuse(self: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    code, _, err = run("dashboard", "--port", "0")
    assert code == 2
    assert err == (
        "airsplit: folder 'runs' cannot be created here: Permission denied; "
        "name the folder of your runs\n"
    )


def test_a_port_in_use_is_one_line_with_a_way_out(run, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, _, err = run("dashboard", str(tmp_path), "--port", str(port))
    assert code == 2
    assert err.count("\n") == 1
    assert f"port {port} cannot be listened on: Address already in use; --port" in err


def test_its_help_shows_an_optional_folder(run):
    assert "airsplit dashboard [OPTIONS] [RUNS]\n" in run("dashboard", "--help")[1]


# Starts a command with this disposition of both signals, whatever the tests have inherited.
START = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.Handlers[sys.argv[1]])
os.execv(sys.executable, [sys.executable, "-m", "airsplit", *sys.argv[2:]])
"""


@pytest.mark.parametrize("disposition", ["SIG_DFL", "SIG_IGN"])
@pytest.mark.parametrize(("asked", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_it_whatever_disposition_it_inherits(
    tmp_path: Path, disposition: str, asked: signal.Signals, exit_code: int
) -> None:
    command = [sys.executable, "-c", START, disposition, "dashboard", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = [process.stderr.readline() for _ in range(2)]
            process.send_signal(asked)
            _, rest = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == exit_code
    assert "the dashboard is at" in lines[0]
    assert rest == ""
