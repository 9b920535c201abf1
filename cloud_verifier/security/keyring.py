# SPDX-License-Identifier: Apache-2.0
"""A key ring as a running server sees it: who holds which key. Changed files are read again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from cloud_verifier.errors import VerifierError
from cloud_verifier.logs import EventLog
from cloud_verifier.security.folder import CLIENTS, KeyFolder, ServerKey, client_files, read_client
from cloud_verifier.security.records import ClientKey

_SETTLED_NS = 50_000_000
"""Folder timestamps advance in steps of up to 10 ms: a second change within one step would go unnoticed."""


def utc_now() -> datetime:
    """The current time in UTC, for records."""
    return datetime.now(timezone.utc).replace(microsecond=0)


class Keyring:
    """Clients by name and by public key. An invalid client file shuts out that client and no other."""

    def __init__(self, path: str | Path, log: EventLog, now: Callable[[], datetime] = utc_now) -> None:
        """Read a folder. Raises VerifierError if it has no usable server key or no clients folder."""
        self.path = Path(path)
        self.server: ServerKey = KeyFolder(path).server_key()
        self._log = log
        self._now = now
        self._by_name: dict[str, ClientKey] = {}
        self._by_public: dict[str, ClientKey] = {}
        self._read: dict[Path, tuple[tuple[int, int, int], ClientKey | None]] = {}
        self._unreadable = False
        self._changed_ns: int | None = None
        if not (self.path / CLIENTS).is_dir():
            raise VerifierError(f"{self.path} has no folder {CLIENTS}: specnav keys new NAME makes one")
        self.refresh()

    def __len__(self) -> int:
        return len(self._by_name)

    def client(self, name: str) -> ClientKey | None:
        """The client with this name, revoked or not."""
        return self._by_name.get(name)

    def owner(self, public: str) -> ClientKey | None:
        """The client whose public key this is or was, revoked or not."""
        return self._by_public.get(public)

    def holder(self, public: str) -> ClientKey | None:
        """The client that is admitted with this public key, or None."""
        client = self._by_public.get(public)
        if client is None or client.revoked is not None:
            return None
        if client.public == public:  # checked first, because this runs for every message
            return client
        previous = client.previous
        return client if previous is not None and self._now() < previous.until else None

    @property
    def is_touched(self) -> bool:
        """Whether a client may have been added, revoked or rotated since `refresh`; one stat call for any
        number of clients.
        """
        try:
            return (self.path / CLIENTS).stat().st_mtime_ns != self._changed_ns
        except OSError:
            return False

    def refresh(self) -> bool:
        """Read changed files; returns whether any had changed. Keeps the previous state while the folder is
        unreadable.
        """
        try:
            changed_ns = (self.path / CLIENTS).stat().st_mtime_ns
            self._changed_ns = changed_ns if abs(time.time_ns() - changed_ns) > _SETTLED_NS else None
            found = {}
            for file in client_files(self.path):
                with contextlib.suppress(FileNotFoundError):  # deleted in between
                    found[file] = _stamp(file)
        except OSError as error:
            if not self._unreadable:
                self._log.error("keyring_unreadable", folder=str(self.path), reason=error.strerror)
            self._unreadable = True
            return False
        self._unreadable = False
        if found == {file: stamp for file, (stamp, _) in self._read.items()}:
            return False
        before, self._read = self._read, {}
        for file, stamp in found.items():
            known = before.get(file)
            if known is None or known[0] != stamp:
                known = stamp, self._client_in(file)
            self._read[file] = known
        clients = [client for _, client in self._read.values() if client is not None]
        self._by_name = {client.name: client for client in clients}
        # If two files have the same key, the revoked one counts.
        clients.sort(key=lambda client: client.revoked is not None)
        self._by_public = {}
        for client in clients:
            if client.previous is not None:
                self._by_public[client.previous.public] = client
            self._by_public[client.public] = client
        return True

    def _client_in(self, file: Path) -> ClientKey | None:
        try:
            return read_client(file)
        except VerifierError as error:
            self._log.error("client_left_out", client=file.stem, reason=str(error))
            return None


def _stamp(file: Path) -> tuple[int, int, int]:
    """A fingerprint that changes when the file, its owner or its mode does."""
    about = file.lstat()
    return about.st_ctime_ns, about.st_size, about.st_ino
