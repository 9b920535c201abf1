# SPDX-License-Identifier: Apache-2.0
"""The cost of the HTTP API: tokens a second and time to the first token, through the API and with the library directly.

A verifier and two API servers run as processes on loopback: in one the answers share draft forwards, in the other they
take turns. The library runs in this process, as in a program that uses it: one decoder per client, on one draft model,
with forwards separate, in turn, and shared. All ways get the same questions with the same seeds, one way after another,
repeatedly; medians are printed. Clients read server-sent events with Python's own HTTP client. One more way returns
each answer as a whole: the upper limit of what cheaper streaming could bring.

    python -m benchmarks.api_speed                                   # the shipped pair at its own speed
    python -m benchmarks.api_speed --draft-ms 5 --verify-ms 20       # as slow as models of a useful size
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cloud_verifier.config import ServerConfig
from specdec.drafting.joint import join_forwards
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.models import LoadedModel, load_draft
from specdec.models.prompt import Message, conversation_prompt
from specdec.models.timing.pacing import pace
from specdec.options import GenerationOptions
from specnav.api.config import ApiConfig
from specnav.api.run import run_api
from specnav.paths import DEFAULT_TEXT_DRAFT, DEFAULT_TEXT_TARGET, ROOT
from specnav.supervise.children import READY, endpoint_of, verifier_spec
from specnav.supervise.processes import ChildSpec, Supervisor

WAIT_S = 120.0
TEMPERATURE = 0.9
SWITCH_S = 0.0005
"""The server's setting: with Python's default of 5 ms, the answering threads wait for each other."""

Ask = Callable[[int, int], tuple[int, float]]
"""(client, question) -> number of tokens, and seconds to the first."""


@dataclass(frozen=True)
class SpeedRun:
    """The result of one run of one way."""

    tokens_per_s: float
    first_ms: float


def text_of(client: int, question: int) -> str:
    """A different text for each client and question."""
    return f"Write a story about number {17 * client + question}."


def measured(ask: Ask, clients: int, questions: int) -> SpeedRun:
    """Run all clients at once; each asks its questions one after another."""
    with ThreadPoolExecutor(clients) as pool:
        began = time.perf_counter()
        work = pool.map(lambda client: [ask(client, question) for question in range(questions)], range(clients))
        found = [one for answers in work for one in answers]
        taken = time.perf_counter() - began
    return SpeedRun(sum(tokens for tokens, _ in found) / taken, 1e3 * statistics.median(first for _, first in found))


def library(draft: LoadedModel, address: str, method: str, clients: int, tokens: int) -> Ask:
    """Clients that use the library directly: one decoder each, in this process."""
    decoders = [EdgeDecoder(connect(address), draft, method) for _ in range(clients)]

    def ask(client: int, question: int) -> tuple[int, float]:
        began, first, count = time.perf_counter(), 0.0, 0
        prompt = conversation_prompt(draft, [Message("user", (text_of(client, question),))])
        options = GenerationOptions(tokens, TEMPERATURE, seed=question, min_new_tokens=tokens)
        for ids in decoders[client].generate(prompt, options):
            first = first or time.perf_counter() - began
            count += len(ids)
        return count, first

    return ask


def api(bind: str, tokens: int, stream: bool = True) -> Ask:
    """Clients of an API server; each keeps its own connection."""
    place = bind.removeprefix("http://")
    connections: dict[int, http.client.HTTPConnection] = {}

    def ask(client: int, question: int) -> tuple[int, float]:
        connection = connections.setdefault(client, http.client.HTTPConnection(place, timeout=WAIT_S))
        body: dict[str, Any] = {"model": "text-target", "stream": stream}
        if stream:
            body["stream_options"] = {"include_usage": True}
        body |= {"messages": [{"role": "user", "content": text_of(client, question)}], "temperature": TEMPERATURE}
        body |= {"seed": question, "max_tokens": tokens, "min_tokens": tokens}
        began, first, last = time.perf_counter(), 0.0, b""
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        reply = connection.getresponse()
        if reply.status != 200:
            raise RuntimeError(reply.read().decode())
        if not stream:
            last = reply.read()
            return int(json.loads(last)["usage"]["completion_tokens"]), time.perf_counter() - began
        while line := reply.readline():
            if line.startswith(b"data: {"):
                first = first or time.perf_counter() - began
                last = line
        return int(json.loads(last[6:])["usage"]["completion_tokens"]), first

    return ask


def serve(words: Sequence[str]) -> int:
    """Run one API server; called in a child process."""
    connect_to, method, answers, together, draft_ms = words
    config = ApiConfig(
        connect_to,
        method=method,
        bind="127.0.0.1:0",
        name="text-target",
        answers=int(answers),
        together=int(together),
        draft_ms=float(draft_ms),
    )
    return run_api(config)


def compare(arguments: argparse.Namespace, supervisor: Supervisor) -> None:
    """Measure and print."""
    environment = {"OMP_NUM_THREADS": "1"}
    most = max(arguments.clients)
    config = ServerConfig(str(DEFAULT_TEXT_TARGET), "tcp://127.0.0.1:0", verify_ms=arguments.verify_ms)
    verifier = supervisor.start(verifier_spec(config, environment))
    address = endpoint_of(supervisor.wait_ready(verifier, WAIT_S))
    binds = {}
    for name, together in (("api", 64), ("api, drafts in turn", 1)):
        words = [address, arguments.method, str(most), str(together), str(arguments.draft_ms)]
        argv = [sys.executable, str(Path(__file__).resolve()), "--serve", *words]
        child = supervisor.start(ChildSpec(name.replace(", ", "-").replace(" ", "-"), argv, environment, READY, ROOT))
        binds[name] = endpoint_of(supervisor.wait_ready(child, WAIT_S))
    torch.set_num_threads(1)
    sys.setswitchinterval(SWITCH_S)
    draft = load_draft(DEFAULT_TEXT_DRAFT)
    pace(draft, arguments.draft_ms)
    print(f"{arguments.method}, draft forward ≥ {arguments.draft_ms:g} ms, verification ≥ {arguments.verify_ms:g} ms")
    print(f"{arguments.tokens} tokens an answer; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for clients in arguments.clients:
        direct = library(draft, address, arguments.method, clients, arguments.tokens)
        ways: list[tuple[str, Ask, int]] = [
            ("library, drafts apart", direct, 0),
            ("library, drafts in turn", direct, 1),
            ("library, drafts shared", direct, 64),
            *((name, api(bind, arguments.tokens), 0) for name, bind in binds.items()),
            ("api, whole answers", api(binds["api"], arguments.tokens, stream=False), 0),
        ]
        runs: dict[str, list[SpeedRun]] = {name: [] for name, _, _ in ways}
        for repeat in range(arguments.repeats + 1):
            for name, ask, together in ways:
                draft.runner.joint = None
                if together:
                    join_forwards(draft, together)
                run = measured(ask, clients, arguments.questions)
                if repeat:  # the first run is a warm-up
                    runs[name].append(run)
        print(f"{clients:3d} at once {'':19} tokens/s   of the library's   first token, ms")
        base = [run.tokens_per_s for run in runs["library, drafts shared"]]
        for name, found in runs.items():
            rate = statistics.median(run.tokens_per_s for run in found)
            share = statistics.median(run.tokens_per_s / other for run, other in zip(found, base, strict=True))
            first = statistics.median(run.first_ms for run in found)
            print(f"    {name:26} {rate:8.0f} {share:18.2f} {first:17.1f}", flush=True)


def main() -> int:
    """Parse the flags and run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--questions", type=int, default=4, help="questions of each client")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--method", default="sd")
    parser.add_argument("--draft-ms", type=float, default=0.0)
    parser.add_argument("--verify-ms", type=float, default=0.0)
    parser.add_argument("--serve", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(arguments.serve)
    with tempfile.TemporaryDirectory() as logs, Supervisor(Path(logs)) as supervisor:
        compare(arguments, supervisor)
    return 0


if __name__ == "__main__":
    sys.exit(main())
