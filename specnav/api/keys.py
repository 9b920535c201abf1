# SPDX-License-Identifier: Apache-2.0
"""API keys: a file with a name and the hash of a secret on each line. The secrets are kept only by their owners.

A key is 256 random bits, so a plain hash reveals nothing. The file is read again when it changes: removing a line locks
its owner out from the next request on.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path

from cloud_verifier.logs import EventLog
from specdec.errors import OptionsError
from specdec.link.keys import read_private, write_private
from specdec.whole_files import alone_in
from specnav.api.errors import ApiError
from specnav.errors import UsageError

PREFIX = "sk-specnav-"
_NAME = re.compile(r"[\w.-]{1,64}")
_HASH = re.compile(r"[0-9a-f]{64}")
_REMEDY = "specnav api --new-key NAME --api-keys FILE makes one"


def hash_of(secret: str) -> str:
    """The hash of a secret, as stored in the file."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def new_key(path: Path, name: str) -> str:
    """Add a key to the file, which is created if necessary. Returns the secret, which is stored nowhere.

    Raises UsageError.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"name {name!r} is not usable: use up to 64 letters, digits, dots, _ and -")
    secret = PREFIX + secrets.token_urlsafe(32)
    try:
        with alone_in(path.parent):
            known = read_keys(path) if path.exists() else {}
            if name in known.values():
                raise UsageError(f"{path} has a key {name} already: choose another name, or remove its line")
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            write_private(path, "".join(f"{line}\n" for line in [*lines, f"{name} {hash_of(secret)}"]).encode())
    except OSError as error:
        raise UsageError(f"cannot write {path} ({error.strerror}): choose another file") from error
    return secret


def read_keys(path: Path) -> dict[str, str]:
    """Names by hash. Empty lines and those that begin with # are skipped. Raises UsageError."""
    try:
        text = read_private(path, "the file of API keys", _REMEDY).decode()
    except OptionsError as error:
        raise UsageError(str(error)) from error
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a file of API keys: {_REMEDY}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not _NAME.fullmatch(words[0]) or not _HASH.fullmatch(words[1]):
            raise UsageError(f"{path}, line {number}: a line must be a name and the hash of a key; {_REMEDY}")
        found[words[1]] = words[0]
    return found


class ApiKeys:
    """The keys that are valid now. If the file becomes unreadable, its last content stays valid, and the log says so:
    perhaps a key was to be revoked.
    """

    def __init__(self, path: Path, log: EventLog) -> None:
        """Raises UsageError."""
        self._path = path
        self._log = log
        self._seen: tuple[int, int, int] | None = self._state()
        self._names = read_keys(path)

    def owner(self, authorization: str) -> str:
        """The owner named by an Authorization header. Raises ApiError for a missing or unknown key."""
        kind, _, secret = authorization.partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            raise ApiError(401, "no API key was given: send it as Authorization: Bearer KEY", code="missing_api_key")
        self._look()
        name = self._names.get(hash_of(secret.strip()))  # looked up by hash, so that timing reveals nothing of a secret
        if name is None:
            raise ApiError(401, "the API key is unknown or was removed", code="invalid_api_key")
        return name

    def _look(self) -> None:
        state = self._state()
        if state == self._seen:
            return
        try:
            self._names = read_keys(self._path)
        except UsageError as error:  # read again at the next request: its mode may change alone
            self._log.warning("keys_unreadable", reason=str(error))
            return
        self._seen = state

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
