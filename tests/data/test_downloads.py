"""Downloads from a local server: complete files or none, and a hint if the network fails."""

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
from airsplit.data.downloads import DownloadFailed, download, download_bytes, unpack
from airsplit.data.image_files import read_images
from airsplit.data.image_sets import IMAGE_SETS, find_missing_files, get_image_set
from data.small_sets import cifar_contents, mnist_contents, published, small_cifar, small_mnist


class Server:
    """Serves `content` by path, and records the requests.

    A path in `cut` announces more bytes than it has.
    """

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.requests: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append(self.path)
                content = server.content.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                length = len(content) + 99 * (self.path in server.cut)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # a client may hang up early
                    self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.listener.server_port}/"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    server = Server()
    thread = threading.Thread(target=server.listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.listener.shutdown()
    thread.join()
    server.listener.server_close()


def set_url(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setitem(IMAGE_SETS, "mnist", replace(IMAGE_SETS["mnist"], url=url))


@pytest.fixture
def mnist(server: Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Serve a small "mnist"; return its files by their paths."""
    contents = mnist_contents(small_mnist(monkeypatch, None))
    server.content = {f"/{Path(path).name}": content for path, content in contents.items()}
    set_url(monkeypatch, server.url)
    return contents


def pack(contents: dict[str, bytes], *others: tarfile.TarInfo) -> bytes:
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
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    info.size = size
    return info


def serve_archive(server: Server, monkeypatch: pytest.MonkeyPatch, archive: bytes) -> None:
    server.content["/cifar-10-python.tar.gz"] = archive
    cifar = replace(
        IMAGE_SETS["cifar10"],
        url=server.url,
        archive=("cifar-10-python.tar.gz", published(archive)),
    )
    monkeypatch.setitem(IMAGE_SETS, "cifar10", cifar)


def list_files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def test_files_are_downloaded_checked_and_readable(mnist: dict[str, bytes], tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    assert download("mnist", tmp_path, lambda done, total: seen.append((done, total))) == tmp_path
    assert {path: (tmp_path / path).read_bytes() for path in list_files(tmp_path)} == mnist
    assert len(read_images("mnist", tmp_path)[0].labels) == 60
    total = sum(map(len, mnist.values()))
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)
    assert download_bytes("mnist") == total


def test_intact_files_are_not_downloaded_again(
    mnist: dict[str, bytes], server: Server, tmp_path: Path
) -> None:
    first, second, *_ = mnist
    (tmp_path / first).parent.mkdir(parents=True)
    (tmp_path / first).write_bytes(mnist[first])
    (tmp_path / second).write_bytes(mnist[second][:-1] + b"x")
    download("mnist", tmp_path)
    assert f"/{Path(first).name}" not in server.requests
    assert (tmp_path / second).read_bytes() == mnist[second]
    server.requests.clear()
    download("mnist", tmp_path)
    assert server.requests == []


def test_an_altered_file_is_not_kept(
    mnist: dict[str, bytes], server: Server, tmp_path: Path
) -> None:
    server.content["/t10k-images-idx3-ubyte.gz"] = bytes(
        len(server.content["/t10k-images-idx3-ubyte.gz"])
    )
    with pytest.raises(
        FileProblem,
        match=r"^mnist cannot be downloaded: http://127.*/t10k-images.* has the MD5 \w+, "
        r"not the published \w+; try again",
    ):
        download("mnist", tmp_path)
    assert list_files(tmp_path) == [path for path in sorted(mnist) if "train" in path]


@pytest.mark.parametrize("extra", [1, 1 << 22])
def test_a_file_longer_than_the_published_one_is_rejected(
    mnist: dict[str, bytes], server: Server, tmp_path: Path, extra: int
) -> None:
    server.content["/train-images-idx3-ubyte.gz"] += bytes(extra)
    with pytest.raises(FileProblem, match=r"sends more than the [\d,]+ bytes that were published"):
        download("mnist", tmp_path)
    assert list_files(tmp_path) == []


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
    assert list_files(tmp_path) == []


def test_a_404_says_what_to_do_by_hand(
    mnist: dict[str, bytes], server: Server, tmp_path: Path
) -> None:
    server.content.clear()
    with pytest.raises(FileProblem) as error:
        download("mnist", tmp_path)
    text = str(error.value)
    assert f"{server.url}train-images-idx3-ubyte.gz: HTTP Error 404: Not Found" in text
    assert all(Path(path).name in text for path in mnist)
    assert f"into '{tmp_path}/MNIST/raw'" in text


def test_an_unreachable_server_is_an_error_of_one_line(
    mnist: dict[str, bytes], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_url(monkeypatch, "http://127.0.0.1:9/")
    with pytest.raises(
        FileProblem,
        match=r"^mnist cannot be downloaded: http://127.0.0.1:9/train.*: ConnectionRefusedError.*; "
        r"try again, or by hand",
    ):
        download("mnist", tmp_path)


def test_a_folder_that_cannot_be_created_is_an_error_of_one_line(
    mnist: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "MNIST").write_text("a file")
    with pytest.raises(FileProblem, match="cannot be written"):
        download("mnist", tmp_path)


@pytest.fixture
def cifar(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    return cifar_contents(*small_cifar(monkeypatch, None))


def test_only_the_declared_files_of_an_archive_are_unpacked(
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
    serve_archive(server, monkeypatch, pack(cifar, *others, *hostile))
    seen: list[tuple[int, int]] = []
    download("cifar10", tmp_path / "data", lambda done, total: seen.append((done, total)))
    assert list_files(tmp_path) == [f"data/{path}" for path in sorted(cifar)]
    assert seen[-1] == (download_bytes("cifar10"),) * 2
    assert len(read_images("cifar10", tmp_path / "data")[1].labels) == 6


def test_an_altered_archive_is_not_opened(
    cifar: dict[str, bytes], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = pack(cifar)
    serve_archive(server, monkeypatch, archive)
    server.content["/cifar-10-python.tar.gz"] = bytes(len(archive))
    with pytest.raises(
        FileProblem,
        match=r"has the MD5 .*; try again, or by hand: put data_batch_1, .* "
        r"from cifar-10-python.tar.gz, unpacked, into",
    ):
        download("cifar10", tmp_path)
    assert list_files(tmp_path) == []


ODD = {
    "a link": member("cifar-10-batches-py/data_batch_1", tarfile.SYMTYPE, "/etc/passwd"),
    "a hard link": member("cifar-10-batches-py/data_batch_1", tarfile.LNKTYPE, "/etc/passwd"),
    "a device": member("cifar-10-batches-py/data_batch_1", tarfile.CHRTYPE),
    "another size": member("cifar-10-batches-py/data_batch_1", size=10**7),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_member_that_is_not_the_published_file_is_rejected(
    odd: tarfile.TarInfo,
    cifar: dict[str, bytes],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve_archive(server, monkeypatch, pack(cifar, odd))
    with pytest.raises(FileProblem, match="data_batch_1 in the archive is not the published file"):
        download("cifar10", tmp_path)
    assert list_files(tmp_path) == []


def test_an_altered_or_missing_member_is_rejected(cifar: dict[str, bytes], tmp_path: Path) -> None:
    files = get_image_set("cifar10").files
    altered = {
        path: bytes(len(content)) if "batch_3" in path else content
        for path, content in cifar.items()
    }
    incomplete = {path: content for path, content in cifar.items() if "test" not in path}
    for contents, message in (
        (altered, "data_batch_3 in the archive is not"),
        (incomplete, "has no cifar-10-batches-py/test_batch"),
    ):
        (tmp_path / "a.tar.gz").write_bytes(pack(contents))
        with pytest.raises(DownloadFailed, match=message):
            list(unpack(tmp_path / "a.tar.gz", files))


@pytest.mark.parametrize("cut", [0, 10, 500])
def test_a_damaged_archive_is_rejected(cifar: dict[str, bytes], tmp_path: Path, cut: int) -> None:
    (tmp_path / "a.tar.gz").write_bytes(pack(cifar)[:cut])
    with pytest.raises(DownloadFailed, match="the archive"):
        list(unpack(tmp_path / "a.tar.gz", get_image_set("cifar10").files))


def test_digits_need_no_download(tmp_path: Path) -> None:
    assert download("digits", tmp_path) == tmp_path
    assert find_missing_files("digits", tmp_path) == []
