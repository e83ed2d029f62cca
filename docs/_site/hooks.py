"""Pages of the site that are not in docs: README and the like, results, examples, command help.

Pages link to each other by their paths in the repository, so that the links work there, too. Here
they become links within the site.
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
LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)#\s]+)")

# Paths in the repository whose page on the site has another name.
SITE_NAMES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "LICENSE": "license.md",
    "examples": "examples.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages from outside docs, and every file that a page links to."""

    def add(name: str, content: str) -> None:
        files.append(File.generated(config, name, content=content))

    for path in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        add(site_path(path), (ROOT / path).read_text(encoding="utf-8"))
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    add(site_path("LICENSE"), f"# License\n\n```text\n{text}```\n")
    add(site_path("examples"), "\n".join(example_sections()))
    add("commands.md", "\n".join(command_sections()))
    for page in sorted((ROOT / "benchmarks" / "results").rglob("*.md")):
        add_file(files, config, page.relative_to(ROOT).as_posix())

    for page in list(files.documentation_pages()):
        for target in LINK.findall(page.content_string):
            path = repository_path(page.src_uri, target)
            if (ROOT / path).is_file() and files.get_file_from_path(site_path(path)) is None:
                add_file(files, config, path)
    return files


def add_file(files: Files, config: MkDocsConfig, path: str) -> None:
    """Add a file of the repository to the site."""
    files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))


def on_page_markdown(
    markdown: str,
    page: Page,
    config: MkDocsConfig,  # noqa: ARG001 - the signature that mkdocs calls
    files: Files,  # noqa: ARG001
) -> str:
    """Replace links to paths in the repository by links within the site."""
    folder = posixpath.dirname(page.file.src_uri) or "."

    def replace_link(match: re.Match[str]) -> str:
        path = repository_path(page.file.src_uri, match[1])
        if not (ROOT / path).exists():
            return match[1]
        return posixpath.relpath(site_path(path), folder)

    return LINK.sub(replace_link, markdown)


def site_path(path: str) -> str:
    """Return where a file of the repository is on the site."""
    return SITE_NAMES.get(path, path.removeprefix("docs/"))


def repository_path(page: str, target: str) -> str:
    """Return the file of the repository that a page of the site links to."""
    repository_names = {name: path for path, name in SITE_NAMES.items()}
    default = page if page.startswith("benchmarks/") else f"docs/{page}"
    source = repository_names.get(page, default)
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def example_sections() -> Iterator[str]:
    """Yield a section for each example, with its docstring."""
    yield "# Examples\n\nScripts of under 40 lines; the tests run each of them."
    for file in sorted((ROOT / "examples").glob("*.py")):
        text = file.read_text(encoding="utf-8")
        title = file.stem.replace("_", " ").capitalize()
        docstring = ast.get_docstring(ast.parse(text)) or file.stem
        yield f"\n## {title}\n\n{docstring}\n"
        yield f'```python title="examples/{file.name}"\n{text}```'


def command_sections() -> Iterator[str]:
    """Yield the help of each command, as the command prints it."""
    # typer reads the width when it is imported.
    os.environ["COLUMNS"] = "100"
    os.environ["TERMINAL_WIDTH"] = "100"
    import click
    import typer

    from airsplit.cli.app import app

    def sections(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
        context = click.Context(command, info_name=name, parent=parent, max_content_width=100)
        heading = "##" if parent is None or parent.parent is None else "###"
        yield f"\n{heading} {context.command_path}\n\n```text\n{command.get_help(context)}\n```"
        for child_name, child in getattr(command, "commands", {}).items():
            yield from sections(child, child_name, context)

    yield "# Commands\n\nOutput of `airsplit COMMAND --help`."
    yield from sections(typer.main.get_command(app), "airsplit", None)
