"""Command options made from the fields of settings classes (specdec.settings); what a class checks is not checked here.

@app.command()
@takes("settings", ServerConfig, leave_out=("model",))
def serve(settings: Mapping[str, Any], config: ...) -> None:
    \"""settings: what was given on the command line, by the name of the field.\"""
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from specdec.settings import REQUIRED, Setting, settings_of

Command = Callable[..., Any]


def takes(
    parameter: str,
    kind: type,
    *,
    only: Collection[str] = (),
    leave_out: Collection[str] = (),
    changes: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[Command], Command]:
    """Gives a command an option for each setting of a class, in place of one parameter of its function, which gets the
    values that were given by the names of the settings.

    only, leave_out: names of settings. changes: of a Setting by its name, where the command's help says it otherwise.
    """
    told = {
        name: one
        for name, one in settings_of(kind).items()
        if (not only or name in only) and name not in leave_out
    }
    for name, changed in (changes or {}).items():
        told[name] = Setting(**{**vars(told[name]), **changed})

    def wrap(function: Command) -> Command:
        own = [one for one in _parameters(function) if one.name != parameter]
        made = [_option(one) for one in told.values()]

        @functools.wraps(function)
        def command(**values: Any) -> Any:
            settings = {name: values.pop(name) for name in told}
            given = {name: value for name, value in settings.items() if value is not None}
            return function(**{parameter: given}, **values)

        arguments = [
            one for one in made if isinstance(one.annotation.__metadata__[0], typer.models.ArgumentInfo)
        ]
        options = [one for one in made if one not in arguments]
        command.__signature__ = inspect.Signature([*arguments, *own, *options])  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in (*arguments, *own, *options)}
        return command

    return wrap


def _parameters(function: Command) -> list[inspect.Parameter]:
    found = inspect.signature(function, eval_str=True).parameters.values()
    return [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in found]


def _option(told: Setting) -> inspect.Parameter:
    """No default of its own, so that the command knows what was given; the help shows that of the class."""
    if told.positional:
        shown: Any = typer.Argument(metavar=told.stands_for, help=told.help)
        of: Any = told.kind
        return inspect.Parameter(told.name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[of, shown])
    flags = list(told.spellings)
    if told.kind is bool and told.default is True:
        flags[0] = f"{flags[0]}/--no-{flags[0][2:]}"
    option = typer.Option(
        *flags,
        metavar=told.stands_for,
        help=told.about,
        parser=None if told.read is None else _parser(told.read),
    )
    required = told.default is REQUIRED
    of = list[str] if told.kind is tuple and told.read is None else str if told.kind is tuple else told.kind
    return inspect.Parameter(
        told.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else None,
        annotation=Annotated[of if required else of | None, option],
    )


def _parser(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda text: read(text) if isinstance(text, str) else text


def absolute(given: dict[str, Any], *names: str) -> dict[str, Any]:
    """With paths that are there made absolute: a child process may have another working folder."""
    for name in names:
        if given.get(name) and Path(given[name]).expanduser().exists():
            given[name] = str(Path(given[name]).expanduser().resolve())
    return given
