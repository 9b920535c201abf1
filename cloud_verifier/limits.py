# SPDX-License-Identifier: Apache-2.0
"""What one client may ask for, and how it is counted. No sockets and no models; time comes from a clock.

A request above a bound is refused, and the bound is reported; nothing here ends a session.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from cloud_verifier.errors import VerifierError
from specdec.link.pictures import pictures_of
from specdec.link.wire import MAX_DRAFT, MAX_IMAGES, DraftUp, HiddenUp, Open, PartUp, SampledUp, Up
from specdec.settings import check_settings, setting

MEBIBYTE = 2**20
_BYTES_AN_ID = 40
"""A token id takes this many bytes once it is decoded: a place in a list, and a number."""
_BYTES_A_MESSAGE = 500
_UNIT_BYTES = 2**16
"""A message costs one unit more for every this many bytes of its length."""
_UNIT_IDS = 1000
"""It also costs one unit more per this many token ids: checking them takes about as long as a short message."""


@dataclass(frozen=True)
class Limits:
    """Bounds on one client: all connections of a key together, or one connection if there are no keys. output_bytes
    always bounds a single connection.

    messages_per_s is an average. A message counts once, and once more for every 64 kB, every 1000 token ids and every
    picture. queued_bytes and queued_forwards bound what waits for the engine.
    """

    sessions: int = setting(8, "Sessions that one client may have open.", 1, 100_000)
    queued_bytes: int = setting(64 * MEBIBYTE, "Size of its waiting messages.", 1024, 1 << 40)
    queued_forwards: int = setting(64, "Messages of one client that wait for the engine.", 1, 100_000)
    draft_nodes: int = setting(512, "Tokens in one draft.", 1, MAX_DRAFT)
    messages_per_s: float = setting(
        2000.0,
        "Messages per second of one client on average, twice as many in a burst; a message counts once more for every "
        "64 kB, every 1000 token ids and every picture.",
        1,
        10_000_000,
    )
    burst: int = setting(4000, "Messages in a burst.", 1, 10_000_000)
    images: int = setting(MAX_IMAGES, "Images in a prompt.", 0, MAX_IMAGES)
    image_pixels: int = setting(32_000_000, "Pixels of all images in a prompt together.", 1, 1 << 31)
    output_bytes: int = setting(
        MEBIBYTE, "Replies that a connection has not read; above this its sessions pause.", 1024, 1 << 40
    )
    picture_bytes: int = setting(
        16 * MEBIBYTE, "Pictures kept, so that they can be named instead of sent again; 0: none.", 0, 1 << 40
    )

    def __post_init__(self) -> None:
        """Raises VerifierError for a bound out of its range."""
        check_settings(self, VerifierError)


class TokenBucket:
    """Token bucket: allows `rate` units per second on average and `burst` units at once. Times are in seconds."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left = burst
        self._filled_s = clock()

    def take(self, amount: float = 1.0) -> bool:
        """Take `amount`, but at most one burst. Returns False, and takes nothing, if too little is left."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._filled_s) * self._rate)
        self._filled_s = now
        if self._left < min(amount, self._burst):
            return False
        self._left -= min(amount, self._burst)
        return True

    def owe(self, amount: float) -> None:
        """Charge units that have passed already; the debt, one burst at most, must refill before the next take()."""
        self._left = max(-self._burst, self._left - amount)


def units_of(size: int) -> int:
    """How much a message of this many bytes counts against messages_per_s."""
    return 1 + size // _UNIT_BYTES


def labour_of(message: Up) -> int:
    """How much checking a message counts against messages_per_s, in addition to its length."""
    if isinstance(message, Open):
        return len(message.images) + (len(message.ids) + len(message.history)) // _UNIT_IDS
    if isinstance(message, PartUp):
        return labour_of(message.draft)
    return len(message.ids) // _UNIT_IDS if isinstance(message, DraftUp | SampledUp) else 0


def vain_labour_of(size: int) -> int:
    """Like labour_of, for a malformed message of this many bytes: the error may be in its last byte."""
    return size // _UNIT_IDS


def weight_of(message: Up) -> int:
    """Approximate number of bytes that a decoded message occupies while it waits."""
    weight = _BYTES_A_MESSAGE
    if isinstance(message, PartUp):
        return weight_of(message.draft)
    if isinstance(message, Open):
        weight += _BYTES_AN_ID * (len(message.ids) + len(message.history))
        weight += sum(map(len, pictures_of(message)))
    elif isinstance(message, DraftUp):
        weight += _BYTES_AN_ID * len(message.ids) * (1 if message.parents is None else 2)
    elif isinstance(message, SampledUp):
        weight += _BYTES_AN_ID * len(message.ids) + len(message.q)
    elif isinstance(message, HiddenUp):
        weight += len(message.data)
    return weight


@dataclass
class ClientAccount:
    """One owner's messages that wait for the engine."""

    queued_bytes: int = 0
    queued_forwards: int = 0


class Ledger:
    """Messages that wait for the engine, by owner. Charged on arrival, given back in the engine's thread."""

    def __init__(self, total_bytes: int) -> None:
        """total_bytes: bound for all clients together."""
        self._total_bytes = total_bytes
        self._lock = threading.Lock()
        self._accounts: dict[bytes, ClientAccount] = {}
        self._queued_bytes = 0

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting, of all clients together."""
        return self._queued_bytes

    def account(self, client: bytes) -> ClientAccount:
        """A copy of a client's account."""
        with self._lock:
            return replace(self._accounts.get(client, ClientAccount()))

    def charge(self, client: bytes, weight: int, limits: Limits) -> str:
        """Count a message that is about to wait. Returns "", or, without counting it, the bound that it breaks."""
        with self._lock:
            account = self._accounts.get(client, ClientAccount())
            if account.queued_forwards >= limits.queued_forwards:
                return f"{account.queued_forwards} of your messages are waiting: {limits.queued_forwards} are allowed"
            # A single message may always wait: its length is checked elsewhere.
            if account.queued_bytes and account.queued_bytes + weight > limits.queued_bytes:
                mine, most = _megabytes(account.queued_bytes), _megabytes(limits.queued_bytes)
                return f"{mine} of your messages are waiting: {most} are allowed"
            if self._queued_bytes and self._queued_bytes + weight > self._total_bytes:
                return f"too many messages of all clients are waiting: {_megabytes(self._total_bytes)} are allowed"
            account.queued_forwards += 1
            account.queued_bytes += weight
            self._queued_bytes += weight
            self._accounts[client] = account
            return ""

    def give_back(self, client: bytes, weight: int) -> None:
        """A message has stopped waiting; from any thread."""
        with self._lock:
            account = self._accounts.get(client)
            if account is None:
                return
            self._queued_bytes -= weight
            account.queued_bytes -= weight
            account.queued_forwards -= 1
            if account.queued_forwards <= 0:
                del self._accounts[client]


def _megabytes(size: int) -> str:
    return f"{size / MEBIBYTE:.3g} MB"
