# SPDX-License-Identifier: Apache-2.0
"""A verifier's step on llama.cpp against llama.cpp's own `llama_decode`, and against our own engine, on one model.

`python scripts/llamacpp_steps.py [--threads 2] [--own]`: medians in ms by rows a session and sessions, the contenders
taking turns. A step is everything between a draft's arrival at the engine and its verdict, without the wire.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cloud_verifier.config import ServerConfig
from cloud_verifier.engine.engine import own_engine
from cloud_verifier.engine.interface import AnyEngine, EngineEnvironment
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.tasks import CloseTask, OpenTask, SessionKey, SessionTask
from cloud_verifier.engine.work import Models
from cloud_verifier.engine_llamacpp.target import load_target
from cloud_verifier.logs import EventLog
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import Down, DraftUp, Open
from specdec.models import LoadedModel, chat_prompt, load_model
from specdec.models.gguf.model import GgufModel
from specdec.models.threads import set_threads
from specdec.options import GenerationOptions
from specnav.published.pairs import pair_named

QUESTION = (
    "Explain in a few sentences how a bicycle stays upright while it moves, and what the rider does for that."
)
Step = Callable[[], None]


def engine_step(model: LoadedModel, rows: int, sessions: int) -> Step:
    """Sessions whose drafts, wrong from the first token on, come again and again."""
    said: dict[SessionKey, Down] = {}
    engine: AnyEngine = own_engine(Policy(), Models(model))(
        EngineEnvironment(lambda key, message, over: said.update({key: message}), EventLog(StringIO()))
    )
    ids = list(chat_prompt(model, QUESTION).ids)
    keys = [(b"%d" % number, number) for number in range(sessions)]
    options = sampling_to_wire(GenerationOptions(4000))
    for key in keys:
        engine.submit(OpenTask(key, Open(key[1], False, options, ids, []), 0.0))
    rounds = {key: 0 for key in keys}
    lengths = {key: 1 for key in keys}

    def work() -> None:
        while not engine.idle:
            engine.work_off()

    work()

    def step() -> None:
        for key in keys:
            draft = DraftUp(
                key[1], rounds[key] + 1, lengths[key], [5] * (rows - 1), epoch=rounds[key] * (rows > 1)
            )
            engine.submit(SessionTask(key, draft, 0.0))
            rounds[key] += 1
        work()
        for key in keys:
            lengths[key] += said[key].last + 1  # type: ignore[union-attr]

    step.close = lambda: [engine.submit(CloseTask(key)) for key in keys] and work()  # type: ignore[attr-defined]
    return step


def llama_step(model: GgufModel, rows: int, sessions: int) -> Step:
    """The same rows by `llama_decode` alone, on a context as llama.cpp makes one by default; no logits are read."""
    from llama_cpp import llama_cpp as lib

    settings = lib.llama_context_default_params()
    settings.n_ctx, settings.n_seq_max = 2048 * sessions, sessions
    settings.n_threads = settings.n_threads_batch = model.threads
    context = lib.llama_init_from_model(model._llama.handle, settings)
    batch = lib.llama_batch_init(512, 0, 1)
    memory = lib.llama_get_memory(context)
    prompt = chat_prompt(model, QUESTION).ids

    def decode(starts: list[int], tokens: list[int]) -> None:
        batch.n_tokens = len(starts) * len(tokens)
        for number, start in enumerate(starts):
            for place, token in enumerate(tokens):
                at = number * len(tokens) + place
                batch.token[at], batch.pos[at], batch.logits[at] = token, start + place, 1
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, number
        if lib.llama_decode(context, batch):
            raise SystemExit("llama_decode failed")

    for number in range(sessions):
        batch.n_tokens = len(prompt)
        for place, token in enumerate(prompt):
            batch.token[place], batch.pos[place], batch.logits[place] = token, place, 0
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, number
        if lib.llama_decode(context, batch):
            raise SystemExit("llama_decode failed")
    length = len(prompt)
    tokens = [5] * rows

    def step() -> None:
        nonlocal length
        decode([length] * sessions, tokens)
        np.ctypeslib.as_array(lib.llama_get_logits(context), (1,))  # waits for the device
        for number in range(sessions):
            lib.llama_memory_seq_rm(memory, number, length + 1, -1)
        length += 1

    step.close = lambda: lib.llama_free(context)  # type: ignore[attr-defined]
    return step


def medians(steps: dict[str, Step], count: int) -> dict[str, float]:
    """Milliseconds of a step of each, which take turns."""
    took: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(count + 2):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            if number >= 2:
                took[name].append(1e3 * (time.perf_counter() - began))
    return {name: statistics.median(one) for name, one in took.items()}


def load_on_llamacpp(threads: int, kv_type: str = "auto") -> GgufModel:
    """SmolLM2, which is downloaded where it is not there."""
    gguf = pair_named("smollm2").gguf
    return load_target(
        ServerConfig(str(gguf), engine="llamacpp", threads=threads, kv_type=kv_type), EventLog(StringIO())
    )


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--own", action="store_true", help="our own engine, too (torch, float32)")
    asked = parser.parse_args()
    on_llamacpp = load_on_llamacpp(asked.threads)
    own = load_model(pair_named("smollm2").target) if asked.own else None
    set_threads(asked.threads, own) if own is not None else None
    print(
        f"load {psutil.getloadavg()[0]:.1f}; {asked.threads} thread(s); ms a step, medians of {asked.steps}"
    )
    print(
        "| rows | sessions | llama_decode | engine llamacpp | ratio | engine own | tokens/s llamacpp, own |"
    )
    print("|---|---|---|---|---|---|---|")
    for sessions in (1, 4):
        for rows in (1, 4, 8):
            steps = {
                "raw": llama_step(on_llamacpp, rows, sessions),
                "llamacpp": engine_step(on_llamacpp, rows, sessions),
            }
            if own is not None:
                steps["own"] = engine_step(own, rows, sessions)
            found = medians(steps, asked.steps)
            for step in steps.values():
                step.close()  # type: ignore[attr-defined]
            mine = found.get("own", float("nan"))
            ratio = found["llamacpp"] / found["raw"]
            speeds = f"{1e3 * sessions / found['llamacpp']:.0f}, {1e3 * sessions / mine:.0f}"
            print(
                f"| {rows} | {sessions} | {found['raw']:.1f} | {found['llamacpp']:.1f} | {ratio:.2f} | {mine:.1f} | "
                f"{speeds} |",
                flush=True,
            )
    print(
        f"memory of this process, which holds all of them: {psutil.Process().memory_info().rss / 1e6:.0f} MB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
