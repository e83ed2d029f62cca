"""The commands of `airsplit identity`: certificates for a server and its devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airsplit.cli.arguments import AsJson
from airsplit.cli.output import format_json, print_parts

# Plain text, as in the rest of the command line. Each command imports what it calls, because
# --help need not wait for the cryptography library.
identity_app = typer.Typer(
    name="identity", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the device.")]
Folder = Annotated[Path, typer.Option(help="Folder of the identities.", metavar="DIR")]

# `airsplit serve` and `join` have no such default: without an identity they use plain text.
IDENTITY = Path("identity")


@identity_app.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    """Make certificates for a server and its devices.

    Every device that may join gets a certificate; all others are rejected. One
    folder holds everything. Keep its ca.key secret: it can admit anyone.

    \b
    Examples:
      airsplit identity init --host 192.168.1.10
      airsplit identity issue kitchen-pi     then copy
                                             identity/devices/kitchen-pi
                                             to the device
      airsplit identity list
      airsplit identity revoke kitchen-pi

    Every command takes --json.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


@identity_app.command()
def init(
    folder: Folder = IDENTITY,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Address of the server; repeatable.", metavar="NAME_OR_IP"),
    ] = None,
    days: Annotated[
        int | None, typer.Option(help="Validity in days (default 3650).", metavar="N")
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Keep the authority, renew the server's certificate.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make an authority and the server's certificate.

    The certificate is valid for every --host, and for localhost, 127.0.0.1 and
    ::1. An existing authority is never replaced.

    \b
    Examples:
      airsplit identity init --host 192.168.1.10
      airsplit identity init --host train.example.org --host 10.0.0.5
      airsplit identity init --renew --host 192.168.1.77     it has moved
    """
    from airsplit.network.identity.admission import init as make_identity

    hosts, end = make_identity(folder, host or [], days=days, renew=renew)
    if as_json:
        print(format_json({"folder": str(folder), "hosts": hosts, "not_after": end.isoformat()}))
        return
    print(f"the server's certificate is in {folder}, for {', '.join(hosts)}, until {end:%Y-%m-%d}")
    print(f"keep {folder / 'ca.key'} secret: whoever has it can admit anyone")


@identity_app.command()
def issue(
    name: Name,
    folder: Folder = IDENTITY,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the device (default: DIR/devices/NAME).", metavar="DIR2"),
    ] = None,
    days: Annotated[
        int | None, typer.Option(help="Validity in days (default 365).", metavar="N")
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Issue another certificate to a known device.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a device's certificate: a folder to copy to the device.

    NAME is 1 to 64 letters, digits, '.', '_' or '-'. No certificate outlasts
    its authority. After --renew, the old certificate stays valid until it
    ends; to end it earlier, revoke the device before you renew.

    \b
    Examples:
      airsplit identity issue kitchen-pi
      airsplit identity issue kitchen-pi --renew
      airsplit identity issue guest --days 7 --out /media/stick/guest
    """
    from airsplit.network.identity.admission import issue as issue_certificate

    issued, target = issue_certificate(folder, name, out=out, days=days, renew=renew)
    if as_json:
        document = {
            "folder": str(target),
            "name": issued.name,
            "serial": issued.serial,
            "not_after": issued.not_after.isoformat(),
        }
        print(format_json(document))
        return
    print(
        f"{target} has what device {issued.name} needs, until {issued.not_after:%Y-%m-%d}: "
        "ca.pem, device.pem, device.key"
    )
    print("copy it to the device over a secure channel, such as scp -rp")


@identity_app.command()
def revoke(name: Name, folder: Folder = IDENTITY, as_json: AsJson = False) -> None:
    """Reject a device from now on, with all its certificates.

    A running server rejects it at its next call.

    \b
    Examples:
      airsplit identity revoke kitchen-pi
      airsplit identity issue kitchen-pi --renew     admit it again
    """
    from airsplit.network.identity.admission import revoke as revoke_certificates

    serials = revoke_certificates(folder, name)
    if as_json:
        print(format_json({"name": name, "revoked": serials}))
    # Revoking twice is no mistake: a script may do so to be sure.
    elif serials:
        print(f"device {name} is rejected from now on; revoked: {', '.join(serials)}")
    else:
        print(f"device {name} was already rejected; nothing to revoke")


# Not named `list` in Python, which would hide the built-in type.
@identity_app.command("list")
def list_issued(folder: Folder = IDENTITY, as_json: AsJson = False) -> None:
    """List the devices' certificates, and which are revoked.

    \b
    Examples:
      airsplit identity list
      airsplit identity list --folder /etc/airsplit --json
    """
    from airsplit.network.identity.admission import issued

    certificates = issued(folder)
    if as_json:
        documents = [
            {
                "name": certificate.name,
                "serial": certificate.serial,
                "not_after": certificate.not_after.isoformat(),
                "revoked": certificate.revoked,
            }
            for certificate in certificates
        ]
        print(format_json(documents))
        return

    from airsplit.cli.tables import make_table

    headings = ("name", "serial", "ends", "revoked")
    table = make_table(*headings, words=headings)
    for certificate in certificates:
        # The day is enough to read; --json has the exact time.
        end = f"{certificate.not_after:%Y-%m-%d}"
        revoked = "yes" if certificate.revoked else "no"
        table.add_row(certificate.name, certificate.serial, end, revoked)
    print_parts(table)
