"""`metadata.yaml` of a bag's folder, as far as it is needed: which files there are, and how many messages in each.

It is a file like any other that came with the recording: what cannot be read of it is left out, and aliases, which
can make a short file endless, are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import yaml

from evaluation.errors import one_line

METADATA = "metadata.yaml"
MAX_BYTES = 16 << 20
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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
        said = _load(path)["rosbag2_bagfile_information"]
        files = tuple(PurePath(name).name for name in said["relative_file_paths"])
    except (OSError, ValueError, yaml.YAMLError, RecursionError, LookupError, TypeError) as error:
        return Metadata(problem=f"{METADATA} cannot be read ({one_line(error)})")
    counts = {}
    for one in said.get("files") or ():
        if isinstance(one, dict) and isinstance(one.get("message_count"), int):
            counts[PurePath(str(one.get("path"))).name] = one["message_count"]
    count = said.get("message_count")
    distro = said.get("ros_distro")
    return Metadata(
        files, counts, count if isinstance(count, int) else None, distro if isinstance(distro, str) else ""
    )


def _load(path: Path) -> Any:
    if not path.is_file():
        raise ValueError("it is no regular file")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
    text = path.read_text(encoding="utf-8")
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, _Loader)):
        raise ValueError("it holds aliases")
    return yaml.load(text, _Loader)
