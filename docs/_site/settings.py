"""Write the tables of docs/scenarios.md: every setting with its default, rule and meaning.

They come from the package, where each setting is declared. A test compares; after a change of a
setting run `python docs/_site/settings.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airsplit.core.declared_settings import Setting
from airsplit.scenario.settings import SECTIONS

PAGE = Path(__file__).parents[1] / "scenarios.md"
BEGIN = "<!-- Written by docs/_site/settings.py -->"
END = "<!-- End of the settings -->"


def update_page(page: str) -> str:
    """Return the page with the tables of today's settings."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n" + "\n".join(setting_tables()) + f"\n{END}{after}"


def setting_tables() -> Iterator[str]:
    """Yield the lines of one table for each section."""
    for table, section in SECTIONS.items():
        summary = (section.__doc__ or "").partition("\n\n")[0]
        yield f"\n### [{table}]\n\n{' '.join(summary.split())}\n"
        yield "| setting | default | value | meaning |\n|---|---|---|---|"
        for name, setting in section.declarations().items():
            cells = (f"`{name}`", format_default(setting.default), format_rule(setting))
            yield f"| {' | '.join(cells)} | {setting.help.replace('|', chr(92) + '|')} |"


def format_default(value: Any) -> str:
    """Return a default as TOML has it; nothing for one that is not set.

    >>> format_default(20e6), format_default((2e-10, 1e-9)), format_default(None)
    ('`2e7`', '`[2e-10, 1e-9]`', '')
    """
    if value is None or value == {}:
        return ""
    if not isinstance(value, str | bool | int | float | tuple):
        return "required"
    return f"`{_format_value(value)}`"


def _format_value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    if isinstance(value, float) and not 1e-3 <= abs(value) < 1e5 and value != 0:
        return re.sub(r"e([+-])0*", r"e\1", f"{value:g}").replace("e+", "e")
    return json.dumps(value)


def format_rule(setting: Setting) -> str:
    """Return what a setting takes, and its unit."""
    words = "" if setting.rule is None else setting.rule.words
    return f"{words}; {setting.unit}" if setting.unit else words


if __name__ == "__main__":
    PAGE.write_text(update_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
