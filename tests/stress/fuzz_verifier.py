"""Fuzz a real verifier: several clients send legal, illegal and broken messages in any order, while an honest one asks.

    python -m tests.stress.fuzz_verifier --messages 200000

Ends with exit code 1 where the verifier died, an honest answer was wrong or did not come, or memory did not come back.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
import zmq

from cloud_verifier.config import ServerConfig
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.link import wire
from specdec.link.convert import sampling_to_wire
from specdec.link.pictures import digest_of
from specdec.methods import METHODS, get_method
from specdec.models import LoadedModel, chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.paths import DEFAULT_TEXT_DRAFT, DEFAULT_TEXT_TARGET
from specnav.supervise.children import endpoint_of, verifier_spec
from specnav.supervise.processes import Supervisor

CLIENTS = 6
SESSIONS = 5
AT_ONCE = 20
"""Messages that a client sends before it reads."""
PATIENCE_S = 60.0
SESSION_TIMEOUT_S = 3.0
SHARED_MB = 8.0
"""Of prompts that are kept for others: else they would be most of what grows."""
RETURNED_MB = 40.0
"""Memory that a verifier may keep after all this: allocators do not give everything back."""


class Mischief:
    """Messages of one client, from a seed."""

    def __init__(self, seed: int, vocab: int) -> None:
        self._random = random.Random(seed)
        self._vocab = vocab
        self._round = 0

    def frames(self) -> list[bytes]:
        """The next message: mostly one that could be legal, otherwise a broken one."""
        chance = self._random.random()
        if chance < 0.03:
            return [self._random.randbytes(self._random.randrange(0, 300))]
        data = wire.encode(self._message())
        if chance < 0.13:
            return [self._broken(data)]
        if chance < 0.14:
            return [data, data]
        return [data]

    def _broken(self, data: bytes) -> bytes:
        r = self._random
        kind = r.randrange(4)
        if kind == 0:
            return data[: r.randrange(len(data))]
        if kind == 1:
            return data + r.randbytes(r.randrange(1, 40))
        place = r.randrange(len(data))
        changed = bytearray(data)
        changed[place] = r.randrange(256)
        return bytes(changed) if kind == 2 else data[place:] + data[:place]

    def _message(self) -> wire.Up:
        r = self._random
        session, self._round = r.randrange(1, SESSIONS + 1), self._round + r.choice((0, 1, 1, 1, 7))
        kind = r.choices(
            ("draft", "tree", "ping", "sampled", "more", "alone", "close", "open", "hello", "hidden"),
            (36, 10, 10, 8, 4, 6, 3, 20, 2, 3),
        )[0]
        ids = [r.randrange(self._vocab + (r.random() < 0.02)) for _ in range(r.randrange(9))]
        base = r.choice((0, 1, 1, 2, 3, 5, 9, 1000))
        if kind == "draft":
            return wire.DraftUp(session, self._round, base, ids, None, r.randrange(4))
        if kind == "tree":
            parents = [r.randrange(-1, max(node, 1) + (r.random() < 0.05)) for node in range(len(ids))]
            return wire.DraftUp(session, self._round, base, ids, parents, r.randrange(4))
        if kind == "sampled":
            fix = r.choice((None, None, 3))
            return wire.SampledUp(session, self._round, base, ids, r.randbytes(4 * len(ids)), fix, r.randrange(4))
        if kind == "open":
            return self._open(session, ids)
        if kind == "hidden":
            return wire.HiddenUp(session, self._round, r.randbytes(r.choice((0, 7, 256, 1024))))
        if kind == "alone":
            return wire.AloneUp(session, self._round, r.randrange(5))
        if kind == "hello":
            return wire.Hello(r.choice((wire.PROTOCOL_VERSION, wire.PROTOCOL_VERSION, 1)), "fuzz", r.randbytes(16))
        return {"ping": wire.Ping(session), "more": wire.More(session, self._round), "close": wire.Close(session)}[kind]

    def _open(self, session: int, ids: list[int]) -> wire.Open:
        r = self._random
        options = GenerationOptions(r.randrange(1, 60), temperature=r.choice((0.0, 1.0)), seed=r.randrange(100))
        prompt = [r.randrange(self._vocab) for _ in range(r.choice((0, 1, 5, 40, 300)))]
        return wire.Open(
            session,
            r.random() < 0.4,
            sampling_to_wire(options),
            prompt,
            images=[r.choice(_images(r.randbytes(60)))] if r.random() < 0.1 else [],
            history=ids if r.random() < 0.3 else [],
            recovery=r.choice((0, 0, 0, 1, 2, 3, 4, 5)),
            recovery_size=r.choice((0, 1, 4, 60_000)),
            speculate=r.choice((0, 0, 3)),
            ahead=r.random() < 0.2,
            front_layers=r.choice((0, 0, 0, 0, 1, 3, 500)),
            pending=r.random() < 0.1,
            hints=r.choice((0, 0, 4, 64)),
        )


def _images(image: bytes) -> list[bytes | wire.Picture]:
    """An image as it is, to be kept, under another's name, and by its name alone."""
    digest = digest_of(image)
    return [image, wire.Picture(digest, image), wire.Picture(digest, b"other"), wire.Picture(digest)]


class Honest(threading.Thread):
    """Asks all the time, with one method after the other, and knows the answers."""

    def __init__(self, address: str, target: LoadedModel, draft: LoadedModel, seed: int) -> None:
        super().__init__(daemon=True)
        self._link = connect(address, connect_timeout_s=60, reply_timeout_s=60)
        self._draft = draft
        self._prompts = [chat_prompt(target, text) for text in ("hello", "what is a dog?", "1 + 1 =", "tell me more")]
        self._options = GenerationOptions(24)
        self._expected = [generate_local(target, prompt, self._options) for prompt in self._prompts]
        self._first = seed
        self.ended = threading.Event()
        self.answers = self.wrong = 0
        self.error = ""

    def run(self) -> None:
        """Ask until `ended` is set."""
        draft = self._draft
        names = [name for name in METHODS if not get_method(name).split]
        turn = self._first
        try:
            with self._link as link:
                while not self.ended.is_set():
                    decoder = EdgeDecoder(link, draft, names[turn % len(names)], resume_timeout_s=60)
                    which = turn % len(self._prompts)
                    ids = [t for chunk in decoder.generate(self._prompts[which], self._options) for t in chunk]
                    self.answers += 1
                    self.wrong += ids != self._expected[which]
                    turn += 1
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"


def fuzz(address: str, messages: int, seed: int, vocab: int) -> Counter[str]:
    """Send this many messages; returns how many replies of which kind came, and how many messages went."""
    context = zmq.Context()
    sockets = []
    for _ in range(CLIENTS):
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(address)
        sockets.append((socket, Mischief(seed + len(sockets), vocab)))
    seen: Counter[str] = Counter()
    last = wire.encode(wire.Ping(0))
    while seen["sent"] < messages:
        for socket, mischief in sockets:
            for _ in range(AT_ONCE):
                socket.send_multipart(mischief.frames())
                seen["sent"] += 1
            socket.send(last)
        for socket, _ in sockets:
            read_until_the_last(socket, seen)
    context.destroy(linger=0)
    return seen


def read_until_the_last(socket: zmq.Socket[bytes], seen: Counter[str]) -> None:
    """Count replies until that on a Ping of no session. Raises TimeoutError where the verifier does not answer it."""
    while socket.poll(int(PATIENCE_S * 1000)):
        reply = wire.decode_down(socket.recv())
        if isinstance(reply, wire.Pong) and reply.session == 0:
            return
        seen[reply.code if isinstance(reply, wire.ErrorDown) else type(reply).__name__] += 1
    raise TimeoutError(f"the verifier did not answer a Ping within {PATIENCE_S:.0f} s")


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    target, draft = load_model(str(DEFAULT_TEXT_TARGET)), load_model(str(DEFAULT_TEXT_DRAFT))
    config = ServerConfig(
        str(DEFAULT_TEXT_TARGET),
        "tcp://127.0.0.1:0",
        draft_model=str(DEFAULT_TEXT_DRAFT),
        session_timeout_s=SESSION_TIMEOUT_S,
        max_messages_per_s=1_000_000,
        shared_mb=SHARED_MB,
    )
    with Supervisor(Path(tempfile.mkdtemp())) as supervisor:
        child = supervisor.start(verifier_spec(config, {}))
        address = endpoint_of(supervisor.wait_ready(child, 120.0))
        honest = [Honest(address, target, draft, seed) for seed in (0, 5)]
        for one in honest:
            one.start()
        time.sleep(3.0)
        process = psutil.Process(child.process.pid)
        before, began = process.memory_info().rss / 2**20, time.monotonic()
        seen = fuzz(address, given.messages, given.seed, target.vocab_size)
        took = time.monotonic() - began
        peak = process.memory_info().rss / 2**20
        time.sleep(3 * SESSION_TIMEOUT_S)
        for one in honest:
            one.ended.set()
        for one in honest:
            one.join(120.0)
        supervisor.check()
        after = process.memory_info().rss / 2**20
    wrong = sum(one.wrong for one in honest)
    errors = [one.error for one in honest if one.error or one.is_alive()]
    print(f"{seen.pop('sent')} messages of {CLIENTS} clients in {took:.0f} s; replies: {dict(seen.most_common())}")
    print(f"honest answers: {sum(one.answers for one in honest)}, wrong: {wrong}, errors: {errors or 'none'}")
    print(f"memory of the verifier: {before:.0f} MB before, {peak:.0f} at the end, {after:.0f} after; log: {child.log}")
    return int(bool(wrong or errors) or after - before > RETURNED_MB)


if __name__ == "__main__":
    sys.exit(main())
