# SPDX-License-Identifier: Apache-2.0
"""Decides about each message: a task for the engine, an immediate reply, or a refusal that states the limit.

It knows the connected clients, their sessions and their limits. No sockets, threads or forward passes: replies and
tasks leave through callbacks. Used only in the thread that owns the sockets.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from cloud_verifier.config import ServerConfig
from cloud_verifier.engine.interface import Capabilities
from cloud_verifier.engine.tasks import CloseTask, OpenTask, SessionKey, SessionTask, Task
from cloud_verifier.limits import Ledger, Limits, labour_of, units_of, vain_labour_of, weight_of
from cloud_verifier.logs import EventLog
from cloud_verifier.net.clients import Client, Clients, SessionEntry, SessionTable
from cloud_verifier.net.parts import MOST_PARTS, PATIENCE_S, PartsBroken, PartsTooLarge, PartTwice
from cloud_verifier.net.pictures import PictureCache
from cloud_verifier.observing.counts import SessionUse
from cloud_verifier.security.records import ClientKey
from specdec.errors import ModelError, ProtocolError
from specdec.link.convert import prompt_from_wire
from specdec.link.wire import (
    ERROR_BUSY,
    ERROR_MALFORMED,
    ERROR_PICTURES,
    ERROR_REFUSED,
    ERROR_TARGET,
    ERROR_TOO_LARGE,
    ERROR_UNKNOWN_SESSION,
    ERROR_VERSION,
    PROTOCOL_VERSION,
    Allowed,
    AloneUp,
    Close,
    Down,
    DraftUp,
    ErrorDown,
    Hello,
    HiddenUp,
    MessageTooLarge,
    More,
    Open,
    PartUp,
    Ping,
    Pong,
    SampledUp,
    Up,
    Welcome,
    decode_up,
)
from specdec.models import LoadedModel
from specdec.pictures.sizes import total_pixels

_BETWEEN_COMPLAINTS_S = 0.2
"""Least time between two warnings to a client that sends too fast."""
_BETWEEN_LOOKS_S = 0.02
_LOOKING = 0.05
"""Share of time spent looking for vanished clients, at most. Otherwise flapping clients could fill the table."""


class _Refused(Exception):
    """A message is refused. code: one of the wire's ERROR_* codes."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class AdmissionCallbacks:
    """Callbacks. reply: send a message to an identity. submit: hand a task to the engine. full: whether a client has
    too much unread output. look_for: check whether clients are still connected, and forget those that are not. key_of:
    the key that a client has shown, if any.
    """

    reply: Callable[[bytes, Down], None]
    submit: Callable[[Task], None]
    full: Callable[[bytes], bool]
    look_for: Callable[[set[bytes]], None]
    key_of: Callable[[bytes], ClientKey | None] = lambda identity: None


class Admission:
    """Handles messages one by one. closed: no new sessions are accepted."""

    def __init__(
        self,
        config: ServerConfig,
        model: LoadedModel,
        log: EventLog,
        callbacks: AdmissionCallbacks,
        clock: Callable[[], float],
        can: Capabilities,
        decode: Callable[[bytes], Up] = decode_up,
    ) -> None:
        """can: what the engine supports. decode: decodes messages."""
        self._config = config
        self._model = model
        self._log = log
        self._callbacks = callbacks
        self._clock = clock
        self._can = can
        self._decode = decode
        self._server_number = secrets.randbits(32)
        # Computed now: for large weights it takes seconds on a CPU, and clients must not wait for it.
        self._vocabulary, self._weights = model.vocabulary_fingerprint, model.weights_digest
        self.sessions = SessionTable(config.max_sessions, config.session_timeout_s)
        self.clients = Clients(config.limits, config.session_timeout_s, clock)
        self.ledger = Ledger(int(config.max_total_queued_mb * 2**20))
        pictures = int(config.max_total_kept_pictures_mb * 2**20)
        self.pictures = PictureCache(pictures, config.session_timeout_s, clock)
        self._next_look_s = float("-inf")
        self.closed = False
        self._most_bytes = config.max_message_bytes
        self.row_us: list[tuple[int, int]] = []
        self.draft_us = 0
        self._opened = 0

    def take(self, identity: bytes, frames: list[bytes]) -> None:
        """Handle the frames of one message from a client."""
        client = self.clients.heard_of(identity)
        shown = self._callbacks.key_of(identity)
        if shown is not client.key and shown is not None:  # its first message, or its key's rights have changed
            self.clients.know(identity, shown)
        size = sum(map(len, frames))
        client.use.messages_up += 1
        client.use.bytes_up += size
        if not client.bucket.take(sum(units_of(len(frame)) for frame in frames)):
            self._complain(client)
            return
        if len(frames) != 1:
            self._refuse(identity, 0, ERROR_MALFORMED, f"a message of {len(frames)} frames")
            return
        most = self._most_bytes
        try:
            if len(frames[0]) > most:
                raise MessageTooLarge(f"a message of {len(frames[0])} bytes exceeds the limit of {most}")
            message = self._decode(frames[0])
        except MessageTooLarge as error:
            self._refuse(identity, 0, ERROR_TOO_LARGE, str(error))
        except ProtocolError as error:
            client.bucket.owe(vain_labour_of(size))
            self._refuse(identity, 0, ERROR_MALFORMED, str(error))
        else:
            client.bucket.owe(labour_of(message))
            try:
                self._take(client, message, size)
            except _Refused as refusal:
                self._refuse(identity, getattr(message, "session", 0), refusal.code, str(refusal))

    def given_back(self, task: Task) -> None:
        """A task has stopped waiting for the engine; from any thread."""
        if isinstance(task, OpenTask | SessionTask):
            self.ledger.give_back(task.owner, weight_of(task.message))

    def forget(self, key: SessionKey, reason: str) -> None:
        """End a session."""
        entry = self.sessions.get(key)
        if entry is None:
            return
        self._drop_parts(entry)
        self.sessions.remove(key)
        self._callbacks.submit(CloseTask(key))
        entry.use.client.sessions -= 1
        entry.use.log.info("closed", reason=reason, **entry.use.totals(self._clock()))

    def forget_client(self, identity: bytes, reason: str) -> None:
        """Forget a client and its sessions."""
        keys = self.sessions.of_client(identity)
        if keys:
            self.log_of(identity).warning("client_gone", reason=reason)
        for key in keys:
            self.forget(key, reason if reason == "revoked" else "client_gone")
        self.clients.forget(identity)

    def log_of(self, identity: bytes) -> EventLog:
        """A log bound to a client and the ids of its sessions."""
        entries = [self.sessions.get(key) for key in self.sessions.of_client(identity)]
        ids = [entry.use.id for entry in entries if entry is not None]
        return self._log.bind(client=self.clients.name_of(identity), sessions=len(ids), session_ids=ids)

    def count_of(self, identity: bytes) -> int:
        """Number of a client's sessions."""
        return len(self.sessions.of_client(identity))

    def expire(self) -> None:
        """Forget sessions, draft parts, clients and pictures that have been silent for too long."""
        now_s = self._clock()
        for key in self.sessions.expired(now_s):
            self.forget(key, "timeout")
        for key in self.sessions.late_with_parts(now_s):
            self._break_off(key, f"the rest of a draft did not come within {PATIENCE_S:g} s")
        self.clients.expire(lambda identity: self.count_of(identity) > 0)
        if self.pictures.bytes:
            self.pictures.expire()

    def _take(self, client: Client, message: Up, size: int) -> None:
        """size: bytes of the message."""
        identity = client.identity
        if isinstance(message, Hello):
            self._greet(client, message)
            return
        if isinstance(message, Open):
            self._open(client, message, size)
            return
        if isinstance(message, Ping) and message.session == 0:
            self._callbacks.reply(identity, Pong(0, 0, 0))
            return
        key = (identity, message.session)
        entry = self.sessions.get(key)
        if entry is None:
            if not isinstance(message, Close):
                text = "unknown session: open it again"
                self._callbacks.reply(identity, ErrorDown(message.session, ERROR_UNKNOWN_SESSION, text))
            return
        entry.last_heard = self._clock()
        entry.use.bytes_up += size
        if isinstance(message, Ping):
            pong = Pong(message.session, entry.received, entry.answered, entry.streamed)
            self._callbacks.reply(identity, pong)
        elif isinstance(message, Close):
            self.forget(key, "close")
        else:
            self._work(client, key, entry, message)

    def _work(
        self,
        client: Client,
        key: SessionKey,
        entry: SessionEntry,
        message: DraftUp | SampledUp | More | HiddenUp | AloneUp | PartUp,
    ) -> None:
        """Hand the engine a message of an open session."""
        if entry.parts.superseded_by(message.round):
            self._drop_parts(entry)
        if isinstance(message, PartUp):
            whole = self._complete(client, key, entry, message)
            if whole is None:
                return
            message = whole
        most = client.limits.draft_nodes
        if isinstance(message, (DraftUp, SampledUp)) and len(message.ids) > most:
            text = f"a draft of {len(message.ids)} tokens is too large: {most} are allowed"
            raise _Refused(ERROR_TOO_LARGE, text)
        self._count_waiting(client, message)
        entry.received = max(entry.received, message.round)
        if isinstance(message, More):  # the round is open again
            entry.answered = max(0, min(entry.answered, message.round - 1))
        self._callbacks.submit(SessionTask(key, message, time.perf_counter(), client.owner))

    def _complete(
        self, client: Client, key: SessionKey, entry: SessionEntry, message: PartUp
    ) -> DraftUp | SampledUp | None:
        """The draft that this part completes; None if more parts are to come, or if the session ends."""
        parts = entry.parts
        self._count_waiting(client, message)
        weight = weight_of(message)
        try:
            parts.add(message, self._clock(), client.limits.draft_nodes, self._most_bytes)
        except PartTwice as error:
            self.ledger.give_back(client.owner, weight)
            entry.use.log.warning("part_ignored", reason=str(error))
            return None
        except PartsTooLarge as error:
            self.ledger.give_back(client.owner, weight)
            self._drop_parts(entry)
            raise _Refused(ERROR_TOO_LARGE, str(error)) from error
        except PartsBroken as error:
            self.ledger.give_back(client.owner, weight)
            self._break_off(key, str(error))
            return None
        if message.more:
            return None
        for part in parts.held:  # from now on they count as one message
            self.ledger.give_back(client.owner, weight_of(part))
        return parts.whole()

    def _drop_parts(self, entry: SessionEntry) -> None:
        """Discard the parts held for a session's next draft."""
        for part in entry.parts.drop():
            self.ledger.give_back(entry.owner, weight_of(part))

    def _break_off(self, key: SessionKey, why: str) -> None:
        """End a session whose draft can never be completed; the edge opens it again with its verified tokens."""
        self._refuse(key[0], key[1], ERROR_UNKNOWN_SESSION, f"{why}: open the session again")
        self.forget(key, "parts")

    def _open(self, client: Client, message: Open, size: int) -> None:
        identity, session = client.identity, message.session
        key = (identity, session)
        self.forget(key, "opened again")  # its waiting tasks never run
        limits, told = client.limits, message
        self._check_room(client, message)
        try:
            images, missing = self.pictures.look_up(client.lasting, told.images)
            if missing:
                text = f"{len(missing)} of the images are not kept (any more): send them"
                self._callbacks.reply(identity, ErrorDown(session, ERROR_PICTURES, text, missing))
                return
            message = msgspec.structs.replace(told, images=images)
            # From now on a named picture counts like one that was sent.
            named = weight_of(message) - weight_of(told)
            client.bucket.owe(units_of(named) - 1)
            self._check_size(message, limits, size + named)
        except ModelError as error:
            raise _Refused(ERROR_REFUSED, str(error)) from error
        except ProtocolError as error:
            raise _Refused(ERROR_MALFORMED, str(error)) from error
        self._count_waiting(client, message)
        self.pictures.keep(client.lasting, told.images, images, limits.picture_bytes)
        use = self._new_use(client, message, size)
        self.sessions.add(key, client.owner, use)
        use.log.info(
            "open",
            ids=len(message.ids),
            images=len(message.images),
            named=sum(not isinstance(one, bytes) and not one.data for one in told.images),
            history=len(message.history),
            stream=message.stream,
        )
        now, scope = time.perf_counter(), self._scope_of(client, message)
        self._callbacks.submit(OpenTask(key, message, now, client.rank, client.owner, scope, use))

    def _check_room(self, client: Client, message: Open) -> None:
        """Raise _Refused if no session, or none of this client or target, can be opened now."""
        if self.closed:
            text = "the verifier is shutting down and accepts no new sessions: try again later, or use another one"
            raise _Refused(ERROR_BUSY, text)
        if message.weights and message.weights != self._weights:
            raise _Refused(ERROR_TARGET, "the answer was made by another target than this verifier's: connect again")
        mine, most = self.sessions.owned_by(client.owner), client.limits.sessions
        if mine >= most:
            text = f"you have {mine} sessions and {most} are allowed: close one, or try again later"
            raise _Refused(ERROR_BUSY, text)
        if self.sessions.is_full:
            self._look_for_the_silent()
        if self.sessions.is_full:
            text = f"all of the verifier's {self._config.max_sessions} sessions are taken: try again later"
            raise _Refused(ERROR_BUSY, text)

    def _scope_of(self, client: Client, message: Open) -> bytes:
        """The scope within which prompts are shared: response times reveal earlier prompts only within one scope."""
        if self._config.share != "key":
            return b""
        within = message.scope.encode()
        return blake2b(within, digest_size=16, key=client.name.encode()).digest() if within else client.name.encode()

    def _new_use(self, client: Client, message: Open, size: int) -> SessionUse:
        """Statistics and log of a new session. Its id is unique, unlike the number that its client gave it."""
        self._opened += 1
        client.use.opened += 1
        client.use.sessions += 1
        client.use.resumed += bool(message.history)
        number = f"{self._server_number:08x}-{self._opened}"
        log = self._log.bind(client=client.name, session=message.session, id=number)
        return SessionUse(number, log, client.use, self._clock(), bytes_up=size)

    def _check_size(self, message: Open, limits: Limits, size: int) -> None:
        """Check a prompt's size by its headers alone. size: bytes of the message, named pictures included.

        Raises _Refused, stating the limit, for a prompt that is too large, and ModelError for data that is not a
        picture this model takes.
        """
        most = self._most_bytes
        if size > most:
            text = f"a message of {size} bytes, named images included, exceeds the limit of {most}"
            raise _Refused(ERROR_TOO_LARGE, text)
        if len(message.images) > limits.images:
            text = f"a prompt of {len(message.images)} images is too large: {limits.images} are allowed"
            raise _Refused(ERROR_TOO_LARGE, text)
        prompt = prompt_from_wire(message)
        tokens = self._model.prompt_length(prompt)
        pixels = total_pixels(prompt.images)
        if pixels > limits.image_pixels:
            text = f"the images have {pixels} pixels: {limits.image_pixels} are allowed, all images together"
            raise _Refused(ERROR_TOO_LARGE, text)
        most = self._model.context_limit
        if tokens >= most:
            text = f"the prompt has {tokens} tokens and the verifier takes {most} with the answer: shorten it"
            raise _Refused(ERROR_TOO_LARGE, text)

    def _count_waiting(self, client: Client, message: Up) -> None:
        """Count a message that is about to wait for the engine. Raises _Refused if it may not wait."""
        if self._callbacks.full(client.identity):
            raise _Refused(ERROR_BUSY, "you are not reading replies: read them, then try again")
        if text := self.ledger.charge(client.owner, weight_of(message), client.limits):
            raise _Refused(ERROR_BUSY, text)

    def _greet(self, client: Client, hello: Hello) -> None:
        identity = client.identity
        if hello.version != PROTOCOL_VERSION:
            text = (
                f"the verifier speaks protocol version {PROTOCOL_VERSION} and the edge version "
                f"{hello.version}: install the same release on both sides"
            )
            self._log.warning("version_mismatch", theirs=hello.version, ours=PROTOCOL_VERSION)
            self._callbacks.reply(identity, ErrorDown(0, ERROR_VERSION, text))
            return
        token = hello.token
        before = self.clients.resume(identity, token) if isinstance(token, bytes) and token else None
        if before is not None:
            client.use.reconnects += 1
            self.log_of(before).info("resumed", client=client.name)
            for key in self.sessions.of_client(before):  # their connection is gone
                self.forget(key, "resumed")
        self._callbacks.reply(identity, self._welcome(self.clients.heard_of(identity)))

    def _welcome(self, client: Client) -> Welcome:
        model, limits, rules = self._model, client.limits, self._model.picture_rules
        allowed = Allowed(
            self._config.max_message_bytes,
            limits.images if rules is not None else 0,
            limits.image_pixels,
            rules.factor if rules is not None else 0,
            rules.least if rules is not None else 0,
            min(rules.most, 2**31 - 1) if rules is not None else 0,
            limits.draft_nodes,
            limits.sessions,
            int(self._config.session_timeout_s * 1000),
            limits.picture_bytes if rules is not None else 0,
        )
        return Welcome(
            PROTOCOL_VERSION,
            model.name[-256:],
            model.vocab_size,
            self._vocabulary,
            sorted(model.eos_token_ids),
            model.context_limit,
            self._server_number,
            list(self._can.exits),
            self._can.drafts,
            client.token,
            allowed,
            self.row_us,
            self._can.lacks,
            self.draft_us,
            self._weights,
            MOST_PARTS,
        )

    def _complain(self, client: Client) -> None:
        now = self._clock()
        if now - client.told < _BETWEEN_COMPLAINTS_S:
            return
        client.told = now
        text = f"you send too fast: {client.limits.messages_per_s:g} messages a second are allowed"
        self._refuse(client.identity, 0, ERROR_BUSY, text)

    def _refuse(self, identity: bytes, session: int, code: str, text: str) -> None:
        """Refuse a message. Log events are named by the error code."""
        self.clients.use_of(identity).refused[code] += 1
        entry = self.sessions.get((identity, session))
        if entry is not None:
            entry.use.log.warning(code, reason=text)
        else:
            self._log.warning(code, client=self.clients.name_of(identity), session=session, reason=text)
        self._callbacks.reply(identity, ErrorDown(session, code, text[:1900]))

    def _look_for_the_silent(self) -> None:
        """The table is full: remove clients that are no longer connected."""
        began = self._clock()
        if began < self._next_look_s:
            return
        self._callbacks.look_for({identity for identity, _ in self.sessions})
        ended = self._clock()
        self._next_look_s = ended + max(_BETWEEN_LOOKS_S, (ended - began) / _LOOKING)
