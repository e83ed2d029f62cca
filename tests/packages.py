"""Check the files in the wheel and the source package: python tests/packages.py DIST.

`make wheel` runs this; pytest does not collect it.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

# The files of the source package besides the code.
DOCUMENTS = {
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "constraints.txt",
}

# The files that hatchling adds; .gitignore is always among them.
BUILD_FILES = {"PKG-INFO", "pyproject.toml", ".gitignore"}


def list_tracked_files(folder: str) -> set[str]:
    """Return the files of a folder that git tracks."""
    result = subprocess.run(
        ["git", "ls-files", folder], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return set(result.stdout.split())


def compare_names(names: set[str], expected: set[str]) -> list[str]:
    """Return one complaint for each file that is missing or unexpected."""
    missing = [f"is not there: {name}" for name in sorted(expected - names)]
    unexpected = [f"should not be there: {name}" for name in sorted(names - expected)]
    return missing + unexpected


def check_wheel(file: Path) -> list[str]:
    """Compare a wheel with the package in src and the metadata for installers."""
    with zipfile.ZipFile(file) as wheel:
        names = set(wheel.namelist())
    code = {name.removeprefix("src/") for name in list_tracked_files("src/airsplit")}
    metadata_folder = f"{'-'.join(file.name.split('-')[:2])}.dist-info"
    metadata = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    return compare_names(names, code | {f"{metadata_folder}/{name}" for name in metadata})


def check_source(file: Path) -> list[str]:
    """Compare a source package with the code and its documents."""
    with tarfile.open(file) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    return compare_names(names, list_tracked_files("src/airsplit") | DOCUMENTS | BUILD_FILES)


def main(dist: Path) -> int:
    (wheel,) = dist.glob("*.whl")
    (source,) = dist.glob("*.tar.gz")
    complaints = {wheel.name: check_wheel(wheel), source.name: check_source(source)}
    for name, lines in complaints.items():
        for line in lines:
            print(f"{name}: {line}")
    return 1 if any(complaints.values()) else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
