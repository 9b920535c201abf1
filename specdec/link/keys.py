# SPDX-License-Identifier: Apache-2.0
"""An edge's key: one private file with the client's key pair, its name, and the public key of the verifier it trusts.

`specnav keys export` writes it; only its owner may read it. Keys are CURVE keys in ZeroMQ's spelling (Z85, 40 letters).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Annotated

import msgspec
import zmq
from msgspec import Meta, Struct

from specdec.errors import DECODE_ERRORS, OptionsError
from specdec.settings_files import MOST_KEY_BYTES, FileRefused, read_file
from specdec.whole_files import pretty_json, write_whole

CURVE_MISSING = "this pyzmq was built without CURVE: install the wheel of pyzmq from PyPI"

Z85Key = Annotated[str, Meta(pattern=r"^[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}$")]


class EdgeKey(Struct, frozen=True, forbid_unknown_fields=True):
    """What an edge shows and whom it trusts. public, secret: its own pair; verifier: the verifier's public key."""

    name: str
    public: Z85Key
    secret: Z85Key
    verifier: Z85Key

    def __repr__(self) -> str:
        return f"EdgeKey({self.name!r})"


def read_key(path: str | Path) -> EdgeKey:
    """The key in a file. Raises OptionsError where it is missing, readable by others, or no key."""
    data = read_private(path, "key file", "get one with specnav keys export NAME --to FILE")
    try:
        key = msgspec.json.decode(data, type=EdgeKey)
        fits = key.public == public_of(key.secret)
    except (*DECODE_ERRORS, zmq.ZMQError) as error:
        # The decoder's words may quote what is in the file: they stay out of the line.
        raise OptionsError(f"{path} is not a key file of an edge: export it again") from error
    if not fits:
        raise OptionsError(f"{path} holds two keys that do not belong together: export it again")
    return key


def write_key(path: str | Path, key: EdgeKey) -> None:
    """Write a key for its owner's eyes only, whole or not at all. Raises OSError."""
    write_private(path, pretty_json(key))


def use_key(socket: zmq.Socket[bytes], key: EdgeKey) -> None:
    """Let a socket show this key to the verifier it connects to, and trust no other verifier."""
    socket.curve_serverkey = key.verifier.encode()
    socket.curve_publickey = key.public.encode()
    socket.curve_secretkey = key.secret.encode()


def public_of(secret: str) -> str:
    """The public half of a secret key. Raises OptionsError where ZeroMQ cannot encrypt."""
    if not zmq.has("curve"):
        raise OptionsError(CURVE_MISSING)
    return zmq.curve_public(secret.encode()).decode()


def read_private(path: str | Path, what: str, remedy: str) -> bytes:
    """The bytes of a file that only its owner may read. Raises OptionsError for any other."""
    try:
        return read_file(path, MOST_KEY_BYTES, private=True)
    except OSError as error:
        if isinstance(error, FileRefused) and error.errno == errno.EPERM:
            raise OptionsError(f"others may read {what} {path}: chmod 600 {path}") from error
        if error.errno == errno.EACCES:
            remedy = f"it must belong to this program's user, chown {os.geteuid()} {path}"
        raise OptionsError(f"cannot read {what} {path} ({error.strerror}): {remedy}") from error


def write_private(path: str | Path, data: bytes, fresh: bool = False) -> None:
    """Write a file that only its owner may read: whole or not at all, whoever reads it meanwhile.

    fresh: raise FileExistsError where it is there already. Raises OSError.
    """
    write_whole(path, data, private=True, fresh=fresh)
