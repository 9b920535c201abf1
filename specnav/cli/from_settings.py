# SPDX-License-Identifier: Apache-2.0
"""Command options made from the fields of settings classes (specdec.settings), whose checks are not repeated here.

    @app.command()
    @takes("given", "cloud_verifier.config:ServerConfig", leave_out=("model",))
    def serve(given: dict[str, Any], config: ...) -> None:
        \"""given: settings from the command line, by field name.\"""

    @app.command()
    @makes("config", "specnav.play.config:PlayConfig")
    def play(config: Any) -> None:
        \"""config: an object of the class.\"""

A class is named by its module and imported when its command runs: `specnav --help` needs no options.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from specdec.downloads import shipped
from specdec.errors import OptionsError
from specdec.settings import REQUIRED, Setting, settings_of
from specnav.edge_settings import PAIR_THAT_SEES

SHIPPED_TARGET = {"model": {"default": None, "shown": "the shipped one"}}
"""`changes` to a verifier's settings in commands with a default target."""
EDGE = "specnav.edge_settings:EdgeSettings"
"""Settings shared by the commands that decode on this machine."""
PAIR = {"pair": {"help": PAIR_THAT_SEES}}
"""`changes` to EDGE in commands whose models get images."""
_words: Collection[str] | None = None


@contextmanager
def only_commands_among(words: Collection[str]) -> Iterator[None]:
    """While active, only commands named in a command line get their options."""
    global _words
    before, _words = _words, words
    try:
        yield
    finally:
        _words = before


def takes(
    parameter: str,
    kind: str,
    *,
    only: Collection[str] = (),
    leave_out: Collection[str] = (),
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    make: Callable[..., Any] = dict,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replace one parameter of a command's function by an option for each setting of a class. The function gets the
    given values by name in that parameter.

    Args:
        parameter: The function's parameter.
        kind: "module:Class".
        only: If given, only these settings become options.
        leave_out: Settings that do not become options.
        changes: Changes to a Setting by its name, where this command's help differs.
        make: Turns the given values into the function's argument.
    """

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        settings = functools.partial(_chosen, kind, only, leave_out, changes or {})
        return _Command(function, parameter, settings, make)

    return wrap


def makes(parameter: str, kind: str, **chosen: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Like `takes`, but the function gets an object of the class. chosen: options of `takes`."""
    return takes(parameter, kind, make=lambda **given: _class_of(kind)(**given), **chosen)


class _Command:
    """The callable given to typer in place of the command's function; its options are made on demand."""

    def __init__(
        self,
        function: Callable[..., Any],
        parameter: str,
        settings: Callable[[], Mapping[str, Setting]],
        make: Callable[..., Any],
    ) -> None:
        self.__name__, self.__doc__, self.__module__ = (
            function.__name__,
            function.__doc__,
            function.__module__,
        )
        self._function = function
        self._parameter = parameter
        self._settings = settings
        self._make = make

    def __call__(self, **values: Any) -> Any:
        known = self._settings()
        settings = {name: values.pop(_key(self._parameter, told)) for name, told in known.items()}
        given = {name: _found(known[name], value) for name, value in settings.items() if value is not None}
        for name, value in given.items():
            _check(known[name], value)
        return self._function(**{self._parameter: self._make(**given)}, **values)

    @property
    def __signature__(self) -> inspect.Signature:
        if _words is not None and self.__name__.rstrip("_") not in _words:
            return inspect.Signature()
        return self._whole_signature()

    def _whole_signature(self) -> inspect.Signature:
        inner = self._function
        signature = (
            inner._whole_signature() if isinstance(inner, _Command) else inspect.signature(inner, eval_str=True)
        )
        own = [one for one in signature.parameters.values() if one.name != self._parameter]
        made = [_option(one, _key(self._parameter, one)) for one in self._settings().values()]
        every = sorted([*own, *made], key=_order)
        return inspect.Signature([one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in every])

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        return {name: one.annotation for name, one in self.__signature__.parameters.items()}


def _found(told: Setting, value: Any) -> Any:
    """Resolve a shipped model's name to its folder. Path options stay unchanged: they may name an output folder."""
    if isinstance(value, Path if told.positional else str):
        return type(value)(shipped(str(value)))
    return value


def _order(parameter: inspect.Parameter) -> bool:
    """Sort key: arguments before options."""
    told = getattr(parameter.annotation, "__metadata__", ("",))
    return not isinstance(told[0], typer.models.ArgumentInfo)


def _chosen(
    kind: str,
    only: Collection[str],
    leave_out: Collection[str],
    changes: Mapping[str, Mapping[str, Any]],
) -> Mapping[str, Setting]:
    return {
        name: replace(one, **changes.get(name, {}))
        for name, one in settings_of(_class_of(kind)).items()
        if (not only or name in only) and name not in leave_out
    }


def _class_of(kind: str) -> type:
    module, _, name = kind.partition(":")
    found: type = getattr(import_module(module), name)
    return found


def _key(parameter: str, told: Setting) -> str:
    """A setting's name among the command's parameters; two classes of one command may share a setting's name."""
    return told.name if told.positional else f"{parameter}_{told.name}"


def _option(told: Setting, key: str) -> inspect.Parameter:
    """An option without a default, so that the command knows what was given; the help shows the class's default."""
    of: Any = told.kind
    required = told.default is REQUIRED
    default = inspect.Parameter.empty if required else None
    if of is tuple:
        of = str if told.read else list[told.item]  # type: ignore[name-defined]
    if told.positional:
        argument = typer.Argument(**_shown(told))
        return inspect.Parameter(
            key,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[of if required else of | None, argument],
        )
    flags = list(told.spellings)
    if of is bool and told.default is not False:
        flags[0] = f"{flags[0]}/--no-{flags[0][2:]}"
    return inspect.Parameter(
        key,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[of if required else of | None, typer.Option(*flags, **_shown(told))],
    )


def _shown(told: Setting) -> dict[str, Any]:
    plain = not {int, float, Path}.isdisjoint((told.kind, told.item))
    read = _parser(told.read) if told.read else _unchecked(told) if plain else None
    return {"metavar": told.stands_for, "help": told.about, "parser": read, "show_default": False}


def path(text: Any) -> Any:
    """A parser for paths of options that no settings class declares."""
    if text == "":
        raise typer.BadParameter("must be a path, got ''")
    return Path(text)


def _unchecked(told: Setting) -> Callable[[Any], Any]:
    """A parser that passes invalid numbers and paths on to `_check`, whose message says what is allowed."""

    def parse(text: Any) -> Any:
        return told.from_words(text) if isinstance(text, str) else text

    kind = told.item if told.kind is tuple else told.kind
    parse.__name__ = kind.__name__.lower()  # the placeholder of the value in help
    return parse


def _parser(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    def parse(text: Any) -> Any:
        try:
            return read(text) if isinstance(text, str) else text
        except OptionsError as error:
            raise typer.BadParameter(str(error)) from error

    return parse


def _check(told: Setting, value: Any) -> None:
    """Refuse a value like the parser does, naming the flag."""
    flag = told.stands_for if told.positional else told.spellings[0]
    try:
        replace(told, name=flag or told.name).check(value)
    except OptionsError as error:
        raise typer.BadParameter(str(error)) from error
