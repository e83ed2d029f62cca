"""The commands of `airsplit identity`: certificates for a server and its devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airsplit.cli.options import AsJson
from airsplit.cli.output import json_text, print_parts

identity_app = typer.Typer(
    name="identity", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The device's name.")]
Folder = Annotated[Path, typer.Option(help="The folder with the identities.", metavar="DIR")]
IDENTITY = Path("identity")


@identity_app.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    """Make certificates, so that server and devices know each other.

    Who is to join gets a certificate; who has none is refused.  All is kept
    in one folder.  Keep ca.key in it to yourself: it can let anyone in.

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
        typer.Option(help="Where devices find the server; repeat for more.", metavar="NAME_OR_IP"),
    ] = None,
    days: Annotated[
        int | None, typer.Option(help="How long it lasts; 3650 where not said.", metavar="N")
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Keep the authority; a new server certificate.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make an authority and the server's certificate.

    The certificate is for every --host, and for localhost, 127.0.0.1 and ::1.
    An authority that is there is never replaced.

    \b
    Examples:
      airsplit identity init --host 192.168.1.10
      airsplit identity init --host train.example.org --host 10.0.0.5
      airsplit identity init --renew --host 192.168.1.77     it has moved
    """
    from airsplit.network.identity.admission import init as make

    hosts, end = make(folder, host or [], days=days, renew=renew)
    if as_json:
        print(json_text({"folder": str(folder), "hosts": hosts, "not_after": end.isoformat()}))
        return
    print(f"the server's certificate is in {folder}, for {', '.join(hosts)}, until {end:%Y-%m-%d}")
    print(f"keep {folder / 'ca.key'} to yourself: whoever has it can let anyone in")


@identity_app.command()
def issue(
    name: Name,
    folder: Folder = IDENTITY,
    out: Annotated[
        Path | None,
        typer.Option(help="The device's folder; else DIR/devices/NAME.", metavar="DIR2"),
    ] = None,
    days: Annotated[
        int | None, typer.Option(help="How long it lasts; 365 where not said.", metavar="N")
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Another one for a device that had one.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a device's certificate: a folder to copy to the device.

    NAME is 1 to 64 letters, digits, '.', '_' or '-'.  No certificate lasts
    longer than its authority.  After --renew, the one before stays good until
    it ends; to stop it, revoke first.

    \b
    Examples:
      airsplit identity issue kitchen-pi
      airsplit identity issue kitchen-pi --renew
      airsplit identity issue guest --days 7 --out /media/stick/guest
    """
    from airsplit.network.identity.admission import issue as make

    made, target = make(folder, name, out=out, days=days, renew=renew)
    if as_json:
        print(
            json_text(
                {
                    "folder": str(target),
                    "name": made.name,
                    "serial": made.serial,
                    "not_after": made.not_after.isoformat(),
                }
            )
        )
        return
    print(
        f"{target} is what device {made.name} needs, until {made.not_after:%Y-%m-%d}: ca.pem, device.pem, device.key"
    )
    print("copy it there by a way that nobody else can read, such as scp -rp")


@identity_app.command()
def revoke(name: Name, folder: Folder = IDENTITY, as_json: AsJson = False) -> None:
    """Refuse a device from now on, with all its certificates.

    A server that is running refuses it at its next call.

    \b
    Examples:
      airsplit identity revoke kitchen-pi
      airsplit identity issue kitchen-pi --renew     let it in again
    """
    from airsplit.network.identity.admission import revoke as refuse

    serials = refuse(folder, name)
    if as_json:
        print(json_text({"name": name, "revoked": serials}))
    elif serials:
        print(f"device {name} is refused from now on; revoked: {', '.join(serials)}")
    else:
        print(f"device {name} was refused already; nothing to revoke")


@identity_app.command("list")
def list_issued(folder: Folder = IDENTITY, as_json: AsJson = False) -> None:
    """List the devices' certificates, and which are revoked.

    \b
    Examples:
      airsplit identity list
      airsplit identity list --folder /etc/airsplit --json
    """
    from airsplit.network.identity.admission import issued

    found = issued(folder)
    if as_json:
        keys = ("name", "serial", "not_after", "revoked")
        print(
            json_text(
                [
                    dict(
                        zip(
                            keys,
                            (each.name, each.serial, each.not_after.isoformat(), each.revoked),
                            strict=True,
                        )
                    )
                    for each in found
                ]
            )
        )
        return
    from airsplit.cli.render import table

    rows = table("name", "serial", "ends", "revoked", words=("name", "serial", "ends", "revoked"))
    for each in found:
        rows.add_row(
            each.name, each.serial, f"{each.not_after:%Y-%m-%d}", "yes" if each.revoked else "no"
        )
    print_parts(rows)
