"""What one client may ask for, and how it is counted. No sockets and no models; time comes from a clock.

Whatever is over a bound is refused with what is allowed; nothing here ends a session.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from cloud_verifier.errors import VerifierError
from specdec.link.pictures import pictures_of
from specdec.link.wire import MAX_DRAFT, MAX_IMAGES, DraftUp, HiddenUp, Open, SampledUp, Up

MEBIBYTE = 2**20
_BYTES_AN_ID = 40
"""A token id takes so many bytes once it is decoded: a place in a list, and a number."""
_BYTES_A_MESSAGE = 500
_UNIT_BYTES = 2**16
"""A message counts once more for every so many bytes that it is long."""
_UNIT_IDS = 1000
"""And once more for every so many token ids, which take about as long to look at as a short message takes."""


@dataclass(frozen=True)
class Limits:
    """Bounds on one client: all connections of a key together, without keys one connection. Only output_bytes is of
    a connection in any case.

    sessions: open at a time. queued_bytes, queued_forwards: of what waits for the engine. draft_nodes: of one draft.
    messages_per_s: on average; burst: so many at once (a message counts once, and once more for every 64 kB, every 1000
    token ids and every picture).
    images, image_pixels: of one prompt, the pixels of all its images together. picture_bytes: of the pictures that are
    kept, to be named instead of sent again; 0: none. output_bytes: of replies that the
    client has not taken; with more its sessions stand still.
    """

    sessions: int = 8
    queued_bytes: int = 64 * MEBIBYTE
    queued_forwards: int = 64
    draft_nodes: int = 512
    messages_per_s: float = 2000.0
    burst: int = 4000
    images: int = MAX_IMAGES
    image_pixels: int = 32_000_000
    output_bytes: int = MEBIBYTE
    picture_bytes: int = 16 * MEBIBYTE

    def __post_init__(self) -> None:
        """Raises VerifierError for a bound out of its range."""
        for name, (low, high) in _RANGES.items():
            check_range(name, getattr(self, name), low, high)

    def with_quota(self, quota: Mapping[str, float]) -> Limits:
        """The same with some bounds replaced, by name; a rate without a burst brings twice as many at once.

        Raises VerifierError for unknown names and wrong values.
        """
        known = {field.name for field in fields(self)}
        if unknown := sorted(set(quota) - known):
            raise VerifierError(f"quota {unknown[0]!r} is unknown: choose from {', '.join(sorted(known))}")
        values: dict[str, Any] = dict(quota)
        rate = values.get("messages_per_s")
        if isinstance(rate, (int, float)) and "burst" not in values:
            values["burst"] = max(1, int(2 * rate))
        return replace(self, **values)  # __post_init__ checks each


_RANGES = {
    "sessions": (1, 100_000),
    "queued_bytes": (1024, 1 << 40),
    "queued_forwards": (1, 100_000),
    "draft_nodes": (1, MAX_DRAFT),
    "messages_per_s": (1, 10_000_000),
    "burst": (1, 10_000_000),
    "images": (0, MAX_IMAGES),
    "image_pixels": (1, 1 << 31),
    "output_bytes": (1024, 1 << 40),
    "picture_bytes": (0, 1 << 40),
}


def check_range(name: str, value: object, low: float, high: float) -> None:
    """Raise VerifierError unless the value is a number in between."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise VerifierError(f"{name} = {value!r} is out of range: choose {low} to {high}")


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
    """How much a message of so many bytes counts against messages_per_s."""
    return 1 + size // _UNIT_BYTES


def labour_of(message: Up) -> int:
    """How much looking at a message counts against messages_per_s, beside its length."""
    if isinstance(message, Open):
        return len(message.images) + (len(message.ids) + len(message.history)) // _UNIT_IDS
    return len(message.ids) // _UNIT_IDS if isinstance(message, DraftUp | SampledUp) else 0


def vain_labour_of(size: int) -> int:
    """The same of a message of so many bytes that is malformed: its last byte may be what is wrong."""
    return size // _UNIT_IDS


def weight_of(message: Up) -> int:
    """About how many bytes a decoded message takes while it waits."""
    weight = _BYTES_A_MESSAGE
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
