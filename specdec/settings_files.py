# SPDX-License-Identifier: Apache-2.0
"""Safe reading of files that people write (keys, tokens, settings): no file can block the reader or fill its memory.

A path may lead to a pipe without a writer, to a device, or to gigabytes. YAML may contain aliases to itself, merge
keys, or nesting so deep that refusing it takes seconds. Both are checked before anything is read or built.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import yaml

MOST_KEY_BYTES = 64 * 1024
MOST_SETTINGS_BYTES = 512 * 1024
DEEPEST_YAML = 24
MOST_YAML_NODES = 50_000
_MERGE = "tag:yaml.org,2002:merge"
_TEXT = "tag:yaml.org,2002:str"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SAFE_LOADER):  # type: ignore[misc]
    """Without YAML 1.1's numbers to the base of 60: 72:1 is text here, and not 4321."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """The tag of a value that has none."""
        tag = super().resolve(kind, value, implicit)
        return _TEXT if tag in _NUMBERS and ":" in value else tag


class FileRefused(OSError):
    """A file is refused: not a regular file, a symbolic link, too large, or accessible to others."""

    def __init__(self, number: int, reason: str, path: str | Path) -> None:
        super().__init__(number, reason, str(path))


def read_file(path: str | Path, most_bytes: int, *, links: bool = False, private: bool = False) -> bytes:
    """Read a regular file. The path is opened once, so the file that is checked is the file that is read.

    Never waits for another process.

    Args:
        path: The file.
        most_bytes: A larger file is refused before it is read.
        links: Whether the path itself may be a symbolic link; the folders above it always may be.
        private: Refuse a file that anyone but its owner can access.

    Raises:
        FileRefused: The file is not acceptable.
        OSError: The file cannot be opened.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and not links:
            raise FileRefused(errno.ELOOP, "it is a symbolic link: put the file itself there", path) from error
        if error.errno == errno.ENXIO:  # a socket
            raise FileRefused(errno.EINVAL, "it is not a regular file", path) from error
        raise
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise FileRefused(errno.EINVAL, "it is not a regular file", path)
        if private and about.st_mode & 0o077:
            raise FileRefused(errno.EPERM, f"others may read it: chmod 600 {path}", path)
        if about.st_size > most_bytes:
            raise FileRefused(errno.EFBIG, f"it has {about.st_size} bytes, at most {most_bytes} are read", path)
        parts, left = [], most_bytes + 1
        while left and (part := os.read(descriptor, left)):  # it may be growing
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    if not left:
        raise FileRefused(errno.EFBIG, f"it has more than {most_bytes} bytes", path)
    return b"".join(parts)


def check_regular(*paths: str | Path) -> None:
    """Raise FileRefused for a pipe, socket or device among the paths, and among the files in a folder of them: programs
    that read it would wait for ever.
    """
    for place in map(Path, paths):
        for path in (place, *(place.iterdir() if place.is_dir() else ())):
            # What is missing, a loop of links or closed to us fails where it is read.
            if path.exists() and not (path.is_file() or path.is_dir()):
                raise FileRefused(errno.EINVAL, f"{path.name} is not a regular file", path)


def read_text(path: str | Path, most_bytes: int) -> str:
    """The text of a regular file, with "\\n" line ends and without a byte order mark. Raises as `read_file`, and
    UnicodeDecodeError.
    """
    text = read_file(path, most_bytes, links=True).decode("utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_yaml_file(path: str | Path) -> Any:
    """Load a settings file. Raises OSError, UnicodeDecodeError, and what `load_yaml` raises."""
    return load_yaml(read_file(path, MOST_SETTINGS_BYTES, links=True).decode("utf-8"))


def load_yaml(text: str, deepest: int = DEEPEST_YAML, most: int = MOST_YAML_NODES) -> Any:
    """Load YAML text; anchors, aliases and merge keys are refused. Raises yaml.YAMLError and ValueError.

    deepest: most levels of nesting. most: most values.
    """
    check_yaml(text, deepest, most)
    return yaml.load(text, Loader=_Loader)


def compose_yaml(text: str, deepest: int = DEEPEST_YAML, most: int = MOST_YAML_NODES) -> yaml.Node | None:
    """The node graph of YAML text, which has line numbers; checked as in `load_yaml`."""
    check_yaml(text, deepest, most)
    return yaml.compose(text, Loader=_Loader)


def check_yaml(text: str, deepest: int = DEEPEST_YAML, most: int = MOST_YAML_NODES) -> None:
    """Raise yaml.YAMLError for YAML features that settings do not need; works on parse events, builds nothing."""
    open_ones: list[_Collection] = []
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            _refuse(event, "anchors and aliases (& and *) are not used in settings: write it out")
        if isinstance(event, yaml.ScalarEvent) and (
            event.tag == _MERGE or (event.value == "<<" and event.implicit[0])
        ):
            _refuse(event, "merge keys (<<) are not used in settings: write it out")
        if isinstance(event, yaml.CollectionEndEvent):
            open_ones.pop()
        elif isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):
            if open_ones and (twice := open_ones[-1].takes_again(event)) is not None:
                _refuse(event, f"{twice!r} is given twice")  # PyYAML would silently take the second
            if isinstance(event, yaml.CollectionStartEvent):
                open_ones.append(_Collection(isinstance(event, yaml.MappingStartEvent)))
        if len(open_ones) > deepest:
            _refuse(event, f"it is nested more than {deepest} deep")
        if count > 2 * most:
            _refuse(event, f"it has more than {most} values")


class _Collection:
    """The part of a mapping or list that was parsed so far."""

    def __init__(self, is_mapping: bool) -> None:
        self._keys: set[str] | None = set() if is_mapping else None
        self._is_key = True

    def takes_again(self, event: yaml.Event) -> str | None:
        """Take the next event; returns its key if the mapping had that key before."""
        if self._keys is None:
            return None
        is_key, self._is_key = self._is_key, not self._is_key
        if not is_key or not isinstance(event, yaml.ScalarEvent):
            return None
        before = len(self._keys)
        self._keys.add(event.value)
        return event.value if len(self._keys) == before else None


def _refuse(event: yaml.Event, what: str) -> None:
    raise yaml.MarkedYAMLError(problem=what, problem_mark=event.start_mark)  # type: ignore[arg-type]
