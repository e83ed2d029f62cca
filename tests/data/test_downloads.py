"""Downloads, from a server on this machine: whole files or none, and a way out where the network fails."""

from __future__ import annotations

import contextlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from airsplit.core.errors import FileProblem
from airsplit.data import downloads
from airsplit.data.downloads import SOURCES, Source, download, download_bytes, unpack
from airsplit.data.image_files import read_images
from airsplit.data.image_sets import IMAGE_SETS, find_missing_files, get_image_set
from data.small_sets import cifar_contents, mnist_contents, published, small_cifar, small_mnist


class Server:
    """Gives what is in `content`, by path; notes what was asked for.  A path in `cut` is promised longer than it is."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                found = server.content.get(self.path)
                if found is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(found) + 99 * (self.path in server.cut)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # who has had enough hangs up
                    self.wfile.write(found)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.listener.server_port}/"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    made = Server()
    thread = threading.Thread(target=made.listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.listener.shutdown()
    thread.join()
    made.listener.server_close()


@pytest.fixture
def mnist(server: Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A small "mnist" that the server gives: its files by their paths."""
    contents = mnist_contents(small_mnist(monkeypatch, None))
    server.content = {f"/{Path(path).name}": content for path, content in contents.items()}
    monkeypatch.setitem(SOURCES, "mnist", Source(server.url))
    return contents


def packed(contents: dict[str, bytes], *others: tarfile.TarInfo) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for other in others:
            tar.addfile(other, io.BytesIO(bytes(other.size)))
        for path, content in contents.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def member(
    name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, size
    return made


def give_archive(server: Server, monkeypatch: pytest.MonkeyPatch, archive: bytes) -> None:
    server.content["/cifar-10-python.tar.gz"] = archive
    monkeypatch.setitem(
        SOURCES, "cifar10", Source(server.url, ("cifar-10-python.tar.gz", published(archive)))
    )


def files_in(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


# ---- files ---------------------------------------------------------------------------------------------------------------
def test_files_are_fetched_checked_and_can_be_read(mnist: dict[str, bytes], tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    assert download("mnist", tmp_path, lambda done, total: seen.append((done, total))) == tmp_path
    assert {path: (tmp_path / path).read_bytes() for path in files_in(tmp_path)} == mnist
    assert len(read_images("mnist", tmp_path)[0].labels) == 60
    total = sum(map(len, mnist.values()))
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)
    assert download_bytes("mnist") == total


def test_files_that_are_there_and_whole_are_left_alone(
    mnist: dict[str, bytes], server: Server, tmp_path: Path
) -> None:
    first, second, *_ = mnist
    (tmp_path / first).parent.mkdir(parents=True)
    (tmp_path / first).write_bytes(mnist[first])
    (tmp_path / second).write_bytes(mnist[second][:-1] + b"x")
    download("mnist", tmp_path)
    assert f"/{Path(first).name}" not in server.asked
    assert (tmp_path / second).read_bytes() == mnist[second]
    server.asked.clear()
    download("mnist", tmp_path)
    assert server.asked == []


def test_an_altered_file_is_not_kept(
    mnist: dict[str, bytes], server: Server, tmp_path: Path
) -> None:
    server.content["/t10k-images-idx3-ubyte.gz"] = bytes(
        len(server.content["/t10k-images-idx3-ubyte.gz"])
    )
    with pytest.raises(
        FileProblem,
        match=r"^mnist cannot be downloaded: http://127.*/t10k-images.* has the MD5 \w+, not the published \w+; try again",
    ):
        download("mnist", tmp_path)
    assert files_in(tmp_path) == [path for path in sorted(mnist) if "train" in path]


@pytest.mark.parametrize("extra", [1, 1 << 22])
def test_more_than_was_published_is_not_taken(
    mnist: dict[str, bytes], server: Server, tmp_path: Path, extra: int
) -> None:
    server.content["/train-images-idx3-ubyte.gz"] += bytes(extra)
    with pytest.raises(FileProblem, match=r"gives more than the [\d,]+ bytes that were published"):
        download("mnist", tmp_path)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("promised", [True, False])
def test_a_file_that_ends_early_is_not_kept(
    mnist: dict[str, bytes], server: Server, tmp_path: Path, promised: bool
) -> None:
    path = "/train-images-idx3-ubyte.gz"
    server.content[path] = server.content[path][:100]
    server.cut = {path} if promised else set()
    with pytest.raises(
        FileProblem, match=rf"cannot be downloaded: {server.url}train-images-idx3-ubyte.gz"
    ):
        download("mnist", tmp_path)
    assert files_in(tmp_path) == []


def test_a_missing_address_says_what_to_do_by_hand(
    mnist: dict[str, bytes], server: Server, tmp_path: Path
) -> None:
    server.content.clear()
    with pytest.raises(FileProblem) as error:
        download("mnist", tmp_path)
    text = str(error.value)
    assert f"{server.url}train-images-idx3-ubyte.gz: HTTP Error 404: Not Found" in text
    assert all(Path(path).name in text for path in mnist)
    assert f"into '{tmp_path}/MNIST/raw'" in text


def test_a_network_that_is_not_there_is_one_line(
    mnist: dict[str, bytes], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, "mnist", Source("http://127.0.0.1:9/"))
    with pytest.raises(
        FileProblem,
        match=r"^mnist cannot be downloaded: http://127.0.0.1:9/train.*: ConnectionRefusedError.*; try again, or by hand",
    ):
        download("mnist", tmp_path)


def test_a_folder_that_cannot_be_made_is_one_line(mnist: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "MNIST").write_text("a file")
    with pytest.raises(FileProblem, match="cannot be written"):
        download("mnist", tmp_path)


# ---- archives ------------------------------------------------------------------------------------------------------------
@pytest.fixture
def cifar(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    return cifar_contents(*small_cifar(monkeypatch, None))


def test_an_archive_is_unpacked_into_the_files_that_are_wanted(
    cifar: dict[str, bytes], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [
        member("cifar-10-batches-py", tarfile.DIRTYPE),
        member("cifar-10-batches-py/readme.html", size=9),
    ]
    hostile = [
        member("../escaped", size=9),
        member("/tmp/escaped", size=9),  # noqa: S108
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
    ]
    give_archive(server, monkeypatch, packed(cifar, *others, *hostile))
    seen: list[tuple[int, int]] = []
    download("cifar10", tmp_path / "data", lambda done, total: seen.append((done, total)))
    assert files_in(tmp_path) == [f"data/{path}" for path in sorted(cifar)]
    assert seen[-1] == (download_bytes("cifar10"),) * 2
    assert len(read_images("cifar10", tmp_path / "data")[1].labels) == 6


def test_an_archive_that_was_not_published_is_not_opened(
    cifar: dict[str, bytes], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = packed(cifar)
    give_archive(server, monkeypatch, archive)
    server.content["/cifar-10-python.tar.gz"] = bytes(len(archive))
    with pytest.raises(
        FileProblem,
        match=r"has the MD5 .*; try again, or by hand: put data_batch_1, .* from cifar-10-python.tar.gz, unpacked, into",
    ):
        download("cifar10", tmp_path)
    assert files_in(tmp_path) == []


ODD = {
    "a link": member("cifar-10-batches-py/data_batch_1", tarfile.SYMTYPE, "/etc/passwd"),
    "a hard link": member("cifar-10-batches-py/data_batch_1", tarfile.LNKTYPE, "/etc/passwd"),
    "a device": member("cifar-10-batches-py/data_batch_1", tarfile.CHRTYPE),
    "another size": member("cifar-10-batches-py/data_batch_1", size=10**7),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_member_that_is_not_the_published_file_is_refused(
    odd: tarfile.TarInfo,
    cifar: dict[str, bytes],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_archive(server, monkeypatch, packed(cifar, odd))
    with pytest.raises(FileProblem, match="data_batch_1 in the archive is not the published file"):
        download("cifar10", tmp_path)
    assert files_in(tmp_path) == []


def test_a_member_that_is_altered_or_missing_is_refused(
    cifar: dict[str, bytes], tmp_path: Path
) -> None:
    wanted = dict(get_image_set("cifar10").files)
    altered = {
        path: bytes(len(content)) if "batch_3" in path else content
        for path, content in cifar.items()
    }
    lacking = {path: content for path, content in cifar.items() if "test" not in path}
    for contents, message in (
        (altered, "data_batch_3 in the archive is not"),
        (lacking, "has no cifar-10-batches-py/test_batch"),
    ):
        (tmp_path / "a.tar.gz").write_bytes(packed(contents))
        with pytest.raises(downloads._NotFetched, match=message):
            list(unpack(tmp_path / "a.tar.gz", wanted))


@pytest.mark.parametrize("cut", [0, 10, 500])
def test_a_damaged_archive_is_refused(cifar: dict[str, bytes], tmp_path: Path, cut: int) -> None:
    (tmp_path / "a.tar.gz").write_bytes(packed(cifar)[:cut])
    with pytest.raises(downloads._NotFetched, match="the archive"):
        list(unpack(tmp_path / "a.tar.gz", dict(get_image_set("cifar10").files)))


# ---- what is declared ----------------------------------------------------------------------------------------------------
def test_every_set_with_files_has_a_source() -> None:
    assert set(SOURCES) == {name for name, known in IMAGE_SETS.items() if known.files}
    assert all(
        source.url.startswith("http") and source.url.endswith("/") for source in SOURCES.values()
    )


def test_digits_need_no_download(tmp_path: Path) -> None:
    assert download("digits", tmp_path) == tmp_path
    assert find_missing_files("digits", tmp_path) == []


def test_files_of_a_set_are_looked_for_where_they_are_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        IMAGE_SETS, "mnist", replace(IMAGE_SETS["mnist"], files={"a/b": published(b"b")})
    )
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_bytes(b"b")
    assert find_missing_files("mnist", tmp_path) == []
