"""Key rings, and edges that have keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cloud_verifier.classes import ClientClass
from cloud_verifier.security.folder import KeyFolder, new_pair
from cloud_verifier.security.keyring import utc_now
from cloud_verifier.security.records import ClientKey, Quota
from specdec.edge.decoder import connect
from specdec.link import Link
from specdec.link.keys import write_key
from tests.helpers.servers import PATIENCE_S, Pair, RunningServer, StartServer


@dataclass(frozen=True)
class Keys:
    """A key ring, and the edges' files made of it."""

    folder: KeyFolder
    place: Path

    def new(self, name: str, quota: Quota = Quota(), of_class: ClientClass = ClientClass.ROBOT) -> Path:
        public, secret = new_pair()
        self.folder.new(ClientKey(name, public, utc_now(), of_class, quota), secret)
        return self.export(name)

    def export(self, name: str) -> Path:
        file = self.place / f"{name}.key"
        write_key(file, self.folder.export(name))
        return file


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """A fresh key ring."""
    folder = KeyFolder(tmp_path / "ring")
    folder.create()
    return Keys(folder, tmp_path)


@pytest.fixture
def linked() -> Iterator:
    """linked(address, key) -> a patient link, closed at the end of the test."""
    links: list[Link] = []

    def make(address: str, key: Path | None = None) -> Link:
        links.append(connect(address, PATIENCE_S, PATIENCE_S, key=key))
        return links[-1]

    yield make
    for link in links:
        link.close()


def started(start_server: StartServer, pair: Pair, keys: Keys) -> RunningServer:
    return start_server(pair.target, keys=str(keys.folder.path))
