"""The commands of the networked system: serve, join, probe, status."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airsplit.cli import arguments as sources
from airsplit.cli.options import (
    Address,
    AsJson,
    Authority,
    Certificate,
    Identity,
    Insecure,
    Key,
    Scenario,
    Set,
    TrustRun,
)
from airsplit.cli.output import json_text, note, print_parts, reports
from airsplit.cli.signals import handle
from airsplit.core.errors import AirsplitError, FileProblem, InvalidValue
from airsplit.core.parsing import parse_json

if TYPE_CHECKING:
    import grpc

    from airsplit.network.server.serve import Serving

WARNING = (
    "plain text: everybody on the way can read activations and labels, and act as server or device"
)


def serve(
    scenario: Scenario,
    devices: Annotated[
        int | None,
        typer.Option(help="How many take part; else as many as the fleet has.", metavar="N"),
    ] = None,
    listen: Annotated[
        str, typer.Option(help="Where to listen.", metavar="HOST:PORT")
    ] = "127.0.0.1:7070",
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of the run; else runs/NAME, runs/NAME-2 …", metavar="DIR"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the last run; begin where there is none.")
    ] = False,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait for devices.", metavar="S", min=0)
    ] = 3600.0,
    replan: Annotated[
        bool, typer.Option("--replan", help="Move layers between rounds where that saves time.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Switch every fast path off.")] = False,
    identity: Identity = None,
    certificate: Certificate = None,
    key: Key = None,
    authority: Authority = None,
    insecure: Insecure = False,
    set: Set = None,
    trust_run: TrustRun = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event as a line of JSON.")
    ] = False,
) -> None:
    """Train a scenario with real devices that join over the network.

    Waits for all devices, plans with what they have measured of themselves,
    trains, and writes a run folder as airsplit run does.  A device that goes
    is left out until it is back.  Killed at any moment and started again with
    --resume, the server goes on; devices come back by themselves.

    With --replan, layers may move between rounds: then devices send weights
    of the layers that the server takes over.  Without, they never do.

    \b
    Examples:
      airsplit serve demo --devices 2
      airsplit serve demo --devices 2 --resume
      airsplit serve my.toml --listen 0.0.0.0:7070 --identity identity
      airsplit serve my.toml --set network.compression=fp16
    """
    from airsplit.cli.run_tables import folder_for
    from airsplit.network.identity.admission import Admission, server_credentials
    from airsplit.network.server.serve import Serving
    from airsplit.runs.folder import RunFolder

    switches = [
        *(["training.fast_paths=false"] if plain else []),
        *(["network.replan=true"] if replan else []),
    ]
    folder = folder_for(scenario, resume=resume) if out is None else out
    run = RunFolder(folder)
    before = run.read_changes() if resume and run.has_rounds else {}
    chosen, changes = sources.resumable(
        scenario, [*(set or []), *switches], before, folder, trust_run=trust_run
    )
    secured = _is_secured(identity, certificate, key, authority)
    _require_safe(listen, secured, insecure)
    credentials = (
        server_credentials(identity, certificate=certificate, key=key, authority=authority)
        if secured
        else None
    )
    admission = (
        Admission(None if identity is None else identity / "revoked.txt") if secured else None
    )
    from airsplit.cli.live_view import Board

    board = Board(as_json=as_json)
    with sources.what_is_printed_as_notes():
        serving = Serving(
            chosen,
            out=folder,
            devices=devices,
            listen_on=listen,
            resume=resume,
            wait_s=wait,
            credentials=credentials,
            admission=admission,
            tell=board.told,
        )
        run.write_changes(changes)
        _train(serving, board, folder)
    board.finish(folder)


def _is_secured(*given: Path | None) -> bool:
    """Whether TLS is meant: a key without its certificate is a mistake to be told of, not a wish for plain text."""
    return any(path is not None for path in given)


def _require_safe(address: str, secured: bool, insecure: bool) -> None:
    """Plain text stays on this machine, or is asked for and warned of."""
    from airsplit.network.wire.transport import require_safe

    require_safe(address, secured, insecure)
    if insecure and not secured:
        note(f"warning: {WARNING}")


def _device_credentials(
    address: str,
    identity: Path | None,
    certificate: Path | None,
    key: Path | None,
    authority: Path | None,
    insecure: bool,
) -> grpc.ChannelCredentials | None:
    """What a device shows to the server; None for plain text."""
    from airsplit.network.identity.admission import channel_credentials

    secured = _is_secured(identity, certificate, key, authority)
    _require_safe(address, secured, insecure)
    return (
        channel_credentials(identity, certificate=certificate, key=key, authority=authority)
        if secured
        else None
    )


def _train(serving: Serving, board: Any, folder: Path) -> None:
    """Train until all rounds are done, or the process is asked to stop."""
    from airsplit.cli.run_tables import stopped
    from airsplit.network.server.assignments import Stopped

    try:
        with (
            handle(signal.SIGTERM, lambda *_: serving.stop("the server was asked to stop")),
            board.showing(serving),
            reports(folder),
        ):
            for record in serving:
                board.recorded(record)
    except (Stopped, KeyboardInterrupt) as asked:
        note(stopped(folder))
        if isinstance(asked, KeyboardInterrupt):
            raise
        raise typer.Exit(0) from None


def join(
    address: Address,
    data: Annotated[
        str | None,
        typer.Option(help="A folder with data sets, or package.module:factory.", metavar="DATA"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="package.module:factory; else the server's built-in.", metavar="MODEL"),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="What the model begins with: safetensors.", metavar="FILE")
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="package.module:function; only where the server's partition is not built in.",
            metavar="PARTITION",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="package.module:function; only where the device evaluates.", metavar="METRIC"
        ),
    ] = None,
    raw_inputs: Annotated[
        str,
        typer.Option(
            help="Inputs that may leave it as they are, with commas between; or allow.",
            metavar="NAMES",
        ),
    ] = "refuse",
    name: Annotated[
        str | None, typer.Option(help="Its name; else its certificate's or host's.", metavar="NAME")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="For its checkpoint; else devices/NAME.", metavar="DIR")
    ] = None,
    memory: Annotated[
        int, typer.Option(help="Bytes it may use for training; 0: all.", metavar="BYTES", min=0)
    ] = 0,
    probe_seconds: Annotated[
        float, typer.Option(help="Seconds that it measures itself for.", metavar="S", min=0)
    ] = 3.0,
    patience: Annotated[
        float, typer.Option(help="Seconds to look for a lost server.", metavar="S", min=0)
    ] = 600.0,
    identity: Identity = None,
    certificate: Certificate = None,
    key: Key = None,
    authority: Authority = None,
    insecure: Insecure = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event as a line of JSON.")
    ] = False,
) -> None:
    """Take part in a server's training, as a device.

    The device names its data and its code; the server never does.  With a
    folder it takes its part of the server's data set; a factory returns
    (train, test) of its own.  It measures itself on arrival, keeps its layers
    in a checkpoint of its own, and comes back when the connection breaks.

    \b
    Examples:
      airsplit join 127.0.0.1:7070 --name one
      airsplit join 192.168.1.10:7070 --identity kitchen-pi --data ~/data
      airsplit join 192.168.1.10:7070 --identity kitchen-pi \\
                    --data sensors:mine --model nets:make
    """
    from airsplit.network.client.client import Device
    from airsplit.network.names import require_name
    from airsplit.system.profile import RAW_INPUTS

    if name is not None:
        require_name("--name", name)  # the server would refuse it, and a folder is made of it first
    if data is not None and ":" not in data and not Path(data).exists():
        note(f"note: there is no folder {data!r}; a data set that comes along needs none")
    credentials = _device_credentials(address, identity, certificate, key, authority, insecure)
    called = name if name is not None else _host_name() if credentials is None else ""
    where = called or (
        identity.resolve().name
        if identity is not None
        else certificate.stem
        if certificate is not None
        else "device"
    )
    from airsplit.cli.live_view import device_teller

    device = Device(
        name=called,
        folder=Path("devices") / where if out is None else out,
        data=data,
        model=model,
        weights=None if weights is None else str(weights),
        partition=partition,
        metric=metric,
        raw_inputs=raw_inputs
        if raw_inputs in RAW_INPUTS
        else [each.strip() for each in raw_inputs.split(",")],
        memory_bytes=memory,
        probe_s=probe_seconds,
        patience_s=patience,
        tell=device_teller(as_json),
    )
    with sources.what_is_printed_as_notes():
        device.run(address, credentials)


def _host_name() -> str:
    """This machine's name, as far as it can be a device's."""
    import socket

    kept = "".join(
        letter
        for letter in socket.gethostname()
        if letter.isascii() and (letter.isalnum() or letter in "._-")
    )
    return kept[:64] or "device"


def probe(
    scenario: Scenario,
    seconds: Annotated[
        float, typer.Option(help="Seconds to measure for.", metavar="S", min=0)
    ] = 3.0,
    link: Annotated[
        str | None, typer.Option(help="Also measure the way to this server.", metavar="HOST:PORT")
    ] = None,
    identity: Identity = None,
    certificate: Certificate = None,
    key: Key = None,
    authority: Authority = None,
    insecure: Insecure = False,
    set: Set = None,
    trust_run: TrustRun = False,
    as_json: AsJson = False,
) -> None:
    """Measure this device: how fast it computes a scenario's model.

    Times the model up to several splits, forward and backward, and fits the
    law of the planner: a MAC takes a seconds, and 1/ε more on average.  The
    distance is Kolmogorov-Smirnov's; below the yardstick the law fits.

    \b
    Examples:
      airsplit probe demo
      airsplit probe my.toml --seconds 10 --json
      airsplit probe my.toml --link 192.168.1.10:7070 --identity kitchen-pi
    """
    from airsplit.network.client.probe import measure_compute

    chosen = sources.scenario(scenario, None, set or [], trust_run=trust_run)
    credentials = (
        None
        if link is None
        else _device_credentials(link, identity, certificate, key, authority, insecure)
    )
    from airsplit.training.setup import replica_of

    with sources.what_is_printed_as_notes():
        replica, profile = replica_of(chosen)
    measured = measure_compute(
        replica, profile, batch_size=chosen.training.batch_size, seconds=seconds
    )
    ways = {} if link is None else _measured_link(link, credentials)
    if as_json:
        print(json_text(json.loads(measured.to_json()) | {"yardstick": measured.yardstick} | ways))
        return
    from airsplit.cli.probe_tables import probe_report

    print_parts(*probe_report(measured, profile, chosen.training.batch_size, ways))


def _measured_link(address: str, credentials: grpc.ChannelCredentials | None) -> dict[str, float]:
    import grpc

    from airsplit.network.client.stream import measure_link
    from airsplit.network.wire.transport import ask_probe, connect

    channel = connect(address, credentials)
    try:
        return measure_link(lambda probe: ask_probe(channel, probe.frame(), 60.0))
    except grpc.RpcError as error:
        raise _unreachable(address, error, is_secured=credentials is not None) from None
    finally:
        channel.close()


def status(
    address: Address,
    identity: Identity = None,
    certificate: Certificate = None,
    key: Key = None,
    authority: Authority = None,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """Ask a server how far it is, and which devices are there.

    \b
    Examples:
      airsplit status 127.0.0.1:7070
      airsplit status 192.168.1.10:7070 --identity kitchen-pi --json
    """
    credentials = _device_credentials(address, identity, certificate, key, authority, insecure)
    import grpc

    from airsplit.network.wire.transport import ask_status, connect

    channel = connect(address, credentials)
    try:
        state = _checked_state(ask_status(channel, 10.0))
    except grpc.RpcError as error:
        raise _unreachable(address, error, is_secured=credentials is not None) from None
    finally:
        channel.close()
    if as_json:
        print(json_text(state))
        return
    from airsplit.cli.live_view import state_table

    print_parts(*state_table(state))


def _checked_state(text: str) -> dict[str, Any]:
    try:
        state = parse_json(text, "state")
    except FileProblem:
        state = None
    if not isinstance(state, dict) or not isinstance(state.get("devices"), list):
        raise InvalidValue(
            "the server's answer is not a state; is it an airsplit server of the same version?"
        )
    return state


def _unreachable(address: str, error: grpc.RpcError, *, is_secured: bool) -> AirsplitError:
    from airsplit.network.client.stream import told

    found = told(error, address, is_secured=is_secured)
    return (
        found
        if isinstance(found, AirsplitError)
        else AirsplitError(f"server {address} cannot be reached: {found}")
    )


COMMANDS = (serve, join, probe, status)
