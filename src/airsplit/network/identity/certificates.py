"""Certificates and their keys: made, written, read, checked and listed.

Keys are ECDSA on P-256.  Only its owner can open a key's file, from the moment it is there; no error and no repr shows what is in it.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from airsplit.core.errors import FileProblem, InvalidValue, show
from airsplit.core.files import (
    read_table,
    read_text,
    replace_file,
    temporary_file_beside,
    write_text,
)

SERVER, DEVICE = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
SKEW = timedelta(minutes=10)  # small devices keep time badly
LIMIT_BYTES = 1 << 20
ISSUED_COLUMNS = ["name", "serial", "not_after"]
USAGES = (
    *(
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
    ),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True)
class Issued:
    """A certificate that was made for a device."""

    name: str
    serial: str
    not_after: datetime
    revoked: bool = False


class Pair(NamedTuple):
    """A certificate, with those that vouch for it after it, and its key."""

    chain: Sequence[x509.Certificate]
    key: PrivateKeyTypes

    def __repr__(self) -> str:
        return f"Pair({self.chain[0].subject.rfc4514_string()})"


# ---- making --------------------------------------------------------------------------------------------------------------
def make_authority(name: str, end: datetime) -> Pair:
    """An authority that signs certificates, but no other authorities."""
    rules = [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_key_usage("key_cert_sign", "crl_sign"), True),
    ]
    return _made(name, end, rules, None)


def make_certificate(
    name: str, end: datetime, purpose: ObjectIdentifier, signer: Pair, hosts: Sequence[str] = ()
) -> Pair:
    """A certificate for one purpose: to serve under the names of some hosts, or to join as a device."""
    rules: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_key_usage("digital_signature"), True),
        (x509.ExtendedKeyUsage([purpose]), False),
    ]
    if hosts:
        rules.append(
            (x509.SubjectAlternativeName([_alternative_name(host) for host in hosts]), False)
        )
    return _made(name, end, rules, signer)


def _made(
    name: str, end: datetime, rules: Sequence[tuple[x509.ExtensionType, bool]], signer: Pair | None
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signing_key = key if signer is None else signer.key
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        raise FileProblem(
            "the authority's key must be an ECDSA key, such as airsplit identity init makes"
        )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if signer is None else signer.chain[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()),
            critical=False,
        )
    )
    for rule, critical in rules:
        builder = builder.add_extension(rule, critical)
    return Pair([builder.sign(signing_key, hashes.SHA256())], key)


def _key_usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in allowed for usage in USAGES})


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def require_host(field: str, value: str) -> str:
    """A host's name, or its IP address without brackets.

    >>> require_host("--host", "[fd00::1]"), require_host("--host", "Pi.local")
    ('fd00::1', 'pi.local')
    """
    bare = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    try:
        if "%" not in bare:
            return str(ipaddress.ip_address(bare))
    except ValueError:
        labels = r"([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*(?![0-9]+$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
        if bare == value and len(value) <= 253 and re.fullmatch(labels, value.lower()):
            return value.lower()
    without_port = ", without a port" if ":" in value else ""
    raise InvalidValue(
        f"{field} must be a host's name or an IP address{without_port}, got {show(value)}"
    )


# ---- writing -------------------------------------------------------------------------------------------------------------
def chain_pem(chain: Sequence[x509.Certificate]) -> bytes:
    """Certificates as the text that files hold and TLS takes."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain)


def key_pem(key: PrivateKeyTypes) -> bytes:
    """A key as the text that its file holds and TLS takes.  It goes nowhere else."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_key(path: Path, key: PrivateKeyTypes) -> None:
    """Write a key whole or not at all; nobody but its owner can open the file, not even while it is written."""
    with temporary_file_beside(path) as file:  # which is made for its owner alone
        try:
            file.write_bytes(key_pem(key))
        except OSError as error:
            raise FileProblem(f"{str(path)!r} cannot be written: {error.strerror}") from None
        replace_file(file, path, mode=0o600)


# ---- reading -------------------------------------------------------------------------------------------------------------
def read_pair(certificate: Path, key: Path, *, what: str) -> Pair:
    """A certificate in force and the key that belongs to it."""
    pair = Pair(
        read_certificates(certificate, what=f"{what}'s certificate"),
        _read_key(key, what=f"{what}'s key"),
    )
    if pair.key.public_key() != pair.chain[0].public_key():
        raise FileProblem(
            f"{what}'s key {str(key)!r} does not belong to the certificate {str(certificate)!r}; give the two that were made together"
        )
    require_in_force(pair.chain[0], f"{what}'s certificate {str(certificate)!r}")
    return pair


def read_certificates(path: Path, *, what: str) -> list[x509.Certificate]:
    """All certificates in a PEM file, at least one."""
    try:
        return x509.load_pem_x509_certificates(
            read_text(path, what=what, limit_bytes=LIMIT_BYTES).encode()
        )
    except ValueError:
        raise FileProblem(
            f"{what} {str(path)!r} is not a PEM file with a certificate (-----BEGIN CERTIFICATE-----)"
        ) from None


def _read_key(path: Path, *, what: str) -> PrivateKeyTypes:
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode & 0o777
            content = b"" if mode & 0o077 else stream.read(LIMIT_BYTES)
    except FileNotFoundError:
        raise FileProblem(f"{what} {str(path)!r} does not exist") from None
    except OSError as error:
        raise FileProblem(f"{what} {str(path)!r} cannot be read: {error.strerror}") from None
    if mode & 0o077:
        raise FileProblem(
            f"{what} {str(path)!r} is open to other users (mode {mode:o}); keep it to yourself: chmod 600 {path}"
        )
    try:
        return load_pem_private_key(content, password=None)
    except TypeError:
        raise FileProblem(
            f"{what} {str(path)!r} is locked with a password; airsplit takes keys without one, mode 600"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise FileProblem(
            f"{what} {str(path)!r} is not a PEM file with a private key (-----BEGIN PRIVATE KEY-----)"
        ) from None


def require_in_force(certificate: x509.Certificate, what: str) -> None:
    """Neither too old nor too young, by this computer's clock."""
    now, first, last = (
        datetime.now(UTC),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )
    if now > last:
        renewal = "renew it: airsplit identity issue or init, with --renew"
        way = (
            "make another authority, in another folder: airsplit identity init"
            if _signs(certificate)
            else renewal
        )
        raise FileProblem(f"{what} expired on {moment(last)}; {way}")
    if now < first:
        raise FileProblem(
            f"{what} is valid from {moment(first)} on, and the clock says {moment(now)}; is the clock right?"
        )


def _signs(certificate: x509.Certificate) -> bool:
    """Whether it is an authority's."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def moment(time: datetime) -> str:
    """
    >>> moment(datetime(2031, 2, 3, 4, 5, tzinfo=UTC))
    '2031-02-03 04:05 UTC'
    """
    return f"{time:%Y-%m-%d %H:%M} UTC"


def common_name(certificate: x509.Certificate) -> str | None:
    """Whose certificate it is: its one common name, or None."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return names[0].value if len(names) == 1 and isinstance(names[0].value, str) else None


def purposes(certificate: x509.Certificate) -> frozenset[ObjectIdentifier] | None:
    """What it may be used for; None where it does not say."""
    try:
        return frozenset(
            certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        )
    except x509.ExtensionNotFound:
        return None


# ---- lists ---------------------------------------------------------------------------------------------------------------
def write_issued(path: Path, entries: Sequence[Issued]) -> None:
    """Write the list of certificates that were made for devices."""
    rows = [f"{each.name},{each.serial},{each.not_after.isoformat()}" for each in entries]
    write_text(path, "".join(f"{line}\n" for line in (",".join(ISSUED_COLUMNS), *rows)))


def read_issued(path: Path, revoked: frozenset[int]) -> list[Issued]:
    """Every certificate that was made for a device, oldest first."""
    header, *rows = read_table(path, what="list of certificates") or [[]]
    if header != ISSUED_COLUMNS:
        raise FileProblem(
            f"list of certificates {str(path)!r} must begin with {','.join(ISSUED_COLUMNS)}, got {show(','.join(header))}"
        )
    entries = [
        _entry(row, f"{str(path)!r}, line {number},") for number, row in enumerate(rows, 2) if row
    ]
    return [replace(each, revoked=int(each.serial, 16) in revoked) for each in entries]


def _entry(row: Sequence[str], where: str) -> Issued:
    try:
        name, serial, not_after = row
        end = datetime.fromisoformat(not_after)
    except ValueError:
        raise FileProblem(
            f"{where} must be a name, a serial number and a time, got {show(','.join(row))}"
        ) from None
    if not _is_serial(serial) or end.tzinfo is None:
        raise FileProblem(
            f"{where} must have a serial number in hex and a time with its zone, got {show(','.join(row))}"
        )
    return Issued(name, serial, end)


def _is_serial(text: str) -> bool:
    return re.fullmatch(r"[0-9a-fA-F]{1,40}", text) is not None


def read_revoked(path: Path) -> frozenset[int]:
    """What a list of revoked certificates says.  A line that cannot be read is an error, for it may be someone to be kept out."""
    lines = read_text(path, what="list of revoked certificates").splitlines()
    bare = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    for number, serial in bare:
        if serial and not _is_serial(serial):
            raise FileProblem(
                f"{str(path)!r}, line {number}, must be a serial number in hex, or nothing, before any #, got {show(serial)}"
            )
    return frozenset(int(serial, 16) for _, serial in bare if serial)
