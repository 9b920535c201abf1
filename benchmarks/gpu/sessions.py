# SPDX-License-Identifier: Apache-2.0
"""The speed of a verifier that serves: milliseconds a token of `ar`, and tokens a second of many `sd` sessions at once.

    python benchmarks/gpu/sessions.py MODEL [--device cuda] [--counts 1,8,32] [--think-ms 15] [--json FILE]

Starts `specnav serve` and talks to it over ZeroMQ on loopback. Drafts cost nothing here: they are the target's own
answer from an earlier pass, in which each token is replaced by a wrong one with a probability of 1/4. They are sent at
once, and in a second run --think-ms after each verdict. So only the server is measured.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

from specdec.link import wire
from specdec.link.convert import sampling_to_wire
from specdec.options import GenerationOptions
from specnav.supervise.children import READY, endpoint_of
from specnav.supervise.processes import ChildSpec, Supervisor

GAMMA, SPOILT = 4, 0.25
PROMPTS = (256, 384, 512, 640)
found: dict[str, Any] = {}


@dataclass
class Session:
    """One client with one session. answer: the expected answer; got: the tokens received so far."""

    socket: Any
    number: int
    answer: list[int]
    rng: random.Random
    got: list[int] = field(default_factory=list)
    round: int = 0
    drafted: list[int] = field(default_factory=list)
    epoch: int = 0

    def ask(self) -> None:
        base = len(self.got)
        ids = self.answer[base : base + GAMMA]
        self.drafted = [(one + 1) % 400 if self.rng.random() < SPOILT else one for one in ids]
        self.round += 1
        self.socket.send(
            wire.encode(wire.DraftUp(self.number, self.round, base, self.drafted, None, self.epoch))
        )

    def take(self, verdict: wire.VerdictDown) -> None:
        self.epoch += verdict.last < len(self.drafted)
        self.got += self.drafted[: verdict.last]
        if verdict.token is not None:
            self.got.append(verdict.token)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("model")
    words.add_argument("--device", default="cuda")
    words.add_argument("--counts", default="1,8,32")
    words.add_argument("--tokens", type=int, default=64)
    words.add_argument(
        "--think-ms", type=float, default=15.0, help="time from a verdict to the next draft, for link and drafting"
    )
    words.add_argument("--extra", default="", help="more options of serve")
    words.add_argument("--json")
    asked = words.parse_args()
    command = [
        sys.executable,
        "-m",
        "specnav.cli",
        "serve",
        "--bind",
        "tcp://127.0.0.1:0",
        "--model",
        asked.model,
    ]
    command += ["--device", asked.device, *asked.extra.split()]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server is ended too
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as logs, Supervisor(Path(logs)) as supervisor:
        server = supervisor.start(ChildSpec("serve", command, ready=READY))
        address = endpoint_of(supervisor.wait_ready(server, 600.0))
        measure(
            address, [int(one) for one in asked.counts.split(",")], asked.tokens, began, asked.think_ms / 1e3
        )
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


def measure(address: str, counts: list[int], tokens: int, began: float, think_s: float) -> None:
    context = zmq.Context()
    sockets = []
    for number in range(max(counts)):
        one = context.socket(zmq.DEALER)
        one.connect(address)
        one.send(wire.encode(wire.Hello(wire.PROTOCOL_VERSION, f"bench-{number}")))
        assert one.poll(120_000), "the server did not answer"
        wire.decode_down(one.recv())
        sockets.append(one)
        if not number:
            note("start_s", time.perf_counter() - began)
    answers = []
    for turn in range(3):
        taken: list[float] = []
        answers = [
            stream(sockets[0], 100 * turn + number, prompt(number), tokens, taken) for number in range(4)
        ]
        note(f"ar_ms_a_token_{turn}", statistics.median(taken))
        note(f"ar_ms_a_token_{turn}_p90", statistics.quantiles(taken, n=10)[-1])
    for wait_s in (0.0, think_s):
        base = 0.0
        for count in counts:
            name = f"sd_{count}_think_{1e3 * wait_s:g}ms"
            rate = together(name, sockets[:count], answers, tokens, wait_s)
            base = base or rate
            note(f"{name}_tokens_per_s", rate)
            note(f"{name}_over_one", rate / base)
    for one in sockets:
        one.close(linger=0)
    context.term()


def prompt(number: int) -> list[int]:
    number %= len(PROMPTS)
    return [(number * 31 + 7 * place) % 400 for place in range(PROMPTS[number])]


def stream(one: Any, number: int, ids: list[int], tokens: int, taken: list[float]) -> list[int]:
    """An answer of the target alone; the milliseconds between tokens are appended to `taken`."""
    options = sampling_to_wire(GenerationOptions(tokens))
    one.send(wire.encode(wire.Open(number, True, options, ids)))
    answer: list[int] = []
    last = 0.0
    while len(answer) < tokens:
        assert one.poll(60_000), "no reply"
        reply = wire.decode_down(one.recv())
        if isinstance(reply, wire.ErrorDown):
            raise SystemExit(reply.reason)
        now = time.perf_counter()
        if isinstance(reply, wire.Opened) and reply.token is not None:
            answer.append(reply.token)
        elif isinstance(reply, wire.Tokens):
            answer += reply.ids
            if last:
                taken.append(1e3 * (now - last) / len(reply.ids))
        else:
            continue
        last = now
    one.send(wire.encode(wire.Close(number)))
    return answer


def together(name: str, sockets: list[Any], answers: list[list[int]], tokens: int, think_s: float) -> float:
    """Tokens a second of one session per socket; each sends its next draft `think_s` after a verdict."""
    options = sampling_to_wire(GenerationOptions(tokens))
    sessions = {}
    poller = zmq.Poller()
    for index, one in enumerate(sockets):
        one.send(wire.encode(wire.Open(9000, False, options, prompt(index))))
        poller.register(one, zmq.POLLIN)
    for index, one in enumerate(sockets):
        while True:
            assert one.poll(60_000), "no reply"
            reply = wire.decode_down(one.recv())
            if isinstance(reply, wire.ErrorDown):
                raise SystemExit(reply.reason)
            if isinstance(reply, wire.Opened):
                break
        session = Session(one, 9000, answers[index % len(answers)], random.Random(index))
        session.got.append(reply.token or 0)
        sessions[one] = session
    began, made, rounds = time.perf_counter(), 0, 0
    for session in sessions.values():
        session.ask()
    running, due = set(sessions), {}
    while running and time.perf_counter() - began < 30:
        now = time.perf_counter()
        for one in [one for one, at in due.items() if at <= now]:
            del due[one]
            sessions[one].ask()
        wait_ms = 1e3 * max(0.0, min(due.values(), default=now + 1.0) - now)
        for one, _ in poller.poll(wait_ms):
            if one not in running:
                one.recv()
                continue
            reply = wire.decode_down(one.recv())
            if isinstance(reply, wire.ErrorDown):  # the answer has ended
                running.discard(one)
            if not isinstance(reply, wire.VerdictDown):
                continue
            session, before = sessions[one], len(sessions[one].got)
            session.take(reply)
            made, rounds = made + len(session.got) - before, rounds + 1
            if len(session.got) >= tokens - GAMMA - 1:
                running.discard(one)
            elif think_s:
                due[one] = time.perf_counter() + think_s
            else:
                session.ask()
    took = time.perf_counter() - began
    note(f"{name}_ms_a_round", 1e3 * took / max(1, rounds / len(sockets)))
    note(f"{name}_tau", made / max(1, rounds))
    for one in sockets:
        poller.unregister(one)
        one.send(wire.encode(wire.Close(9000)))
    return made / took


def note(name: str, value: float) -> None:
    found[name] = round(value, 3)
    print(f"{name:36} {found[name]}", flush=True)


if __name__ == "__main__":
    main()
