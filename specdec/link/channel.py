# SPDX-License-Identifier: Apache-2.0
"""The edge's end of the link: connects lazily, performs the handshake, and detects a dead peer.

Handles messages and time, not drafting. Every wait is bounded. Silence longer than the reply time-out, or a connection
closed by the peer, raises LinkLost. The next use reconnects: to the same verifier, or in a fleet to the one that its
directory names. With a key the connection is encrypted and both sides are authenticated; a verifier that does not
accept the key causes KeyRefused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from specdec.errors import (
    KeyRefused,
    LinkLost,
    OptionsError,
    ProtocolError,
    VerifierBusy,
    VersionMismatch,
)
from specdec.link.dealer import Dealer
from specdec.link.directory import FleetRoute
from specdec.link.directory_wire import SCHEME
from specdec.link.keys import read_key
from specdec.link.wire import (
    ERROR_BUSY,
    ERROR_KEY,
    ERROR_VERSION,
    MAX_DOWN_BYTES,
    PROTOCOL_VERSION,
    Down,
    ErrorDown,
    Hello,
    Up,
    Welcome,
    decode_down,
    encode,
)

_FIRST_BACKOFF_S = 0.25
_FIRST_BACKOFF_ENCRYPTED_S = 2.0
"""An encrypted handshake takes five or six round trips; on a slow link, restarting it too soon would never succeed."""
_MAX_BACKOFF_S = 4.0
"""Longest wait per attempt. A verifier short of CPU time greets slowly, so the wait doubles from attempt to attempt,
also across calls, until a greeting arrives. It is bounded, because a new connection may succeed while an old one waits
for TCP's next retransmission.
"""


def connect(
    address: str,
    connect_timeout_s: float = 5.0,
    reply_timeout_s: float = 2.0,
    round_timeout_s: float = 60.0,
    key: str | Path | None = None,
) -> Link:
    """Create a link to a verifier or to a fleet of verifiers. Nothing is sent before the first use.

    Args:
        address: "tcp://HOST:PORT" of a verifier, or "fleet://HOST:PORT" of a fleet's directory.
        connect_timeout_s: Seconds to retry connecting, with back-off, before LinkLost.
        reply_timeout_s: Seconds of silence after which the link counts as lost. Heartbeats keep a busy verifier from
            being silent.
        round_timeout_s: Longest wait in seconds for one reply from a live verifier. For a prompt, 0.1 s per token is
            added, at most ten minutes.
        key: File with this edge's key, for a verifier with keys; read again at every connection.

    Returns:
        The link.

    Raises:
        OptionsError: A time-out is out of range, or the key file cannot be used.
    """
    for name, value in (
        ("connect_timeout_s", connect_timeout_s),
        ("reply_timeout_s", reply_timeout_s),
        ("round_timeout_s", round_timeout_s),
    ):
        if not 0.01 <= value <= 3600:
            raise OptionsError(f"{name} = {value!r} is out of range: choose 0.01 to 3600 seconds")
    if key is not None:
        read_key(key)
    return Link(address, connect_timeout_s, reply_timeout_s, round_timeout_s, key=key)


class Link:
    """One connection to one verifier at a time. Used by one answer and one thread at a time."""

    def __init__(
        self,
        address: str,
        connect_timeout_s: float,
        reply_timeout_s: float,
        round_timeout_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        key: str | Path | None = None,
        route: FleetRoute | None = None,
    ) -> None:
        """See `connect`, which also checks the key's file.

        Args:
            address: `tcp://HOST:PORT` of a verifier, or `fleet://HOST:PORT` of a fleet's directory.
            connect_timeout_s: Seconds that the verifier may take to greet.
            reply_timeout_s: Seconds of silence after which the link counts as lost.
            round_timeout_s: Seconds that a verdict may take.
            clock: A monotonic clock, in seconds.
            key: File with this client's key; None: the verifier requires none.
            route: Chooses the verifier of a fleet; None: the directory at a fleet's `address`, or the verifier there.
        """
        self.address = address
        self.connect_timeout_s = connect_timeout_s
        self.reply_timeout_s = reply_timeout_s
        self.round_timeout_s = round_timeout_s
        self.malformed = 0
        self._key = key
        self._clock = clock
        if route is None and address.startswith(SCHEME):
            route = FleetRoute(address, key)
        self._route = route
        self._dealer = Dealer("the verifier", MAX_DOWN_BYTES, key, clock)
        self._welcome: Welcome | None = None
        self._backoff_s = self._first_backoff_s
        self._last_session = 0
        self._token = b""
        self._message_bytes = 0

    def ensure_connected(self, give_up: Callable[[], bool] = lambda: False) -> Welcome:
        """Connect and perform the handshake, unless that is done; returns the verifier's greeting.

        Args:
            give_up: Polled while waiting; True ends the wait with LinkLost.

        Raises:
            LinkLost: Nothing answers within connect_timeout_s.
            VerifierBusy: The verifier accepts no client at present.
            VersionMismatch: The verifier speaks another version of the protocol.
            ProtocolError: The verifier refused, or something else answers.
            KeyRefused: The verifier does not accept the key, or the key's file cannot be used any more.
        """
        if self.told is not None:
            return self.told
        if self._dealer.is_inherited:  # with its token the parent's sessions would be closed
            self._token = b""
        deadline = self._clock() + self.connect_timeout_s
        while True:
            where = self.address if self._route is None else self._route.next(deadline, give_up)
            try:
                welcome = self._shake_hands(where, min(deadline, self._clock() + self._backoff_s), give_up)
            except (KeyRefused, VerifierBusy, ProtocolError):
                if self._clock() >= deadline or not self._has_another(where):
                    raise
                continue  # another verifier of the fleet may accept this edge
            if welcome is not None:
                self._welcome = welcome
                self._backoff_s = self._first_backoff_s
                self._token = welcome.token
                self._message_bytes = welcome.allowed.message_bytes
                return welcome
            self.reset()
            self._has_another(where)
            self._backoff_s = min(2 * self._backoff_s, _MAX_BACKOFF_S)
            if self._clock() >= deadline or give_up():
                raise LinkLost(
                    f"no verifier answers at {where} within {self.connect_timeout_s:g} s: "
                    "check that it runs and the address is right"
                )

    @property
    def told(self) -> Welcome | None:
        """What the verifier said about itself; None where no connection is open."""
        return self._welcome if self._dealer.is_open else None

    @property
    def _first_backoff_s(self) -> float:
        return _FIRST_BACKOFF_S if self._key is None else _FIRST_BACKOFF_ENCRYPTED_S

    def begin_answer(self, ids: Sequence[int], images: Sequence[bytes]) -> None:
        """An answer to this prompt begins. A fleet may now move this edge to another verifier."""
        if self._route is not None and self._route.begin(ids, images):
            self.reset()

    def answer_began(self) -> None:
        """The answer has a token. A fleet may continue it only on a verifier that gives the same tokens."""
        if self._route is not None:
            self._route.began()

    def end_answer(self) -> None:
        """The answer has ended."""
        if self._route is not None:
            self._route.rest()

    def move_on(self) -> None:
        """The present verifier fails or has no room. In a fleet, the next use asks for another one."""
        if self._dealer.address and self._has_another(self._dealer.address):
            self.reset()

    def _has_another(self, failed: str) -> bool:
        """Report a failed verifier; returns whether the fleet may have another one."""
        return self._route is not None and self._route.failed(failed)

    def next_session(self) -> int:
        """The next session number; numbers repeat after 65,535 sessions."""
        self._last_session = self._last_session % 0xFFFF + 1
        return self._last_session

    def send(self, message: Up) -> int:
        """Send one message; returns the bytes handed to ZeroMQ. Raises LinkLost if the send queue is full, OptionsError
        if the message is longer than the verifier accepts.
        """
        data = encode(message)
        if 0 < self._message_bytes < len(data):
            raise OptionsError(
                f"a message of {len(data)} bytes is too large: the verifier accepts {self._message_bytes}; send "
                "smaller images or a shorter prompt, or start the verifier with a larger --max-message-mb"
            )
        self._dealer.send(data)
        return len(data)

    def receive(self, timeout_s: float) -> tuple[Down, int] | None:
        """The next message and its size in bytes, or None after `timeout_s`.

        Malformed messages are counted, not raised. Raises LinkLost if the verifier closed the connection, KeyRefused if
        it does not accept the key (any more).
        """
        deadline = self._clock() + timeout_s
        while True:
            data = self._dealer.receive(max(0.0, deadline - self._clock()))
            if data is None:
                return None
            try:
                message = decode_down(data)
            except ProtocolError:
                self.malformed += 1
                continue
            if isinstance(message, ErrorDown) and message.code == ERROR_KEY:
                self.reset()
                raise self._dealer.refused(message.message)
            return message, len(data)

    def reset(self) -> None:
        """Drop the connection and messages in transit; the next use reconnects."""
        self._welcome = None
        self._dealer.close()

    def close(self) -> None:
        """Drop the connection for good."""
        self.reset()
        if self._route is not None:
            self._route.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def silent(self, seconds: float) -> LinkLost:
        """Drop the connection because nothing was heard for this long; returns the error to raise."""
        return self._dealer.lost(f"nothing was heard for {seconds:.1f} s")

    def stalled(self, seconds: float) -> LinkLost:
        """Drop the connection because the verifier is alive but the answer made no progress; returns the error to
        raise.
        """
        return self._dealer.lost(f"the verifier is alive, but this answer made no progress for {seconds:.1f} s")

    def _shake_hands(self, where: str, deadline: float, give_up: Callable[[], bool]) -> Welcome | None:
        self.address = where
        self.reset()
        self._dealer.open(where)
        self.send(Hello(PROTOCOL_VERSION, "specdec", self._token))
        return self._await_welcome(deadline, give_up)

    def _await_welcome(self, deadline: float, give_up: Callable[[], bool]) -> Welcome | None:
        while True:
            remaining = deadline - self._clock()
            if remaining <= 0 or give_up():
                return None
            try:
                received = self.receive(min(remaining, 0.1))
            except LinkLost:
                return None
            if received is None:
                continue
            message = received[0]
            if isinstance(message, Welcome):
                if message.version != PROTOCOL_VERSION:
                    self.reset()
                    raise VersionMismatch(_version_text(self.address, message.version))
                return message
            if isinstance(message, ErrorDown):
                self.reset()
                if message.code == ERROR_VERSION:
                    raise VersionMismatch(message.message)
                if message.code == ERROR_BUSY:
                    raise VerifierBusy(f"the verifier at {self.address} is busy: {message.message}")
                raise ProtocolError(f"the verifier at {self.address} refused: {message.message}")


def _version_text(address: str, theirs: int) -> str:
    return (
        f"the verifier at {address} speaks version {theirs} of the protocol and this edge speaks version "
        f"{PROTOCOL_VERSION}: install the same release on both sides"
    )
