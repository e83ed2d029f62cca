"""The commands serve, join, probe, status and identity, in process and on loopback."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airsplit.cli.app import main
from airsplit.network.client.client import Device
from airsplit.network.server.server import Server
from airsplit.runs.folder import RunFolder
from airsplit.scenario.scenario import Scenario
from network import fleets
from network.fleets import PATIENCE_S, Party, Simulated, party

Run = Callable[..., tuple[int, str, str]]
MODEL = "training.tiny:mlp"


@pytest.fixture
def scenario() -> Scenario:
    return fleets.scenario(rounds=2, momentum=0.5)


@pytest.fixture
def file(scenario: Scenario, tmp_path: Path) -> Path:
    (tmp_path / "it.toml").write_text(scenario.to_toml())
    return tmp_path / "it.toml"


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as result:
        return int(result.getsockname()[1])


@pytest.fixture
def devices(tmp_path: Path, port: int) -> Iterator[Callable[[int], None]]:
    """Return a function that starts devices, which retry until there is a server."""
    threads = []

    def start(count: int) -> None:
        for k in range(count):
            device = Device(
                name=str(k),
                folder=tmp_path / f"device-{k}",
                data=f"network.fleets:three_{k}",
                model=MODEL,
                patience_s=PATIENCE_S,
            )
            address = f"127.0.0.1:{port}"
            thread = threading.Thread(target=device.run, args=(address,), daemon=True)
            threads.append(thread)
            thread.start()

    yield start
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)


def list_join_options(folder: Path) -> list[str]:
    """Return the options of `airsplit join` for the first of three devices."""
    return ["--out", str(folder), "--model", MODEL, "--data", "network.fleets:three_0"]


@contextmanager
def train_in_background(group: Party) -> Iterator[None]:
    """Let a server train while this block runs, and wait until it is done."""
    thread = threading.Thread(target=group.train, daemon=True)
    thread.start()
    yield
    thread.join(PATIENCE_S)


def check_refused(result: tuple[int, str, str], *words: str) -> None:
    """Check that a command failed with one line on stderr."""
    code, out, err = result
    assert (code, out) == (2, ""), (code, out, err)
    assert "Traceback" not in err
    for word in words:
        assert word in err


def test_serve_trains_and_leaves_a_run_folder(
    run: Run,
    file: Path,
    port: int,
    devices: Callable[[int], None],
    tmp_path: Path,
    scenario: Scenario,
) -> None:
    devices(3)
    code, out, err = run("serve", file, "--listen", f"127.0.0.1:{port}", "--out", tmp_path / "run")
    assert code == 0, err
    assert f"listening on port {port} for 3 devices" in err
    assert "2 has arrived, with 9 samples" in err
    assert str(tmp_path / "run") in out
    records = RunFolder(tmp_path / "run").read_records()
    simulated = Simulated(scenario)
    assert [record.train_loss for record in records] == [
        record.train_loss for record in simulated.records
    ]
    assert {file.name for file in (tmp_path / "run").iterdir()} >= {
        "scenario.toml",
        "plan.json",
        "rounds.jsonl",
        "checkpoint",
        "report.html",
    }


def test_serve_prints_events_as_lines_of_json(
    capsys: pytest.CaptureFixture[str],
    file: Path,
    port: int,
    devices: Callable[[int], None],
    tmp_path: Path,
) -> None:
    devices(3)
    words = ["serve", str(file), "--listen", f"127.0.0.1:{port}", "--out", str(tmp_path / "run")]
    assert main([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    events = [json.loads(line) for line in out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "listening"
    assert events[0]["port"] == port
    assert kinds[-1] == "done"
    assert {"connected", "arrived", "planned", "finished", "round"} <= set(kinds)
    assert [event["round"] for event in events if event["event"] == "round"] == [1, 2]
    assert err == ""


def test_serve_resumes_with_the_same_number_of_devices(
    run: Run, file: Path, port: int, devices: Callable[[int], None], tmp_path: Path
) -> None:
    words = ["serve", file, "--listen", f"127.0.0.1:{port}", "--out", tmp_path / "run"]
    words += ["--set", "plan.split=2"]
    devices(2)
    assert run(*words, "--devices", 2, "--set", "training.rounds=1")[0] == 0
    check_refused(run(*words, "--devices", 2), "already contains a run", "--resume")
    check_refused(run(*words, "--resume", "--devices", 3), "fleet.devices")
    devices(2)
    code, _, err = run(*words, "--resume", "--set", "training.rounds=2")
    assert code == 0, err
    assert "for 2 devices" in err
    assert [record.round for record in RunFolder(tmp_path / "run").read_records()] == [1, 2]


@pytest.mark.parametrize(("asked", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
@pytest.mark.usefixtures("ignored_signals")
def test_serve_reports_what_is_kept_when_a_signal_stops_it(
    run: Run,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: signal.Signals,
    exit_code: int,
) -> None:
    def interrupt(server: Server) -> None:
        signal.raise_signal(asked)
        prepare(server)

    prepare = Server.prepare
    monkeypatch.setattr(Server, "prepare", interrupt)
    code, out, err = run("serve", file, "--listen", "127.0.0.1:0", "--out", tmp_path / "run")
    assert (code, out) == (exit_code, "")
    assert "stopped before the end of the first round" in err


def test_switches_of_serve_are_recorded_in_the_scenario(
    run: Run, file: Path, port: int, devices: Callable[[int], None], tmp_path: Path
) -> None:
    devices(3)
    words = ["serve", file, "--listen", f"127.0.0.1:{port}", "--out", tmp_path / "run"]
    changes = ["--set", "training.rounds=1", "--set", "training.fast_paths=true"]
    assert run(*words, *changes, "--plain", "--replan")[0] == 0
    written = Scenario.load(tmp_path / "run/scenario.toml", trust_run=True)
    assert written.training.fast_paths is False
    assert written.network.replan is True
    assert written.training.rounds == 1


def test_serve_gives_up_if_no_device_joins(run: Run, file: Path, port: int, tmp_path: Path) -> None:
    words = ["serve", file, "--listen", f"127.0.0.1:{port}", "--out", tmp_path / "run"]
    code, out, err = run(*words, "--wait", 0.2)
    assert (code, out) == (2, "")
    assert "0 of 3 devices are here" in err
    assert "--wait" in err


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("nonsense", "HOST:PORT"),
        ("127.0.0.1:99999", "port from 0 to 65535"),
        ("127.0.0.1:", "port"),
        ("::1:7070", "brackets"),
        ("192.0.2.1:7070", "--insecure"),
        ("0.0.0.0:7070", "--insecure"),
    ],
)
def test_an_invalid_listen_address_is_rejected(
    run: Run, file: Path, tmp_path: Path, address: str, word: str
) -> None:
    check_refused(run("serve", file, "--listen", address, "--out", tmp_path / "run"), word)
    assert not (tmp_path / "run").exists()


def test_a_port_in_use_is_rejected(run: Run, file: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        result = run("serve", file, "--listen", address, "--out", tmp_path / "run")
        check_refused(result, address, "cannot be listened on")


def test_devices_must_match_the_fleet_file(
    run: Run, scenario: Scenario, file: Path, tmp_path: Path
) -> None:
    scenario.make_fleet().write(tmp_path / "fleet.csv")
    words = ["--devices", 2, "--listen", "127.0.0.1:0", "--wait", 0.1]
    change = f"fleet.file={tmp_path / 'fleet.csv'}"
    result = run("serve", file, *words, "--set", change, "--out", tmp_path / "run")
    check_refused(result, "--devices", "3")


def test_splits_must_match_the_number_of_devices(run: Run, file: Path, tmp_path: Path) -> None:
    words = ["--devices", 2, "--listen", "127.0.0.1:0", "--wait", 0.1]
    result = run("serve", file, "--out", tmp_path / "run", *words)
    check_refused(result, "split has 3 entries for 2 devices")


def test_a_server_logs_progress_while_it_waits(
    run: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["serve", file, "--listen", "127.0.0.1:0", "--wait", 0.5, "--out", tmp_path / "run"]
    assert "absent" not in run(*words)[2]
    monkeypatch.setattr("airsplit.cli.live_view.LOG_INTERVAL_S", 0.05)
    assert "airsplit: round 1 of 2: 3 absent\n" in run(*words)[2]
    assert "absent" not in run(*words, "--json")[2]


def test_a_missing_data_folder_is_noted(run: Run, port: int, tmp_path: Path) -> None:
    address = f"127.0.0.1:{port}"
    words = ["join", address, "--name", "one", "--patience", 0, "--out", tmp_path / "one"]
    missing = f"there is no folder '{tmp_path / 'nowhere'}'"
    assert missing in run(*words, "--data", tmp_path / "nowhere")[2]
    assert not (tmp_path / "one").exists()  # nor is a folder created for a device that never joined
    assert "there is no folder" not in run(*words, "--data", tmp_path)[2]


def test_no_report_is_attempted_before_a_run_starts(run: Run, file: Path, tmp_path: Path) -> None:
    _, _, err = run(
        "serve", file, "--listen", "127.0.0.1:0", "--out", tmp_path / "run", "--wait", 0.1
    )
    assert "warning" not in err


def test_join_takes_part_until_the_end(run: Run, scenario: Scenario, tmp_path: Path) -> None:
    with party(scenario, tmp_path) as group:
        group.join("1", "2")
        words = ["--name", "0", *list_join_options(tmp_path / "device-0")]
        with train_in_background(group):
            code, out, err = run("join", group.address, *words)
        group.leave()
    assert (code, out) == (0, ""), err
    assert "as device 0, with" in err
    assert "round 2 done" in err
    simulated = Simulated(scenario)
    for k in range(3):
        fleets.assert_same_tensors(group.state(k), simulated.state.of(k))


@pytest.mark.parametrize("replan", [False, True])
def test_join_says_whether_layers_may_move(
    run: Run, scenario: Scenario, tmp_path: Path, replan: bool
) -> None:
    with party(scenario.replace(**{"network.replan": replan}), tmp_path) as group:
        group.join("1", "2")
        words = ["--name", "0", *list_join_options(tmp_path / "device-0")]
        with train_in_background(group):
            code, _, err = run("join", group.address, *words)
        group.leave()
    assert code == 0, err
    assert ("the server may move layers between rounds" in err) is replan


def test_join_prints_events_as_lines_of_json(
    capsys: pytest.CaptureFixture[str], scenario: Scenario, tmp_path: Path
) -> None:
    with party(scenario, tmp_path) as group:
        group.join("1", "2")
        words = ["--name", "0", *list_join_options(tmp_path / "device-0"), "--json"]
        with train_in_background(group):
            assert main(["join", group.address, *words]) == 0
        group.leave()
    out, err = capsys.readouterr()
    events = [json.loads(line) for line in out.splitlines()]
    assert [(event["event"], event.get("round")) for event in events] == [
        ("arrived", None),
        ("trained", 1),
        ("trained", 2),
        ("done", None),
    ]
    assert err == ""


def test_join_measures_itself_if_the_server_asks(run: Run, tmp_path: Path) -> None:
    measuring = fleets.scenario(splits=[2], rounds=1, network__measure=True)
    with party(measuring, tmp_path) as group:
        words = ["--name", "pi", *list_join_options(tmp_path / "device")]
        with train_in_background(group):
            code, _, err = run("join", group.address, *words, "--probe-seconds", 0.1)
    assert code == 0, err
    assert "s per MAC" in err
    assert "bit/s up" in err
    assert "pi" in (tmp_path / "run/fleet.csv").read_text()


@pytest.mark.parametrize(("asked", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.usefixtures("ignored_signals")
def test_a_signal_stops_join(
    run: Run,
    port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: signal.Signals,
    exit_code: int,
) -> None:
    # There is no server, so without the signal it would retry for ten minutes.
    monkeypatch.setattr(
        "airsplit.network.client.client.connect", lambda *_: signal.raise_signal(asked)
    )
    code, out, err = run("join", f"127.0.0.1:{port}", "--name", "one", "--out", tmp_path / "one")
    assert (code, out, err) == (exit_code, "", "")


def test_join_reports_why_it_is_rejected(run: Run, scenario: Scenario, tmp_path: Path) -> None:
    with party(scenario, tmp_path) as group:
        out = ["--out", tmp_path / "device"]
        check_refused(
            run("join", group.address, "--name", "0", *out), "--model package.module:factory"
        )
        check_refused(
            run("join", group.address, "--name", "0", *out, "--model", MODEL),
            "--data package.module:factory",
        )
        words = ["--data", "network.fleets:three_0", "--model", "training.tiny:shortcut"]
        check_refused(
            run("join", group.address, "--name", "0", *out, *words),
            "the server refuses",
            "fingerprint",
        )
        check_refused(
            run("join", group.address, "--name", "a b", *out),
            "--name must be 1 to 64 letters, digits, '.', '_' or '-'",
        )


def test_an_unreachable_server_is_reported(run: Run, port: int, file: Path, tmp_path: Path) -> None:
    address = f"127.0.0.1:{port}"
    check_refused(run("status", address), address, "cannot be reached")
    result = run("probe", file, "--seconds", 0.1, "--link", address)
    check_refused(result, address, "cannot be reached")
    code, out, err = run("join", address, "--patience", 0.1, "--out", tmp_path / "device")
    assert (code, out) == (2, "")
    assert f"server {address} cannot be reached since 0.1 s" in err


@pytest.mark.parametrize(
    "words", [["join"], ["status"], ["probe", "demo", "--link"]], ids=lambda words: words[0]
)
def test_plain_text_beyond_this_machine_is_rejected(run: Run, words: list[str]) -> None:
    check_refused(run(*words, "192.0.2.1:7070"), "--insecure", "--identity")
    check_refused(run(*words, "nonsense"), "HOST:PORT")


@pytest.mark.parametrize(
    "words",
    [["serve", "demo"], ["join", "127.0.0.1:1"], ["status", "127.0.0.1:1"]],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("option", ["--key", "--authority"])
def test_a_key_without_a_certificate_is_rejected(run: Run, words: list[str], option: str) -> None:
    check_refused(run(*words, option, "some.pem"), "certificate, key and authority")


@pytest.mark.parametrize(
    "words",
    [
        ["serve", "demo", "--wait", -1],
        ["join", "127.0.0.1:1", "--memory", -1],
        ["join", "127.0.0.1:1", "--patience", -1],
        ["join", "127.0.0.1:1", "--probe-seconds", -1],
        ["probe", "demo", "--seconds", -1],
    ],
    ids=lambda words: words[2],
)
def test_negative_numbers_are_rejected(run: Run, words: list[object]) -> None:
    check_refused(run(*words), str(words[2]), "greater than or equal to 0")


def test_an_invalid_name_is_rejected_before_a_folder_is_created(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refused(
        run("join", "127.0.0.1:1", "--name", "../elsewhere", "--patience", 0),
        "name",
        "'../elsewhere'",
    )
    assert list(tmp_path.iterdir()) == []


def test_status_shows_the_devices(
    run: Run, document: Callable[..., Any], scenario: Scenario, tmp_path: Path
) -> None:
    with party(scenario, tmp_path) as group:
        group.join("1")
        fleets.wait_until(lambda: group.server.members[1].present)
        code, out, err = run("status", group.address)
        assert (code, err) == (0, "")
        assert "round 0 of 2 done" in out
        assert "waiting" in out
        state = document("status", group.address)
        group.close()
        group.leave()
    devices = [(device["name"], device["state"], device["samples"]) for device in state["devices"]]
    assert devices == [("", "absent", 0), ("1", "waiting", 2), ("", "absent", 0)]
    assert (state["round"], state["rounds"], state["algorithm"]) == (0, 2, "sfl")


def test_probe_measures_this_machine_and_the_link(
    run: Run, document: Callable[..., Any], file: Path, scenario: Scenario, tmp_path: Path
) -> None:
    result = document("probe", file, "--seconds", 0.1)
    assert result["seconds_per_mac"] > 0
    assert result["fluctuation"] > 0
    with party(scenario, tmp_path) as group:
        linked = document("probe", file, "--seconds", 0.1, "--link", group.address)
        code, out, err = run("probe", file, "--seconds", 0.1, "--link", group.address)
    assert linked["up_bps"] > 1e5
    assert linked["down_bps"] > 1e5
    assert (code, err) == (0, "")
    assert "bit/s" in out


def test_identities_from_init_to_revocation(
    run: Run, document: Callable[..., Any], scenario: Scenario, tmp_path: Path
) -> None:
    from airsplit.network.identity.admission import (
        Admission,
        channel_credentials,
        server_credentials,
    )

    folder = tmp_path / "identity"
    assert "127.0.0.1" in document("identity", "init", "--folder", folder)["hosts"]
    for name in "012":
        code, out, _ = run("identity", "issue", name, "--folder", folder)
        assert code == 0
        assert str(folder / "devices" / name) in out
    certificates = document("identity", "list", "--folder", folder)
    assert [certificate["name"] for certificate in certificates] == ["0", "1", "2"]
    secured = {
        "credentials": server_credentials(folder),
        "admission": Admission(folder / "revoked.txt"),
    }
    with party(scenario, tmp_path, **secured) as group:
        for name in "12":
            group.join(name, credentials=channel_credentials(folder / "devices" / name))
        fleets.wait_until(lambda: all(member.present for member in group.server.members[1:]))
        state = document("status", group.address, "--identity", folder / "devices/0")
        assert [device["state"] for device in state["devices"]] == ["absent", "waiting", "waiting"]
        words = list_join_options(tmp_path / "device-0")
        words += ["--identity", str(folder / "devices/0")]
        result = run("join", group.address, *words, "--name", "1")
        check_refused(result, "a device can only act as itself")
        check_refused(run("status", group.address), "cannot be reached")
        with train_in_background(group):
            code, _, err = run("join", group.address, *words)
        group.leave()
        assert code == 0, err
    assert len(group.serving.folder.read_records()) == 2
    assert run("identity", "revoke", "0", "--folder", folder)[0] == 0
    certificates = document("identity", "list", "--folder", folder)
    assert [certificate["revoked"] for certificate in certificates] == [True, False, False]
    with party(scenario, tmp_path / "again", **secured) as group:
        check_refused(run("join", group.address, *words), "revoked")


def test_missing_identities_are_reported(run: Run, file: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    check_refused(
        run("serve", file, "--identity", nowhere, "--out", tmp_path / "run"),
        str(nowhere),
        "airsplit identity init",
    )
    for words in (
        ["join", "127.0.0.1:7070"],
        ["status", "127.0.0.1:7070"],
        ["probe", file, "--seconds", 0.1, "--link", "127.0.0.1:7070"],
    ):
        check_refused(run(*words, "--identity", nowhere), str(nowhere), "airsplit identity issue")
    for words in (["issue", "0"], ["revoke", "0"], ["list"]):
        check_refused(run("identity", *words, "--folder", nowhere), "airsplit identity init")
    check_refused(
        run("join", "127.0.0.1:7070", "--certificate", nowhere), "certificate, key and authority"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["serve"],
        ["join"],
        ["probe"],
        ["status"],
        ["identity"],
        *(["identity", name] for name in ("init", "issue", "revoke", "list")),
    ],
    ids=" ".join,
)
def test_help_shows_examples(run: Run, words: list[str]) -> None:
    code, out, err = run(*words, "--help")
    assert (code, err) == (0, "")
    assert "Examples:" in out
    assert f"airsplit {' '.join(words)}" in out
