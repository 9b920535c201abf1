"""`metadata.yaml` of a bag's folder, as far as it is needed: which files there are, and how many messages in each.

It is a file like any other that came with the recording: what cannot be read of it is left out, and aliases, which
can make a short file endless, are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Annotated, Any

import msgspec
import yaml

from evaluation.errors import one_line

METADATA = "metadata.yaml"
MAX_BYTES, MOST_FILES = 16 << 20, 10_000
MOST_NESTED = 32  # deeper documents take quadratic time, and end the process in libyaml
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _File(msgspec.Struct):
    path: str
    message_count: _Count


class _Information(msgspec.Struct):
    relative_file_paths: Annotated[list[str], msgspec.Meta(max_length=MOST_FILES)]
    files: list[_File] | None = None
    message_count: _Count | None = None
    ros_distro: str | None = None


class _Document(msgspec.Struct):
    rosbag2_bagfile_information: _Information


@dataclass(frozen=True)
class Metadata:
    """What it says. files: names in the order of recording; counts: messages in some of them; problem: why it says
    nothing.
    """

    files: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    count: int | None = None
    distro: str = ""
    problem: str = ""


def read_metadata(folder: Path) -> Metadata:
    """Read the folder's file."""
    path = folder / METADATA
    if not path.exists():
        return Metadata(problem=f"{METADATA} is missing")
    try:
        said = msgspec.convert(_load(path), _Document).rosbag2_bagfile_information
    except (OSError, ValueError, yaml.YAMLError, RecursionError, msgspec.MsgspecError) as error:
        return Metadata(problem=f"{METADATA} cannot be read ({one_line(error)[:200]})")
    counts = {PurePath(one.path).name: one.message_count for one in said.files or ()}
    names = tuple(PurePath(name).name for name in said.relative_file_paths)
    return Metadata(names, counts, said.message_count, said.ros_distro or "")


def _load(path: Path) -> Any:
    if not path.is_file():
        raise ValueError("it is no regular file")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
    text = path.read_text(encoding="utf-8")
    depth = 0
    for event in yaml.parse(text, _Loader):  # yields as it reads, so that what is nested endlessly is not read
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it holds aliases")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_NESTED:
            raise ValueError(f"it is nested more than {MOST_NESTED} deep")
    return yaml.load(text, _Loader)
