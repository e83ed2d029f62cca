"""HTML, escaped by construction: text is escaped when it enters an element."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

# Control characters and lone surrogates, which no HTML document may contain.
_NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# The space between a number and its unit.
_UNIT_SPACE = re.compile(r"(?<=\d) (?=%|[nµmkMGTPE]?(?:s|B|J|MAC)\b)")
# Elements without content. XHTML's slash lets tests parse pages as XML.
_VOID = ("meta", "link", "rect", "line", "path", "polyline", "polygon", "circle", "br")


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(text: object) -> Html:
    """Return text as HTML; text that is HTML already is not changed.

    >>> escape("<b>"), escape(tag("b", "x & y")), escape("a\\x00b")
    ('&lt;b&gt;', '<b>x &amp; y</b>', 'a�b')
    """
    if isinstance(text, Html):
        return text
    return Html(html.escape(_NOT_TEXT.sub("\N{REPLACEMENT CHARACTER}", str(text))))


def tag(element: str, *inside: object, **attributes: object) -> Html:
    """Return an element.

    Attributes drop a trailing underscore, turn others into hyphens, and are left out if None.

    >>> tag("p", "1 < 2", class_="note", aria_label='"', id=None)
    '<p class="note" aria-label="&quot;">1 &lt; 2</p>'
    """
    opening = element
    for key, value in attributes.items():
        if value is not None:
            opening += f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
    if element in _VOID:
        return Html(f"<{opening} />")
    return Html(f"<{opening}>{join(*inside)}</{element}>")


def join(*parts: object) -> Html:
    """Return the parts one after another."""
    return Html("".join(map(escape, parts)))


def paragraph(text: str, kind: str | None = None) -> Html:
    """Return a paragraph in which a number and its unit stay on one line.

    >>> paragraph("in 3 s") == "<p>in 3\N{NO-BREAK SPACE}s</p>"
    True
    """
    return tag("p", _UNIT_SPACE.sub("\N{NO-BREAK SPACE}", text), class_=kind)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, words: Sequence[str] = ()
) -> Html:
    """Return a table that scrolls on its own if it is too wide.

    Columns are numbers, aligned to the right, unless they are among `words`.
    """
    kinds = ["word" if column in words else None for column in columns]
    head = [
        tag("th", column, scope="col", class_=kind)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    body = (
        tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in rows
    )
    # Focusable, so that a keyboard can scroll it.
    content = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body))
    return tag("div", content, class_="scroll", tabindex=0)


def details(summary: str, *inside: object) -> Html:
    """Return content that is folded away below its summary."""
    return tag("details", tag("summary", summary), *inside)


def name(text: str) -> Html:
    """Return a name from a user, isolated because it may be written from right to left."""
    return tag("bdi", text)
