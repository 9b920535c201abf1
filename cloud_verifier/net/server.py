# SPDX-License-Identifier: Apache-2.0
"""The server: one thread for the sockets and one for the model, connected by a queue and an in-process socket.

The socket thread answers heartbeats and refuses bad messages immediately, even during a forward pass. It never touches
the model, and no lock is held during a forward pass. If a forward pass takes no longer than a switch between threads
(`inline`), the socket thread runs the passes itself, one between two polls of the sockets.
"""

from __future__ import annotations

import ctypes
import gc
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import zmq

from cloud_verifier.config import LOOKUP, ServerConfig
from cloud_verifier.engine.engine import own_engine
from cloud_verifier.engine.interface import AnyEngine, EngineEnvironment, MakeEngine
from cloud_verifier.engine.tasks import PauseTask, SessionKey, Task
from cloud_verifier.engine.work import Models
from cloud_verifier.errors import VerifierError
from cloud_verifier.logs import EventLog
from cloud_verifier.net.admission import Admission, AdmissionCallbacks
from cloud_verifier.net.clients import RETRY_S, ClientGone, Outbox
from cloud_verifier.net.router import LINGER_MS, make_router
from cloud_verifier.observing.counts import BEAT_S, ClientUse, EngineLoad, Heartbeats
from cloud_verifier.security.authenticator import Authenticator
from cloud_verifier.security.connections import ConnectionBounds, Connections
from cloud_verifier.security.keyring import Keyring
from cloud_verifier.security.records import ClientKey
from specdec.energy import Meter, find_sensors
from specdec.link.router import bind_router
from specdec.link.traced import decode_traced
from specdec.link.wire import (
    ERROR_INTERNAL,
    ERROR_KEY,
    ERROR_SHUTDOWN,
    PROTOCOL_VERSION,
    Down,
    ErrorDown,
    Pong,
    RowDown,
    Tokens,
    VerdictDown,
    decode_up,
    encode,
)
from specdec.models import LoadedModel
from specdec.tracing import Tracing

_READ_AT_ONCE = 64
_BYTES_AT_ONCE = 1 << 20
"""Messages, and their bytes, that are read before replies get their turn."""
_MESSAGES_ON_THEIR_WAY = 4
"""Number of messages of the largest size that may be half received at a time, over all clients."""
_LEAST_CONNECTIONS_OF_KEY = 64
_LAST_FORWARD_S = 2.0
"""Time that the last forward pass may take at shutdown; the process then ends without it."""
_STOP = b"stop"
_WAKE = b"wake"
_DRAIN = b"drain"
_REPLY = b"reply"
"""Events for the socket thread; each _REPLY announces one record in the queue."""


@dataclass(frozen=True)
class _Reply:
    """A reply of the engine. payload: the encoded message. over: whether the session is over."""

    key: SessionKey
    message: Down
    payload: bytes
    over: bool


def check_can_listen(bind: str) -> None:
    """Raise VerifierError if this machine cannot listen on tcp://HOST:PORT now."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        bind_router(router, bind, VerifierError)


class Server:
    """A verifier with its socket bound; `run()` serves until `stop()`, which any thread may call.

    failed: why the engine could not continue, which ended `run()`; "" otherwise. meter: measures the machine's energy.
    """

    def __init__(
        self,
        config: ServerConfig,
        model: LoadedModel,
        log: EventLog,
        make_engine: MakeEngine | None = None,
        clock: Callable[[], float] = time.monotonic,
        inline: bool = False,
        tracing: Tracing | None = None,
    ) -> None:
        """Bind the socket.

        model: the target, or an object with its metadata. make_engine: None: our own engine with that model. inline:
        run forward passes in the socket thread. tracing: where spans go; None: no tracing.

        Raises VerifierError if the address or the keys cannot be used, VerdictLogError if the verdict log cannot.
        """
        self._config = config
        self._model = model
        self._log = log
        self._clock = clock
        self._inline = inline
        self._verdicts = config.open_verdict_log()
        self.meter = Meter([] if config.energy_root == "none" else find_sensors(Path(config.energy_root)))
        keyring = Keyring(config.keys, log) if config.keys else None
        self._context = zmq.Context()
        self._router = make_router(self._context)
        bounds = self._connection_bounds(keyring)
        self._connections = Connections(self._router, log, bounds, keyring is not None)
        self._authenticator: Authenticator | None = None
        if keyring is not None:
            self._authenticator = Authenticator(
                self._context,
                self._router,
                self._connections,
                keyring,
                log,
                forget=self._forget_client,
                refuse=self._refuse_key,
                clock=clock,
            )
        try:
            bind_router(self._router, config.bind, VerifierError)
        except VerifierError:
            self._context.destroy(linger=0)
            raise
        self.bind: str = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._connections.start()
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.setsockopt(zmq.RCVHWM, 0)
        self._inbox.bind("inproc://replies")
        self._replies: queue.SimpleQueue[_Reply] = queue.SimpleQueue()
        self._engine_socket: zmq.Socket[bytes] | None = None
        self._wake_socket: zmq.Socket[bytes] | None = None
        self._wake_lock = threading.Lock()
        self._stopped = False
        self._stop_lock = threading.Lock()
        self._drain_lock = threading.Lock()
        self._drained_by: float | None = None
        self.failed = ""
        self._engine_thread: threading.Thread | None = None
        self._stop_socket = self._context.socket(zmq.PUSH)
        self._stop_socket.connect("inproc://replies")
        self._trimmer = HeapTrimmer(clock)
        self._outbox = Outbox(self._hand_over, self._pause, clock)
        callbacks = AdmissionCallbacks(self._reply, self._submit, self._outbox.full, self._look_for, self._key_of)
        keep = None if self._verdicts is None else self._verdicts.add
        self.beats = Heartbeats()
        environment = EngineEnvironment(
            self._from_engine, log, self._wake, self._given_back, tracing, self._fail, keep, self.beats
        )
        if make_engine is None:
            make_engine = own_engine(config.policy, Models(model, looks_up=config.draft_model == LOOKUP))
        self._engine: AnyEngine = make_engine(environment)
        decode = decode_up if tracing is None else decode_traced
        self._admission = Admission(config, model, log, callbacks, clock, self._engine.can, decode)

    def stop(self) -> None:
        """Make run() return soon; safe from other threads and from a signal handler of the serving one."""
        if self._stop_lock.acquire(blocking=False):  # once is enough; a signal handler must not wait
            self._stop_socket.send(_STOP)

    def _fail(self, why: str) -> None:
        """Called by the engine, from any thread."""
        if not self._stop_lock.locked():  # an end during shutdown is not a failure
            self.failed = why
            self._log.error("engine_ended", reason=why)
            self.stop()

    def drain(self) -> None:
        """Accept no new sessions, and stop when the open ones have ended, or after drain_s. As safe as stop().

        A second call stops at once.
        """
        if self._drain_lock.acquire(blocking=False):
            self._stop_socket.send(_DRAIN)
        else:  # second request
            self.stop()

    @property
    def draining(self) -> bool:
        """Whether new sessions are refused."""
        return self._drained_by is not None

    @property
    def load(self) -> EngineLoad:
        """Statistics of the engine."""
        return self._engine.load

    def late(self, seconds: float) -> str:
        """Which loop has ended, or has not run for longer than `seconds`; "" if none."""
        if self._engine_thread is not None and not self._engine_thread.is_alive():
            return "the engine has ended"
        return self.beats.late(seconds)

    def gauges(self) -> dict[str, float]:
        """Current values, by name; from any thread."""
        return {
            "sessions": len(self._admission.sessions),
            "working": self._admission.sessions.working(self._clock()),
            "clients": len(self._admission.clients),
            "connections": len(self._connections),
            "waiting_bytes": self._admission.ledger.queued_bytes,
            "kept_picture_bytes": self._admission.pictures.bytes,
            "draining": self.draining,
            "slowest_loop_s": max(self.beats.ages().values(), default=0.0),
            **self._engine.gauges(),
        }

    def counters(self) -> dict[str, float]:
        """Counters, by name; from any thread."""
        refused = self._connections.handshakes_failed
        if self._authenticator is not None:
            refused += self._authenticator.refused
        cut = self._connections.cut.total()
        pictures = self._admission.pictures
        counts = {"pictures_named": pictures.named, "pictures_missing": pictures.missing}
        return {**self._engine.counters(), "handshakes_refused": refused, "connections_cut": cut, **counts}

    def uses(self) -> list[ClientUse]:
        """Statistics of each client; from any thread."""
        return self._admission.clients.uses()

    def kv_bytes(self) -> Counter[str]:
        """Bytes of KV cache by client name, as in uses(); from any thread."""
        found: Counter[str] = Counter()
        for key, admitted in self._engine.kv_admitted().items():
            entry = self._admission.sessions.get(key)
            if entry is not None:
                found[entry.use.client.name] += admitted
        return found

    def run(self) -> None:
        """Serve until stop(); then notify every client, end the engine and close the sockets."""
        self.meter.start()
        engine_thread = threading.Thread(target=self._engine.run, name="engine", daemon=True)
        if not self._inline:
            engine_thread.start()
            self._engine_thread = engine_thread
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._inbox, zmq.POLLIN)
        for socket in () if self._authenticator is None else self._authenticator.sockets:
            poller.register(socket, zmq.POLLIN)
        self._log.info(
            "ready",
            bind=self.bind,
            model=self._model.path,
            vocab_size=self._model.vocab_size,
            device=str(self._model.device),
            protocol=PROTOCOL_VERSION,
            keys=self._authenticator is not None,
        )
        try:
            running = True
            while running:
                self.beats.mark("sockets")
                ready = dict(poller.poll(self._poll_timeout_ms()))
                if self._inbox in ready:
                    running = self._deliver_replies()
                if self._authenticator is not None:
                    if not ready.keys().isdisjoint(self._authenticator.sockets):
                        self._authenticator.work()
                    self._authenticator.look(self._admission.sessions.clients)
                if self._router in ready:
                    self._take_messages()
                if self._inline:
                    self._engine.work_off()
                self._tidy()
                running = running and not self._is_drained()
        finally:
            self.beats.end("sockets")
            self._shut_down(engine_thread)

    def tell_prices(self, row_us: list[tuple[int, int]], draft_us: int = 0) -> None:
        """Set how long forward passes take: (rows, microseconds) of the target, and microseconds of the draft model.
        Edges that connect from now on are told.
        """
        self._admission.row_us, self._admission.draft_us = row_us, draft_us
        self._engine.tell_prices(row_us)

    def _submit(self, task: Task) -> None:  # the engine is made after what hands it tasks
        self._engine.submit(task)

    def _given_back(self, task: Task) -> None:
        self._admission.given_back(task)

    def _from_engine(self, key: SessionKey, message: Down, over: bool) -> None:
        """Called in the engine's thread: hand a reply to the socket thread."""
        reply = _Reply(key, message, encode(message), over)
        if self._inline:
            self._deliver(reply)
            return
        self._replies.put(reply)
        if self._engine_socket is None:  # a socket belongs to the thread that uses it
            self._engine_socket = self._context.socket(zmq.PUSH)
            self._engine_socket.setsockopt(zmq.SNDHWM, 0)
            self._engine_socket.connect("inproc://replies")
        self._engine_socket.send(_REPLY)

    def _wake(self) -> None:
        """Called in threads that prepare pictures, and in those of workers, when the engine has work."""
        if not self._inline:
            return  # the engine's own thread waits for it
        with self._wake_lock:
            if self._stopped:
                return
            if self._wake_socket is None:
                self._wake_socket = self._context.socket(zmq.PUSH)
                self._wake_socket.connect("inproc://replies")
            self._wake_socket.send(_WAKE)

    def _deliver_replies(self) -> bool:
        """Send the replies that the engine has queued; False after a stop request."""
        while True:
            try:
                event = self._inbox.recv(flags=zmq.DONTWAIT)
            except zmq.Again:
                return True
            if event == _STOP:
                return False
            if event == _DRAIN:
                self._begin_to_drain()
            elif event == _REPLY:
                self._deliver(self._replies.get_nowait())

    def _deliver(self, reply: _Reply) -> None:
        entry = self._admission.sessions.get(reply.key)
        if entry is None:
            return  # closed in the meantime
        message = reply.message
        if isinstance(message, (VerdictDown, RowDown)):
            entry.answered = max(entry.answered, message.round)
        elif isinstance(message, Tokens):
            entry.streamed = max(entry.streamed, message.base + len(message.ids))
        entry.worked_s = self._clock()
        entry.use.bytes_down += len(reply.payload)
        if self._send(reply.key[0], reply.payload, needed=True) and reply.over:
            # This also tells the engine, because the client may have opened a new session under this number.
            self._admission.forget(reply.key, "failed")

    def _take_messages(self) -> None:
        """Read messages of clients, a bounded number at a time, so that replies never wait for a flood."""
        size = 0
        for _ in range(_READ_AT_ONCE):
            try:
                frames = self._receive()
            except zmq.Again:
                return
            if frames is None:
                continue
            identity, *rest = frames
            try:
                self._admission.take(identity, rest)
            except Exception as error:  # one message must not end every client's verifier
                self._log.error("message_failed", traceback=self._log.trace_of(error))
                text = f"the verifier failed on a message ({type(error).__name__})"
                self._reply(identity, ErrorDown(0, ERROR_INTERNAL, text))
            size += sum(map(len, rest))
            if size > _BYTES_AT_ONCE:
                return

    def _receive(self) -> list[bytes] | None:
        """The next message of an admitted client; None if it was refused. Raises zmq.Again if there is none."""
        if self._authenticator is not None:
            return self._authenticator.receive()
        identity, first, frames = self._connections.receive()
        self._connections.heard(identity, first, "")
        return [identity, *frames]

    def _connection_bounds(self, keyring: Keyring | None) -> ConnectionBounds:
        """Bounds on incoming bytes and on connections, derived from what a client may ask for."""
        config, limits = self._config, self._config.limits
        one = config.max_message_bytes + _BYTES_AT_ONCE
        total = max(one, min(int(config.max_total_queued_mb * 2**20), _MESSAGES_ON_THEIR_WAY * one))

        def of_key(name: str) -> int:
            key = None if keyring is None else keyring.client(name)
            sessions = limits.sessions if key is None else key.quota.within(limits).sessions
            return _LEAST_CONNECTIONS_OF_KEY + 2 * sessions

        return ConnectionBounds(one, max(one, limits.queued_bytes), total, of_key)

    def _key_of(self, identity: bytes) -> ClientKey | None:
        return None if self._authenticator is None else self._authenticator.client(identity)

    def _refuse_key(self, identity: bytes, text: str) -> None:
        self._admission.clients.use_of(identity).refused[ERROR_KEY] += 1
        self._reply(identity, ErrorDown(0, ERROR_KEY, text))

    def _reply(self, identity: bytes, message: Down) -> None:
        """Send a reply that may be dropped if the client does not read."""
        self._send(identity, encode(message), needed=False)

    def _send(self, identity: bytes, payload: bytes, needed: bool) -> bool:
        limit = self._admission.clients.limits_of(identity).output_bytes
        try:
            self._outbox.put(identity, payload, limit, needed)
            return True
        except ClientGone as error:
            self._forget_client(identity, str(error))
            return False

    def _hand_over(self, identity: bytes, payload: bytes) -> bool:
        try:
            self._router.send_multipart([identity, payload], flags=zmq.DONTWAIT)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            raise ClientGone(str(error)) from error
        use = self._admission.clients.use_of(identity)
        use.messages_down += 1
        use.bytes_down += len(payload)
        return True

    def _pause(self, identity: bytes, paused: bool) -> None:
        """A client has too many unread replies, or has read them: pause its sessions, or resume them."""
        self._admission.log_of(identity).warning("suspended" if paused else "taken_up")
        self._engine.submit(PauseTask((identity, 0), paused))

    def _look_for(self, identities: set[bytes]) -> None:
        """Send clients a Pong, which they ignore; sending to a client that is gone fails, and it is forgotten."""
        for identity in identities:
            self._send(identity, encode(Pong(0, 0, 0)), needed=False)

    def _forget_client(self, identity: bytes, reason: str) -> None:
        self._admission.forget_client(identity, reason)
        self._outbox.drop(identity)

    def _tidy(self) -> None:
        """Periodic work: send waiting replies, drop clients that do not read, expire silent sessions."""
        if len(self._outbox):
            for identity in self._outbox.flush():
                self._forget_client(identity, "gone")
            for identity in self._outbox.stuck(self._config.session_timeout_s):
                self._forget_client(identity, "does not read")
        self._admission.expire()
        self._trimmer.look()

    def _begin_to_drain(self) -> None:
        self._drained_by = self._clock() + self._config.drain_s
        self._admission.closed = True
        self._log.info("draining", sessions=len(self._admission.sessions), seconds=self._config.drain_s)

    def _is_drained(self) -> bool:
        if self._drained_by is None:
            return False
        return not len(self._admission.sessions) or self._clock() >= self._drained_by

    def _poll_timeout_ms(self) -> int:
        if self._inline and not self._engine.idle:
            return 0
        if len(self._outbox):
            return int(RETRY_S * 1000)
        expiry = self._admission.sessions.next_expiry()
        waits = [BEAT_S] if expiry is None else [BEAT_S, expiry - self._clock()]
        if self._drained_by is not None:
            waits.append(max(0.0, self._drained_by - self._clock()))
        if self._authenticator is not None:
            waits.append(self._authenticator.seconds_to_look())
        return max(1, int(min(waits) * 1000) + 1)

    def _shut_down(self, engine_thread: threading.Thread) -> None:
        for lock in (self._stop_lock, self._drain_lock):  # a signal from now on has nothing left to end
            lock.acquire(blocking=False)
        self._engine.stop()
        goodbye = "the verifier is shutting down"
        for identity, number in self._admission.sessions:
            try:
                frames = [identity, encode(ErrorDown(number, ERROR_SHUTDOWN, goodbye))]
                self._router.send_multipart(frames, flags=zmq.DONTWAIT)
            except zmq.ZMQError:
                continue
        if not self._inline:
            engine_thread.join(timeout=_LAST_FORWARD_S)
        if engine_thread.is_alive():  # a forward pass that hangs must not keep the process alive
            self._log.error("engine_stuck")
        elif self._engine_socket is not None:
            self._engine_socket.close(linger=0)
        self._connections.close()
        with self._wake_lock:
            self._stopped = True
            if self._wake_socket is not None:
                self._wake_socket.close(linger=0)
        if self._authenticator is not None:
            self._authenticator.close()
        self._router.close(linger=LINGER_MS)
        self._inbox.close(linger=0)
        self._stop_socket.close(linger=0)
        for key in list(self._admission.sessions):
            self._admission.forget(key, "shutdown")
        if not engine_thread.is_alive():
            self._context.term()
        if self._verdicts is not None:
            self._verdicts.close()
        self.meter.close()
        self._log.info("served", **self._engine.load.summary(time.perf_counter()))
        self._log.info("stopped")


EVERY_S = 60.0


def trim() -> None:
    """Collect reference cycles, and return free pages to the system if the C library can; takes a few ms."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # not glibc
            ctypes.CDLL("libc.so.6").malloc_trim(0)


class HeapTrimmer:
    """Returns free memory to the system, at most every EVERY_S seconds.

    Python keeps reference cycles until it collects them, and the C library keeps free pages between long-lived objects.
    A verifier that runs for weeks would otherwise hold far more memory than it uses.
    """

    def __init__(self, clock: Callable[[], float], give_back: Callable[[], None] = trim) -> None:
        self._clock = clock
        self._give_back = give_back
        self._next = clock() + EVERY_S

    def look(self) -> None:
        """Call this periodically."""
        if self._clock() >= self._next:
            self._give_back()
            self._next = self._clock() + EVERY_S
