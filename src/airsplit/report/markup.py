"""HTML, escaped by construction: a text is escaped on its way into an element unless an element made it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_NO_TEXT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
)  # control characters and halves of characters
_UNIT = re.compile(r"(?<=\d) (?=%|[nµmkMGTPE]?(?:s|B|J|MAC)\b)")
_EMPTY = ("meta", "link", "rect", "line", "path", "polyline", "polygon", "circle", "br")


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(text: object) -> Html:
    """
    >>> escape("<b>"), escape(tag("b", "x & y")), escape("a\\x00b")
    ('&lt;b&gt;', '<b>x &amp; y</b>', 'a�b')
    """
    return (
        text
        if isinstance(text, Html)
        else Html(html.escape(_NO_TEXT.sub("\N{REPLACEMENT CHARACTER}", str(text))))
    )


def tag(element: str, *inside: object, **attributes: object) -> Html:
    """An element.  A last underscore of an attribute's name is dropped, others are hyphens; None leaves it out.

    >>> tag("p", "1 < 2", class_="note", aria_label='"', id=None)
    '<p class="note" aria-label="&quot;">1 &lt; 2</p>'
    """
    named = {
        name.rstrip("_").replace("_", "-"): value
        for name, value in attributes.items()
        if value is not None
    }
    opening = element + "".join(f' {name}="{escape(value)}"' for name, value in named.items())
    return Html(
        f"<{opening} />" if element in _EMPTY else f"<{opening}>{together(*inside)}</{element}>"
    )


def together(*parts: object) -> Html:
    """One after the other."""
    return Html("".join(map(escape, parts)))


def prose(text: str, kind: str | None = None) -> Html:
    """A paragraph in which a number and its unit stay on one line.

    >>> prose("in 3 s") == "<p>in 3\N{NO-BREAK SPACE}s</p>"
    True
    """
    return tag("p", _UNIT.sub("\N{NO-BREAK SPACE}", text), class_=kind)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, words: Sequence[str] = ()
) -> Html:
    """A table that scrolls by itself where it is too wide.  Columns are numbers, set right, unless they are words."""
    kinds = ["word" if column in words else None for column in columns]
    head = tag(
        "tr",
        *(
            tag("th", column, scope="col", class_=kind)
            for column, kind in zip(columns, kinds, strict=True)
        ),
    )
    body = (
        tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in rows
    )
    return tag(
        "div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll", tabindex=0
    )


def folded(summary: str, *inside: object) -> Html:
    """What is shown when asked for."""
    return tag("details", tag("summary", summary), *inside)


def name(text: str) -> Html:
    """A name that somebody else gave, in whichever direction it is written."""
    return tag("bdi", text)
