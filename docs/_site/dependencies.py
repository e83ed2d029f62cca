"""Write docs/dependencies.md: the packages that Airsplit installs, and their licenses.

Reads what is installed, so all extras must be: `make audit` runs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
EXTRAS = {
    "": "Always",
    "network": "With `[network]`",
    "dashboard": "With `[dashboard]`",
    "dev": "Only to work on Airsplit: `[dev]`",
    "docs": "Only to build the site: `[docs]`",
}
SHORT_NAMES = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


def package_license(package: metadata.Distribution) -> str:
    """Return a package's license: its expression, else its classifiers, else its first line."""
    fields = package.metadata
    if fields.get("License-Expression"):
        return fields["License-Expression"]
    names = [
        line.rsplit(" :: ", 1)[-1]
        for line in fields.get_all("Classifier", [])
        if line.startswith("License :: ")
    ]
    names = [SHORT_NAMES.get(name, name) for name in names if name != "OSI Approved"]
    return ", ".join(names) or (fields.get("License") or "not stated").strip().splitlines()[0]


def direct_dependencies(package: str, extra: str = "") -> Iterator[str]:
    """Yield the packages that a package needs directly on this machine."""
    for line in metadata.requires(package) or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield canonicalize_name(requirement.name)


def all_dependencies(names: Iterable[str], known: set[str]) -> set[str]:
    """Return these packages and all that they need, without the known ones."""
    result: set[str] = set()
    queue = list(names)
    while queue:
        name = queue.pop()
        if name in result | known:
            continue
        try:
            needed = list(direct_dependencies(name))
        except metadata.PackageNotFoundError:
            continue  # for another platform
        result.add(name)
        queue += needed
    return result


def page() -> Iterator[str]:
    """Yield the parts of the page."""
    yield "# Dependencies\n"
    yield INTRODUCTION
    known = {"airsplit"}
    base = set(direct_dependencies("airsplit"))
    for extra, title in EXTRAS.items():
        direct = set(direct_dependencies("airsplit", extra))
        if extra:
            direct -= base
        packages = all_dependencies(direct, known)
        yield f"## {title}\n\n| package | version | license |\n|---|---|---|"
        for name in sorted(packages):
            package = metadata.distribution(name)
            label = package.metadata["Name"]
            if name in direct:
                label = f"**{label}**"
            version = re.sub(r"[+].*", "", package.version)
            yield f"| {label} | {version} | {package_license(package)} |"
        yield ""
        known |= packages
    yield VULNERABILITIES


INTRODUCTION = """\
What each part of Airsplit installs, directly (bold) and indirectly, with the versions that the
tests run with and the licenses that the packages state. Airsplit itself is Apache-2.0; it includes
one library, Apache ECharts (Apache-2.0, with parts of d3 under BSD-3-Clause), for the dashboard.
`make audit` writes this page and looks up known vulnerabilities.
"""
VULNERABILITIES = """## Known vulnerabilities

`make audit` asks the advisory database of the Python Package Index, through pip-audit, about every
pinned version in `constraints.txt`, and fails if it knows of a vulnerability or cannot answer. The
database could not be reached when this page was last written, so **no result is claimed here**: run
it before you deploy. Until then, this limits the damage: of the installed packages, only grpcio,
protobuf, cryptography, starlette, uvicorn and their dependencies process bytes from a network;
pillow, matplotlib and Jinja2 process only what Airsplit itself passes to them."""


if __name__ == "__main__":
    (ROOT / "docs" / "dependencies.md").write_text("\n".join(page()) + "\n", encoding="utf-8")
