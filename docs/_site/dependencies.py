"""Which packages Airsplit brings along, under which licences: python docs/_site/dependencies.py writes docs/dependencies.md.

It reads what is installed, so it must run where all extras are: `make audit`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PARTS = {
    "": "Always",
    "network": "With `[network]`",
    "dashboard": "With `[dashboard]`",
    "dev": "Only to work on Airsplit: `[dev]`",
    "docs": "Only to build the site: `[docs]`",
}
TEXTS = {
    "BSD License": "BSD", "MIT License": "MIT", "Apache Software License": "Apache-2.0", "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0", "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}  # fmt: skip


def licence(package: metadata.Distribution) -> str:
    """As the package says it: an expression, else a classifier, else the first line of what it wrote."""
    about = package.metadata
    if about.get("License-Expression"):
        return about["License-Expression"]
    named = [
        line.rsplit(" :: ", 1)[-1]
        for line in about.get_all("Classifier", [])
        if line.startswith("License :: ")
    ]
    named = [TEXTS.get(each, each) for each in named if each != "OSI Approved"]
    return ", ".join(named) or (about.get("License") or "not said").strip().splitlines()[0]


def needed(package: str, extra: str = "") -> Iterator[str]:
    """What a package needs directly, on this machine."""
    for line in metadata.requires(package) or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield canonicalize_name(requirement.name)


def brought(names: Iterable[str], known: set[str]) -> set[str]:
    """These packages and all that they need, but for what is known."""
    found, open_ = set[str](), [name for name in names if name not in known]
    while open_:
        name = open_.pop()
        if name in found | known:
            continue
        try:
            more = list(needed(name))
        except metadata.PackageNotFoundError:
            continue  # of another platform
        found.add(name)
        open_ += more
    return found


def page() -> Iterator[str]:
    yield "# Dependencies\n"
    yield ABOUT
    known = {"airsplit"}
    for extra, title in PARTS.items():
        direct = set(needed("airsplit", extra)) - (set(needed("airsplit")) if extra else set())
        found = brought(direct, known)
        yield f"## {title}\n\n| package | version | licence |\n|---|---|---|"
        for name in sorted(found):
            package = metadata.distribution(name)
            shown = (
                f"**{package.metadata['Name']}**" if name in direct else package.metadata["Name"]
            )
            yield f"| {shown} | {re.sub(r'[+].*', '', package.version)} | {licence(package)} |"
        yield ""
        known |= found
    yield VULNERABILITIES


ABOUT = """What each part of Airsplit brings along, directly (bold) and behind that, with the versions that the tests are run
with and the licences that the packages state. Airsplit itself is Apache-2.0; it ships one library, Apache ECharts (Apache-2.0,
with parts of d3 under BSD-3-Clause), for the dashboard. `make audit` writes this page anew and asks for known vulnerabilities.
"""
VULNERABILITIES = """## Known vulnerabilities

`make audit` asks the advisory database of the Python packaging index, by way of pip-audit, about every pinned version in
`constraints.txt`, and fails where it knows of one, or where it cannot say. The database could not be reached from where this
page was last written, so **no result is claimed here**: run it before you deploy. What limits the damage meanwhile: of what
Airsplit brings, only grpcio, protobuf, cryptography, starlette, uvicorn and what stands behind these meet bytes from a network;
pillow, matplotlib and Jinja2 meet only what Airsplit itself gives to them."""


if __name__ == "__main__":
    (ROOT / "docs" / "dependencies.md").write_text("\n".join(page()) + "\n", encoding="utf-8")
