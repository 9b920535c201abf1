# SPDX-License-Identifier: Apache-2.0
"""The edge's side of a fleet: asks the directory which verifier to use, and for another one if that fails.

An edge keeps its verifier, which has its pictures and prompts cached, until the directory moves it between two answers
or the verifier fails. The directory is asked when an answer begins, and its reply applies to the next answer, so no
token waits for it. While the directory is unreachable, its last reply is used.
"""

from __future__ import annotations

import secrets
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from specdec.errors import KeyRefused, LinkLost, ProtocolError, VerifierBusy, VersionMismatch
from specdec.link.dealer import Dealer
from specdec.link.directory_wire import (
    DIRECTORY_VERSION,
    EDGE_BYTES,
    MARK_BYTES,
    MOST_BYTES,
    MOST_MARKS,
    MOST_OTHERS,
    NOBODY_KEY,
    NOBODY_MALFORMED,
    NOBODY_VERSION,
    SCHEME,
    Ask,
    Nobody,
    Rest,
    Take,
    Told,
    decode_told,
    encode,
)

AVOID_S = 5.0
"""A failed verifier is avoided for this long, unless there is no other."""
SILENT_S = 0.5
"""After this much silence from the directory, a known verifier is tried without it."""
_ASK_AGAIN_S = 0.5
_MOST_ASK_AGAIN_S = 4.0
_NOBODY_PAUSE_S = 0.2
_BEGINNING = 32
"""Tokens of a prompt's beginning that form its mark: the block size of the verifier's caches."""


class FleetRoute:
    """Selects the verifier of a fleet, as its directory says. One thread at a time."""

    def __init__(
        self,
        address: str,
        key: str | Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """address: fleet://HOST:PORT. key: file with this edge's key, valid for the directory and all verifiers."""
        self.address = address
        self._clock = clock
        self._edge = secrets.token_bytes(EDGE_BYTES)
        self._dealer = Dealer("the directory", MOST_BYTES, key, clock)
        self._number = 0
        self._at = ""
        self._identity = b""
        self._others: list[str] = []
        self._planned: Take | None = None
        self._failed: dict[str, float] = {}
        self._active = False
        self._same = b""
        self._marks: list[bytes] = []

    def next(self, deadline: float, give_up: Callable[[], bool]) -> str:
        """The verifier to connect to, tcp://HOST:PORT. Within an answer it is one that gives the same tokens.

        Args:
            deadline: Latest time to wait, on the link's clock.
            give_up: Polled while waiting; True ends the wait.

        Raises:
            LinkLost: No directory answers.
            VerifierBusy: The directory has no verifier for this edge.
            KeyRefused: The directory does not accept the key, or the key's file cannot be used any more.
            VersionMismatch: The directory speaks another version.
            ProtocolError: The directory could not read the request.
        """
        if self._planned is not None:
            self._adopt(self._planned)
            self._planned = None
            return self._at
        began, pause, nobody = self._clock(), _ASK_AGAIN_S, ""
        due = began
        while True:
            now = self._clock()
            if now >= due:
                self._ask()
                due, pause = now + pause, min(2 * pause, _MOST_ASK_AGAIN_S)
            told = self._hear(min(0.1, max(0.0, due - now)))
            if isinstance(told, Take):
                self._adopt(told)
                return self._at
            now = self._clock()
            if isinstance(told, Nobody):
                nobody, pause = told.text, _ASK_AGAIN_S
                due = now + _NOBODY_PAUSE_S
            elif not nobody and now - began >= SILENT_S and (known := self._known()):
                self._at = known
                return known
            if now >= deadline or give_up():
                raise self._gave_up(nobody)

    def failed(self, address: str) -> bool:
        """Report a failed verifier: it is avoided for a while. Returns False if it was avoided already."""
        now = self._clock()
        known = address in self._avoided()
        self._failed[address] = now
        self._planned = None
        return not known

    def begin(self, ids: Sequence[int], images: Sequence[bytes]) -> bool:
        """An answer to this prompt begins. Returns True if another verifier than before should give it. Uses the
        directory's last reply, and asks again without waiting.
        """
        if self._at:
            self._hear_all()
        self._active, self._same = True, b""
        self._marks = marks_of(ids, images)
        if not self._at:
            return False
        with suppress(KeyRefused):  # raised again when a verifier is needed
            self._ask()
        return self._planned is not None

    def began(self) -> None:
        """The present verifier has given the answer's first token, maybe over a connection from before the answer."""
        self._same = self._identity

    def rest(self) -> None:
        """The answer has ended."""
        self._active, self._same = False, b""
        if self._dealer.is_open:
            self._send(encode(Rest(self._edge)))
            self._hear_all()

    def close(self) -> None:
        """Close the connection to the directory."""
        self._dealer.close()

    def _ask(self) -> None:
        self._number = self._number % 0x7FFFFFFF + 1
        avoid = self._avoided()[-MOST_OTHERS:]
        at = "" if self._at in avoid else self._at
        ask = Ask(DIRECTORY_VERSION, self._number, self._edge, at, self._active, self._same, avoid, self._marks)
        if not self._dealer.is_open:
            self._dealer.open("tcp://" + self.address.removeprefix(SCHEME))
        self._send(encode(ask))

    def _send(self, data: bytes) -> None:
        try:
            self._dealer.send(data)
        except LinkLost:
            return  # the next request reconnects

    def _hear(self, timeout_s: float) -> Told | None:
        """The directory's reply to the latest request; older replies are ignored. Raises an error if it refused."""
        if not self._dealer.is_open:
            time.sleep(min(timeout_s, 0.05))
            return None
        try:
            data = self._dealer.receive(timeout_s)
            told = None if data is None else decode_told(data)
        except KeyRefused:
            raise
        except (LinkLost, ProtocolError):
            return None
        if isinstance(told, Nobody):
            if told.code == NOBODY_VERSION:
                raise VersionMismatch(told.text)
            if told.code == NOBODY_KEY:
                raise KeyRefused(f"the directory at {self.address} refused this edge: {told.text}")
            if told.code == NOBODY_MALFORMED:
                raise ProtocolError(f"the directory at {self.address} refused: {told.text}")
        return told if told is not None and told.number == self._number else None

    def _hear_all(self) -> None:
        """Process a reply of the directory that has arrived meanwhile."""
        try:
            told = self._hear(0.0)
        except (KeyRefused, ProtocolError):
            return  # raised again when a verifier is needed
        if isinstance(told, Take):
            if told.address == self._at:
                self._adopt(told)
            elif told.address not in self._avoided():
                self._planned = told

    def _adopt(self, told: Take) -> None:
        self._at, self._others, self._identity = told.address, list(told.others), told.identity
        if self._active:
            self._same = told.identity

    def _avoided(self) -> list[str]:
        """Verifiers that failed recently, the latest last."""
        now = self._clock()
        self._failed = {address: at for address, at in self._failed.items() if now - at < AVOID_S}
        return sorted(self._failed, key=self._failed.__getitem__)

    def _known(self) -> str:
        """A verifier to try while the directory is silent; "" if none is known."""
        avoided = self._avoided()
        return next((one for one in (self._at, *self._others) if one and one not in avoided), "")

    def _gave_up(self, nobody: str) -> LinkLost:
        if nobody:
            return VerifierBusy(f"the fleet at {self.address} has no verifier for this edge: {nobody}")
        return LinkLost(
            f"no directory answers at {self.address}: check that the fleet runs (specnav fleet status) and the address "
            "is right"
        )


def marks_of(ids: Sequence[int], images: Sequence[bytes]) -> list[bytes]:
    """Marks that are equal for edges with equal prompts: 8-byte digests of the prompt's first tokens and each picture.
    """
    beginning = array("q", ids[:_BEGINNING]).tobytes()
    parts = [beginning, *images[: MOST_MARKS - 1]]
    return [blake2b(part, digest_size=MARK_BYTES).digest() for part in parts]
