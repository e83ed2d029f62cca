"""The built-in data sets: what is in them, where they were published, where their files are kept.

No torch and no numpy here, so that commands can list data sets quickly.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airsplit.core.errors import require_choice
from airsplit.system.inputs import Shape

# Class names, in the order of their numbers.
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
    """Metadata of a built-in data set.

    Attributes:
        title: Its name in figures.
        shape: Channels, height and width of an image as stored.
        train: Number of training images.
        test: Number of test images.
        mean: Mean of each channel of the training images, if white is 1.
        std: Standard deviation of each channel.
        labels: Name of each class.
        white: Stored value of a white pixel; background is 0.
        files: Path in the data folder → file as published. Empty if scikit-learn has the data.
        url: Web folder with these files, each under its name, or with the archive.
        archive: Name of the .tar.gz that has the files under their paths, and its length and MD5.
    """

    title: str
    shape: Shape
    train: int
    test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    labels: tuple[str, ...] = DIGITS
    white: int = 255
    files: Mapping[str, DataFile] = field(default_factory=dict)
    url: str = ""
    archive: tuple[str, DataFile] | None = None


def _declare_idx_files(
    folder: str, md5_and_size: Mapping[str, tuple[str, int]]
) -> dict[str, DataFile]:
    return {
        f"{folder}/raw/{name}-ubyte.gz": DataFile(md5, size)
        for name, (md5, size) in md5_and_size.items()
    }


MNIST_FILES = _declare_idx_files(
    "MNIST",
    {
        "train-images-idx3": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        "train-labels-idx1": ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        "t10k-images-idx3": ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        "t10k-labels-idx1": ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    },
)
FASHION_FILES = _declare_idx_files(
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

IMAGE_SETS = {
    "digits": ImageSet(
        title="digits",
        shape=(1, 8, 8),
        train=1437,
        test=360,
        # Computed from the training images of our own split; see the tests. Mean and std of the
        # other sets are the published ones.
        mean=(0.3050,),
        std=(0.3760,),
        white=16,
    ),
    "mnist": ImageSet(
        title="MNIST",
        shape=(1, 28, 28),
        train=60_000,
        test=10_000,
        mean=(0.1307,),
        std=(0.3081,),
        files=MNIST_FILES,
        # PyTorch's mirror: the original site turns downloads away.
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    "fashion-mnist": ImageSet(
        title="Fashion-MNIST",
        shape=(1, 28, 28),
        train=60_000,
        test=10_000,
        mean=(0.2860,),
        std=(0.3530,),
        labels=CLOTHES,
        files=FASHION_FILES,
        # There is no https at this address; the MD5 of each file is checked.
        url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    "cifar10": ImageSet(
        title="CIFAR-10",
        shape=(3, 32, 32),
        train=50_000,
        test=10_000,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        labels=THINGS,
        files=CIFAR_FILES,
        url="https://www.cs.toronto.edu/~kriz/",
        archive=(
            "cifar-10-python.tar.gz",
            DataFile("c58f30108f718f92721af3b95e74349a", 170_498_071),
        ),
    ),
}


def get_image_set(name: str) -> ImageSet:
    """Return a built-in data set; raise for an unknown name, with the nearest one.

    >>> get_image_set("cifar10").shape
    (3, 32, 32)
    """
    return IMAGE_SETS[require_choice("training.dataset", name, IMAGE_SETS)]


def find_data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder with the data files.

    That is `folder` if given, else AIRSPLIT_DATA, else airsplit/data in the user's cache folder.

    >>> find_data_folder("/data").as_posix()
    '/data'
    """
    if folder is None:
        # An empty variable counts as unset.
        folder = os.environ.get("AIRSPLIT_DATA") or None
    if folder is None:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        folder = Path(cache, "airsplit", "data")
    return Path(folder).expanduser()


def find_missing_files(name: str, folder: str | os.PathLike[str] | None = None) -> list[str]:
    """Return the files that are missing or have another length; quick, since none is read.

    >>> find_missing_files("digits")
    []
    """
    root = find_data_folder(folder)
    missing = []
    for path, published in get_image_set(name).files.items():
        try:
            is_there = (root / path).stat().st_size == published.size_bytes
        except OSError:
            # Missing, or in a folder that cannot be read.
            is_there = False
        if not is_there:
            missing.append(path)
    return missing
