# SPDX-License-Identifier: Apache-2.0
"""An edge's key: one private file with the client's name and key pair, and the public key of the verifier it trusts.

`specnav keys export` writes the file; only its owner may read it. Keys are CURVE keys in Z85 (40 characters).
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import Annotated

import msgspec
import zmq
from msgspec import Meta, Struct
from zmq.utils import z85

from specdec.errors import DECODE_ERRORS, OptionsError
from specdec.settings_files import MOST_KEY_BYTES, FileRefused, read_file
from specdec.whole_files import pretty_json, write_whole

CURVE_MISSING = "this pyzmq was built without CURVE: install the wheel of pyzmq from PyPI"

Z85Key = Annotated[str, Meta(pattern=r"^[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}$", max_length=40)]


class EdgeKey(Struct, frozen=True, forbid_unknown_fields=True):
    """An edge's credentials. public, secret: its own key pair. verifier: public key of the verifier it trusts."""

    name: str
    public: Z85Key
    secret: Z85Key
    verifier: Z85Key

    def __post_init__(self) -> None:
        check_key(self.verifier)

    def __repr__(self) -> str:
        return f"EdgeKey({self.name!r})"


def check_key(key: str) -> None:
    """Raise ValueError for a text of Z85 characters that stands for no 32 bytes: five characters can exceed 32 bits."""
    try:
        z85.decode(key)
    except struct.error as error:
        raise ValueError("not a key") from error


def read_key(path: str | Path) -> EdgeKey:
    """Read a key file. Raises OptionsError if it is missing, readable by others, or not a key."""
    data = read_private(path, "key file", "get one with specnav keys export NAME --to FILE")
    try:
        key = msgspec.json.decode(data, type=EdgeKey)
        fits = key.public == public_of(key.secret)
    except (*DECODE_ERRORS, zmq.ZMQError) as error:
        # The decoder's message may quote the file's contents, so it is left out.
        raise OptionsError(f"{path} is not a key file of an edge: export it again") from error
    if not fits:
        raise OptionsError(f"{path} holds a public and a secret key that do not match: export it again")
    return key


def write_key(path: str | Path, key: EdgeKey) -> None:
    """Write a key file atomically, readable only by its owner. Raises OSError."""
    write_private(path, pretty_json(key))


def use_key(socket: zmq.Socket[bytes], key: EdgeKey) -> None:
    """Make a socket authenticate with this key, and accept only the verifier that the key trusts."""
    socket.curve_serverkey = key.verifier.encode()
    socket.curve_publickey = key.public.encode()
    socket.curve_secretkey = key.secret.encode()


def public_of(secret: str) -> str:
    """The public key of a secret key. Raises OptionsError if ZeroMQ was built without encryption."""
    if not zmq.has("curve"):
        raise OptionsError(CURVE_MISSING)
    return zmq.curve_public(secret.encode()).decode()


def read_private(path: str | Path, what: str, remedy: str) -> bytes:
    """Read a file that only its owner may access. Raises OptionsError for any other file."""
    try:
        return read_file(path, MOST_KEY_BYTES, private=True)
    except OSError as error:
        if isinstance(error, FileRefused) and error.errno == errno.EPERM:
            raise OptionsError(f"others may read {what} {path}: chmod 600 {path}") from error
        if error.errno == errno.EACCES:
            remedy = f"it must belong to this program's user, chown {os.geteuid()} {path}"
        raise OptionsError(f"cannot read {what} {path} ({error.strerror}): {remedy}") from error


def write_private(path: str | Path, data: bytes, fresh: bool = False) -> None:
    """Write a file atomically, readable only by its owner.

    fresh: raise FileExistsError if it exists. Raises OSError.
    """
    write_whole(path, data, private=True, fresh=fresh)
