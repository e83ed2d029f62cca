"""What is in the packages that are published: python tests/packages.py DIST, as `make wheel` does it.  Not collected by pytest."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXPLAINED = {
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "constraints.txt",
}
MADE_FROM = {"PKG-INFO", "pyproject.toml", ".gitignore"}  # the last at hatchling's own wish


def tracked(folder: str) -> set[str]:
    """The files of a folder that git knows."""
    listed = subprocess.run(
        ["git", "ls-files", folder], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return set(listed.stdout.split())


def differences(found: set[str], wanted: set[str]) -> list[str]:
    missing, more = sorted(wanted - found), sorted(found - wanted)
    return [f"is not there: {name}" for name in missing] + [
        f"should not be there: {name}" for name in more
    ]


def check_wheel(file: Path) -> list[str]:
    """The package as it is in src, and what installers need to know of it."""
    with zipfile.ZipFile(file) as wheel:
        names = set(wheel.namelist())
    about = f"{'-'.join(file.name.split('-')[:2])}.dist-info"
    code = {name.removeprefix("src/") for name in tracked("src/airsplit")}
    known = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    return differences(names, code | {f"{about}/{each}" for each in known})


def check_source(file: Path) -> list[str]:
    """The code, and the pages that explain it."""
    with tarfile.open(file) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    return differences(names, tracked("src/airsplit") | EXPLAINED | MADE_FROM)


def main(dist: Path) -> int:
    (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    wrong = {wheel.name: check_wheel(wheel), source.name: check_source(source)}
    for name, lines in wrong.items():
        for line in lines:
            print(f"{name}: {line}")
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
