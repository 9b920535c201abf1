"""A step of a verifier's engine on llama.cpp, and the same rows by llama.cpp's own `llama_decode`.

A step is everything between a draft's arrival at the engine and its verdict, without the wire.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from io import StringIO

import numpy as np

from cloud_verifier.engine.engine import own_engine
from cloud_verifier.engine.interface import EngineEnvironment
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.tasks import OpenTask, SessionTask
from cloud_verifier.engine.work import Models
from cloud_verifier.logs import EventLog
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import Down, DraftUp, Open
from specdec.models import LoadedModel, chat_prompt
from specdec.models.gguf.model import GgufModel
from specdec.options import GenerationOptions

QUESTION = (
    "Explain in a few sentences how a bicycle stays upright while it moves, and what the rider does for that."
)
KEY = (b"edge", 1)
Step = Callable[[], None]


def engine_step(model: LoadedModel, rows: int) -> Step:
    """A session whose drafts are wrong from the first token on."""
    said: list[Down] = []
    around = EngineEnvironment(lambda key, message, over: said.append(message), EventLog(StringIO()))
    engine = own_engine(Policy(), Models(model))(around)
    ids, options = list(chat_prompt(model, QUESTION).ids), sampling_to_wire(GenerationOptions(4000))
    rounds, length = 0, 1

    def hand_in(task: OpenTask | SessionTask) -> None:
        engine.submit(task)
        while not engine.idle:
            engine.work_off()

    def step() -> None:
        nonlocal rounds, length
        draft = DraftUp(KEY[1], rounds + 1, length, [5] * (rows - 1), epoch=rounds)
        hand_in(SessionTask(KEY, draft, 0.0))
        rounds += 1
        length += said[-1].last + 1  # type: ignore[union-attr]

    hand_in(OpenTask(KEY, Open(KEY[1], False, options, ids, []), 0.0))
    return step


def llama_step(model: GgufModel, rows: int) -> Step:
    """The same rows by `llama_decode` alone, on a context as llama.cpp makes one by default."""
    from llama_cpp import llama_cpp as lib

    settings = lib.llama_context_default_params()
    settings.n_ctx, settings.n_seq_max = 2048, 1
    settings.n_threads = settings.n_threads_batch = model.threads
    context = lib.llama_init_from_model(model._llama.handle, settings)
    batch = lib.llama_batch_init(512, 0, 1)
    memory = lib.llama_get_memory(context)
    length = 0

    def decode(tokens: Sequence[int], with_logits: bool) -> None:
        batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place], batch.pos[place], batch.logits[place] = token, length + place, with_logits
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
        assert not lib.llama_decode(context, batch), "llama_decode failed"

    def step() -> None:
        nonlocal length
        decode([5] * rows, with_logits=True)
        np.ctypeslib.as_array(lib.llama_get_logits(context), (1,))  # waits for the device
        lib.llama_memory_seq_rm(memory, 0, length + 1, -1)
        length += 1

    prompt = chat_prompt(model, QUESTION).ids
    decode(prompt, with_logits=False)
    length = len(prompt)
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
