"""Who may serve and who may join: mutual TLS, from the folder with the identities to the name of a caller.

    identity/
    ├── ca.pem, ca.key            the authority; whoever has its key can let anyone in
    ├── server.pem, server.key    the server's certificate and key
    ├── issued.csv                name, serial number and end of every certificate made for a device
    ├── revoked.txt               serial numbers that are refused from now on
    └── devices/NAME/             ca.pem, device.pem, device.key: what the device NAME needs

A server believes a device, and a device the server, for a certificate that the authority has signed for that purpose.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Literal, cast

import grpc
from cryptography import x509

from airsplit.core.errors import (
    AirsplitError,
    FileProblem,
    InvalidValue,
    require_integer,
    show,
    unknown_name,
)
from airsplit.core.files import read_text, write_bytes, write_text
from airsplit.core.lock import Lock, folder_lock
from airsplit.network.identity import certificates
from airsplit.network.identity.certificates import (
    DEVICE,
    SERVER,
    Issued,
    Pair,
    chain_pem,
    common_name,
    read_certificates,
    read_issued,
    read_pair,
    read_revoked,
    require_in_force,
    write_issued,
)
from airsplit.network.names import require_name

AUTHORITY_DAYS, DEVICE_DAYS, LONGEST_DAYS = 3650, 365, 36500
ALWAYS_HOSTS = ("localhost", "127.0.0.1", "::1")
REVOKED_HEAD = (
    "# Serial numbers of revoked certificates, in hex, one a line; what follows a # is a remark.\n"
)


class Refused(AirsplitError):
    """A caller is not let in."""


# ---- the folder ----------------------------------------------------------------------------------------------------------
def init(
    folder: Path, hosts: Iterable[str] = (), *, days: int | None = None, renew: bool = False
) -> tuple[list[str], datetime]:
    """Make an authority and the server's certificate; the hosts that it is for, and when it ends.

    An authority that is there is never replaced; with `renew` it stays, and the server gets a new certificate.
    """
    names = list(dict.fromkeys([*(_dialled(host) for host in hosts), *ALWAYS_HOSTS]))
    wanted = None if days is None else require_integer("days", days, 1, LONGEST_DAYS)
    (_require_authority if renew else _require_empty)(folder)
    with _lock(folder):
        authority = (
            _authority(folder) if renew else _new_authority(folder, wanted or AUTHORITY_DAYS)
        )
        end = _end(authority, wanted if renew else None, LONGEST_DAYS)
        _write_pair(
            folder,
            "server",
            certificates.make_certificate("airsplit server", end, SERVER, authority, names),
        )
    return names, end


def issue(
    folder: Path,
    name: str,
    *,
    out: Path | None = None,
    days: int | None = None,
    renew: bool = False,
) -> tuple[Issued, Path]:
    """Make a device's certificate; what was made, and the folder for the device.

    A second one for the same name must be asked for with `renew`; the first stays good until it ends or is revoked.
    """
    require_name("NAME", name)
    target = folder / "devices" / name if out is None else out
    _require_authority(folder)
    with _lock(folder):
        authority = _authority(folder)
        known = issued(folder)
        _require_place(target, name, renew=renew, known=any(each.name == name for each in known))
        pair = certificates.make_certificate(
            name, _end(authority, days, DEVICE_DAYS), DEVICE, authority
        )
        new = Issued(name, f"{pair.chain[0].serial_number:x}", pair.chain[0].not_valid_after_utc)
        _make_folder(target)
        write_issued(
            folder / "issued.csv", [*known, new]
        )  # first: what is not on the list cannot be revoked
        _write_pair(target, "device", pair)
        write_bytes(target / "ca.pem", chain_pem(authority.chain))
    return new, target


def revoke(folder: Path, name: str) -> list[str]:
    """Refuse all certificates of a device from now on; the serial numbers that were not refused before."""
    _require_authority(folder)
    with _lock(folder):
        known = issued(folder)
        of_name = [each for each in known if each.name == name]
        if not of_name:
            raise unknown_name("device", name, {each.name for each in known})
        new = [each.serial for each in of_name if not each.revoked]
        text = read_text(folder / "revoked.txt", what="list of revoked certificates")
        lines = [*text.splitlines(), *(f"{serial}  # {name}" for serial in new)]
        write_text(folder / "revoked.txt", "".join(f"{line}\n" for line in lines))
    return new


def issued(folder: Path) -> list[Issued]:
    """Every certificate that was made for a device, oldest first."""
    _require_authority(folder)
    return read_issued(folder / "issued.csv", read_revoked(folder / "revoked.txt"))


def _dialled(host: str) -> str:
    name = certificates.require_host("host", host)
    if name in ("0.0.0.0", "::"):  # noqa: S104
        raise InvalidValue(
            f"host must be where devices find the server, got {show(host)}, which only says to listen everywhere"
        )
    return name


def _require_authority(folder: Path) -> None:
    missing = [name for name in ("ca.pem", "ca.key") if not (folder / name).is_file()]
    if missing:
        raise FileProblem(
            f"identity folder {str(folder)!r} has no {' and no '.join(missing)}; make an authority: airsplit identity init"
        )


def _new_authority(folder: Path, days: int) -> Pair:
    _require_empty(folder)  # again, now that nobody else can fill it
    authority = certificates.make_authority(
        f"airsplit authority {token_hex(4)}", _days_from_now(days)
    )
    write_issued(folder / "issued.csv", [])
    write_text(folder / "revoked.txt", REVOKED_HEAD)
    _write_pair(folder, "ca", authority)
    return authority


def _authority(folder: Path) -> Pair:
    return read_pair(folder / "ca.pem", folder / "ca.key", what="authority")


def _require_empty(folder: Path) -> None:
    names = ("ca.pem", "ca.key", "server.pem", "server.key", "issued.csv", "revoked.txt")
    found = [name for name in names if os.path.lexists(folder / name)]
    if found:
        raise FileProblem(
            f"identity folder {str(folder)!r} already has {', '.join(found)}, and nothing was changed; "
            "--renew keeps the authority and makes a new server certificate, --folder takes another folder"
        )


def _require_place(target: Path, name: str, *, renew: bool, known: bool) -> None:
    """A device's folder must be free or, to renew, hold no other device's certificate."""
    if renew and not known:
        raise InvalidValue(
            f"device {show(name)} has no certificate that could be renewed; leave --renew out to make its first"
        )
    if known and not renew:
        raise InvalidValue(f"device {show(name)} already has a certificate; --renew makes another")
    found = [
        file for file in ("ca.pem", "device.pem", "device.key") if os.path.lexists(target / file)
    ]
    if found and not renew:
        raise FileProblem(
            f"folder {str(target)!r} already has {', '.join(found)}; choose another with --out"
        )
    if (
        "device.pem" in found
        and common_name(read_certificates(target / "device.pem", what="certificate")[0]) != name
    ):
        raise FileProblem(
            f"certificate {str(target / 'device.pem')!r} is not one of device {show(name)}; choose another with --out"
        )


def _days_from_now(days: int) -> datetime:
    return (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)


def _end(authority: Pair, days: int | None, otherwise: int) -> datetime:
    """When a certificate ends: never after the authority that vouches for it."""
    last = authority.chain[0].not_valid_after_utc
    if days is None:
        return min(_days_from_now(otherwise), last)
    end = _days_from_now(require_integer("days", days, 1, LONGEST_DAYS))
    if end > last:
        most = (last - datetime.now(UTC)).days
        raise InvalidValue(
            f"days must be at most {most}, for the authority ends on {certificates.moment(last)}, got {days}"
        )
    return end


def _write_pair(folder: Path, stem: str, pair: Pair) -> None:
    certificates.write_key(folder / f"{stem}.key", pair.key)
    write_bytes(folder / f"{stem}.pem", chain_pem(pair.chain))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FileProblem(f"folder {str(folder)!r} cannot be made: {error.strerror}") from None


def _lock(folder: Path) -> closing[Lock]:
    """Lock the identity folder; create it, for its owner only, if it does not exist."""
    _make_folder(folder)
    return folder_lock(folder, "identity folder", way_out="try again")


# ---- credentials ---------------------------------------------------------------------------------------------------------
def server_credentials(
    folder: Path | None,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    authority: Path | None = None,
) -> grpc.ServerCredentials:
    """What a server shows, and whom it believes: devices with a certificate of the authority, and nobody else.

    Either a folder as `init` makes it, or the three files.
    """
    pair, roots = _loaded(
        "server", folder, {"certificate": certificate, "key": key, "authority": authority}
    )
    return grpc.ssl_server_credentials(
        [(certificates.key_pem(pair.key), chain_pem(pair.chain))], roots, require_client_auth=True
    )


def channel_credentials(
    folder: Path | None,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    authority: Path | None = None,
) -> grpc.ChannelCredentials:
    """What a device shows, and whom it believes: a server with a certificate of the authority for the host that it dialled.

    Either a folder as `issue` makes it, or the three files.
    """
    pair, roots = _loaded(
        "device", folder, {"certificate": certificate, "key": key, "authority": authority}
    )
    return grpc.ssl_channel_credentials(
        roots, certificates.key_pem(pair.key), chain_pem(pair.chain)
    )


def _loaded(
    role: Literal["server", "device"], folder: Path | None, files: dict[str, Path | None]
) -> tuple[Pair, bytes]:
    """The pair of a role, and the authorities that it believes."""
    certificate, key, authority = _chosen(role, folder, files)
    pair = read_pair(certificate, key, what=role)
    _require_purpose(pair.chain[0], role, certificate)
    roots = read_certificates(authority, what="authority's certificate")
    newest = max(
        roots, key=lambda root: root.not_valid_after_utc
    )  # of several, old ones may have ended
    require_in_force(newest, f"authority's certificate {str(authority)!r}")
    return pair, chain_pem(roots)


def _chosen(
    role: str, folder: Path | None, files: dict[str, Path | None]
) -> tuple[Path, Path, Path]:
    given = [name for name, file in files.items() if file is not None]
    if folder is None and len(given) == len(files):
        certificate, key, authority = (cast(Path, file) for file in files.values())
        return certificate, key, authority
    if folder is None or given:
        got = [*(["folder"] if folder is not None else []), *given]
        raise InvalidValue(
            f"identity must be either a folder or certificate, key and authority, got {' and '.join(got) or 'none of them'}"
        )
    names = (f"{role}.pem", f"{role}.key", "ca.pem")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        way = "airsplit identity init" if role == "server" else "airsplit identity issue NAME"
        raise FileProblem(
            f"{role}'s identity folder {str(folder)!r} has no {' and no '.join(missing)}; {way} makes them"
        )
    return folder / names[0], folder / names[1], folder / names[2]


def _require_purpose(certificate: x509.Certificate, role: str, file: Path) -> None:
    """A server's certificate may be silent about its purpose; a device's must say it, as Admission wants it."""
    allowed = certificates.purposes(certificate)
    purpose, wanted = (SERVER, "serverAuth") if role == "server" else (DEVICE, "clientAuth")
    if allowed is None and role == "server":
        return
    if purpose not in (allowed or ()):
        raise FileProblem(
            f"certificate {str(file)!r} is not made for a {role}: its extended key usage must have {wanted}"
        )


# ---- admission -----------------------------------------------------------------------------------------------------------
class Admission:
    """Decides who is let in, at every call: a revocation counts from the next call on, without a restart."""

    def __init__(self, revoked: Path | None) -> None:
        self._file = revoked
        self._seen: tuple[object, frozenset[int]] = (None, frozenset())
        self._revoked()  # a list that cannot be read is found out now, not by the first device

    def admitted(self, context: grpc.ServicerContext) -> str | None:
        """The caller's name, from its certificate and nothing else; None where the connection is plain text."""
        shown = cast("dict[str, Sequence[bytes]]", context.auth_context())
        if "x509_pem_cert" not in shown:
            if shown.get("transport_security_type", [b"insecure"])[0] == b"insecure":
                return None
            raise Refused(
                "the device shows no certificate; it needs one, as airsplit identity issue makes it"
            )
        try:
            return self._name(x509.load_pem_x509_certificate(shown["x509_pem_cert"][0]))
        except (InvalidValue, FileProblem) as problem:
            raise Refused(f"not admitted: {problem}") from None
        except (ValueError, x509.DuplicateExtension):
            raise Refused("the device's certificate cannot be read") from None

    def _name(self, certificate: x509.Certificate) -> str:
        name = common_name(certificate)
        if name is None:
            raise Refused("the device's certificate must have one common name (CN), the device's")
        require_name("the common name of a device's certificate", name)
        if DEVICE not in (certificates.purposes(certificate) or ()):
            raise Refused(
                f"the certificate of {name!r} is not made for a device: its extended key usage must have clientAuth"
            )
        if certificate.serial_number in self._revoked():
            raise Refused(
                f"the certificate of device {name!r} (serial number {certificate.serial_number:x}) is revoked; ask for a new one"
            )
        require_in_force(certificate, f"certificate of device {name!r}")
        return name

    def _revoked(self) -> frozenset[int]:
        """The list as it is now; read again only when its file has changed."""
        if self._file is None:
            return frozenset()
        stamp, seen = _stamp(self._file), self._seen
        if stamp is None or stamp != seen[0]:
            self._seen = seen = stamp, read_revoked(self._file)
        return seen[1]


def _stamp(file: Path) -> tuple[int, ...] | None:
    """What differs after a file has changed; None where there is no such file."""
    try:
        now = file.stat()
    except OSError:
        return None
    return now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


# ---- addresses -----------------------------------------------------------------------------------------------------------
def split_address(address: str) -> tuple[str, int]:
    """The host, without brackets, and the port; port 0 is any that is free.

    >>> split_address("pi.local:7070"), split_address("[::1]:7070")
    (('pi.local', 7070), ('::1', 7070))
    """
    if "://" in address:
        raise InvalidValue(
            f"address must be HOST:PORT, such as localhost:7070, not a URL, got {show(address)}"
        )
    host, colon, port = address.rpartition(":")
    if not colon or host.startswith("[") != host.endswith("]"):
        raise InvalidValue(
            f"address must be HOST:PORT, such as localhost:7070 or [::1]:7070; there is no port in {show(address)}"
        )
    if ":" in host and not host.startswith("["):
        raise InvalidValue(
            f"address must have an IPv6 host in brackets, such as [::1]:7070, got {show(address)}"
        )
    if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise InvalidValue(
            f"address must end in a port from 0 to 65535, got {show(port)} in {show(address)}"
        )
    return certificates.require_host(f"the host of address {show(address)}", host), int(port)


def join_address(host: str, port: int) -> str:
    """The two as one, as gRPC takes them.

    >>> join_address("::1", 7070)
    '[::1]:7070'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
