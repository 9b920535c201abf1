# SPDX-License-Identifier: Apache-2.0
"""What travels between a process and its workers: frames of msgpack, each behind its length.

Both directions are decoded into these types and nothing else.
"""

from __future__ import annotations

import socket
import struct
import time

import msgspec

LARGEST_FRAME = 1 << 28
"""Of a reply: the pixels of a picture."""
_LENGTH = struct.Struct("<I")


class Compile(msgspec.Struct, tag=True):
    """The first job of a worker that follows a grammar. vocabulary: which of the launcher's. Returns in `ids` the
    tokens of its shortest answer.
    """

    vocabulary: int
    text: str


class Followed(msgspec.Struct):
    """Something about one answer of a grammar's. follower: which answer. base: this many of its tokens are as they
    were with the last job about it; ids: those behind.
    """

    follower: int
    base: int
    ids: list[int]


class Masks(Followed, tag=True):
    """What may follow the answer + each tail. Returns in `data` a row of bits a tail."""

    tails: list[list[int]]


class Forced(Followed, tag=True):
    """What must follow the answer, at most this many tokens. Returns `ids`."""

    most: int


class Ways(Followed, tag=True):
    """The few ways on (specdec.sampling.choices), at most this many nodes. Returns `ids`, `parents` and `sizes`."""

    most: int


class Picture(msgspec.Struct, tag=True):
    """A picture to decode and to resize; its encoded bytes follow in a frame of their own. factor 0: to at most `most`
    pixels; else as `smart_resize` does it, in multiples of the factor, with `least` to `most` pixels. Returns `data`,
    RGB, of `width` and `height`.
    """

    factor: int
    least: int
    most: int


class WorkerJob(msgspec.Struct):
    """What a worker is to do, and the seconds that it may take of a CPU and in all."""

    cpu_s: float
    wall_s: float
    body: Compile | Masks | Forced | Ways | Picture


OK, REFUSED, UNUSABLE, AGAIN = "ok", "refused", "unusable", "again"
"""Of a job: done; the input is wrong (OptionsError); it cannot be used (ModelError); send all ids of the answer."""


class WorkerReply(msgspec.Struct):
    """What came of a job. cpu_s: what it took. memory: bytes that its process takes more than when it began."""

    status: str = OK
    cpu_s: float = 0.0
    text: str = ""
    ids: list[int] = []
    parents: list[int] = []
    sizes: list[int] = []
    data: bytes = b""
    width: int = 0
    height: int = 0
    memory: int = 0


class Vocabulary(msgspec.Struct, tag=True):
    """To a launcher: a tokenizer (tokenizer.json) that grammars are compiled for."""

    tokenizer: str
    vocab_size: int
    eos_ids: list[int]


class Fork(msgspec.Struct, tag=True):
    """To a launcher: make a worker that listens on the socket that comes along. memory: bytes that it may take more
    than the launcher has.
    """

    memory: int


class Reap(msgspec.Struct, tag=True):
    """To a launcher: a worker was killed, or has ended. Until then nothing else gets its process id."""

    pid: int


class Launched(msgspec.Struct):
    """A launcher's answer. number: of the vocabulary; the process id of the worker; the signal that has ended it."""

    number: int = 0
    text: str = ""


def send(to: socket.socket, message: msgspec.Struct, beside: bytes | None = None) -> None:
    """beside: goes in a frame of its own, without being copied. Raises OSError."""
    data = msgspec.msgpack.encode(message)
    to.sendall(_LENGTH.pack(len(data)) + data)
    if beside is not None:
        to.sendall(_LENGTH.pack(len(beside)))
        to.sendall(beside)


def receive(
    source: socket.socket, largest: int = LARGEST_FRAME, until_s: float | None = None, head: bytes = b""
) -> bytearray | None:
    """The next frame; None at the end. until_s: of time.monotonic, when all of it must be there. head: what has come of
    its length already.

    Raises OSError (TimeoutError among them), ValueError for a frame that is too long.
    """
    rest = _exactly(source, _LENGTH.size - len(head), until_s)
    if rest is None:
        return None
    (length,) = _LENGTH.unpack(head + rest)
    if length > largest:
        raise ValueError(f"a frame of {length} bytes")
    return _exactly(source, length, until_s)


def _exactly(source: socket.socket, length: int, until_s: float | None) -> bytearray | None:
    found = bytearray(length)
    view, at = memoryview(found), 0
    while at < length:
        if until_s is not None:
            source.settimeout(max(0.001, until_s - time.monotonic()))
        count = source.recv_into(view[at:])
        if not count:
            return None
        at += count
        if until_s is not None and time.monotonic() > until_s:
            raise TimeoutError("a frame does not come to its end")
    return found
