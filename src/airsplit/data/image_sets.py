"""The built-in data sets: what their images are, which files hold them, and where these lie.  No torch here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airsplit.core.errors import require_choice
from airsplit.system.inputs import Shape

DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class DataFile:
    """One file as it was published."""

    md5: str
    size_bytes: int


@dataclass(frozen=True)
class ImageSet:
    """What is known of a data set before it is read.

    title      its name as figures write it
    shape      channels, height, width of an image as stored
    train      how many images there are to train on, and in `test` to test on
    brightest  the value of a white pixel; background is 0
    mean, std  of each channel of the training images, where a white pixel is 1
    labels     the name of each class
    files      path in the data folder: the file that was published
    """

    title: str
    shape: Shape
    train: int
    test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    labels: tuple[str, ...] = DIGITS
    brightest: int = 255
    files: Mapping[str, DataFile] = field(default_factory=dict)


def _idx_files(folder: str, md5_and_size: Mapping[str, tuple[str, int]]) -> dict[str, DataFile]:
    return {
        f"{folder}/raw/{name}-ubyte.gz": DataFile(*known) for name, known in md5_and_size.items()
    }


MNIST_FILES = _idx_files(
    "MNIST",
    {
        "train-images-idx3": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        "train-labels-idx1": ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        "t10k-images-idx3": ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        "t10k-labels-idx1": ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    },
)
FASHION_FILES = _idx_files(
    "FashionMNIST",
    {
        "train-images-idx3": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
        "train-labels-idx1": ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
        "t10k-images-idx3": ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
        "t10k-labels-idx1": ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
    },
)
CIFAR_FILES = {
    "cifar-10-batches-py/data_batch_1": DataFile("c99cafc152244af753f735de768cd75f", 31_035_704),
    "cifar-10-batches-py/data_batch_2": DataFile("d4bba439e000b95fd0a9bffe97cbabec", 31_035_320),
    "cifar-10-batches-py/data_batch_3": DataFile("54ebc095f3ab1f0389bbae665268c751", 31_035_999),
    "cifar-10-batches-py/data_batch_4": DataFile("634d18415352ddfa80567beed471001a", 31_035_696),
    "cifar-10-batches-py/data_batch_5": DataFile("482c414d41f54cd18b22e5b47cb7c3cb", 31_035_623),
    "cifar-10-batches-py/test_batch": DataFile("40351d587109b95175f43aff81a1287e", 31_035_526),
    "cifar-10-batches-py/batches.meta": DataFile("5ff9c542aee3614f3951f8cda6e48888", 158),
}

# mean and std of digits are those of its 1,437 training images, see the tests; the others are the published ones
IMAGE_SETS = {
    "digits": ImageSet("digits", (1, 8, 8), 1437, 360, (0.3050,), (0.3760,), brightest=16),
    "mnist": ImageSet(
        "MNIST", (1, 28, 28), 60_000, 10_000, (0.1307,), (0.3081,), files=MNIST_FILES
    ),
    "fashion-mnist": ImageSet(
        "Fashion-MNIST",
        (1, 28, 28),
        60_000,
        10_000,
        (0.2860,),
        (0.3530,),
        CLOTHES,
        files=FASHION_FILES,
    ),
    "cifar10": ImageSet(
        "CIFAR-10",
        (3, 32, 32),
        50_000,
        10_000,
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
        THINGS,
        files=CIFAR_FILES,
    ),
}


def get_image_set(name: str) -> ImageSet:
    """
    >>> get_image_set("cifar10").shape
    (3, 32, 32)
    """
    return IMAGE_SETS[require_choice("training.dataset", name, IMAGE_SETS)]


def find_data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Where data files lie: `folder`, else what AIRSPLIT_DATA says, else airsplit/data in the user's cache folder.

    >>> find_data_folder("/data").as_posix()
    '/data'
    """
    if folder is not None:
        return Path(folder).expanduser()
    said = os.environ.get("AIRSPLIT_DATA")
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(said) if said else Path(cache, "airsplit", "data")).expanduser()


def find_missing_files(name: str, folder: str | os.PathLike[str] | None = None) -> list[str]:
    """The files that are not there, or not there in full length: quick, since none is read.

    >>> find_missing_files("digits")
    []
    """
    where = find_data_folder(folder)
    return [
        path
        for path, known in get_image_set(name).files.items()
        if _size_bytes(where / path) != known.size_bytes
    ]


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
