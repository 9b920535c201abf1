"""A published model, end to end: SmolLM2 on our own engine and on llama.cpp says what it says alone, in sentences."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import StringIO
from typing import Any

import pytest
import torch

from cloud_verifier.config import ServerConfig
from cloud_verifier.engine.engine import own_engine
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.work import Models
from cloud_verifier.engine_llamacpp.target import load_target
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from specdec.edge.decoder import EdgeDecoder
from specdec.models import GgufOptions, LoadedModel, Prompt, chat_prompt, load_draft, load_model
from specdec.models.gguf.model import GgufModel
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.bench.runner.near_ties import both_ways
from specnav.paths import ROOT
from specnav.published.pairs import Pair, pair_named
from tests.helpers.servers import patiently_connected
from tests.real.llamacpp_steps import engine_step, llama_step, medians

pytestmark = pytest.mark.real

QUESTIONS = ("Write a Python function that adds two numbers.", "How many days are there in a week?")
GREEDY = GenerationOptions(20)
SAMPLED = GenerationOptions(20, temperature=0.8, seed=7, top_p=0.9, repetition_penalty=1.1)
METHODS = ("sd", "fsd", "auto", "ngram", "sd+tree:8x3", "sd+overlap:stream")


@pytest.fixture(scope="session")
def pair() -> Pair:
    """Downloaded where it is not there yet."""
    return pair_named("smollm2")


@pytest.fixture(scope="session")
def on_torch(pair: Pair) -> LoadedModel:
    return load_model(pair.target)


@pytest.fixture(scope="session")
def on_llamacpp(pair: Pair) -> GgufModel:
    settings = ServerConfig(str(pair.gguf), engine="llamacpp", threads=1, kv_gb=0.5)
    return load_target(settings, EventLog(StringIO()))


@pytest.fixture(scope="session")
def draft(pair: Pair) -> LoadedModel:
    """That of the pair; until there is one the target, with keys and values rounded."""
    if pair.draft:
        return load_draft(pair.draft)
    return load_draft(str(pair.gguf), gguf=GgufOptions(threads=1, kv="q8_0"))


@contextmanager
def served(model: LoadedModel) -> Iterator[str]:
    """A verifier in a thread; its address."""
    config = ServerConfig(model.path, "tcp://127.0.0.1:0")
    kv_bytes = model.cache_bytes or 1 << 30
    server = Server(
        config,
        model,
        EventLog(StringIO()),
        make_engine=own_engine(Policy(), Models(model), kv_bytes=kv_bytes),
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server.bind
    finally:
        server.stop()
        thread.join(30)


def test_both_formats_are_one_model(on_torch: LoadedModel, on_llamacpp: GgufModel) -> None:
    """llama.cpp multiplies with rounded activations: the likeliest token is nearly always the same."""
    assert on_llamacpp.vocabulary_fingerprint == on_torch.vocabulary_fingerprint
    assert on_llamacpp.eos_token_ids == on_torch.eos_token_ids == {2}
    text = (ROOT / "docs" / "index.md").read_text()[:900] + "  x = 12345\n\n1. **It's**\n    0 is"
    ids = on_torch.tokenizer(text, add_special_tokens=False)["input_ids"]
    from llama_cpp import Llama

    by_llama = Llama(on_llamacpp.path, vocab_only=True, verbose=False)
    assert by_llama.tokenize(text.encode(), add_bos=False) == ids
    found = [torch.stack(_steps(model, ids[:120])) for model in (on_torch, on_llamacpp)]
    same = (found[0].argmax(-1) == found[1].argmax(-1)).float().mean()
    assert same > 0.9 and (found[0] - found[1]).abs().mean() < 0.5


def _steps(model: LoadedModel, ids: list[int]) -> list[torch.Tensor]:
    session = model.new_session()
    first = session.prefill(model.encode(Prompt(tuple(ids[:20]))))
    return [first, *session.extend(ids[20:])]


@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_every_method_says_what_the_target_on_llamacpp_says_alone(
    on_llamacpp: GgufModel, draft: LoadedModel, options: GenerationOptions
) -> None:
    """Exactly, though this model's logits differ by up to 1.5 between forwards that round differently."""
    with served(on_llamacpp) as address, patiently_connected(address) as link:
        for question in QUESTIONS if options is GREEDY else QUESTIONS[:1]:
            prompt = chat_prompt(on_llamacpp, question)
            right = generate_local(on_llamacpp, prompt, options)
            steps, at_once = both_ways(on_llamacpp, prompt, right, options)
            assert torch.equal(steps, at_once)
            for method in METHODS:
                decoder = EdgeDecoder(link, draft, method)
                said = [token for ids in decoder.generate(prompt, options) for token in ids]
                assert said == right, method


def test_on_our_own_engine_answers_are_equal(on_torch: LoadedModel, draft: LoadedModel) -> None:
    prompt = chat_prompt(on_torch, "What is the capital of France?")
    with served(on_torch) as address, patiently_connected(address) as link:
        answers = {}
        for method in ("ar", "sd", "ngram"):
            decoder = EdgeDecoder(link, draft, method)
            answers[method] = [token for ids in decoder.generate(prompt, GREEDY) for token in ids]
    assert answers["ar"] == answers["sd"] == answers["ngram"] == generate_local(on_torch, prompt, GREEDY)
    assert on_torch.tokenizer.decode(answers["ar"]) == "The capital of France is Paris."


def test_a_step_takes_little_more_than_llama_decode(on_llamacpp: GgufModel) -> None:
    """Both take turns, so what else runs slows both; asked again where a burst of it hit one of them."""
    ratios = []
    for _ in range(3):
        steps = {"raw": llama_step(on_llamacpp, 4), "engine": engine_step(on_llamacpp, 4)}
        found = medians(steps, 9)
        ratios.append(found["engine"] / found["raw"])
        if ratios[-1] <= 1.15:
            return
    pytest.fail(f"a step of the engine takes {min(ratios):.2f} times llama_decode")


@contextmanager
def process(*words: str) -> Iterator[str]:
    """A command of specnav that serves; its address."""
    command = [sys.executable, "-m", "specnav.cli", *words]
    with ExitStack() as stack:
        child = stack.enter_context(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True))
        stack.callback(child.terminate)
        assert child.stderr is not None
        lines = []
        for line in child.stderr:
            lines.append(line)
            if '"ready"' in line:
                threading.Thread(target=child.stderr.read, daemon=True).start()
                yield json.loads(line)["bind"]
                return
        raise AssertionError("".join(lines[-5:]))


def asked_of_the_api(address: str, question: str) -> dict[str, Any]:
    """The choice of a chat completion."""
    with urllib.request.urlopen(f"{address}/v1/models", timeout=30) as reply:
        model = json.load(reply)["data"][0]["id"]
    body = {"model": model, "temperature": 0, "messages": [{"role": "user", "content": question}]}
    request = urllib.request.Request(
        f"{address}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        choice: dict[str, Any] = json.load(reply)["choices"][0]
        return choice


def test_commands_answer_in_sentences(pair: Pair) -> None:
    """As a newcomer types them, the verifier on llama.cpp."""
    words = ("serve", "--engine", "llamacpp", "--pair", "smollm2", "--bind", "tcp://127.0.0.1:0")
    with process(*words) as verifier:
        command = [sys.executable, "-m", "specnav.cli", "generate", QUESTIONS[1], "--pair", "smollm2"]
        run = subprocess.run(
            [*command, "--connect", verifier], cwd=ROOT, capture_output=True, text=True, timeout=120,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        assert re.fullmatch(r"A week .*7 days.*\.\n", run.stdout)
        with process("api", "--pair", "smollm2", "--connect", verifier, "--bind", "127.0.0.1:0") as api:
            choice = asked_of_the_api(api, QUESTIONS[1])
    assert choice["finish_reason"] == "stop" and choice["message"]["content"] == run.stdout.strip()
