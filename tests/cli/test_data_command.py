"""The command data: the list of data sets, downloads, and partitions."""

import gzip
import hashlib
import http.server
import io
import struct
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from airsplit.cli.data_tables import show_progress
from airsplit.data.image_sets import IMAGE_SETS, DataFile
from airsplit.data.partition import count_labels, partition
from airsplit.scenario.settings import FleetSettings, TrainingSettings


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Serve a small "mnist" on this machine."""
    shapes = {
        "train-images-idx3": (30, 28, 28),
        "train-labels-idx1": (30,),
        "t10k-images-idx3": (9, 28, 28),
        "t10k-labels-idx1": (9,),
    }
    files = {}
    (tmp_path / "served").mkdir()
    for name, shape in shapes.items():
        values = (np.arange(np.prod(shape)) % 10).astype(np.uint8)
        content = gzip.compress(
            bytes([0, 0, 8, len(shape)])
            + struct.pack(f">{len(shape)}I", *shape)
            + values.tobytes(),
            mtime=0,
        )
        (tmp_path / "served" / f"{name}-ubyte.gz").write_bytes(content)
        files[f"MNIST/raw/{name}-ubyte.gz"] = DataFile(
            hashlib.md5(content, usedforsecurity=False).hexdigest(), len(content)
        )
    monkeypatch.setitem(
        IMAGE_SETS, "mnist", replace(IMAGE_SETS["mnist"], train=30, test=9, files=files)
    )

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path / "served"))

        def log_message(self, *args):
            pass

    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        monkeypatch.setitem(IMAGE_SETS, "mnist", replace(IMAGE_SETS["mnist"], url=url))
        yield
        server.shutdown()
        thread.join()


def test_the_help_has_examples_and_no_broken_lines(run):
    code, out, err = run("data", "--help")
    assert (code, err) == (0, "")
    assert "Examples:\n    airsplit data" in out
    assert "--json" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_help_states_the_defaults_of_the_settings(run):
    text = " ".join(run("data", "--help")[1].split())
    assert f"(default {FleetSettings.model_fields['devices'].default})" in text
    assert f"(default {TrainingSettings.model_fields['partition'].default})" in text
    for name in ("alpha", "labels_per_device", "seed"):
        assert f"(default {TrainingSettings.model_fields[name].default})" in text
    assert all(name in text for name in IMAGE_SETS)


def test_the_list_shows_what_is_there_and_where(run, tmp_path):
    code, out, err = run("data", "--data", tmp_path)
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert lines["digits"].rstrip().endswith("yes")
    assert lines["cifar10"].rstrip().endswith("no: airsplit data cifar10 downloads 170 MB")
    assert str(tmp_path) in lines["data"]


def test_the_list_as_json(document, tmp_path, monkeypatch):
    monkeypatch.setenv("AIRSPLIT_DATA", str(tmp_path))
    result = {entry["name"]: entry for entry in document("data")}
    assert list(result) == list(IMAGE_SETS)
    assert {name: entry["there"] for name, entry in result.items()} == {
        name: name == "digits" for name in IMAGE_SETS
    }
    assert result["mnist"]["folder"] == str(tmp_path)
    assert result["cifar10"]["image_shape"] == [3, 32, 32]


def test_the_list_needs_no_torch(tmp_path):
    code = (
        "import sys; from airsplit.cli.app import main;"
        "assert main(['data', '--data', sys.argv[1]]) == 0;"
        "print([m for m in ('torch', 'matplotlib', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_digits_are_shown_with_their_partition(run):
    code, out, err = run("data", "digits", "--partition", "shards", "--devices", 10)
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    assert "1,437 to train on, 360 to test on" in text
    assert "shards, 2 shards per device, seed 0; 10 devices" in text
    assert "samples per device 143" in text
    assert "images 1x8x8" in text


def test_the_counts_are_those_of_the_partition(document):
    from airsplit.data.image_files import read_images

    partition_words = ("--partition", "dirichlet", "--alpha", 0.1, "--seed", 3)
    size_words = ("--devices", 7, "--samples-per-device", 50)
    result = document("data", "digits", *partition_words, *size_words)
    labels = read_images("digits")[0].labels
    parts = partition("dirichlet", labels, 7, seed=3, alpha=0.1, samples_per_device=50)
    assert result["label_counts"] == count_labels(labels, parts, 10).tolist()
    assert (result["devices"], result["alpha"], result["seed"], result["samples_per_device"]) == (
        7,
        0.1,
        3,
        50,
    )
    assert "labels_per_device" not in result


def test_a_missing_data_set_is_downloaded_once(run, published, tmp_path):
    code, out, err = run("data", "mnist", "--data", tmp_path / "data", "--devices", 3)
    assert code == 0
    lines = err.splitlines()
    assert lines[0].startswith("airsplit: downloading mnist, ")
    assert lines[0].endswith(f"into {tmp_path / 'data'}")
    assert all(line.startswith("airsplit: ") for line in lines)
    assert 2 <= len(lines) <= 6
    assert "30 to train on, 9 to test on" in out
    again = run("data", "mnist", "--data", tmp_path / "data", "--devices", 3)
    assert again == (0, out, "")


def test_a_download_that_fails_is_one_line(run, published, tmp_path):
    (tmp_path / "served/train-labels-idx1-ubyte.gz").unlink()
    code, out, err = run("data", "mnist", "--data", tmp_path / "data")
    assert (code, out) == (2, "")
    assert "404" in err.splitlines()[-1]
    assert "or by hand: put" in err.splitlines()[-1]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_plot_is_saved(run, tmp_path, ending):
    path = tmp_path / f"labels.{ending}"
    code, out, err = run("data", "digits", "--plot", path)
    assert (code, err) == (0, f"airsplit: wrote {path}\n")
    assert "digits" in out
    assert path.stat().st_size > 1000


MISTAKES = [
    (["mnits"], "'mnits' is not known; did you mean 'mnist'?"),
    (["torch:load"], "'torch:load' is not known"),
    (
        ["digits", "--alpha", "0.3"],
        "training.alpha belongs to training.partition = \"dirichlet\", but that is 'iid'",
    ),
    (
        ["digits", "--partition", "dirichlet", "--labels-per-device", "2"],
        "training.labels_per_device belongs to",
    ),
    (["digits", "--partition", "given"], 'training.partition "given" needs a dataset factory'),
    (["digits", "--partition", "shard"], "did you mean 'shards'?"),
    (
        ["digits", "--partition", "dirichlet", "--alpha", "0"],
        "training.alpha must be a finite number > 0, got 0",
    ),
    (["digits", "--devices", "0"], "devices must be a whole number >= 1, got 0"),
    (["digits", "--devices", "2000"], "2,000 devices with one each need 2,000 samples, got 1,437"),
    (
        ["digits", "--devices", "20", "--samples-per-device", "72"],
        "20 devices with 72 each need 1,440 samples, got 1,437",
    ),
    (["digits", "--seed", "-1"], "training.seed must be a whole number >= 0, got -1"),
    (["digits", "--plot", "labels.gif"], "must end in .png, .svg or .pdf"),
    (["--alpha", "0.3"], "--alpha needs the NAME of a data set, got 0.3 alone"),
    (["--plot", "labels.png"], "--plot needs the NAME"),
    (["--samples-per-device", "3"], "--samples-per-device needs the NAME"),
]


@pytest.mark.parametrize(
    ("words", "message"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES]
)
def test_a_mistake_is_one_line_and_exit_code_2(run, words, message):
    code, out, err = run("data", *words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert message in err


def test_the_plot_format_is_checked_before_a_download(run, published, tmp_path):
    code, _, err = run("data", "mnist", "--data", tmp_path / "data", "--plot", "labels.gif")
    assert (code, len(err.splitlines())) == (2, 1)
    assert not (tmp_path / "data").exists()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_a_line_per_quarter_without_a_terminal():
    stream = io.StringIO()
    with show_progress(stream) as progress:
        for done in range(0, 1001, 10):
            progress(done, 1000)
    assert stream.getvalue().splitlines() == [
        f"airsplit: {done} of 1.00 kB" for done in ("0 B", "250 B", "500 B", "750 B", "1.00 kB")
    ]


def test_progress_is_one_line_on_a_terminal_even_if_it_fails():
    stream = Terminal()
    with pytest.raises(KeyError), show_progress(stream) as progress:  # noqa: PT012 - progress is part of what fails
        progress(10, 1000)
        raise KeyError
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().startswith("\rairsplit: 10.0 B of 1.00 kB")
