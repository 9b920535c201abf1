"""What llama.cpp makes of the sizes it is asked for counts: no request reaches an assertion of the library, which would
end the process for all clients.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specdec.drafting.joint import join_forwards
from specdec.errors import ModelError, NoRoom
from specdec.models import GgufOptions, Prompt, load_draft
from specdec.models.gguf.decoder import DecodeRows, LlamaDecoder, Sizes
from tests.helpers import drafts
from tests.helpers import tiny_models as tiny

pytestmark = [pytest.mark.slow, pytest.mark.gguf]


def small(context: int) -> Any:
    options = GgufOptions(threads=1, gpu_layers=0, kv="f32", context=context)
    return load_draft(drafts.gguf_of(tiny.built_pairs() / "text-draft"), gguf=options)


def flood(context: int, clients: int, length: int) -> str:
    """Prompts of several clients at once, which share forwards, then one alone; what each of them heard."""
    model = small(context)
    join_forwards(model, clients)
    together, heard = threading.Barrier(clients), []

    def answer(client: int) -> None:
        prompt = Prompt(tuple((7 * client + place) % 250 for place in range(length)))
        session = model.new_session()
        try:
            session.prefill(model.encode(prompt))
            session.extend([1] * min(8, max(1, model.context_limit - length)))
            heard.append("answered")
        except ModelError as error:
            heard.append(str(error))
        session.evict()

    def ask(client: int) -> None:
        for _ in range(4):
            together.wait()
            answer(client)

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answer(0)
    return "\n".join(heard)


SMALL = "from tests.specdec.test_gguf_limits import flood"


def test_prompts_that_share_a_small_context_end_no_process() -> None:
    cases = [(256, 4, 168), (1, 4, 168), (300, 8, 255), (512, 6, 511)]
    run = subprocess.run(
        [sys.executable, "-c", f"{SMALL}\nfor one in {cases}: print(flood(*one), '\\n--')"],
        cwd=Path(__file__).resolve().parents[2], env={**os.environ, "PYTHONPATH": ":".join(sys.path)}, text=True,
        capture_output=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-500:]
    heard = run.stdout.split("--")[:-1]
    assert len(heard) == len(cases)
    for lines in (one.strip().split("\n") for one in heard):
        assert lines[-1].strip() == "answered", "what was refused still holds cells"
        assert all(line.strip() == "answered" or "is full" in line for line in lines), lines


@pytest.mark.parametrize("context", [1, 300])
def test_limits_are_those_of_the_library(context: int) -> None:
    model = small(context)
    decoder, lib = model.runner.decoder, model.runner.decoder._library
    handle = decoder._context
    assert decoder.cells == lib.llama_n_ctx(handle) >= context
    assert model.context_limit == min(lib.llama_n_ctx_seq(handle), model.runner.context_limit)
    assert decoder.sizes.batch == min(lib.llama_n_batch(handle), lib.llama_n_ubatch(handle)) <= decoder.cells
    assert decoder.sizes.sequences == lib.llama_n_seq_max(handle)
    assert decoder.sizes.outputs <= decoder.sizes.batch


def test_rows_that_no_call_could_take_are_refused_before_the_library_sees_them() -> None:
    model = small(256)
    decoder: LlamaDecoder = model.runner.decoder
    sequence = decoder.take()
    for ids in ([10**6], [-1], [model.runner.decoder._model.rows]):
        rows = DecodeRows(np.array(ids, np.int32), np.arange(len(ids), dtype=np.int32), [sequence])
        with pytest.raises(ModelError):
            decoder.decode([rows])
    rows = DecodeRows(np.zeros(300, np.int32), np.arange(300, dtype=np.int32), [sequence], last_only=True)
    with pytest.raises(ModelError, match="full"):
        decoder.decode([rows])
    decoder.give(sequence)
    assert len(model.new_session().prefill(model.encode(Prompt((1, 2, 3))))) > 0


def test_more_sequences_than_the_library_knows_are_refused() -> None:
    options = GgufOptions(threads=1, gpu_layers=0, kv="f32")
    model = small(256).runner.decoder._model
    with pytest.raises(ModelError, match="cannot create a context"):
        LlamaDecoder(model, options, 1, 256, Sizes(sequences=100_000))


def test_a_forward_that_finds_no_room_leaves_every_branch_as_it_was() -> None:
    def with_a_chain() -> Any:
        model = small(256)
        session, model.other = model.new_session(), model.new_session()
        for one, length in ((session, 150), (model.other, 60)):
            one.prefill(model.encode(Prompt(tuple(place % 250 for place in range(length)))))
        session.extend_tree([1, 2, 3, 4, 5], [-1, 0, 1, 2, 3])
        return session

    tried, untouched = with_a_chain(), with_a_chain()
    with pytest.raises(NoRoom):
        tried.extend_tree([7] * 60, [4, -1, *range(5, 63)])
    for session in (tried, untouched):
        session.rows = session.extend_tree([9, 8], [4, -1])
    assert np.allclose(tried.rows, untouched.rows, atol=1e-4)
