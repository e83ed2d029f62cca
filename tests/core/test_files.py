"""Files: read with clear errors, written atomically."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from airsplit.core.errors import FileProblem
from airsplit.core.files import read_text, write_bytes, write_text


def test_written_text_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b.txt"
    write_text(file, "τ = a·c\n")
    assert read_text(file, what="note") == "τ = a·c\n"
    assert [p.name for p in file.parent.iterdir()] == ["b.txt"]


def test_bytes_are_written_unchanged(tmp_path: Path) -> None:
    write_bytes(tmp_path / "x", bytes(range(256)))
    assert (tmp_path / "x").read_bytes() == bytes(range(256))


def test_a_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "x"
    write_text(file, "old")
    write_text(file, "new")
    assert file.read_text() == "new"


def test_a_write_that_fails_midway_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    # A limit on file sizes stands in for a full disk: the write fails after 64 bytes.
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
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "plan.json' cannot be written: File too large" in process.stdout
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_a_target_that_cannot_be_replaced_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(FileProblem, match="folder' cannot be written"):
        write_text(tmp_path / "folder", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_a_folder_that_is_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileProblem, match="cannot be written"):
        write_text(tmp_path / "file" / "below", "text")


def test_text_that_utf_8_cannot_encode_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "x", "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "x", "\ud800")
    assert (tmp_path / "x").read_text() == "old"


def test_a_missing_file_is_named_with_its_kind(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match=r"fleet file '.*nothing\.csv' does not exist"):
        read_text(tmp_path / "nothing.csv", what="fleet file")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match=r"fleet file .* cannot be read"):
        read_text(tmp_path, what="fleet file")


def test_a_path_with_a_null_character_is_rejected() -> None:
    with pytest.raises(FileProblem, match="fleet file"):
        read_text("a\0b", what="fleet file")


def test_binary_content_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileProblem, match="is not UTF-8 text"):
        read_text(tmp_path / "x", what="fleet file")


def test_a_file_larger_than_the_limit_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("12345")
    assert read_text(tmp_path / "x", what="fleet file", limit_bytes=5) == "12345"
    with pytest.raises(FileProblem, match="larger than 4 bytes"):
        read_text(tmp_path / "x", what="fleet file", limit_bytes=4)


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xef\xbb\xbfname\r\n")
    assert read_text(tmp_path / "x", what="fleet file") == "name\n"
