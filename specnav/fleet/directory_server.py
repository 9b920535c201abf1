# SPDX-License-Identifier: Apache-2.0
"""Answers edges: one thread with a ROUTER socket replies to each request at once from the register.

With keys it uses the same authenticator as a verifier. A malformed message is counted and answered with the reason; it
never ends the thread.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

import zmq

from cloud_verifier.classes import ClientClass
from cloud_verifier.limits import TokenBucket
from cloud_verifier.logs import EventLog
from cloud_verifier.security.authenticator import Authenticator
from cloud_verifier.security.connections import ConnectionBounds, Connections
from cloud_verifier.security.keyring import Keyring
from specdec.errors import ProtocolError
from specdec.link.directory_wire import (
    DIRECTORY_VERSION,
    MOST_BYTES,
    NOBODY_KEY,
    NOBODY_MALFORMED,
    NOBODY_VERSION,
    Ask,
    Nobody,
    Take,
    decode_asked,
    encode,
)
from specdec.link.router import bind_router, new_router
from specnav.fleet.errors import FleetError

Answer = Callable[[bytes, bytes, Ask, int], "Take | Nobody"]
Rests = Callable[[bytes], None]

ASKS_A_S, ASKS_AT_ONCE = 200.0, 2000
"""Rate limit of one key, average and burst; without keys, of one connection. An edge asks once per answer."""
MOST_ASKERS = 10_000
_UNFINISHED_BYTES = 16 * MOST_BYTES
_CONNECTIONS_OF_KEY = 256
_AT_ONCE = 64
_READ_AHEAD = 256
_STOP = "inproc://directory-stop"


class DirectoryServer:
    """Serves from construction until close()."""

    def __init__(self, bind: str, keys: str, log: EventLog, answer: Answer, rests: Rests) -> None:
        """answer, rests: called in this server's thread. rests gets the edge; answer gets the edge, its owner (the name
        of its key; without keys its connection), the request, and the rank of its class.

        Raises FleetError if the address cannot be used, VerifierError for unusable keys.
        """
        self._log = log
        self._answer = answer
        self._rests = rests
        self.malformed = self.too_fast = 0
        self._buckets: OrderedDict[bytes, TokenBucket] = OrderedDict()
        keyring = Keyring(keys, log) if keys else None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = new_router(self._context)
        self._router.setsockopt(zmq.RCVHWM, _READ_AHEAD)
        self._router.setsockopt(zmq.LINGER, 0)
        self._router.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        most = _CONNECTIONS_OF_KEY
        bounds = ConnectionBounds(_UNFINISHED_BYTES, 4 * _UNFINISHED_BYTES, most * _UNFINISHED_BYTES, lambda key: most)
        self.connections = Connections(self._router, log, bounds, keyring is not None)
        self._door: Authenticator | None = None
        if keyring is not None:
            guards = (lambda identity, why: None, self._refuse)
            self._door = Authenticator(self._context, self._router, self.connections, keyring, log, *guards)
        try:
            bind_router(self._router, bind, FleetError, "the fleet directory ", "choose a free --port")
        except FleetError:
            self._context.destroy(linger=0)
            raise
        self.bind: str = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self.connections.start()
        self._stop = self._context.socket(zmq.PAIR)
        self._stop.bind(_STOP)
        self._ended = self._context.socket(zmq.PAIR)
        self._ended.connect(_STOP)
        self._thread = threading.Thread(target=self._run, name="directory", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.bind.rpartition(":")[2])

    def close(self) -> None:
        """Stop answering. Safe to call twice."""
        if self._stop.closed:
            return
        self._stop.send(b"")
        self._thread.join(5.0)
        self._stop.close(linger=0)

    def _run(self) -> None:
        poller = zmq.Poller()
        for socket in (self._router, self._ended, *(() if self._door is None else self._door.sockets)):
            poller.register(socket, zmq.POLLIN)
        while True:
            wait_ms = None if self._door is None else max(1, int(self._door.seconds_to_look() * 1000) + 1)
            ready = dict(poller.poll(wait_ms))
            if self._ended in ready:
                break
            if self._door is not None:
                if not ready.keys().isdisjoint(self._door.sockets):
                    self._door.work()
                self._door.look(lambda: ())
            for _ in range(_AT_ONCE):
                try:
                    frames = self._receive()
                except zmq.Again:
                    break
                try:
                    if frames is not None:
                        self._take(frames)
                except Exception as error:  # one message must not end every client's directory
                    self._log.error("message_failed", traceback=self._log.trace_of(error))
        self.connections.close()
        if self._door is not None:
            self._door.close()
        self._router.close(linger=0)
        self._ended.close(linger=0)

    def _receive(self) -> list[bytes] | None:
        if self._door is not None:
            return self._door.receive()
        identity, first, frames = self.connections.receive()
        self.connections.heard(identity, first, "")
        return [identity, *frames]

    def _take(self, frames: list[bytes]) -> None:
        identity = frames[0]
        key = None if self._door is None else self._door.client(identity)
        owner = identity if key is None else key.name.encode()
        if not self._bucket(owner).take():
            self.too_fast += 1
            self._log.warning("too_fast", client="" if key is None else key.name)
            return  # the edge asks again later
        try:
            if len(frames) != 2:
                raise ProtocolError(f"a message must have one frame, got {len(frames) - 1}")
            message = decode_asked(frames[1])
        except ProtocolError as error:
            self.malformed += 1
            self._log.warning("malformed", reason=str(error))
            self._say(identity, Nobody(0, NOBODY_MALFORMED, str(error)[:500]))
            return
        # Edges choose their own numbers, so only the number together with the key identifies one.
        who = (b"" if key is None else key.name.encode() + b"\0") + message.edge
        if not isinstance(message, Ask):
            self._rests(who)
        elif message.version != DIRECTORY_VERSION:
            text = (
                f"the directory speaks version {DIRECTORY_VERSION} and this edge {message.version}: install the "
                "same release on both sides"
            )
            self._say(identity, Nobody(message.number, NOBODY_VERSION, text))
        else:
            rank = (ClientClass.ROBOT if key is None else key.client_class).rank
            self._say(identity, self._answer(who, owner, message, rank))

    def _bucket(self, owner: bytes) -> TokenBucket:
        bucket = self._buckets.get(owner)
        if bucket is None:
            bucket = self._buckets[owner] = TokenBucket(ASKS_A_S, ASKS_AT_ONCE, time.monotonic)
            if len(self._buckets) > MOST_ASKERS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(owner)
        return bucket

    def _refuse(self, identity: bytes, text: str) -> None:
        self._say(identity, Nobody(0, NOBODY_KEY, text))

    def _say(self, identity: bytes, message: Take | Nobody) -> None:
        with suppress(zmq.ZMQError):  # an edge that is gone or does not read will ask again
            self._router.send_multipart([identity, encode(message)], flags=zmq.DONTWAIT)
