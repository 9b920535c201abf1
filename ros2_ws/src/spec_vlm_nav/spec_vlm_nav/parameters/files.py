# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
Reads parameter files and refuses parameters that a node does not declare.

ROS silently drops an undeclared parameter, so a safety limit with a misspelt name would have no
effect. Names in a wildcard section may belong to another node and are accepted.

Sections match as in rcl: `*` stands for one name between slashes, `**` for any number of names. If
several sections match, the one that first appears last wins, even where a later file repeats an
earlier section.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
import difflib
from pathlib import Path
import re
from typing import Any

from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.common.parameters import Parameter
from specdec.settings_files import read_yaml_file
import yaml

OF_ROS = frozenset({"use_sim_time", "start_type_description_service"})
WILDCARDS = ("*", "**")


def matches(section: str, node: str) -> bool:
    """Return whether a section of a parameter file applies to a node, /namespace/name."""
    names = ["" if name == "**" else name for name in section.strip("/").split("/")]
    form = "".join(
        r"(/\w+)*" if not name else r"/\w+" if name == "*" else f"/{re.escape(name)}" for name in names
    )
    return re.fullmatch(form, node) is not None


def wildcard_names(arguments: Sequence[str], node: str) -> frozenset[str]:
    """
    Return the parameter names in wildcard sections of the files given on a command line.

    node: /namespace/name; only sections that match it count. Unreadable files are skipped: ROS
    itself reports them.
    """
    flags = [i for i, word in enumerate(arguments) if word == "--params-file"]
    files = [arguments[i + 1] for i in flags if i + 1 < len(arguments)]
    found: set[str] = set()
    for section, values in _merged(files).items():
        if _last(section) in WILDCARDS and matches(section, node):
            found.update(map(str, values))
    return frozenset(found)


def _last(section: str) -> str:
    return section.rsplit("/", 1)[-1]


def _read(file: str | Path) -> object:
    """Return the content of a YAML file; None if it cannot be read."""
    try:
        return read_yaml_file(file)
    except (OSError, ValueError, yaml.YAMLError):
        return None


def said_in(files: Iterable[str | Path], node: str, name: str, namespace: str | None = None) -> Any:
    """Return a parameter's value in parameter files, or None if not set; see `all_said_in`."""
    return all_said_in(files, node, namespace).get(name)


def all_said_in(files: Iterable[str | Path], node: str, namespace: str | None = None) -> dict[str, Any]:
    """
    Return the values that parameter files set for a node, by parameter name.

    namespace: the node's namespace; None: any. Unreadable files are skipped: ROS itself reports
    them.
    """
    found: dict[str, Any] = {}
    whole = "" if namespace is None else "/".join(("", *namespace.split("/"), node))
    for section, values in _merged(files).items():
        if namespace is None:
            is_meant = _last(section) in (node, *WILDCARDS)
        else:
            is_meant = matches(section, re.sub("/+", "/", whole))
        if is_meant:
            found.update(values)
    return found


def _merged(files: Iterable[str | Path]) -> dict[str, dict[str, Any]]:
    """Return the sections of all files, in the order in which their names first appear."""
    merged: dict[str, dict[str, Any]] = {}
    for file in files:
        for section, values in _sections(_read(file), ""):
            merged.setdefault(section, {}).update(values)
    return merged


def _sections(said: object, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each parameter section with its node name or pattern."""
    if not isinstance(said, dict):
        return
    for key, inner in said.items():
        if key == "ros__parameters" and isinstance(inner, dict):
            yield path, inner
        elif key != "ros__parameters":
            yield from _sections(inner, f"{path}/{key}" if path else str(key))


def refuse_unknown(
    node: str, given: Iterable[str], table: Sequence[Parameter], shared: frozenset[str]
) -> None:
    """Raise ParameterError, with a suggestion, for the first given name that is not in the table."""
    known = [p.name for p in table]
    for name in given:
        if name in known or name in OF_ROS or name.startswith("qos_overrides.") or name in shared:
            continue
        # Imported here: a node needs the tables of the other nodes only for this message.
        from spec_vlm_nav.parameters.nodes import tables

        close = difflib.get_close_matches(name, known, 1)
        owners = [other for other, theirs in tables().items() if name in {p.name for p in theirs}]
        if owners:
            hint = f"it belongs to {' and '.join(owners)}"
        else:
            hint = f"did you mean {close[0]}?" if close else "see the list in docs/parameters.md"
        raise ParameterError(f"{node} has no parameter {name}: {hint}")
