# SPDX-License-Identifier: Apache-2.0
"""Reads `metadata.yaml` in a bag's folder: names of the files, and number of messages in each.

The file is untrusted, as it came with the recording. Unreadable parts are ignored, and YAML aliases, which can make a
short file endless, are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Annotated

import msgspec
import yaml

from specdec.settings_files import load_yaml, read_file
from specnav.results.errors import one_line

METADATA = "metadata.yaml"
MAX_BYTES, MOST_FILES, MOST_VALUES = 16 << 20, 10_000, 1_000_000
MOST_NESTED = 32  # deeper documents take quadratic time and crash libyaml

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
    """The content of metadata.yaml. files: names in recording order; counts: messages per file, if known; problem: why
    there is no content.
    """

    files: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    count: int | None = None
    distro: str = ""
    problem: str = ""


def read_metadata(folder: Path) -> Metadata:
    """Read a folder's metadata.yaml."""
    path = folder / METADATA
    if not path.exists():
        return Metadata(problem=f"{METADATA} is missing")
    try:
        text = read_file(path, MAX_BYTES, links=True).decode("utf-8")
        said = msgspec.convert(load_yaml(text, MOST_NESTED, MOST_VALUES), _Document).rosbag2_bagfile_information
    except (OSError, ValueError, yaml.YAMLError, RecursionError, msgspec.MsgspecError) as error:
        return Metadata(problem=f"{METADATA} cannot be read ({one_line(error)[:200]})")
    counts = {PurePath(one.path).name: one.message_count for one in said.files or ()}
    names = tuple(PurePath(name).name for name in said.relative_file_paths)
    return Metadata(names, counts, said.message_count, said.ros_distro or "")
