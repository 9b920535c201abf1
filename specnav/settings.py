# SPDX-License-Identifier: Apache-2.0
"""The loader of YAML settings: a file's mapping, overridden by flags, checked against a dataclass."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from specdec.settings import setting, settings_of
from specdec.settings_files import read_yaml_file
from specnav.errors import UsageError
from specnav.paths import DATA
from specnav.results.demo import Setting, check_settings
from specnav.results.errors import one_line

Settings = TypeVar("Settings")


@dataclasses.dataclass(frozen=True)
class Printed:
    """How a command prints its result."""

    json: bool = setting(False, "Machine-readable output.")


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; an empty file is an empty mapping. Raises UsageError."""
    try:
        content = read_yaml_file(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an impossible date
        raise UsageError(f"{path} is not valid YAML: {one_line(error)}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds no settings; it should be a YAML mapping of names to values")
    odd = [name for name in content if not isinstance(name, str)]
    if odd:
        raise UsageError(f"{path}: {odd[0]!r} must be a string; write it in quotes if it names a setting")
    return content


def read_settings(kind: type[Any], path: Path) -> dict[str, Any]:
    """The settings of the dataclass `kind` in a YAML file, by field name. Raises UsageError."""
    return _by_name(kind, read_yaml(path), str(path))


def make_settings(kind: type[Settings], values: Mapping[str, Any], source: str) -> Settings:
    """Build the dataclass `kind`. Names may also be spelled as flags, with underscores.

    Raises UsageError for unknown names, listing the known ones, and for a setting under two names.
    """
    return kind(**_by_name(kind, values, source))


def _by_name(kind: type, values: Mapping[str, Any], source: str) -> dict[str, Any]:
    known = {field.name for field in dataclasses.fields(kind)}
    spelled = {
        spelling[2:].replace("-", "_"): name
        for name, told in settings_of(kind).items()
        for spelling in told.spellings
    } | {name: name for name in known}
    unknown = sorted(set(values) - set(spelled))
    if unknown:
        raise UsageError(
            f"{source}: unknown setting {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )
    found: dict[str, Any] = {}
    for given, value in values.items():
        name = spelled[given]
        if name in found:
            other = next(one for one in values if spelled[one] == name)
            raise UsageError(f"{source}: {other} and {given} are the same setting: leave one of them out")
        found[name] = value
    return found


def shown_settings(config: Any, leave_out: Collection[str], paths: Collection[str]) -> dict[str, Setting]:
    """A config dataclass as results.json stores it, with paths of shipped files relative to DATA.

    paths: names of text fields that may hold a path.
    """
    values = {
        entry.name: getattr(config, entry.name)
        for entry in dataclasses.fields(config)
        if entry.name not in leave_out
    }
    for name, value in values.items():
        if isinstance(value, Path) or name in paths:
            path = Path(str(value))
            shipped = path.is_relative_to(DATA)
            values[name] = str(path.relative_to(DATA)) if shipped else str(value)
    return check_settings(values)
