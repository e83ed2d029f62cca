"""What the site shows beside the pages of docs: the README and its like, measurements, examples, and the help of every command.

Pages link to each other by their places in the repository, so that they can be read there, too; here these links become links
within the site.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
NAMED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "LICENSE": "licence.md",
    "examples": "examples.md",
}
"""Where something in the repository is on the site, if its path does not say it."""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not in docs: whole pages, and every file that one of them links to."""
    for place in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        files.append(
            File.generated(
                config, site_path(place), content=(ROOT / place).read_text(encoding="utf-8")
            )
        )
    for page in sorted((ROOT / "benchmarks" / "results").rglob("*.md")):
        files.append(
            File.generated(config, page.relative_to(ROOT).as_posix(), abs_src_path=str(page))
        )
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    files.append(
        File.generated(config, "licence.md", content=f"# Licence\n\n```text\n{licence}```\n")
    )
    files.append(File.generated(config, "examples.md", content="\n".join(examples())))
    files.append(File.generated(config, "commands.md", content="\n".join(commands())))
    for file in list(files.documentation_pages()):
        for target in LINK.findall(file.content_string):
            place = repository_path(file.src_uri, target)
            if (ROOT / place).is_file() and files.get_file_from_path(site_path(place)) is None:
                files.append(
                    File.generated(config, site_path(place), abs_src_path=str(ROOT / place))
                )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - the shape of a hook
    """Links by places in the repository become links within the site."""
    here = page.file.src_uri

    def moved(match: re.Match[str]) -> str:
        place = repository_path(here, match[1])
        return (
            posixpath.relpath(site_path(place), posixpath.dirname(here) or ".")
            if (ROOT / place).exists()
            else match[1]
        )

    return LINK.sub(moved, markdown)


def site_path(place: str) -> str:
    """Where on the site something in the repository is."""
    return NAMED.get(place, place.removeprefix("docs/"))


def repository_path(page: str, target: str) -> str:
    """The place in the repository that a page of the site links to."""
    at_home = {there: place for place, there in NAMED.items()}
    place = at_home.get(page, page if page.startswith("benchmarks/") else f"docs/{page}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(place), target))


def examples() -> Iterator[str]:
    """Every example, under what it says of itself."""
    yield "# Examples\n\nScripts of under 40 lines; the tests run each of them."
    for file in sorted((ROOT / "examples").glob("*.py")):
        text = file.read_text(encoding="utf-8")
        said = ast.get_docstring(ast.parse(text)) or file.stem
        yield f'\n## {file.stem.replace("_", " ").capitalize()}\n\n{said}\n\n```python title="examples/{file.name}"\n{text}```'


def commands() -> Iterator[str]:
    """The help of every command, as the command prints it."""
    os.environ["COLUMNS"] = os.environ["TERMINAL_WIDTH"] = "100"
    import click
    import typer

    from airsplit.cli.app import app

    def help_of(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
        context = click.Context(command, info_name=name, parent=parent, max_content_width=100)
        heading = "##" if parent is None or parent.parent is None else "###"
        yield f"\n{heading} {context.command_path}\n\n```text\n{command.get_help(context)}\n```"
        for each, below in getattr(command, "commands", {}).items():
            yield from help_of(below, each, context)

    yield "# Commands\n\nWhat `airsplit COMMAND --help` prints."
    yield from help_of(typer.main.get_command(app), "airsplit", None)
