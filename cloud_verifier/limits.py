# SPDX-License-Identifier: Apache-2.0
"""What one client may ask for, and how it is counted. No sockets and no models; time comes from a clock.

Whatever is over a bound is refused with what is allowed; nothing here ends a session.
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
"""A message counts once more for every this many bytes that it is long."""
_UNIT_IDS = 1000
"""And once more for every this many token ids, which take about as long to look at as a short message takes."""


@dataclass(frozen=True)
class Limits:
    """Bounds on one client: all connections of a key together, without keys one connection. Only output_bytes is of
    a connection in any case.

    messages_per_s: on average (a message counts once, and once more for every 64 kB, every 1000 token ids and every
    picture). What waits for the engine: queued_bytes, queued_forwards.
    """

    sessions: int = setting(8, "Sessions that one client may have open.", 1, 100_000)
    queued_bytes: int = setting(64 * MEBIBYTE, "Size of its messages that wait.", 1024, 1 << 40)
    queued_forwards: int = setting(64, "Messages of one client that wait for the engine.", 1, 100_000)
    draft_nodes: int = setting(512, "Tokens of one draft.", 1, MAX_DRAFT)
    messages_per_s: float = setting(
        2000.0,
        "Messages a second of one client on average, twice as many at once; a message counts once more for every "
        "64 kB, every 1000 token ids and every picture.",
        1,
        10_000_000,
    )
    burst: int = setting(4000, "Messages at once.", 1, 10_000_000)
    images: int = setting(MAX_IMAGES, "Images of a prompt.", 0, MAX_IMAGES)
    image_pixels: int = setting(32_000_000, "Pixels of all images of a prompt together.", 1, 1 << 31)
    output_bytes: int = setting(
        MEBIBYTE, "Replies that a connection has not read; with more its sessions stand still.", 1024, 1 << 40
    )
    picture_bytes: int = setting(
        16 * MEBIBYTE, "Pictures that are kept, to be named instead of sent again; 0: none.", 0, 1 << 40
    )

    def __post_init__(self) -> None:
        """Raises VerifierError for a bound out of its range."""
        check_settings(self, VerifierError)


class TokenBucket:
    """Lets through so much a second on average, and a burst at once. Times are seconds of the clock."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left = burst
        self._filled_s = clock()

    def take(self, amount: float = 1.0) -> bool:
        """True where so much may pass now. Who takes more than there is at most pays all there is."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._filled_s) * self._rate)
        self._filled_s = now
        if self._left < min(amount, self._burst):
            return False
        self._left -= min(amount, self._burst)
        return True

    def owe(self, amount: float) -> None:
        """So much has passed already: what comes next waits until it is paid."""
        self._left = max(-self._burst, self._left - amount)


def units_of(size: int) -> int:
    """How much a message of this many bytes counts against messages_per_s."""
    return 1 + size // _UNIT_BYTES


def labour_of(message: Up) -> int:
    """How much looking at a message counts against messages_per_s, beside its length."""
    if isinstance(message, Open):
        return len(message.images) + (len(message.ids) + len(message.history)) // _UNIT_IDS
    if isinstance(message, PartUp):
        return labour_of(message.draft)
    return len(message.ids) // _UNIT_IDS if isinstance(message, DraftUp | SampledUp) else 0


def vain_labour_of(size: int) -> int:
    """The same of a message of this many bytes that is malformed: its last byte may be what is wrong."""
    return size // _UNIT_IDS


def weight_of(message: Up) -> int:
    """About how many bytes a decoded message takes while it waits."""
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
    """What of one owner waits for the engine."""

    queued_bytes: int = 0
    queued_forwards: int = 0


class Ledger:
    """What waits for the engine, by owner. Charged where messages come in, given back in the engine's thread."""

    def __init__(self, total_bytes: int) -> None:
        """total_bytes: of all clients together."""
        self._total_bytes = total_bytes
        self._lock = threading.Lock()
        self._accounts: dict[bytes, ClientAccount] = {}
        self._queued_bytes = 0

    @property
    def queued_bytes(self) -> int:
        """Of all clients together."""
        return self._queued_bytes

    def account(self, client: bytes) -> ClientAccount:
        """A copy of what is counted for a client."""
        with self._lock:
            return replace(self._accounts.get(client, ClientAccount()))

    def charge(self, client: bytes, weight: int, limits: Limits) -> str:
        """Count a message that is to wait; "" or, where it may not, which bound it breaks."""
        with self._lock:
            account = self._accounts.get(client, ClientAccount())
            if account.queued_forwards >= limits.queued_forwards:
                return (
                    f"{account.queued_forwards} of your messages wait: {limits.queued_forwards} are allowed"
                )
            # Alone a message may always wait: how long one may be is checked elsewhere.
            if account.queued_bytes and account.queued_bytes + weight > limits.queued_bytes:
                mine, most = _megabytes(account.queued_bytes), _megabytes(limits.queued_bytes)
                return f"{mine} of your messages wait: {most} are allowed"
            if self._queued_bytes and self._queued_bytes + weight > self._total_bytes:
                return f"messages of all clients wait: {_megabytes(self._total_bytes)} are allowed"
            account.queued_forwards += 1
            account.queued_bytes += weight
            self._queued_bytes += weight
            self._accounts[client] = account
            return ""

    def give_back(self, client: bytes, weight: int) -> None:
        """A message waits no longer; from any thread."""
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
