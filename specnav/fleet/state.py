# SPDX-License-Identifier: Apache-2.0
"""A directory's persistent state: one small file, written whole or not at all.

Ray's own store is not used: it is a private interface and is lost with the head node's memory; a file also outlives the
cluster. Edges, load and addresses are not saved: replicas report again within a second, edges with their next request.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct, field

from specdec.errors import DECODE_ERRORS
from specdec.link.keys import write_private
from specdec.settings_files import read_file
from specdec.whole_files import pretty_json
from specnav.fleet.errors import FleetError
from specnav.fleet.identity import Identity
from specnav.fleet.settings import FleetSettings

STATE_FILE = "directory.json"
_MOST_BYTES = 1 << 20


class FleetState(Struct, frozen=True):
    """fleet: unique number of this fleet, from `up` to `down`. settings: of the wanted generation. wanted: replicas.
    last: highest replica number so far. replicas: generation of each replica that was started and not ended. port: of
    the directory. identities: by generation.
    """

    fleet: str
    settings: FleetSettings
    wanted: int
    port: int
    generation: int = 1
    last: int = 0
    replicas: dict[int, int] = field(default_factory=dict)
    identities: dict[int, Identity] = field(default_factory=dict)
    schema: int = 1


def read_kept(folder: Path) -> FleetState | None:
    """The state of an earlier directory, or None. Raises FleetError for an invalid file."""
    path = folder / STATE_FILE
    try:
        kept = msgspec.json.decode(read_file(path, _MOST_BYTES), type=FleetState)
    except FileNotFoundError:
        return None
    except (OSError, *DECODE_ERRORS) as error:
        raise FleetError(f"{path} is not a fleet state ({error}): move it away, or give another --state") from error
    if kept.schema != 1:
        raise FleetError(f"{path} is from another specnav release: end that fleet first, or give another --state")
    return kept


def write_kept(folder: Path, kept: FleetState) -> None:
    """Save the state. Raises FleetError."""
    keep(folder, STATE_FILE, pretty_json(kept))


def keep(folder: Path, name: str, data: bytes) -> None:
    """Write a file of the fleet atomically, readable only by its owner. Raises FleetError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_private(folder / name, data)
    except OSError as error:
        raise FleetError(f"cannot save the fleet's state in {folder}: {error.strerror}") from error


def forget_kept(folder: Path) -> None:
    """Delete the state of a fleet that is down."""
    (folder / STATE_FILE).unlink(missing_ok=True)
