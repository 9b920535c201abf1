"""Sessions that share forwards say what each would have said alone: greedy ids, seeds, distributions.

The verifier is a real one in a thread of this process; so are its edges, sixteen at a time, each with its own link.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import StringIO

import pytest
import torch

from cloud_verifier.config import ServerConfig
from cloud_verifier.engine.engine import Engine, own_engine
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.work import Models
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from specdec.edge.decoder import EdgeDecoder
from specdec.methods import get_method
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.helpers.servers import Pair, StartServer, patiently_connected
from tests.helpers.table_models import PROMPT, answer_chances
from tests.helpers.tiny_models import picture
from tests.specdec.checks import (
    ALL_METHODS,
    FALSE_ALARM,
    JOINT,
    SAMPLED,
    UNLIKE,
    chi_square,
    leaning_pvalue,
)

AT_ONCE = 16
NEAR_TIE = 1e-4
"""Logits of rows that share a product differ by rounding: which of two so close is the larger may differ, too."""
Ask = Callable[[str], EdgeDecoder]


def run_side_by_side(jobs: Sequence[Callable[[], None]]) -> None:
    """All of them, sixteen at a time; raises what the first one raises, and begins no other then."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for done in [pool.submit(job) for job in jobs]:
                done.result(120.0)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def assert_same(model: LoadedModel, prompt: Prompt, got: Sequence[int], expected: Sequence[int], who: str) -> None:
    """Equal, or parted at a near tie of the target's."""
    if list(got) == list(expected):
        return
    place = next((i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), None)
    assert place is not None, f"{who}: {len(got)} tokens instead of {len(expected)}"
    session = model.new_session()
    row = session.prefill(model.encode(prompt))
    if place:
        row = session.extend(list(expected[:place]), last_only=True)[0]
    best, second = torch.topk(row, 2).values.tolist()
    assert best - second < NEAR_TIE, f"{who}: token {place} is {got[place]} instead of {expected[place]}"


@pytest.mark.slow
def test_sixteen_mixed_sessions_answer_as_each_does_alone(pair: Pair, start_server: StartServer) -> None:
    """All methods, several lengths, pictures, seeds, cancels at random: the one that is in a forward changes
    nobody's.
    """
    server = start_server(pair.target, max_sessions=64, draft_model=pair.draft)
    rng = random.Random(5)
    hurried = threading.Event()

    def job(number: int, method: str) -> Callable[[], None]:
        images = [picture(number)] if pair.target.is_multimodal and number % 3 else []
        text = "".join(rng.choice("abc def ghi ") for _ in range(rng.randrange(4, 120)))
        prompt = chat_prompt(pair.target, text, images=images)
        noise = number % 4 == 3 and method in SEEDED
        options = GenerationOptions(rng.randrange(2, 28), temperature=0.8 if noise else 0.0, seed=number)
        leaves_after = rng.randrange(1, 8) if number % 5 == 4 else None

        def ask() -> None:
            expected = generate_local(pair.target, prompt, options)
            with patiently_connected(server.address) as link:
                decoder = EdgeDecoder(link, pair.draft, method, gamma=1 + number % 5, front_model=pair.target)
                got: list[int] = []
                for chunk in decoder.generate(prompt, options, hurried):
                    got += chunk
                    if leaves_after is not None and len(got) >= leaves_after:
                        break
            whole = expected if leaves_after is None else expected[: len(got)]
            assert_same(pair.target, prompt, got, whole, f"{method} {number}")

        return ask

    run_side_by_side([job(number, method) for number, method in enumerate(ALL_METHODS)])
    load = server.server._engine.load
    assert load.sessions > 1.5 * load.forwards, "hardly any forward was shared: this shows little"


METHODS_OF_ALL_KINDS = ["cloud-sd", "dsd+overlap:continue", "dssd-thin+resample:samples:1", "picospec"]
"""Decoded alone, judged with whole rows, and recovered from samples and from parts: each with noise of its own, and all
in the same forwards."""
SEEDED = [name for name in ALL_METHODS if get_method(name).recovery_at(1.0).name == "NOISE"]


@pytest.fixture
def table_server() -> Iterator[tuple[str, Engine]]:
    """A verifier whose target is a table."""
    server = Server(
        ServerConfig("a table", "tcp://127.0.0.1:0", max_sessions=200),
        UNLIKE.target,
        EventLog(StringIO()),
        own_engine(Policy(), Models(UNLIKE.target, UNLIKE.draft)),
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield server.bind, server._engine
    server.stop()
    thread.join(10.0)


@pytest.mark.slow
def test_sampled_answers_have_the_targets_distribution_in_shared_forwards(
    table_server: tuple[str, Engine],
) -> None:
    """Sixteen edges at a time, of different temperatures: one's processors could fall on another's rows.

    The answers of all methods are looked at together, too: what happens in a forward has nothing to do with methods.
    """
    address, engine = table_server
    answers: dict[str, list[list[int]]] = {method: [] for method in METHODS_OF_ALL_KINDS}
    others = [GenerationOptions(10, temperature=0.3), GenerationOptions(10, temperature=2.0, top_k=2)]

    def job(seed: int) -> Callable[[], None]:
        counts = seed % 2 == 0
        options = replace(SAMPLED if counts else others[seed // 2 % 2], seed=seed)
        method = METHODS_OF_ALL_KINDS[seed // 4 % 4]

        def ask() -> None:
            with patiently_connected(address) as link:
                decoder = EdgeDecoder(link, UNLIKE.draft, method, gamma=1 + seed % 3)
                ids = [token for chunk in decoder.generate(PROMPT, options) for token in chunk]
            if decoder.stats.finish == "eos":
                ids.append(0)
            if counts:
                answers[method].append(ids)

        return ask

    run_side_by_side([job(seed) for seed in range(400)])
    expected = answer_chances(UNLIKE.target, PROMPT, SAMPLED, JOINT)
    answers["all"] = [ids for found in answers.values() for ids in found]
    for method, found in answers.items():
        counts = Counter(tuple(ids[:JOINT]) for ids in found)
        p_value = min(chi_square(counts, expected), leaning_pvalue(found, UNLIKE, SAMPLED))
        assert p_value > FALSE_ALARM, f"{method}: p-value {p_value:.1e}"
    assert engine.load.sessions > 1.2 * engine.load.forwards, "hardly any forward was shared: this shows little"
