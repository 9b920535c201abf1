# SPDX-License-Identifier: Apache-2.0
"""Messages between a process and its workers: msgpack frames with a length prefix.

Both directions are decoded into these types and nothing else.
"""

from __future__ import annotations

import socket
import struct
import time

import msgspec

LARGEST_FRAME = 1 << 28
"""Most bytes per frame; the largest is a reply with the pixels of a picture."""
_LENGTH = struct.Struct("<I")


class Compile(msgspec.Struct, tag=True):
    """The first job of a grammar worker. vocabulary: its number in the launcher. Returns in `ids` the token count of
    the shortest answer.
    """

    vocabulary: int
    text: str


class Followed(msgspec.Struct):
    """A job about one answer that follows the grammar. follower: number of the answer. base: length of the prefix that
    is unchanged since the last job about it. ids: the tokens after it.
    """

    follower: int
    base: int
    ids: list[int]


class Masks(Followed, tag=True):
    """Allowed tokens after the answer + each tail. Returns in `data` one row of bits per tail."""

    tails: list[list[int]]


class Forced(Followed, tag=True):
    """The forced tokens after the answer, at most `most`. Returns `ids`."""

    most: int


class Ways(Followed, tag=True):
    """The possible continuations, if few (specdec.sampling.choices), in at most `most` nodes. Returns `ids`, `parents`
    and `sizes`.
    """

    most: int


class Picture(msgspec.Struct, tag=True):
    """A picture to decode and resize; its encoded bytes follow in a separate frame. factor 0: resize to at most `most`
    pixels. Otherwise resize as `smart_resize` does: sides are multiples of the factor, with `least` to `most` pixels.
    Returns RGB `data` of size `width` x `height`.
    """

    factor: int
    least: int
    most: int


class WorkerJob(msgspec.Struct):
    """A job for a worker. cpu_s: most CPU seconds. wall_s: most elapsed seconds."""

    cpu_s: float
    wall_s: float
    body: Compile | Masks | Forced | Ways | Picture


OK, REFUSED, UNUSABLE, AGAIN = "ok", "refused", "unusable", "again"
"""Status of a job: done; wrong input (OptionsError); unusable input (ModelError); send again with all ids."""


class WorkerReply(msgspec.Struct):
    """The result of a job. cpu_s: CPU seconds used. memory: bytes by which the process has grown since its start."""

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
    """To a launcher: prepare a tokenizer (the text of tokenizer.json) for compiling grammars."""

    tokenizer: str
    vocab_size: int
    eos_ids: list[int]


class Fork(msgspec.Struct, tag=True):
    """To a launcher: fork a worker that serves the socket sent along. memory: bytes that it may use beyond the
    launcher's size.
    """

    memory: int


class Reap(msgspec.Struct, tag=True):
    """To a launcher: reap a worker that was killed or has exited. Until then its process id is not reused."""

    pid: int


class Launched(msgspec.Struct):
    """A launcher's reply. number: the vocabulary's number, the worker's process id, or its exit code, by request; -1:
    the vocabulary cannot be used, and `text` says why.
    """

    number: int = 0
    text: str = ""


def send(to: socket.socket, message: msgspec.Struct, beside: bytes | None = None) -> None:
    """Send a message. beside: bytes sent in a separate frame, without a copy. Raises OSError."""
    data = msgspec.msgpack.encode(message)
    to.sendall(_LENGTH.pack(len(data)) + data)
    if beside is not None:
        to.sendall(_LENGTH.pack(len(beside)))
        to.sendall(beside)


def receive(
    source: socket.socket, largest: int = LARGEST_FRAME, until_s: float | None = None, head: bytes = b""
) -> bytearray | None:
    """Receive the next frame.

    Args:
        source: The socket.
        largest: Most bytes.
        until_s: Deadline for the whole frame, in time.monotonic seconds; None: no deadline.
        head: Bytes of the length prefix that were received already.

    Returns:
        The frame; None at the end of the stream.

    Raises:
        OSError: The socket failed, or the deadline passed (TimeoutError).
        ValueError: The frame is too long.
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
            raise TimeoutError("a frame did not arrive in time")
    return found
