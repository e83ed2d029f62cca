"""Mutual TLS: real handshakes over loopback, and folders of identities that lose nothing and show no key."""

import ipaddress
import json
import os
import stat
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

import grpc
import pytest
import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from airsplit.cli.identity_commands import identity_app
from airsplit.core.errors import AirsplitError, FileProblem, InvalidValue, UnknownName
from airsplit.core.lock import Lock
from airsplit.network.identity import certificates
from airsplit.network.identity.admission import (
    Admission,
    Refused,
    channel_credentials,
    init,
    issue,
    issued,
    join_address,
    revoke,
    server_credentials,
    split_address,
)
from airsplit.network.identity.certificates import read_pair
from airsplit.network.names import require_name

SERVER, DEVICE = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
EVERYWHERE = "0.0.0.0"  # noqa: S104
NO_HOSTS = (
    "",
    "a:50051",
    "10.0.0.5:1",
    "300.1.1.1",
    "a b",
    "-a",
    "a..b",
    "fe80::1%eth0",
    "[a]",
    "a/b",
    "*",
    EVERYWHERE,
    "::",
    "é",
)
NO_NAMES = (
    "../x",
    "..",
    ".",
    "",
    "a/b",
    "/etc/x",
    "a\\b",
    "a b",
    "a\n",
    "é",
    "x" * 65,
    "-x",
    ".x",
    "a,b",
    "a#b",
    "a\0",
)
NO_ROWS = (
    "pi,12",
    "pi,xyz,2031-01-01T00:00:00+00:00",
    "pi,12,soon",
    "pi,12,2031-01-01",
    "pi,12,2031-01-01T00:00:00+00:00,x",
)


@pytest.fixture
def folder(tmp_path):
    """An authority, a server and the device `pi`."""
    init(tmp_path / "identity")
    issue(tmp_path / "identity", "pi")
    return tmp_path / "identity"


@pytest.fixture
def pi(folder):
    return folder / "devices" / "pi"


# ---- a tiny service ------------------------------------------------------------------------------------------------------
@contextmanager
def serving(credentials, revoked=None):
    """A server that answers with the caller's name, or refuses; its port."""
    admission = Admission(revoked)

    def who(_request, context):
        try:
            return str(admission.admitted(context)).encode()
        except Refused as refusal:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refusal))

    handler = grpc.method_handlers_generic_handler(
        "identity", {"who": grpc.unary_unary_rpc_method_handler(who)}
    )
    server = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
    address = "127.0.0.1:0"
    port = (
        server.add_insecure_port(address)
        if credentials is None
        else server.add_secure_port(address, credentials)
    )
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


@contextmanager
def dialled(port, credentials, host="127.0.0.1"):
    """A function that asks the server who is calling."""
    address = join_address(host, port)
    channel = (
        grpc.insecure_channel(address)
        if credentials is None
        else grpc.secure_channel(address, credentials)
    )
    try:
        yield lambda: channel.unary_unary("/identity/who")(b"", timeout=5).decode()
    finally:
        channel.close()


def asked(port, credentials, host="127.0.0.1"):
    with dialled(port, credentials, host) as who:
        return who()


def refused(port, credentials, host="127.0.0.1"):
    """How a call fails: its code and what the server said."""
    with pytest.raises(grpc.RpcError) as caught:
        asked(port, credentials, host)
    return caught.value.code(), caught.value.details()


class Own:
    """An authority that is not ours: certificates of any kind, in files."""

    def __init__(self, folder):
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        folder.mkdir()
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own authority")])
        self.authority = folder / "own-ca.pem"
        self.authority.write_bytes(
            self._signed(self.name, self.key, [(x509.BasicConstraints(True, None), True)], (-1, 30))
        )

    def make(self, *common_names, purposes=(DEVICE,), key=None, days=(-1, 30), host="127.0.0.1"):
        """Files with a certificate and its key."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common_names]
        )
        local = [x509.IPAddress(ipaddress.ip_address(host))]
        extras = [
            (x509.BasicConstraints(False, None), True),
            (x509.SubjectAlternativeName(local), not common_names),
        ]
        extras += [(x509.ExtendedKeyUsage(list(purposes)), False)] if purposes else []
        stem = self.folder / f"{len(list(self.folder.iterdir()))}"
        files = {
            "certificate": stem.with_suffix(".pem"),
            "key": stem.with_suffix(".key"),
            "authority": self.authority,
        }
        files["certificate"].write_bytes(self._signed(subject, key, extras, days))
        write_private(files["key"], key)
        return files

    def _signed(self, subject, key, extras, days):
        first, last = (datetime.now(UTC) + timedelta(days=day) for day in days)
        builder = x509.CertificateBuilder(
            self.name, subject, key.public_key(), x509.random_serial_number(), first, last
        )
        for extra, critical in extras:
            builder = builder.add_extension(extra, critical)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def write_private(path, key, encryption=None):
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())
    )


@pytest.fixture
def own(tmp_path):
    return Own(tmp_path / "own")


def raw(certificate, key, authority):
    """What a device that ignores our checks would show."""
    return grpc.ssl_channel_credentials(
        authority.read_bytes(), key.read_bytes(), certificate.read_bytes()
    )


class Context:
    """As much of a call as Admission looks at."""

    def __init__(self, pem):
        self.pem = pem

    def auth_context(self):
        return {
            "transport_security_type": [b"ssl"],
            "x509_common_name": [b"admin"],
            "x509_pem_cert": [self.pem],
        }


# ---- handshakes ----------------------------------------------------------------------------------------------------------
def test_the_right_identities_talk_and_the_server_sees_the_name(folder, pi):
    issue(folder, "pi-2.lab_b")
    with serving(server_credentials(folder), folder / "revoked.txt") as port:
        assert asked(port, channel_credentials(pi)) == "pi"
        assert (
            asked(port, channel_credentials(folder / "devices" / "pi-2.lab_b"), "localhost")
            == "pi-2.lab_b"
        )


def test_a_device_of_another_authority_is_refused(tmp_path, folder):
    init(tmp_path / "other")
    _, stranger = issue(tmp_path / "other", "pi")
    with serving(server_credentials(folder)) as port:
        files = {
            "certificate": stranger / "device.pem",
            "key": stranger / "device.key",
            "authority": folder / "ca.pem",
        }
        assert refused(port, channel_credentials(None, **files))[0] == grpc.StatusCode.UNAVAILABLE


def test_a_server_of_another_authority_is_refused_by_the_device(tmp_path, pi):
    init(tmp_path / "other")
    with serving(server_credentials(tmp_path / "other")) as port:
        code, details = refused(port, channel_credentials(pi))
    assert (code, "CERTIFICATE_VERIFY_FAILED" in details) == (grpc.StatusCode.UNAVAILABLE, True)


def test_a_device_without_a_certificate_is_refused(folder):
    with serving(server_credentials(folder)) as port:
        assert (
            refused(port, grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes()))[0]
            == grpc.StatusCode.UNAVAILABLE
        )


def test_a_device_that_speaks_plain_text_is_refused(folder):
    with serving(server_credentials(folder)) as port:
        assert refused(port, None)[0] == grpc.StatusCode.UNAVAILABLE


def test_on_a_plain_text_server_nobody_has_a_name():
    with serving(None) as port:
        assert asked(port, None) == "None"


def test_tls_without_a_device_certificate_is_not_taken_for_plain_text(folder):
    pair = (folder / "server.key").read_bytes(), (folder / "server.pem").read_bytes()
    with serving(grpc.ssl_server_credentials([pair])) as port:
        code, details = refused(
            port, grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes())
        )
    assert (code, "shows no certificate" in details) == (grpc.StatusCode.PERMISSION_DENIED, True)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_device_cannot_pose_as_the_server_not_even_by_its_name(folder, pi, name):
    _, liar = issue(folder, name)
    pair = (liar / "device.key").read_bytes(), (liar / "device.pem").read_bytes()
    with serving(grpc.ssl_server_credentials([pair], (liar / "ca.pem").read_bytes(), True)) as port:
        assert refused(port, channel_credentials(pi), name)[0] == grpc.StatusCode.UNAVAILABLE


def test_the_server_is_only_believed_on_hosts_it_was_made_for(own):
    with serving(
        server_credentials(None, **own.make("server", purposes=[SERVER], host="127.0.0.9"))
    ) as port:
        assert (
            refused(port, channel_credentials(None, **own.make("pi")))[0]
            == grpc.StatusCode.UNAVAILABLE
        )


def test_a_server_certificate_is_no_device(folder):
    server = folder / "server.pem", folder / "server.key"
    with pytest.raises(FileProblem, match=r"server.pem' is not made for a device: .* clientAuth"):
        channel_credentials(None, certificate=server[0], key=server[1], authority=folder / "ca.pem")
    with serving(server_credentials(folder)) as port:  # the handshake already refuses it
        assert refused(port, raw(*server, folder / "ca.pem"))[0] == grpc.StatusCode.UNAVAILABLE


def test_admission_refuses_a_server_certificate_by_itself(own):
    with pytest.raises(Refused, match="the certificate of 'pi' is not made for a device"):
        Admission(None).admitted(
            Context(own.make("pi", purposes=[SERVER])["certificate"].read_bytes())
        )


def test_a_certificate_without_a_purpose_is_no_device_though_the_handshake_lets_it_pass(own):
    files = own.make("pi", purposes=())
    with pytest.raises(FileProblem, match="must have clientAuth"):
        channel_credentials(None, **files)
    with serving(server_credentials(None, **own.make("server", purposes=()))) as port:
        assert refused(port, raw(**files)) == (
            grpc.StatusCode.PERMISSION_DENIED,
            "the certificate of 'pi' is not made for a device: its extended key usage must have clientAuth",
        )


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), "must have one common name"),
        (("a", "b"), "must have one common name"),
        (("../pi",), r"1 to 64 letters.*got '\.\./pi'"),
    ],
)
def test_a_certificate_without_one_good_name_is_refused(own, names, words):
    files = own.make(*names)
    with serving(server_credentials(None, **own.make("server", purposes=[SERVER]))) as port:
        code, details = refused(port, raw(**files))
    assert code == grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(Refused, match=words):
        raise Refused(details)


@pytest.mark.parametrize(
    "key",
    [
        lambda: rsa.generate_private_key(65537, 2048),
        lambda: ec.generate_private_key(ec.SECP384R1()),
    ],
)
def test_own_certificates_work_through_three_files(own, key):
    server, device = (
        own.make("server", purposes=[SERVER], key=key()),
        own.make("pi", purposes=[DEVICE, SERVER], key=key()),
    )
    with serving(server_credentials(None, **server)) as port:
        assert asked(port, channel_credentials(None, **device)) == "pi"


# ---- revocation ----------------------------------------------------------------------------------------------------------
def test_a_revoked_device_is_refused_at_its_next_call_without_a_restart_and_a_renewed_one_is_admitted(
    folder, pi
):
    issue(folder, "other")
    with (
        serving(server_credentials(folder), folder / "revoked.txt") as port,
        dialled(port, channel_credentials(pi)) as who,
    ):
        assert who() == "pi"
        (serial,) = revoke(folder, "pi")
        with pytest.raises(grpc.RpcError) as caught:
            who()  # on the connection that was open all the time
        assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
        assert (
            caught.value.details()
            == f"the certificate of device 'pi' (serial number {serial}) is revoked; ask for a new one"
        )
        assert asked(port, channel_credentials(folder / "devices" / "other")) == "other"
        made, _ = issue(folder, "pi", renew=True)
        assert made.serial != serial
        assert asked(port, channel_credentials(pi)) == "pi"


def test_revoking_takes_every_certificate_of_the_name_and_no_other(folder):
    first = issued(folder)[0].serial
    second = issue(folder, "pi", renew=True)[0].serial
    issue(folder, "pi2")
    assert revoke(folder, "pi") == [first, second]
    assert revoke(folder, "pi") == []
    lines = (folder / "revoked.txt").read_text().splitlines()
    assert lines[0].startswith("#")
    assert lines[1:] == [f"{first}  # pi", f"{second}  # pi"]
    assert [(each.name, each.revoked) for each in issued(folder)] == [
        ("pi", True),
        ("pi", True),
        ("pi2", False),
    ]


def test_revoking_keeps_lines_written_by_hand(folder):
    (folder / "revoked.txt").write_text("AB12 # stolen\n\n  # remark\ncd")
    (serial,) = revoke(folder, "pi")
    assert (
        folder / "revoked.txt"
    ).read_text() == f"AB12 # stolen\n\n  # remark\ncd\n{serial}  # pi\n"


def test_revoking_an_unknown_name_offers_the_nearest(folder):
    with pytest.raises(UnknownName, match="device 'pj' is not known; did you mean 'pi'"):
        revoke(folder, "pj")


def test_the_name_comes_from_the_certificate_and_from_nothing_else(pi):
    assert Admission(None).admitted(Context((pi / "device.pem").read_bytes())) == "pi"


@pytest.mark.parametrize(
    "line", ["xyz", "12 34", "0x12", "-5", "1_2", "1" * 41, "12:34", "pi", "١"]
)
def test_a_list_that_cannot_be_read_lets_nobody_in(folder, pi, line):
    call, file = Context((pi / "device.pem").read_bytes()), folder / "revoked.txt"
    admission = Admission(file)
    assert admission.admitted(call) == "pi"
    file.write_text(f"# fine\nAB\n{line} # someone\n")
    for _ in range(2):  # it is not forgotten after the first call
        with pytest.raises(
            Refused, match=r"not admitted: .*revoked.txt', line 3, must be a serial number in hex"
        ):
            admission.admitted(call)
    with pytest.raises(FileProblem, match="line 3"):
        Admission(file)
    with pytest.raises(FileProblem, match="line 3"):
        revoke(folder, "pi")
    file.write_text("# mended\n")
    assert admission.admitted(call) == "pi"


def test_a_list_that_vanishes_lets_nobody_in(folder, pi):
    call, file = Context((pi / "device.pem").read_bytes()), folder / "revoked.txt"
    admission = Admission(file)
    file.unlink()
    with pytest.raises(Refused, match=r"revoked.txt' does not exist"):
        admission.admitted(call)
    with pytest.raises(FileProblem, match=r"revoked.txt' does not exist"):
        Admission(file)


def test_serial_numbers_in_capitals_or_with_leading_zeros_are_the_same_numbers(folder, pi):
    admission = Admission(folder / "revoked.txt")
    (folder / "revoked.txt").write_text(issued(folder)[0].serial.upper().zfill(40) + "\n")
    with pytest.raises(Refused, match="is revoked"):
        admission.admitted(Context((pi / "device.pem").read_bytes()))


def test_a_certificate_that_ended_while_connected_is_refused(own):
    with pytest.raises(Refused, match="certificate of device 'pi' expired on "):
        Admission(None).admitted(Context(own.make("pi", days=(-2, -1))["certificate"].read_bytes()))


@pytest.mark.parametrize(
    "pem", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_refused(pem):
    with pytest.raises(Refused, match="cannot be read"):
        Admission(None).admitted(Context(pem))


# ---- what is loaded is checked -------------------------------------------------------------------------------------------
def test_expired_certificates_are_refused_at_load_with_the_date(own):
    ended = own.make("pi", days=(-9, -2))
    day = f"{datetime.now(UTC) - timedelta(days=2):%Y-%m-%d}"
    with pytest.raises(FileProblem, match=rf"device's certificate .* expired on {day} .*renew"):
        channel_credentials(None, **ended)
    with pytest.raises(FileProblem, match=rf"server's certificate .* expired on {day} "):
        server_credentials(None, **own.make("server", purposes=[SERVER], days=(-9, -2)))
    with pytest.raises(FileProblem, match=rf"authority's certificate .* expired on {day} "):
        channel_credentials(None, **(own.make("pi") | {"authority": ended["certificate"]}))


def test_an_authority_that_has_ended_is_not_to_be_renewed_but_replaced(folder):
    ended = certificates.make_authority("old", datetime.now(UTC) - timedelta(minutes=1))
    certificates.write_key(folder / "ca.key", ended.key)
    (folder / "ca.pem").write_bytes(certificates.chain_pem(ended.chain))
    with pytest.raises(
        FileProblem,
        match=r"authority's certificate .* expired on .*; make another authority, in another folder",
    ):
        init(folder, renew=True)


def test_a_certificate_from_the_future_raises_the_question_of_the_clock(own):
    with pytest.raises(
        FileProblem, match=r"is valid from .* on, and the clock says .*; is the clock right\?"
    ):
        channel_credentials(None, **own.make("pi", days=(2, 9)))


def test_a_key_that_others_can_open_is_refused(pi, own):
    for mode in (0o640, 0o604, 0o660, 0o644):
        (pi / "device.key").chmod(mode)
        with pytest.raises(
            FileProblem, match=rf"device.key' is open to other users \(mode {mode:o}\).*chmod 600"
        ):
            channel_credentials(pi)
    (pi / "device.key").chmod(0o400)
    channel_credentials(pi)


def test_the_authority_signs_nothing_with_a_key_that_others_can_open(folder):
    (folder / "ca.key").chmod(0o644)
    with pytest.raises(FileProblem, match="chmod 600"):
        issue(folder, "new")
    assert [each.name for each in issued(folder)] == ["pi"]


def test_a_key_of_another_certificate_is_refused(own):
    with pytest.raises(FileProblem, match="does not belong to the certificate"):
        channel_credentials(None, **(own.make("pi") | {"key": own.make("pi")["key"]}))


def test_files_that_are_missing_or_something_else_are_named(pi, own, tmp_path):
    good, nothing = own.make("pi"), tmp_path / "nothing"
    for field, words in {
        "certificate": "device's certificate",
        "key": "device's key",
        "authority": "authority's certificate",
    }.items():
        with pytest.raises(FileProblem, match=f"{words} .*nothing' does not exist"):
            channel_credentials(None, **(good | {field: nothing}))
    with pytest.raises(FileProblem, match="is not a PEM file with a certificate"):
        channel_credentials(None, **(good | {"certificate": good["key"]}))
    good["certificate"].chmod(0o600)
    with pytest.raises(FileProblem, match="is not a PEM file with a private key"):
        channel_credentials(None, **(good | {"key": good["certificate"]}))
    with pytest.raises(FileProblem, match="cannot be read: Is a directory"):
        channel_credentials(None, **(good | {"key": tmp_path}))
    (pi / "device.key").unlink()
    with pytest.raises(
        FileProblem,
        match=r"device's identity folder .* has no device.key; airsplit identity issue NAME makes",
    ):
        channel_credentials(pi)


def test_a_key_with_a_password_is_refused_in_words(own):
    files = own.make("pi")
    write_private(
        files["key"], ed25519.Ed25519PrivateKey.generate(), BestAvailableEncryption(b"secret")
    )
    with pytest.raises(FileProblem, match="locked with a password"):
        channel_credentials(None, **files)


def test_a_device_folder_is_no_server_folder(folder, pi):
    with pytest.raises(
        FileProblem,
        match=r"server's identity folder .* has no server.pem and no server.key; airsplit identity init",
    ):
        server_credentials(pi)
    with pytest.raises(FileProblem, match="is not made for a server"):
        server_credentials(
            None, certificate=pi / "device.pem", key=pi / "device.key", authority=pi / "ca.pem"
        )


def test_an_identity_is_a_folder_or_three_files_and_not_a_mixture(folder):
    for given_folder, files, got in (
        (None, {}, "none of them"),
        (None, {"key": folder / "server.key"}, "got key"),
        (folder, {"key": folder / "server.key"}, "got folder and key"),
    ):
        with pytest.raises(
            InvalidValue, match=rf"either a folder or certificate, key and authority, .*{got}"
        ):
            server_credentials(given_folder, **files)


# ---- the folder ----------------------------------------------------------------------------------------------------------
def test_certificates_say_what_they_are_for(folder, pi):
    files = pi / "ca.pem", folder / "server.pem", pi / "device.pem"
    authority, server, device = (
        x509.load_pem_x509_certificate(file.read_bytes()) for file in files
    )
    of = {each: each.extensions.get_extension_for_class for each in (authority, server, device)}
    assert of[authority](x509.BasicConstraints).value == x509.BasicConstraints(
        ca=True, path_length=0
    )
    assert of[authority](x509.BasicConstraints).critical
    assert of[authority](x509.KeyUsage).value.key_cert_sign
    for each, purpose in ((server, SERVER), (device, DEVICE)):
        assert list(of[each](x509.ExtendedKeyUsage).value) == [purpose]
        assert not of[each](x509.BasicConstraints).value.ca
        assert not of[each](x509.KeyUsage).value.key_cert_sign
        each.verify_directly_issued_by(authority)
        assert each.not_valid_after_utc <= authority.not_valid_after_utc
    assert len({each.serial_number for each in of}) == 3
    for each in of:
        assert isinstance(each.public_key().curve, ec.SECP256R1)
        assert isinstance(each.signature_hash_algorithm, hashes.SHA256)
        assert (
            timedelta(minutes=2)
            < datetime.now(UTC) - each.not_valid_before_utc
            < timedelta(hours=1)
        )


def test_the_server_certificate_names_every_host_once(tmp_path):
    hosts, _ = init(
        tmp_path / "i", ["10.0.0.5", "Train.Example.org", "[fd00::1]", "localhost", "my_server"]
    )
    assert hosts == [
        "10.0.0.5",
        "train.example.org",
        "fd00::1",
        "localhost",
        "my_server",
        "127.0.0.1",
        "::1",
    ]
    names = x509.load_pem_x509_certificate((tmp_path / "i" / "server.pem").read_bytes()).extensions
    written = [
        str(name.value) for name in names.get_extension_for_class(x509.SubjectAlternativeName).value
    ]
    assert written == hosts


@pytest.mark.parametrize("host", NO_HOSTS)
def test_hosts_that_cannot_be_dialled_are_refused_before_anything_is_made(tmp_path, host):
    with pytest.raises(InvalidValue, match="host must be"):
        init(tmp_path / "i", [host])
    assert list(tmp_path.iterdir()) == []


def contents(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_an_authority_is_never_replaced(folder):
    before = contents(folder)
    with pytest.raises(
        FileProblem, match=r"already has ca.pem, ca.key, .* nothing was changed; --renew"
    ):
        init(folder)
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["ca.key", "ca.pem", "server.key", "revoked.txt"])
def test_a_folder_with_any_of_the_files_is_left_alone(tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(FileProblem, match=f"already has {name}"):
        init(tmp_path)
    assert contents(tmp_path) == {tmp_path / name: b"precious"}


def test_renewing_the_server_keeps_the_authority_and_the_devices(folder, pi):
    before = contents(folder)
    hosts, end = init(folder, ["10.0.0.9"], days=7, renew=True)
    changed = {file.name for file, content in contents(folder).items() if before[file] != content}
    assert changed == {"server.pem", "server.key"}
    assert (hosts[0], (end - datetime.now(UTC)).days) == ("10.0.0.9", 6)
    with serving(server_credentials(folder), folder / "revoked.txt") as port:
        assert asked(port, channel_credentials(pi)) == "pi"


def test_issuing_again_must_be_asked_for(folder, pi):
    before = contents(folder)
    with pytest.raises(
        InvalidValue, match="device 'pi' already has a certificate; --renew makes another"
    ):
        issue(folder, "pi")
    with pytest.raises(InvalidValue, match="already has a certificate"):
        issue(folder, "pi", out=folder.parent / "elsewhere")
    with pytest.raises(InvalidValue, match="device 'pj' has no certificate that could be renewed"):
        issue(folder, "pj", renew=True)
    with pytest.raises(
        FileProblem, match=r"already has ca.pem, device.pem, device.key; choose another with --out"
    ):
        issue(folder, "pj", out=pi)
    issue(folder, "pj")
    with pytest.raises(FileProblem, match="is not one of device 'pj'"):
        issue(folder, "pj", out=pi, renew=True)
    assert (
        contents(folder).items()
        >= {file: text for file, text in before.items() if file.name != "issued.csv"}.items()
    )


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_are_no_names_are_refused_and_nothing_is_written(folder, name):
    before = contents(folder.parent)
    for out in (None, folder.parent / "out"):
        with pytest.raises(InvalidValue, match="NAME must be 1 to 64 letters, digits"):
            issue(folder, name, out=out)
    assert contents(folder.parent) == before


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True))
def test_every_name_within_the_rule_stays_in_its_folder(name):
    assert os.path.normpath(os.path.join("devices", require_name("NAME", name))) == os.path.join(
        "devices", name
    )


def test_no_certificate_outlives_its_authority(tmp_path):
    _, end = init(tmp_path / "i", days=10)
    assert issue(tmp_path / "i", "a")[0].not_after == end
    assert issue(tmp_path / "i", "b", days=3)[0].not_after < end
    with pytest.raises(
        InvalidValue, match=r"days must be at most 9, for the authority ends on .*, got 11"
    ):
        issue(tmp_path / "i", "c", days=11)


@pytest.mark.parametrize("days", [0, -1, 36501])
def test_days_are_a_sensible_number(tmp_path, folder, days):
    with pytest.raises(InvalidValue, match="days must be a whole number from 1 to 36500"):
        init(tmp_path / "new", days=days)
    with pytest.raises(InvalidValue, match="days must be a whole number from 1 to 36500"):
        issue(folder, "new", days=days)
    assert not (tmp_path / "new").exists()


def test_only_the_owner_can_open_keys_and_new_folders_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        init(tmp_path / "i")
        _, device = issue(tmp_path / "i", "pi", out=tmp_path / "carried")
        issue(tmp_path / "i", "pi", out=device, renew=True)
    finally:
        os.umask(before)
    keys = [*(tmp_path / "i").glob("*.key"), device / "device.key"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in keys] == [0o600] * 3
    assert [stat.S_IMODE(place.stat().st_mode) for place in (tmp_path / "i", device)] == [0o700] * 2
    assert sorted(file.name for file in device.iterdir()) == ["ca.pem", "device.key", "device.pem"]


def test_a_key_is_never_open_to_others_not_even_while_it_is_written(tmp_path):
    """An audit hook looks at every file of the folder whenever the program touches any file."""
    program = """
        import os, sys
        folder, seen, busy = sys.argv[1], set(), []

        def look(event, _):
            if busy or event not in ("open", "os.rename", "os.chmod", "os.remove"):
                return
            busy.append(1)
            for place, _, names in os.walk(folder):
                for name in names:
                    if ".key" in name:
                        seen.add((name.lstrip(".")[:6], os.lstat(os.path.join(place, name)).st_mode & 0o777))
            busy.clear()

        os.umask(0)
        from pathlib import Path
        from airsplit.network.identity.admission import init, issue
        sys.addaudithook(look)
        init(Path(folder))
        issue(Path(folder), "pi")
        print(len({name for name, _ in seen}), {oct(mode) for _, mode in seen})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["3", "{'0o600'}"]


def test_a_folder_without_an_authority_is_told_apart(tmp_path):
    calls = (
        lambda: issue(tmp_path, "pi"),
        lambda: revoke(tmp_path, "pi"),
        lambda: issued(tmp_path),
        lambda: init(tmp_path, renew=True),
    )
    for call in calls:
        with pytest.raises(
            FileProblem,
            match=r"has no ca.pem and no ca.key; make an authority: airsplit identity init",
        ):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("row", NO_ROWS)
def test_a_damaged_list_of_certificates_is_an_error_with_its_line(folder, row):
    with (folder / "issued.csv").open("a") as stream:
        stream.write(row + "\n")
    for call in (
        lambda: issued(folder),
        lambda: revoke(folder, "pi"),
        lambda: issue(folder, "new"),
    ):
        with pytest.raises(FileProblem, match=r"issued.csv', line 3, must"):
            call()


def test_a_list_with_other_columns_is_not_taken_for_the_list_of_certificates(folder):
    (folder / "issued.csv").write_text("name,not_after,serial\n")
    with pytest.raises(
        FileProblem, match="must begin with name,serial,not_after, got 'name,not_after,serial'"
    ):
        issued(folder)


def test_an_authority_of_another_kind_of_key_signs_nothing(folder):
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "another authority")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(
        name, name, key.public_key(), 7, now - timedelta(days=1), now + timedelta(days=9)
    )
    (folder / "ca.pem").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    write_private(folder / "ca.key", key)
    before = (folder / "issued.csv").read_text()
    with pytest.raises(FileProblem, match="the authority's key must be an ECDSA key"):
        issue(folder, "new")
    assert (folder / "issued.csv").read_text() == before
    assert not (folder / "devices" / "new").exists()


def test_two_who_change_the_folder_at_once_do_not_lose_an_entry(folder):
    with (
        closing(Lock(folder / ".lock")),
        pytest.raises(FileProblem, match="in use by another process; try again"),
    ):
        issue(folder, "new")
    issue(folder, "new")
    assert [each.name for each in issued(folder)] == ["pi", "new"]


# ---- addresses -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("localhost:50051", ("localhost", 50051)),
        ("10.0.0.5:0", ("10.0.0.5", 0)),
        ("[fd00::1]:65535", ("fd00::1", 65535)),
        (f"{EVERYWHERE}:1", (EVERYWHERE, 1)),
    ],
)
def test_an_address_is_a_host_and_a_port_and_back(address, parts):
    assert split_address(address) == parts
    assert join_address(*parts) == address


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("localhost", "there is no port in 'localhost'"),
        ("", "there is no port in ''"),
        ("[::1]", r"there is no port in '\[::1\]'"),
        ("::1:50051", "IPv6 host in brackets"),
        ("::1", "IPv6 host in brackets"),
        ("a:", "port from 0 to 65535, got ''"),
        ("a:65536", "port from 0 to 65535, got '65536'"),
        ("a:-1", "port from 0 to 65535"),
        ("a:http", "port from 0 to 65535"),
        ("a: 1", "port from 0 to 65535"),
        ("a:١", "port from 0 to 65535"),
        (":50051", "host's name or an IP address"),
        ("[]:1", "host's name or an IP address"),
        ("[pi]:1", "host's name or an IP address"),
        ("a b:1", "host's name or an IP address"),
        ("dns:///a:1", "not a URL, got 'dns:///a:1'"),
        ("http://localhost:7070", "not a URL, got 'http://localhost:7070'"),
        (
            "256.1.1.1:7070",
            "host of address '256.1.1.1:7070' must be a host's name or an IP address, got '256.1.1.1'$",
        ),
        ("a/b:1", "host's name or an IP address"),
    ],
)
def test_an_address_that_is_none_says_why(address, words):
    with pytest.raises(InvalidValue, match=words):
        split_address(address)


# ---- the commands --------------------------------------------------------------------------------------------------------
@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run `airsplit identity …` in an empty folder; what it prints."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        typer.main.get_command(identity_app).main(
            args=list(words), prog_name="airsplit identity", standalone_mode=False
        )
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out

    return call


def test_the_commands_make_list_and_revoke(command, tmp_path):
    assert "for 10.0.0.5, localhost, 127.0.0.1, ::1, until 20" in command(
        "init", "--host", "10.0.0.5"
    )
    assert command("issue", "pi").startswith(
        "identity/devices/pi has what device pi needs, until 20"
    )
    serial = issued(tmp_path / "identity")[0].serial
    assert command("list").split()[-4:][::3] == ["pi", "no"]
    assert command("revoke", "pi") == f"device pi is rejected from now on; revoked: {serial}\n"
    assert command("revoke", "pi") == "device pi was already rejected; nothing to revoke\n"
    assert command("list").split()[-4:][::3] == ["pi", "yes"]
    command("issue", "pi", "--renew", "--out", "carried", "--days", "7")
    assert sorted(file.name for file in (tmp_path / "carried").iterdir()) == [
        "ca.pem",
        "device.key",
        "device.pem",
    ]


def test_the_commands_speak_json(command):
    made = json.loads(command("init", "--folder", "i", "--days", "30", "--json"))
    assert (made["folder"], made["hosts"]) == ("i", ["localhost", "127.0.0.1", "::1"])
    assert json.loads(command("list", "--folder", "i", "--json")) == []
    new = json.loads(command("issue", "pi", "--folder", "i", "--json"))
    assert (new.pop("folder"), new["name"], new["not_after"]) == (
        "i/devices/pi",
        "pi",
        made["not_after"],
    )
    assert json.loads(command("revoke", "pi", "--folder", "i", "--json")) == {
        "name": "pi",
        "revoked": [new["serial"]],
    }
    text = command("list", "--folder", "i", "--json")
    assert json.loads(text) == [new | {"revoked": True}]
    assert text.count("\n") == 3


@pytest.mark.parametrize("words", [(), ("init",), ("issue",), ("revoke",), ("list",)])
def test_the_help_has_examples_and_no_broken_lines(command, words):
    out = command(*words, "--help")
    assert f"Examples:\n    airsplit {' '.join(('identity', *words))}" in out
    assert "--json" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "..." not in out.replace("[ARGS]...", "")
    if not words:
        assert command() == out


def test_a_mistake_is_an_error_of_ours(command):
    with pytest.raises(FileProblem, match="make an authority: airsplit identity init"):
        command("issue", "pi")


def test_no_key_shows_in_any_output_or_error(command, tmp_path):
    said = [
        command("init"),
        command("issue", "pi"),
        command("issue", "pi", "--renew", "--json"),
        command("list"),
        command("revoke", "pi"),
    ]
    pi = tmp_path / "identity" / "devices" / "pi"
    files = {"certificate": pi / "device.pem", "key": pi / "device.key", "authority": pi / "ca.pem"}
    broken = tmp_path / "broken.key"
    broken.touch(mode=0o600)
    broken.write_text((pi / "device.key").read_text().replace("-----END", "----END"))
    secret, other = pi / "device.key", tmp_path / "identity" / "ca.key"
    for change in ({"key": broken}, {"certificate": secret}, {"authority": secret}, {"key": other}):
        with pytest.raises(AirsplitError) as caught:
            channel_credentials(None, **(files | change))
        said.append(repr(caught.value) + str(caught.value.__cause__))
    said.append(repr(read_pair(pi / "device.pem", pi / "device.key", what="device")))
    said += [
        file.read_text() for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".key"
    ]
    secrets = [
        line
        for file in tmp_path.rglob("*.key")
        for line in file.read_text().splitlines()
        if "-----" not in line
    ]
    assert len(secrets) >= 12
    assert not [line for line in secrets for text in said if line in text]
