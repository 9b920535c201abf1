# SPDX-License-Identifier: Apache-2.0
"""Program settings, declared once as fields of a frozen dataclass: each with its default, range, unit and help.

    @dataclass(frozen=True)
    class Config:
        max_images: int = setting(64, "Images of a prompt.", 0, 64)

        def __post_init__(self) -> None:
            check_settings(self)

The fields yield the command options (`add_arguments`, and specnav.cli.from_settings for typer), the command line of a
child process (`as_arguments`), the tables of the documentation (tests/docs) and all checks. Another program with the
same setting refers to it: `max_images: int = same_as(Config, "max_images")`.
"""

from __future__ import annotations

import argparse
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from specdec.errors import OptionsError

REQUIRED: Any = object()
"""In place of a default: the setting must be given."""
_KEY = "setting"
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    tuple: "a list",
}


@dataclass(frozen=True)
class Setting:
    """Metadata of a settings field.

    Attributes:
        help: One sentence for command help and documentation.
        low: Lower bound of a number; None: no bound.
        high: Upper bound of a number; None: no bound.
        choices: All allowed values.
        unit: Unit of the number.
        metavar: Placeholder for the value in help.
        flags: Command-line flags, if they differ from the field's name.
        shown: The default in words.
        read: Parses the value from text.
        positional: A positional argument instead of an option.
        name: The field's name; this and the following are filled in by `settings_of`.
        kind: The field's type.
        item: Type of the items of a tuple.
        optional: Whether None is allowed.
        default: The field's default.
    """

    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    metavar: str = ""
    flags: tuple[str, ...] = ()
    shown: str = ""
    read: Callable[[str], Any] | None = None
    positional: bool = False
    name: str = ""
    kind: type = str
    item: type = str
    optional: bool = False
    default: Any = REQUIRED

    @property
    def spellings(self) -> tuple[str, ...]:
        """The command-line flags; the first one is used for child processes."""
        return self.flags or ("--" + self.name.replace("_", "-"),)

    @property
    def stands_for(self) -> str | None:
        """The placeholder for its value in help; None: the parser's default."""
        return self.metavar or ("|".join(self.choices) if self.choices else self.unit.upper()) or None

    @property
    def shown_default(self) -> str:
        """The default, as shown in help."""
        if self.shown or self.default is REQUIRED:
            return self.shown
        if self.default in (None, "", ()):
            return "none"
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        if isinstance(self.default, tuple):
            return ",".join(map(str, self.default))
        return number(self.default) if isinstance(self.default, (int, float)) else str(self.default)

    @property
    def range(self) -> str:
        """The allowed range of a number; "" without bounds."""
        if self.low is None:
            return "" if self.high is None else f"at most {number(self.high)}"
        return (
            f"at least {number(self.low)}"
            if self.high is None
            else f"{number(self.low)} to {number(self.high)}"
        )

    @property
    def about(self) -> str:
        """Help text with default and range."""
        shown = "" if self.kind is bool and not self.default else self.shown_default
        if self.unit and not self.shown and isinstance(self.default, (int, float)):
            shown += f" {self.unit}"
        told = "; ".join(filter(None, (f"default {shown}" if shown else "", self.range)))
        return f"{self.help} ({told})" if told else self.help

    def check(self, value: Any, error: type[Exception] = OptionsError) -> Any:
        """The value, converted to the field's type. Raises `error` with one line if it is not allowed."""
        if value is None and self.optional:
            return None
        if self.read is not None and isinstance(value, str):
            return self.check(self._read(value, error), error) if self.kind is not str else value
        if self.kind is Path and isinstance(value, str) and value:
            value = Path(value)
        if self.kind is tuple and isinstance(value, (list, tuple)):
            if "" in value:
                raise error(f"{self.name} holds '': leave it out, or say something")
            value = tuple(map(self.item, value))
        if not self._is_of_kind(value):
            quoted = ": put it in quotes" if self.kind is str else ""
            raise error(f"{self.name} must be {self._allowed()}, got {value!r}{quoted}")
        wrong = [
            one
            for one in (value if self.kind is tuple else (value,))
            if self.choices and one not in self.choices
        ]
        if wrong:
            raise error(f"{self.name} must be {self._allowed()}, got {wrong[0]!r}")
        return value

    def from_words(self, text: str) -> Any:
        """Convert command-line text to the type of the field, or of a tuple's items; text that does not convert is left
        for `check` to refuse.
        """
        kind = self.item if self.kind is tuple else self.kind
        if kind is Path and not text:
            return text  # Path("") is the current folder
        try:
            return kind(text)
        except ValueError:
            return text

    def _read(self, text: str, error: type[Exception]) -> Any:
        assert self.read is not None
        try:
            return self.read(text)
        except OptionsError as refused:
            raise error(f"{self.name}: {refused}") from refused

    def _is_of_kind(self, value: Any) -> bool:
        if self.kind not in (int, float):
            return isinstance(value, self.kind)
        if isinstance(value, bool) or not isinstance(value, (int, self.kind)):
            return False
        if isinstance(value, float) and not math.isfinite(value):  # an int may be too large for this question
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def _allowed(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        word = _WORDS.get(self.kind, self.kind.__name__)
        if not self.range:
            return word
        between = " from" if self.low is not None and self.high is not None else ","
        return f"{word}{between} {self.range}{' ' * bool(self.unit)}{self.unit}"


def setting(default: Any, help: str, low: float | None = None, high: float | None = None, **more: Any) -> Any:
    """Declare a field of a settings class. default: REQUIRED if a value must be given. more: see `Setting`."""
    return _field(Setting(help, low, high, default=default, **more))


def same_as(kind: type, name: str, **changes: Any) -> Any:
    """Declare a field with the setting of another class. changes: attributes that differ here, `default` included."""
    shown = {"shown": ""} if "default" in changes else {}
    return _field(replace(settings_of(kind)[name], **{**shown, **changes}))


def _field(told: Setting) -> Any:
    given = {} if told.default is REQUIRED else {"default": told.default}
    return field(metadata={_KEY: told}, **given)


def parts(text: str) -> tuple[str, ...]:
    """Split a comma-separated list, which may be empty: "a,b" gives ("a", "b")."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def words(text: str) -> tuple[str, ...]:
    """Split a comma-separated list. Raises OptionsError if it is empty."""
    if found := parts(text):
        return found
    raise OptionsError(f"{text!r} names nothing: name one, or several by commas, or leave it out")


def number(value: float) -> str:
    """Format a number for display; whole numbers in full."""
    return str(int(value)) if isinstance(value, int) or value.is_integer() else f"{value:g}"


@cache
def settings_of(kind: type) -> Mapping[str, Setting]:
    """The settings of a class by name, in order. Fields without `setting` metadata are left out."""
    hints = get_type_hints(kind)
    found = {}
    for entry in fields(kind):
        told = entry.metadata.get(_KEY)
        if told is None:
            continue
        of = hints[entry.name]
        optional = False
        if get_origin(of) in (Union, types.UnionType):
            of = next(one for one in get_args(of) if one is not type(None))
            optional = True
        item = get_args(of)[0] if get_origin(of) is tuple else str
        found[entry.name] = replace(
            told, name=entry.name, kind=get_origin(of) or of, item=item, optional=optional
        )
    return found


def values_for(kind: type, config: Any) -> dict[str, Any]:
    """What a config says of the settings of another class: those that both have, by name."""
    return {name: getattr(config, name) for name in settings_of(kind) if hasattr(config, name)}


def check_settings(config: Any, error: type[Exception] = OptionsError) -> None:
    """Check a frozen dataclass; to be called in its __post_init__. Values given as text are parsed in place. Raises
    `error` for a value that is not allowed.
    """
    for name, told in settings_of(config.__class__).items():
        given = getattr(config, name)
        if (value := told.check(given, error)) is not given:
            object.__setattr__(config, name, value)


def changed_in(config: Any) -> list[Setting]:
    """The settings whose values differ from their defaults."""
    settings = settings_of(config.__class__).values()
    return [told for told in settings if getattr(config, told.name) != told.default]


def as_arguments(config: Any) -> list[str]:
    """The settings that differ from their defaults, as arguments for a parser made by `add_arguments`."""
    words: list[str] = []
    for told in changed_in(config):
        value = getattr(config, told.name)
        if isinstance(value, bool):
            words.append(told.spellings[0] if value else f"--no-{told.spellings[0][2:]}")
        elif isinstance(value, tuple):
            words += [word for one in value for word in (told.spellings[0], str(one))]
        else:
            words += [told.spellings[0], f"{value:.10g}" if isinstance(value, float) else str(value)]
    return words


def add_arguments(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add options for all settings of a class. Options that are not given are absent from the parsed namespace."""
    for told in settings_of(kind).values():
        how: dict[str, Any] = {
            "dest": told.name,
            "default": argparse.SUPPRESS,
            "help": told.about.replace("%", "%%"),
        }
        if told.kind is bool:
            how["action"] = argparse.BooleanOptionalAction if told.default else "store_true"
        else:
            how |= {"required": told.default is REQUIRED, "metavar": told.stands_for, "type": _reader(told)}
            how |= {"action": "append"} if told.kind is tuple and told.read is None else {}
        parser.add_argument(*told.spellings, **how)


def _reader(told: Setting) -> Callable[[str], Any]:
    if told.read is None:
        return told.from_words
    read = told.read

    def reader(text: str) -> Any:
        try:
            return read(text)
        except OptionsError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return reader
