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
Parameters that were given and that nobody knows: a slip of the pen must not be ignored.

ROS drops a parameter that a node does not declare without a word: a limit written with one wrong
letter would simply not hold. Names under a wildcard section are meant for several nodes and may
be another one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
import difflib
from pathlib import Path
from typing import Any

from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.common.parameters import Parameter
import yaml

OF_ROS = frozenset({'use_sim_time', 'start_type_description_service'})
WILDCARDS = ('/**', '/*', '**', '*')


def wildcard_names(arguments: Sequence[str]) -> frozenset[str]:
    """
    Return the names in the wildcard sections of the parameter files of a command line.

    Files that cannot be read give none: ROS itself complains about those.
    """
    flags = [i for i, word in enumerate(arguments) if word == '--params-file']
    files = [arguments[i + 1] for i in flags if i + 1 < len(arguments)]
    found: set[str] = set()
    for file in files:
        said = _read(file)
        for section in WILDCARDS:
            found.update(_names(said.get(section)) if isinstance(said, dict) else ())
    return frozenset(found)


def _read(file: str | Path) -> object:
    """Return what a file holds; None where it cannot be read."""
    try:
        return yaml.safe_load(Path(file).read_text(encoding='utf-8'))
    except (OSError, ValueError, yaml.YAMLError):
        return None


def _names(section: object) -> Iterable[str]:
    values = section.get('ros__parameters') if isinstance(section, dict) else None
    return map(str, values) if isinstance(values, dict) else ()


def said_in(files: Iterable[str | Path], node: str, name: str) -> Any:
    """
    Return what parameter files say of a node's parameter, the last one last; None: nothing.

    Namespaces are not looked at. Files that cannot be read say nothing: ROS complains about those.
    """
    found = None
    for file in files:
        for path, values in _sections(_read(file), ''):
            if path.rsplit('/', 1)[-1] in (node, '*', '**') and name in values:
                found = values[name]
    return found


def _sections(said: object, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give every section of parameters with the name of its nodes."""
    if not isinstance(said, dict):
        return
    for key, inner in said.items():
        if key == 'ros__parameters' and isinstance(inner, dict):
            yield path, inner
        elif key != 'ros__parameters':
            yield from _sections(inner, f'{path}/{key}')


def refuse_unknown(
    node: str, given: Iterable[str], table: Sequence[Parameter], shared: frozenset[str]
) -> None:
    """Raise ParameterError for the first given name that is in no table, and say what is meant."""
    known = [p.name for p in table]
    for name in given:
        if name in known or name in OF_ROS or name.startswith('qos_overrides.') or name in shared:
            continue
        # Imported here: only to tell of a slip does a node need the tables of all others.
        from spec_vlm_nav.parameters.nodes import tables

        close = difflib.get_close_matches(name, known, 1)
        owners = [other for other, theirs in tables().items() if name in {p.name for p in theirs}]
        if owners:
            hint = f'it belongs to {" and ".join(owners)}'
        else:
            hint = (
                f'did you mean {close[0]}?' if close else 'see the list of parameters in README.md'
            )
        raise ParameterError(f'{node} has no parameter {name}: {hint}')
