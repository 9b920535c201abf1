# SPDX-License-Identifier: Apache-2.0
"""The authenticator: admits connections by their key, knows which client uses each, and shuts out revoked ones.

During its handshake ZeroMQ proves that a client owns the secret of its public key, asks here whether that key is
admitted (ZAP), and marks every message with it. The mark is checked for every message, so that revoking a key takes
effect at once, and no client can use another's sessions by taking its routing id. Used only in the thread that owns
the sockets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import zmq
from zmq.utils import z85

from cloud_verifier.logs import EventLog
from cloud_verifier.security.connections import Connections
from cloud_verifier.security.keyring import Keyring
from cloud_verifier.security.records import ClientKey

LOOK_S = 1.0
"""How often the key ring is read again; it is also read when a client connects."""
_ZAP_ADDRESS = "inproc://zeromq.zap.01"
_ZAP_VERSION = b"1.0"
_USER_ID = "User-Id"
_MOST_TOLD = 1000

Forget = Callable[[bytes, str], None]
Refuse = Callable[[bytes, str], None]


class Authenticator:
    """Authenticates the clients of one ROUTER socket. sockets: call `work` when one is readable. refused:
    refused keys.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        router: zmq.Socket[bytes],
        connections: Connections,
        keyring: Keyring,
        log: EventLog,
        forget: Forget,
        refuse: Refuse,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create it before the socket is bound.

        forget: called with a routing id whose sessions must end, and the reason for the log. refuse: called with a
        routing id and the line to send to its client.
        """
        self._connections = connections
        self._keyring = keyring
        self._log = log
        self._forget = forget
        self._refuse = refuse
        self._clock = clock
        self._next_look = clock() + LOOK_S
        self._may_refresh = clock()
        self._speakers: dict[bytes, str] = {}
        self._told: set[bytes] = set()
        self.refused = 0
        router.curve_server = True
        router.curve_secretkey = keyring.server.secret.encode()
        router.zap_domain = b"specnav"
        self._zap = context.socket(zmq.REP)
        self._zap.linger = 0
        self._zap.bind(_ZAP_ADDRESS)
        self.sockets: tuple[zmq.Socket[bytes], ...] = (self._zap,)

    def receive(self) -> list[bytes] | None:
        """The next message as [routing id, frames…]; None if it was refused. Raises zmq.Again if there is none."""
        identity, first, frames = self._connections.receive()
        public = str(first.get(_USER_ID))
        holder = self._keyring.holder(public)
        self._connections.heard(identity, first, self._name(public))
        if holder is None:
            self._shut_out(identity, public)
            return None
        before = self._speakers.get(identity)
        if before != public:
            if before is not None and not self._is_same(before, public):
                # Another client has taken the routing id of one that has gone.
                self._forget(identity, "client_gone")
            self._speakers[identity] = public
        return [identity, *frames]

    def client(self, identity: bytes) -> ClientKey | None:
        """The client of a connection that has sent a message."""
        public = self._speakers.get(identity)
        return None if public is None else self._keyring.owner(public)

    def work(self) -> None:
        """Answer all waiting admission requests."""
        while self._admit_one():
            pass

    def seconds_to_look(self) -> float:
        """Seconds until `look` is due."""
        return max(0.0, self._next_look - self._clock())

    def look(self, with_sessions: Callable[[], Collection[bytes]]) -> None:
        """Periodically read the key ring again, end the sessions of revoked clients, and forget clients that have gone.

        with_sessions: returns the routing ids that have sessions.
        """
        if self._clock() < self._next_look:
            return
        self._next_look = self._clock() + LOOK_S
        if self._keyring.refresh():
            self._log.info("keyring", clients=len(self._keyring))
        alive = with_sessions()
        for identity, public in list(self._speakers.items()):
            if self._keyring.holder(public) is None:
                self._shut_out(identity, public)
            elif identity not in alive:
                del self._speakers[identity]
        self._told.clear()

    def close(self) -> None:
        """Close its socket."""
        self._zap.close(linger=0)

    def _is_same(self, public: str, other: str) -> bool:
        return self._keyring.owner(public) is self._keyring.owner(other) is not None

    def _shut_out(self, identity: bytes, public: str) -> None:
        """Refuse a client that is no longer admitted: one line a second at most, and its sessions end."""
        if self._speakers.pop(identity, None) is not None:
            self._log.warning("shut_out", client=self._name(public))
            self._forget(identity, "revoked")
        if identity not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(identity)
            name = self._name(public)
            self._refuse(
                identity, f"the key of {name} is revoked: ask the verifier's operator for a new one"
            )

    def _name(self, public: str) -> str:
        owner = self._keyring.owner(public)
        return "this edge" if owner is None else owner.name

    def _refresh_sparingly(self) -> None:
        """Re-read unchanged files for at most a tenth of the time, however many clients connect; changed ones
        at once.
        """
        began = self._clock()
        if began >= self._may_refresh or self._keyring.is_touched:
            self._keyring.refresh()
            ended = self._clock()
            self._may_refresh = ended + 9 * (ended - began)

    def _admit_one(self) -> bool:
        """Answer one ZAP request; False if none waits."""
        try:
            frames = self._zap.recv_multipart(flags=zmq.DONTWAIT)
        except zmq.Again:
            return False
        request = frames[1] if len(frames) > 1 else b""
        public = ""
        if len(frames) == 7 and frames[0] == _ZAP_VERSION and frames[5] == b"CURVE" and len(frames[6]) == 32:
            public = z85.encode(frames[6]).decode()
        address = frames[3].decode("ascii", "replace") if len(frames) > 3 else ""
        self._refresh_sparingly()
        client = self._keyring.holder(public)
        if client is None:
            self.refused += 1
            owner = self._keyring.owner(public)
            name = "" if owner is None else owner.name
            self._log.warning("key_refused", client=name, address=address)
            answer = [_ZAP_VERSION, request, b"400", b"not authorised", b"", b""]
        elif not self._connections.may_come(client.name):
            answer = [_ZAP_VERSION, request, b"300", b"later", b"", b""]  # closed silently: the client tries again
        else:
            self._log.info(
                "admitted", client=client.name, of_class=client.client_class.value, address=address
            )
            answer = [_ZAP_VERSION, request, b"200", b"OK", public.encode(), b""]
        self._zap.send_multipart(answer)
        return True
