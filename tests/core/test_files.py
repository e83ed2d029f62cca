"""Files are read with clear errors and written whole or not at all."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from airsplit.core.errors import FileProblem
from airsplit.core.files import read_text, write_bytes, write_text


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b.txt"
    write_text(file, "τ = a·c\n")
    assert read_text(file, what="note") == "τ = a·c\n"
    assert [p.name for p in file.parent.iterdir()] == ["b.txt"]


def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    write_bytes(tmp_path / "x", bytes(range(256)))
    assert (tmp_path / "x").read_bytes() == bytes(range(256))


def test_a_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "x"
    write_text(file, "old")
    write_text(file, "new")
    assert file.read_text() == "new"


def test_a_write_that_fails_midway_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    """A limit on file sizes stands in for a full disk: the kernel refuses the write after the first 64 bytes."""
    pytest.importorskip("resource")
    file = tmp_path / "plan.json"
    write_text(file, "old")
    program = """
        import resource, sys
        from airsplit.core.errors import FileProblem
        from airsplit.core.files import write_text
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        try:
            write_text(sys.argv[1], "x" * 100_000)
        except FileProblem as problem:
            print(problem)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "plan.json' cannot be written: File too large" in done.stdout
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_a_target_that_cannot_be_replaced_leaves_no_rest(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(FileProblem, match="folder' cannot be written"):
        write_text(tmp_path / "folder", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileProblem, match="cannot be written"):
        write_text(tmp_path / "file" / "below", "text")


def test_text_that_is_no_unicode_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "x", "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "x", "\ud800")
    assert (tmp_path / "x").read_text() == "old"


def test_a_missing_file_is_named_with_what_was_wanted(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match=r"fleet file '.*nothing\.csv' does not exist"):
        read_text(tmp_path / "nothing.csv", what="fleet file")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match=r"fleet file .* cannot be read"):
        read_text(tmp_path, what="fleet file")


def test_a_path_that_no_system_allows_is_no_file() -> None:
    with pytest.raises(FileProblem, match="fleet file"):
        read_text("a\0b", what="fleet file")


def test_binary_content_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileProblem, match="is not UTF-8 text"):
        read_text(tmp_path / "x", what="fleet file")


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("12345")
    assert read_text(tmp_path / "x", what="fleet file", limit_bytes=5) == "12345"
    with pytest.raises(FileProblem, match="larger than 4 bytes"):
        read_text(tmp_path / "x", what="fleet file", limit_bytes=4)


def test_the_byte_order_mark_of_a_spreadsheet_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xef\xbb\xbfname\r\n")
    assert read_text(tmp_path / "x", what="fleet file") == "name\n"
