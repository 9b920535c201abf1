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
Message definitions for the file's readers, in mcap's format `ros2msg`.

A definition is the `.msg` text of the type, followed by that of every type it contains, each after
a separator line and its name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
import re
import sys

RULE = "=" * 80
_FIELD = re.compile(r"^\s*(?P<kind>[A-Za-z][\w/]*)(?:<=\d+)?(?:\[[^\]]*\])?\s+[A-Za-z]")
_SIZED = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_BUILT_IN = _SIZED | {"bool", "byte", "char", "float32", "float64", "string", "wstring"}

Find = Callable[[str], "str | None"]  # package/msg/Name -> the text of its .msg file


def members_of(kind: str, text: str) -> list[str]:
    """Return the types (package/msg/Name) that a type contains, without built-in ones."""
    package = kind.partition("/")[0]
    found: dict[str, None] = {}
    for line in text.splitlines():
        match = _FIELD.match(line)
        if match is None or match["kind"] in _BUILT_IN:
            continue
        parts = match["kind"].split("/")
        owner = parts[0] if len(parts) > 1 else "std_msgs" if parts[0] == "Header" else package
        found[f"{owner}/msg/{parts[-1]}"] = None
    return list(found)


def definition_of(kind: str, find: Find) -> str | None:
    """Return the full definition of a type (package/msg/Name); None if a part is unknown."""
    texts: dict[str, str] = {}
    wanted = [kind]
    while wanted:
        name = wanted.pop(0)
        if name in texts:
            continue
        text = find(name)
        if text is None:
            return None
        texts[name] = text
        wanted += members_of(name, text)
    root = texts.pop(kind)
    parts = [f"{RULE}\nMSG: {name.replace('/msg/', '/')}\n{text}" for name, text in texts.items()]
    return "\n".join([root, *parts])


def installed_definition(kind: str) -> str | None:
    """Return the .msg text of an installed type (package/msg/Name); None if not found."""
    from ament_index_python.packages import get_package_share_directory, PackageNotFoundError

    package, _, name = kind.partition("/msg/")
    try:
        share = Path(get_package_share_directory(package))
    except (PackageNotFoundError, OSError, ValueError):
        # ROS as Python wheels in a virtual environment has no AMENT_PREFIX_PATH.
        share = Path(sys.prefix) / "share" / package
    try:
        return (share / "msg" / f"{name}.msg").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
