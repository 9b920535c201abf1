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
Parameters that were given and that no caller knows: a slip of the pen must not be ignored.

ROS drops a parameter that a node does not declare without a word: a limit written with one wrong
letter would simply not hold. Names under a wildcard section are meant for several nodes and may
be another one's.

Sections are matched as rcl does it: `*` stands for one name between slashes, `**` for any number
of them. Of several that match, the one whose name was read last has the word, wherever a later
file repeats it.
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
    """Return whether a section of a parameter file is meant for a node, /namespace/name."""
    names = ["" if name == "**" else name for name in section.strip("/").split("/")]
    form = "".join(
        r"(/\w+)*" if not name else r"/\w+" if name == "*" else f"/{re.escape(name)}"
        for name in names
    )
    return re.fullmatch(form, node) is not None


def wildcard_names(arguments: Sequence[str], node: str) -> frozenset[str]:
    """
    Return the names in sections of a command line's files that are meant for more than one node.

    node: /namespace/name; only sections that match it count. Files that cannot be read give none:
    ROS itself complains about those.
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
    """Return what a file holds; None where it cannot be read."""
    try:
        return read_yaml_file(file)
    except (OSError, ValueError, yaml.YAMLError):
        return None


def said_in(
    files: Iterable[str | Path], node: str, name: str, namespace: str | None = None
) -> Any:
    """Return what parameter files say of a node's parameter, see `all_said_in`; None: nothing."""
    return all_said_in(files, node, namespace).get(name)


def all_said_in(
    files: Iterable[str | Path], node: str, namespace: str | None = None
) -> dict[str, Any]:
    """
    Return all that parameter files say of a node's parameters, by their names.

    namespace: of the node; None: whatever it is. Files that cannot be read say nothing: ROS
    complains about those.
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
    """Return the sections of all files, in the order in which their names come first."""
    merged: dict[str, dict[str, Any]] = {}
    for file in files:
        for section, values in _sections(_read(file), ""):
            merged.setdefault(section, {}).update(values)
    return merged


def _sections(said: object, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give every section of parameters with the name of its nodes."""
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
    """Raise ParameterError for the first given name that is in no table, and say what is meant."""
    known = [p.name for p in table]
    for name in given:
        if name in known or name in OF_ROS or name.startswith("qos_overrides.") or name in shared:
            continue
        # Imported here: only to report a slip does a node need the tables of all others.
        from spec_vlm_nav.parameters.nodes import tables

        close = difflib.get_close_matches(name, known, 1)
        owners = [other for other, theirs in tables().items() if name in {p.name for p in theirs}]
        if owners:
            hint = f'it belongs to {" and ".join(owners)}'
        else:
            hint = (
                f"did you mean {close[0]}?" if close else "see the list of parameters in README.md"
            )
        raise ParameterError(f"{node} has no parameter {name}: {hint}")
