# SPDX-License-Identifier: Apache-2.0
"""Where edges ask: one thread with a ROUTER socket that answers each question at once, by the register.

Behind the same door as a verifier where there are keys. A message that cannot be understood is counted and answered
with why; nothing of it ends the thread.
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
from specdec.link.router import new_router
from specnav.fleet.errors import FleetError

Answer = Callable[[bytes, bytes, Ask, int], "Take | Nobody"]
Rests = Callable[[bytes], None]

ASKS_A_S, ASKS_AT_ONCE = 200.0, 2000
"""Of one key, on average and at once; without keys of one connection. An edge asks once an answer."""
MOST_ASKERS = 10_000
_UNFINISHED_BYTES = 16 * MOST_BYTES
_CONNECTIONS_OF_KEY = 256
_AT_ONCE = 64
_READ_AHEAD = 256
_STOP = "inproc://desk-stop"


class DirectoryServer:
    """Serves from its construction to close()."""

    def __init__(self, bind: str, keys: str, log: EventLog, answer: Answer, rests: Rests) -> None:
        """answer, rests: called in the desk's thread with the edge and, for a question, before it with whose edge it is
        (its key's name; without keys its connection), and behind it with the rank of its class.

        Raises FleetError where the address cannot be used, VerifierError for keys that cannot.
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
            self._router.bind(bind)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise FleetError(f"the fleet directory cannot listen on {bind} ({error}): choose a free --port") from error
        self.bind: str = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self.connections.start()
        self._stop = self._context.socket(zmq.PAIR)
        self._stop.bind(_STOP)
        self._ended = self._context.socket(zmq.PAIR)
        self._ended.connect(_STOP)
        self._thread = threading.Thread(target=self._run, name="desk", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.bind.rpartition(":")[2])

    def close(self) -> None:
        """Stop answering."""
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
            return  # it asks again, later
        try:
            if len(frames) != 2:
                raise ProtocolError(f"a message comes in one frame, not in {len(frames) - 1}")
            message = decode_asked(frames[1])
        except ProtocolError as error:
            self.malformed += 1
            self._log.warning("malformed", reason=str(error))
            self._say(identity, Nobody(0, NOBODY_MALFORMED, str(error)[:500]))
            return
        # An edge's number is its own business: only together with its key it is that edge.
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
        with suppress(zmq.ZMQError):  # an edge that is gone, or does not read, asks again
            self._router.send_multipart([identity, encode(message)], flags=zmq.DONTWAIT)
