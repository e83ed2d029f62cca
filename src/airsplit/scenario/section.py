"""Section: one table of a scenario, with strict types, rules and one-line errors."""

from __future__ import annotations

import copy
import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError

from airsplit.core.declared_settings import Setting, make_setting, parse_helps, read_settings
from airsplit.core.errors import AirsplitError, InvalidValue, UnknownName, show
from airsplit.core.plugins import is_code_path

# Every table by its name, in the order of scenario.toml; a subclass of Section registers itself.
SECTIONS: dict[str, type[Section]] = {}

# The default of a setting that another class or function declares; pydantic reads it as "required".
INHERITED: Any = ...

# pydantic's types of errors, and the broken rule in our words.
_RULES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text in quotes",
    "tuple_type": "a list",
    "dict_type": "a table, e.g. { width = 0.25 }",
}


class Section(BaseModel):
    """One table of the TOML.

    None is the same as leaving a key out, and a setting that does not apply is None. A setting
    that is INHERITED takes default, rule and help from the field or argument of `source` that has
    its name; one with its own default takes only rule and help.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)
    table: ClassVar[str] = ""
    source: ClassVar[Callable[..., Any] | None] = None

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if cls.table:
            SECTIONS[cls.table] = cls
        if cls.source is None:
            return
        source = read_settings(cls.source)
        for name, field in cls.model_fields.items():
            if field.is_required():
                field.default = source[name].default
        # pydantic has compiled its validator from the fields as they were before.
        cls.model_rebuild(force=True)

    def __init__(self, /, **values: Any) -> None:
        # Drop None before pydantic sees it: it would count as set in model_fields_set.
        given = {key: value for key, value in values.items() if value is not None}
        inapplicable = self._require_applicable(given)
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise _translate(error, self.table) from None
        # The default of a setting that does not apply would mislead. The model is frozen, so this
        # goes around its __setattr__, which also keeps the key out of model_fields_set.
        for key in inapplicable:
            object.__setattr__(self, key, None)

        # pydantic has checked types; ranges and names are checked here, with the same words and the
        # same rules as in the constructors of value objects.
        for name, setting in self.declarations().items():
            setting.check(f"{self.table}.{name}", getattr(self, name))
        self.check()

    def _require_applicable(self, given: Mapping[str, Any]) -> dict[str, str]:
        """Raise if a key is unknown or does not apply; return the keys that do not apply."""
        inapplicable = self.inapplicable(given) | self.unused_arguments(given)
        for key in given:
            if key not in type(self).model_fields:
                raise unknown_key(self.table, key)

        wrong = [key for key in given if key in inapplicable]
        if not wrong:
            return inapplicable
        # One mistake often excludes several keys: name all that have the same reason.
        first = wrong[0]
        why = inapplicable[first]
        others = [f"{self.table}.{key}" for key in wrong[1:] if inapplicable[key] == why]
        likewise = ""
        if others:
            likewise = f"; likewise {', '.join(others)}"
        raise InvalidValue(f"{self.table}.{first} {why}, got {show(given[first])}{likewise}")

    @classmethod
    def inapplicable(cls, given: Mapping[str, Any]) -> dict[str, str]:  # noqa: ARG003
        """Return the settings that do not apply together with the given ones, and why."""
        return {}

    @classmethod
    def unused_arguments(cls, given: Mapping[str, Any]) -> dict[str, str]:
        """Return tables of arguments for something built in, and why they do not apply."""
        unused = {}
        for key in given:
            # "metric_arguments" are those of "metric"; "arguments" alone are the model's.
            owner = key.removesuffix("_arguments")
            if owner == key or owner not in cls.model_fields or not given[key]:
                continue
            if not is_code_path(given.get(owner, cls.model_fields[owner].default)):
                unused[key] = only_for_code(cls.table, owner)
        return unused

    def check(self) -> None:
        """Raise if values contradict each other, though each of them is valid."""

    @classmethod
    @functools.cache
    def declarations(cls) -> dict[str, Setting]:
        """Return every setting of the table with its rule, default and help."""
        hints = get_type_hints(cls, include_extras=True)
        helps = parse_helps(inspect.getdoc(cls) or "")
        source: dict[str, Setting] = {}
        if cls.source is not None:
            source = read_settings(cls.source)
        declarations = {}
        for name, field in cls.model_fields.items():
            default = field.get_default(call_default_factory=True)
            setting = make_setting(name, hints[name], default, helps.get(name, ""))
            if name in source:
                rule = setting.rule or source[name].rule
                setting = replace(setting, rule=rule, help=setting.help or source[name].help)
            declarations[name] = setting
        return declarations

    def given_settings(self) -> dict[str, Any]:
        """Return a copy of the settings that were given, without those left at their defaults."""
        # Deep, because callers change tables of arguments, which a frozen section still shares.
        return {key: copy.deepcopy(getattr(self, key)) for key in self.model_fields_set}

    def settings(self) -> dict[str, Any]:
        """Return every setting that applies, by its name."""
        return {
            key: getattr(self, key)
            for key in type(self).model_fields
            if getattr(self, key) is not None
        }


def belongs_to(
    table: str, key: str, given: Mapping[str, Any], owners: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings that apply only with another value of a key, and why.

    Args:
        owners: The value of `key` with which each of these settings applies.
    """
    value = given.get(key, SECTIONS[table].model_fields[key].default)
    return {
        setting: f'belongs to {table}.{key} = "{owner}", but that is {show(value)}; '
        "change one of them"
        for setting, owner in owners.items()
        if owner != value
    }


def only_for_code(table: str, key: str) -> str:
    """Return why a setting that only code by path uses does not apply."""
    return (
        f"is for a {key.replace('_', ' ')} of your own, "
        f'{table}.{key} = "package.module:function"; leave it out'
    )


def unknown_key(table: str, key: str) -> UnknownName:
    """Return an error that offers the nearest key, or the table that the key belongs to."""
    known: Collection[str] = SECTIONS
    field = f"[{key}]"
    prefix = ""
    owner = "A scenario"
    if table:
        known = SECTIONS[table].model_fields
        field = f"{table}.{key}"
        prefix = f"{table}."
        owner = f"[{table}]"

    matches = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    tables = [f"[{name}]" for name, section in SECTIONS.items() if key in section.model_fields]
    hint = "."
    # A key of another table was hardly meant to be a similar one of this table.
    if tables and not difflib.get_close_matches(key, matches, cutoff=0.9):
        hint = f"; it belongs to {' or '.join(tables)}."
    elif matches:
        hint = f"; did you mean {prefix}{matches[0]}?"
    return UnknownName(f"{field} is not a setting{hint} {owner} takes {', '.join(sorted(known))}")


def _translate(error: ValidationError, table: str) -> AirsplitError:
    """Return the first of pydantic's complaints as an error of ours."""
    # A missing model.name is reported only if nothing else is wrong.
    first = min(error.errors(include_url=False), key=lambda e: e["type"] == "missing")

    # A table within a scenario has raised an error of ours already, which pydantic has wrapped.
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, AirsplitError):
        return cause

    # Behind the key pydantic puts the index in a list or, where a setting may be of two types, the
    # type that it tried.
    field = f"{table}.{first['loc'][0]}".removeprefix(".") + "".join(
        f"[{part}]" for part in first["loc"][1:] if isinstance(part, int)
    )
    if first["type"] == "missing":
        return InvalidValue(
            'model.name must be given; write [model] and under it, e.g., name = "alexnet"'
        )
    if first["type"] == "model_type":
        return InvalidValue(
            f"{field} must be a table, got {show(first['input'])}; "
            f"write [{field}] and its keys under it"
        )
    rule = _RULES.get(first["type"], first["msg"])
    return InvalidValue(f"{field} must be {rule}, got {show(first['input'])}")
