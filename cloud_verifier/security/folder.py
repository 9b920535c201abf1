# SPDX-License-Identifier: Apache-2.0
"""A key ring on disk: `server.key`, `clients/NAME.json`, and `edges/NAME.key` for keys that were not handed out yet.

Every file is written whole or not at all, so a server may read at any time. Only `server.key` and `edges/` are secret.
A server needs only `server.key` and `clients/`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import zmq
from msgspec import Struct

from cloud_verifier.errors import VerifierError
from cloud_verifier.security.records import ClientKey, Previous, check_name
from specdec.errors import DECODE_ERRORS, OptionsError
from specdec.link.keys import (
    CURVE_MISSING,
    EdgeKey,
    Z85Key,
    public_of,
    read_key,
    read_private,
    write_key,
    write_private,
)
from specdec.settings_files import MOST_KEY_BYTES, read_file
from specdec.whole_files import alone_in, pretty_json

SERVER_KEY, CLIENTS, EDGES = "server.key", "clients", "edges"


class ServerKey(Struct, frozen=True, forbid_unknown_fields=True):
    """The server's key pair."""

    public: Z85Key
    secret: Z85Key

    def __repr__(self) -> str:
        return f"ServerKey({self.public})"


def new_pair() -> tuple[str, str]:
    """A new public key and its secret. Raises VerifierError if ZeroMQ was built without encryption."""
    if not zmq.has("curve"):
        raise VerifierError(CURVE_MISSING)
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


class KeyFolder:
    """A key ring for administration: make, revoke, rotate and export keys. Every method raises VerifierError."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def server_key(self) -> ServerKey:
        """The server's key pair, checked."""
        place = self.path / SERVER_KEY
        try:
            data = read_private(place, "the server's key", "specnav keys new NAME makes one, with the folder")
            key = msgspec.json.decode(data, type=ServerKey)
            fits = key.public == public_of(key.secret)
        except OptionsError as error:
            raise VerifierError(str(error)) from error
        except (*DECODE_ERRORS, zmq.ZMQError) as error:
            raise VerifierError(
                f"{place} is not a server key: restore a copy, or make a new folder"
            ) from error
        if not fits:
            raise VerifierError(f"{place} holds two keys that do not belong together: restore a copy")
        return key

    def create(self) -> None:
        """Create the folder and the server's key if they do not exist."""
        with self._writing():
            for folder in (self.path, self.path / CLIENTS, self.path / EDGES):
                if folder.exists() and not folder.is_dir():
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.path / SERVER_KEY).exists():
            try:
                self._write_server_key(fresh=True)
            except FileExistsError:
                return  # another process was quicker

    def new(self, client: ClientKey, secret: str) -> None:
        """Add a client, whose public key is that of `secret`."""
        try:
            self._write_client(client, fresh=True)
        except FileExistsError:
            state = "" if self.client(client.name).revoked is None else ", and revoked"
            raise VerifierError(
                f"a client named {client.name} exists already{state}: rotate its key or choose another name"
            ) from None
        self._write_edge(client, secret)

    def client(self, name: str) -> ClientKey:
        """The record of a client."""
        place = self.path / CLIENTS / f"{check_name(name)}.json"
        if not place.is_file():
            raise VerifierError(
                f"there is no client {name} in {self.path}: specnav keys list shows all clients"
            )
        return read_client(place)

    def revoke(self, name: str, now: datetime) -> ClientKey:
        """Revoke a client's key."""
        with alone_in(self.path):
            client = self.client(name)
            if client.revoked is None:
                client = msgspec.structs.replace(client, revoked=now, previous=None)
                self._write_client(client)
        with self._writing():
            (self.path / EDGES / f"{name}.key").unlink(missing_ok=True)
        return client

    def rotate(self, name: str, now: datetime, grace: timedelta) -> ClientKey:
        """Make a new key for a client, revoked or not; an unrevoked previous key stays valid for `grace`."""
        public, secret = new_pair()
        with alone_in(self.path):
            client = self.client(name)
            kept = grace > timedelta(0) and client.revoked is None
            previous = Previous(client.public, now + grace) if kept else None
            client = msgspec.structs.replace(client, public=public, created=now, revoked=None, previous=previous)
            self._write_edge(client, secret)
            self._write_client(client)
        return client

    def rotate_server(self) -> None:
        """Make a new key for the server, used from its next start on; every edge then needs a new key file."""
        self.server_key()
        self._write_server_key()

    def export(self, name: str) -> EdgeKey:
        """The key file for a client's edge, with the server's current key."""
        client = self.client(name)
        if client.revoked is not None:
            raise VerifierError(f"the key of {name} is revoked: specnav keys rotate {name} makes a new one")
        place = self.path / EDGES / f"{name}.key"
        if not place.exists():
            raise VerifierError(
                f"the secret of {name} is no longer stored here: specnav keys rotate {name} makes a new one"
            )
        try:
            key = read_key(place)
        except OptionsError as error:
            raise VerifierError(str(error)) from error
        if key.public != client.public:
            raise VerifierError(
                f"{place} does not match the current key: specnav keys rotate {name} makes a new one"
            )
        return msgspec.structs.replace(key, verifier=self.server_key().public)

    def forget_secret(self, name: str) -> None:
        """Delete a client's secret after it was handed out."""
        with self._writing():
            (self.path / EDGES / f"{check_name(name)}.key").unlink(missing_ok=True)

    def _write_client(self, client: ClientKey, fresh: bool = False) -> None:
        data = pretty_json(client)
        with self._writing():
            write_private(self.path / CLIENTS / f"{check_name(client.name)}.json", data, fresh)

    def _write_edge(self, client: ClientKey, secret: str) -> None:
        key = EdgeKey(client.name, client.public, secret, self.server_key().public)
        with self._writing():
            write_key(self.path / EDGES / f"{client.name}.key", key)

    def _write_server_key(self, fresh: bool = False) -> None:
        data = msgspec.json.encode(ServerKey(*new_pair())) + b"\n"
        with self._writing():
            write_private(self.path / SERVER_KEY, data, fresh)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise
        except OSError as error:
            raise VerifierError(
                f"cannot write in {self.path} ({error.strerror}): choose another folder"
            ) from error


def read_client(path: Path) -> ClientKey:
    """Read one client's file. Raises VerifierError if it is not valid."""
    try:
        client = msgspec.json.decode(read_file(path, MOST_KEY_BYTES), type=ClientKey)
    except OSError as error:
        raise VerifierError(f"cannot read {path} ({error.strerror})") from error
    except DECODE_ERRORS as error:
        raise VerifierError(f"{path} is not a client's file ({error})") from error
    if client.name != path.stem:
        raise VerifierError(
            f"{path} is the file of client {client.name!r}: the file must have the client's name"
        )
    if client.created.tzinfo is None or (
        client.previous is not None and client.previous.until.tzinfo is None
    ):
        raise VerifierError(f"{path} has a time without a zone: end it with Z")
    return client


def client_files(path: Path) -> list[Path]:
    """The files of all clients, in order. Raises OSError."""
    return sorted(
        file for file in (path / CLIENTS).iterdir() if file.suffix == ".json" and file.name[0] != "."
    )
