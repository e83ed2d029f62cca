"""The commands of the networked system: serve, join, probe, status."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airsplit.cli.arguments import (
    Address,
    AsJson,
    Authority,
    Certificate,
    EventsAsJson,
    Identity,
    Insecure,
    Key,
    Out,
    Plain,
    Resume,
    ScenarioName,
    Set,
    TrustRun,
    choose_run_folder,
    load_resumable_scenario,
    load_scenario,
    redirect_prints,
)
from airsplit.cli.output import format_json, note, print_parts, write_reports_on_exit
from airsplit.cli.signals import handle
from airsplit.core.errors import AirsplitError, FileProblem, InvalidValue
from airsplit.core.parsing import parse_json

if TYPE_CHECKING:
    import grpc

    from airsplit.cli.live_view import LiveView
    from airsplit.network.server.serve import Serving

# A server answers immediately; a probe carries data over a link of any speed.
STATUS_TIMEOUT_S = 10.0
PROBE_TIMEOUT_S = 60.0


def serve(
    scenario: ScenarioName,
    devices: Annotated[
        int | None,
        typer.Option(help="Number of devices (default: size of the fleet).", metavar="N"),
    ] = None,
    listen: Annotated[
        str, typer.Option(help="Address to listen on.", metavar="HOST:PORT")
    ] = "127.0.0.1:7070",
    out: Out = None,
    resume: Resume = False,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait for all devices.", metavar="S", min=0)
    ] = 3600.0,
    replan: Annotated[
        bool, typer.Option("--replan", help="Move layers between rounds if that saves time.")
    ] = False,
    plain: Plain = False,
    identity: Identity = None,
    certificate: Certificate = None,
    key: Key = None,
    authority: Authority = None,
    insecure: Insecure = False,
    set: Set = None,
    trust_run: TrustRun = False,
    as_json: EventsAsJson = False,
) -> None:
    """Train a scenario with real devices that join over the network.

    Waits for all devices, plans with their own measurements, trains, and
    writes a run folder as airsplit run does. A device that disconnects is left
    out until it is back. A server that was killed continues with --resume, and
    its devices reconnect by themselves.

    With --replan, layers may move between rounds; devices then send the server
    the weights of layers that it takes over. Without it, they never do.

    \b
    Examples:
      airsplit serve demo --devices 2
      airsplit serve demo --devices 2 --resume
      airsplit serve my.toml --listen 0.0.0.0:7070 --identity identity
      airsplit serve my.toml --set network.compression=fp16
    """
    from airsplit.cli.live_view import LiveView
    from airsplit.network.identity.admission import Admission, server_credentials
    from airsplit.network.server.serve import Serving
    from airsplit.runs.folder import RunFolder

    settings = list(set or [])
    if plain:
        settings.append("training.fast_paths=false")
    if replan:
        settings.append("network.replan=true")
    folder = out or choose_run_folder(scenario, resume=resume)
    run = RunFolder(folder)
    earlier: dict[str, Any] = {}
    if resume and run.has_rounds:
        earlier = run.read_changes()
    chosen, changes = load_resumable_scenario(
        scenario, settings, earlier, folder, trust_run=trust_run
    )

    # Mistakes on the command line come first: the server then builds the model.
    security = Security(identity, certificate, key, authority, insecure)
    security.require_safe(listen)
    credentials = None
    admission = None
    if security.is_secured:
        credentials = server_credentials(
            identity, certificate=certificate, key=key, authority=authority
        )
        # Only an identity folder has a list of revoked certificates.
        revoked = None
        if identity is not None:
            revoked = identity / "revoked.txt"
        admission = Admission(revoked)

    view = LiveView(as_json=as_json)
    with redirect_prints():
        serving = Serving(
            chosen,
            out=folder,
            devices=devices,
            listen_on=listen,
            resume=resume,
            wait_s=wait,
            credentials=credentials,
            admission=admission,
            tell=view.on_event,
        )
        # Only now that the server holds the folder's lock and has accepted what is in it.
        run.write_changes(changes)
        _train(serving, view, folder)
    view.finish(folder)


def _train(serving: Serving, view: LiveView, folder: Path) -> None:
    """Train until all rounds are done, or the process is asked to stop."""
    from airsplit.cli.run_tables import describe_stop
    from airsplit.network.server.assignments import Stopped

    def stop(*_: object) -> None:
        serving.stop("the server was asked to stop")

    try:
        with (
            handle(signal.SIGTERM, stop),
            view.follow(serving),
            write_reports_on_exit(folder),
        ):
            for record in serving:
                view.on_record(record)
    except KeyboardInterrupt:
        note(describe_stop(folder))
        raise
    except Stopped:
        # SIGTERM is how a service manager stops a server: that is no failure.
        note(describe_stop(folder))
        raise typer.Exit(0) from None


@dataclass(frozen=True)
class Security:
    """The options that decide between TLS and plain text."""

    identity: Path | None
    certificate: Path | None
    key: Path | None
    authority: Path | None
    insecure: bool

    @property
    def is_secured(self) -> bool:
        """Whether TLS is meant: a key without its certificate is a mistake, not plain text."""
        files = (self.identity, self.certificate, self.key, self.authority)
        return any(file is not None for file in files)

    @property
    def folder_name(self) -> str:
        """Name for the folder of a device that its certificate names."""
        if self.identity is not None:
            # Resolve, as "." has no name.
            return self.identity.resolve().name
        if self.certificate is not None:
            return self.certificate.stem
        return "device"

    def require_safe(self, address: str) -> None:
        """Reject plain text beyond this machine, unless it was asked for; then warn."""
        from airsplit.network.wire.transport import require_safe

        require_safe(address, self.is_secured, self.insecure)
        if self.insecure and not self.is_secured:
            note(
                "warning: plain text: anyone on the network path can read activations and "
                "labels, and act as server or device"
            )

    def load_channel_credentials(self, address: str) -> grpc.ChannelCredentials | None:
        """Return what a device identifies itself with; None for plain text."""
        from airsplit.network.identity.admission import channel_credentials

        self.require_safe(address)
        if not self.is_secured:
            return None
        return channel_credentials(
            self.identity,
            certificate=self.certificate,
            key=self.key,
            authority=self.authority,
        )


def join(
    address: Address,
    data: Annotated[
        str | None,
        typer.Option(help="Folder of the data sets, or package.module:factory.", metavar="DATA"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="package.module:factory (default: as the server).", metavar="MODEL"),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="Initial weights of the model, as safetensors.", metavar="FILE"),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="package.module:function, if the server's partition is not built in.",
            metavar="PARTITION",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="package.module:function, if devices evaluate with a custom metric.",
            metavar="METRIC",
        ),
    ] = None,
    raw_inputs: Annotated[
        str,
        typer.Option(
            help="Inputs to send unchanged, separated by commas; or allow, for all.",
            metavar="NAMES",
        ),
    ] = "refuse",
    name: Annotated[
        str | None,
        typer.Option(
            help="Device name (default: as in the certificate, or host name).", metavar="NAME"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of its checkpoint (default: devices/NAME).", metavar="DIR"),
    ] = None,
    memory: Annotated[
        int,
        typer.Option(
            help="Memory limit for training in bytes; 0 for none.",
            metavar="BYTES",
            min=0,
        ),
    ] = 0,
    probe_seconds: Annotated[
        float, typer.Option(help="Seconds to measure the device for.", metavar="S", min=0)
    ] = 3.0,
    patience: Annotated[
        float, typer.Option(help="Seconds to retry a lost connection for.", metavar="S", min=0)
    ] = 600.0,
    identity: Identity = None,
    certificate: Certificate = None,
    key: Key = None,
    authority: Authority = None,
    insecure: Insecure = False,
    as_json: EventsAsJson = False,
) -> None:
    """Take part in a server's training, as a device.

    The device, and never the server, chooses its data and its code. With a
    data folder it uses its part of the server's data set; a factory returns
    (train, test) of its own. The device measures itself when it arrives, keeps
    its layers in its own checkpoint, and reconnects if the connection breaks.

    \b
    Examples:
      airsplit join 127.0.0.1:7070 --name one
      airsplit join 192.168.1.10:7070 --identity kitchen-pi --data ~/data
      airsplit join 192.168.1.10:7070 --identity kitchen-pi \\
                    --data sensors:mine --model nets:make
    """
    from airsplit.cli.live_view import make_device_reporter
    from airsplit.network.client.client import Device
    from airsplit.network.names import require_name
    from airsplit.system.profile import RAW_INPUTS

    # The device's folder has its name, and exists before the server could reject the name.
    if name is not None:
        require_name("--name", name)
    if data is not None and ":" not in data and not Path(data).exists():
        note(f"note: there is no folder {data!r}; a bundled data set needs none")

    security = Security(identity, certificate, key, authority, insecure)
    credentials = security.load_channel_credentials(address)
    if name is None:
        # With TLS, the server takes the name from the certificate.
        name = ""
        if credentials is None:
            name = make_device_name(socket.gethostname())
    # "refuse" and "allow" are words; anything else is a list of inputs.
    allowed: str | list[str] = raw_inputs
    if raw_inputs not in RAW_INPUTS:
        allowed = [part.strip() for part in raw_inputs.split(",")]

    device = Device(
        name=name,
        folder=out or Path("devices") / (name or security.folder_name),
        data=data,
        model=model,
        weights=None if weights is None else str(weights),
        partition=partition,
        metric=metric,
        raw_inputs=allowed,
        memory_bytes=memory,
        probe_s=probe_seconds,
        patience_s=patience,
        tell=make_device_reporter(as_json),
    )
    with redirect_prints():
        device.run(address, credentials)


def make_device_name(host_name: str) -> str:
    """Return a host's name, without letters that a device's name cannot have.

    >>> make_device_name("küche 1.local"), make_device_name("")
    ('kche1.local', 'device')
    """
    name = "".join(
        letter for letter in host_name if letter.isascii() and (letter.isalnum() or letter in "._-")
    )
    return name[:64] or "device"


def probe(
    scenario: ScenarioName,
    seconds: Annotated[
        float, typer.Option(help="Seconds to measure for.", metavar="S", min=0)
    ] = 3.0,
    link: Annotated[
        str | None,
        typer.Option(help="Also measure the link to this server.", metavar="HOST:PORT"),
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
    """Measure how fast this device computes a scenario's model.

    Times the model up to several splits, forward and backward, and fits the
    planner's model of computing: a MAC takes a seconds, plus 1/ε on average.
    The fit is good if its Kolmogorov-Smirnov distance is below what chance
    alone explains.

    \b
    Examples:
      airsplit probe demo
      airsplit probe my.toml --seconds 10 --json
      airsplit probe my.toml --link 192.168.1.10:7070 --identity kitchen-pi
    """
    from airsplit.network.client.probe import measure_compute

    chosen = load_scenario(scenario, None, set, trust_run=trust_run)
    credentials = None
    if link is not None:
        security = Security(identity, certificate, key, authority, insecure)
        credentials = security.load_channel_credentials(link)

    # Load torch only now: mistakes in the certificates are reported sooner.
    from airsplit.network.client.stream import measure_link
    from airsplit.network.wire.transport import ask_probe
    from airsplit.training.setup import replica_of

    with redirect_prints():
        replica, profile = replica_of(chosen)
    batch_size = chosen.training.batch_size
    measured = measure_compute(replica, profile, batch_size=batch_size, seconds=seconds)
    rates = {}
    if link is not None:
        with _connect(link, credentials) as channel:
            rates = measure_link(lambda probe: ask_probe(channel, probe.frame(), PROBE_TIMEOUT_S))

    if as_json:
        document = json.loads(measured.to_json()) | {"yardstick": measured.yardstick}
        print(format_json(document | rates))
        return

    from airsplit.cli.network_tables import probe_report

    print_parts(*probe_report(measured, profile, batch_size, rates))


@contextmanager
def _connect(address: str, credentials: grpc.ChannelCredentials | None) -> Iterator[grpc.Channel]:
    """Connect to a server; a broken connection becomes an error of ours."""
    import grpc

    from airsplit.network.client.stream import told
    from airsplit.network.wire.transport import connect

    # gRPC connects at the first call, so that is where an unreachable server shows.
    channel = connect(address, credentials)
    try:
        yield channel
    except grpc.RpcError as error:
        # If the server has rejected the call, `reason` is an error; otherwise the link broke.
        reason = told(error, address, is_secured=credentials is not None)
        if isinstance(reason, AirsplitError):
            raise reason from None
        raise AirsplitError(f"server {address} cannot be reached: {reason}") from None
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
    """Show the progress of a server, and its devices.

    \b
    Examples:
      airsplit status 127.0.0.1:7070
      airsplit status 192.168.1.10:7070 --identity kitchen-pi --json
    """
    security = Security(identity, certificate, key, authority, insecure)
    credentials = security.load_channel_credentials(address)

    from airsplit.network.wire.transport import ask_status

    with _connect(address, credentials) as channel:
        state = parse_state(ask_status(channel, STATUS_TIMEOUT_S))
    if as_json:
        print(format_json(state))
        return

    from airsplit.cli.network_tables import state_table

    print_parts(*state_table(state))


def parse_state(text: str) -> dict[str, Any]:
    """Return a server's state from its JSON; reject the answer of any other gRPC server.

    >>> parse_state('{"round": 1, "devices": []}')
    {'round': 1, 'devices': []}
    """
    try:
        state = parse_json(text, "state")
    except FileProblem:
        state = None
    if not isinstance(state, dict) or not isinstance(state.get("devices"), list):
        raise InvalidValue(
            "the server's answer is not a state; is it an airsplit server of the same version?"
        )
    return state
