"""Settings: fields and arguments that carry their own rule, default and help.

A field declares its rule in its type, `bandwidth_hz: Annotated[float, number(above=0)] = 20e6`, and
its help in the class's docstring. Constructors check values by it, the tables of a scenario take
default and rule from it, and the documentation lists it. The unit is the end of the name.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from airsplit.core.errors import (
    InvalidValue,
    format_range,
    require_choice,
    require_integer,
    require_number,
    show,
)
from airsplit.core.plugins import require_choice_or_path

P = ParamSpec("P")
R = TypeVar("R")

CODE_PATH = '"package.module:name"'


@dataclass(frozen=True)
class Rule:
    """A rule for the value of a setting.

    Attributes:
        words: The rule as the documentation prints it.
        check: Called with the name of the setting and a value; raises if it breaks the rule. None
            if only the use of the value shows whether it is right.
    """

    words: str
    check: Callable[[str, Any], object] | None = None


def number(
    *,
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
    below: float | None = None,
    word: str | None = None,
) -> Rule:
    """Return the rule of one finite number in a range, or of one word instead.

    >>> number(above=0, below=1).words, number(low=0, word="counted").words
    ('number > 0 and < 1', 'number >= 0, or "counted"')
    """
    words = f"number {format_range(above, low, high, below)}".rstrip()
    hint = ""
    if word is not None:
        words += f', or "{word}"'
        hint = f'; or write "{word}"'

    def check(field: str, value: object) -> None:
        if word is None or value != word:
            require_number(field, value, above=above, low=low, high=high, below=below, hint=hint)

    return Rule(words, check)


def whole_number(*, low: int, high: int | None = None) -> Rule:
    """Return the rule of a whole number in a range.

    >>> whole_number(low=1).words, whole_number(low=1, high=64).words
    ('whole number >= 1', 'whole number from 1 to 64')
    """
    words = f"whole number >= {low}"
    if high is not None:
        words = f"whole number from {low} to {high:,}"
    return Rule(words, functools.partial(require_integer, low=low, high=high))


def one_of(known: Collection[str], *, or_path: bool = False) -> Rule:
    """Return the rule of one of several names; with `or_path`, code by path is valid, too.

    >>> one_of(("max", "min")).words, one_of(("digits",), or_path=True).words
    ('"max", "min"', '"digits", or "package.module:name"')
    """
    words = ", ".join(f'"{name}"' for name in known)
    if not or_path:
        return Rule(words, functools.partial(require_choice, known=known))
    return Rule(f"{words}, or {CODE_PATH}", functools.partial(require_choice_or_path, known=known))


def flag() -> Rule:
    """Return the rule of a truth value."""

    def check(field: str, value: object) -> None:
        # Not truthiness: a number is a mistake, such as a rate in place of a switch.
        if not isinstance(value, bool):
            raise InvalidValue(f"{field} must be True or False, got {show(value)}")

    return Rule("true or false", check)


@dataclass(frozen=True)
class Setting:
    """A field of a dataclass, or an argument of a function.

    Attributes:
        type: Its type, without the rule.
        default: Default value; `dataclasses.MISSING` if it must be given.
        help: Its meaning, from the docstring of the class or function.
    """

    name: str
    type: Any
    default: Any
    rule: Rule | None
    help: str

    @property
    def unit(self) -> str:
        """The unit that ends the name; "" without one.

        >>> names = ("carrier_hz", "seconds_per_mac", "alpha")
        >>> [Setting(name, float, 0.0, None, "").unit for name in names]
        ['Hz', 's/MAC', '']
        """
        for suffix, unit in UNITS.items():
            if self.name.endswith(suffix):
                return unit
        return ""

    def check(self, field: str, value: object) -> None:
        """Raise if a value breaks the rule."""
        if self.rule is None or self.rule.check is None:
            return
        # The rule of an optional setting says nothing about None, which its type allows.
        if value is not None or NoneType not in get_args(self.type):
            self.rule.check(field, value)


# Units by the ending of a setting's name. The first match counts, so longer endings come first.
UNITS = {
    "seconds_per_mac": "s/MAC",
    "joules_per_mac": "J/MAC",
    "_dbm_per_hz": "dBm/Hz",
    "_dbm": "dBm",
    "_hz": "Hz",
    "_bits": "bit",
    "_bytes": "byte",
    "_m": "m",
    "_s": "s",
}


@functools.cache
def read_settings(owner: Callable[..., Any]) -> dict[str, Setting]:
    """Return the settings that a dataclass or a function declares, by name.

    >>> @dataclass
    ... class Radio:
    ...     '''A radio.
    ...
    ...     Attributes:
    ...         carrier_hz: Carrier frequency.
    ...     '''
    ...
    ...     carrier_hz: Annotated[float, number(above=0)] = 2e9
    >>> setting = read_settings(Radio)["carrier_hz"]
    >>> setting.default, setting.rule.words, setting.unit, setting.help
    (2000000000.0, 'number > 0', 'Hz', 'Carrier frequency.')
    """
    helps = parse_helps(inspect.getdoc(owner) or "")
    hints = get_type_hints(owner, include_extras=True)
    return {
        name: make_setting(name, hints[name], default, helps.get(name, ""))
        for name, default in _read_defaults(owner).items()
        if name in hints
    }


def make_setting(name: str, hint: Any, default: Any, help: str) -> Setting:
    """Return a setting of an annotated type."""
    rule = None
    if get_origin(hint) is Annotated:
        # Annotated may hold validators of pydantic as well.
        rule = next((part for part in hint.__metadata__ if isinstance(part, Rule)), None)
        hint = hint.__origin__
    return Setting(name, hint, default, rule, help)


def _read_defaults(owner: Callable[..., Any]) -> dict[str, Any]:
    """Return the defaults of a dataclass's fields or a function's arguments, by name."""
    defaults: dict[str, Any] = {}
    if is_dataclass(owner):
        for field in fields(owner):
            if not field.init:
                continue
            defaults[field.name] = field.default
            if field.default_factory is not MISSING:
                defaults[field.name] = field.default_factory()
        return defaults

    for name, parameter in inspect.signature(owner).parameters.items():
        defaults[name] = parameter.default
        # inspect has its own value for "no default".
        if parameter.default is parameter.empty:
            defaults[name] = MISSING
    return defaults


def parse_helps(docstring: str) -> dict[str, str]:
    """Return the entries of a Google docstring's "Args:" or "Attributes:", each on one line.

    >>> parse_helps("Do it.\\n\\nArgs:\\n    rate: Twice\\n        a day.\\n    seed: Any.\\n")
    {'rate': 'Twice a day.', 'seed': 'Any.'}
    """
    # The section goes on over blank lines, to the next line that is not indented.
    section = re.search(
        r"^(?:Args|Attributes):\n((?:(?: +.*)?(?:\n|\Z))+)", docstring, re.MULTILINE
    )
    if section is None:
        return {}
    # An entry goes on over lines that are indented more deeply.
    entries = re.findall(r"^    (\w+(?:, \w+)*): (.*(?:\n     +.*)*)", section[1], re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def check_settings(table: str, owner: Callable[..., Any], values: Mapping[str, object]) -> None:
    """Raise if one of the values breaks the rule that `owner` declares for its name."""
    for name, setting in read_settings(owner).items():
        if name in values:
            setting.check(f"{table}.{name}" if table else name, values[name])


def check_arguments(table: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that checks the arguments of a function by the rules in their types.

    Args:
        table: Prefix of the arguments' names in errors.

    >>> @check_arguments("fleet")
    ... def draw(devices: Annotated[int, whole_number(low=1)]) -> int:
    ...     return devices
    >>> draw(0)
    Traceback (most recent call last):
    ...
    airsplit.core.errors.InvalidValue: fleet.devices must be a whole number >= 1, got 0
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        # Once, since it takes longer than the call of a small function.
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            check_settings(table, function, signature.bind(*args, **kwargs).arguments)
            return function(*args, **kwargs)

        return call

    return decorate
