# SPDX-License-Identifier: Apache-2.0
"""What a directory must know after a restart: one small file, written whole or not at all.

Not in Ray's own store, which is a private interface and goes with the head's memory; a file also outlives the cluster.
Edges, load and addresses are not kept: replicas and edges say them again within a second.
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
    """fleet: a number of this fleet's own, from its `up` to its `down`. settings: of the generation that is wanted.
    wanted: replicas. last: the highest number that a replica was given. replicas: that were started and not ended, and
    the generation of each. port: where the directory listens. identities: of generations.
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
    """What an earlier directory has left, or None. Raises FleetError for a file that is something else."""
    path = folder / STATE_FILE
    try:
        kept = msgspec.json.decode(read_file(path, _MOST_BYTES), type=FleetState)
    except FileNotFoundError:
        return None
    except (OSError, *DECODE_ERRORS) as error:
        raise FleetError(f"{path} is not a fleet state ({error}): move it away, or give another --state") from error
    if kept.schema != 1:
        raise FleetError(f"{path} is of another release of specnav: end that fleet first, or give another --state")
    return kept


def write_kept(folder: Path, kept: FleetState) -> None:
    """Keep it. Raises FleetError."""
    keep(folder, STATE_FILE, pretty_json(kept))


def keep(folder: Path, name: str, data: bytes) -> None:
    """Write a file of the fleet, whole or not at all, for its owner alone. Raises FleetError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_private(folder / name, data)
    except OSError as error:
        raise FleetError(f"cannot keep the fleet's state in {folder}: {error.strerror}") from error


def forget_kept(folder: Path) -> None:
    """The fleet is down: nothing is taken up again."""
    (folder / STATE_FILE).unlink(missing_ok=True)
