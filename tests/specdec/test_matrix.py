"""Every method answers real questions as the library's own `generate` of the target does, also over a link.

Each meets one kind of link, and each kind a third of the methods: on tables and without processes, all meet late, stale
and lost messages (checks.py).

Verifier and link emulator are processes of their own, the edge is this one. Without a link in between, the project's
default text pair answers: trained models of a real size, in numbers as they come in use. What a link does to the
messages has nothing to do with the models that they speak of, so over the others a tiny random pair answers the same
questions, in a fraction of the time; without the default pair it answers all. These tests are not marked as `graph`,
because those may be run twice: an answer that differs once is a fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import pytest
import torch

from cloud_verifier.config import ServerConfig
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.edge.stats import AnswerStats
from specdec.models import LoadedModel, Prompt, chat_prompt, load_model
from specdec.options import GenerationOptions
from specdec.verifying.exits import save_exits
from specnav.bench.data.questions import Question, load_questions
from specnav.paths import CONFIG, DEFAULT_TEXT_DRAFT, DEFAULT_TEXT_TARGET, ROOT
from specnav.supervise.children import endpoint_of, verifier_spec
from specnav.supervise.processes import Supervisor
from tests.helpers import tiny_models as tiny
from tests.helpers.emulated import emulated
from tests.specdec.checks import ALL_METHODS, unlike_when_greedy
from tests.specdec.random_exits import random_exits

pytestmark = pytest.mark.slow

BENCHMARKS = ROOT.parent / "shared" / "data" / "benchmarks"
OWN_QUESTIONS = CONFIG / "questions" / "short.jsonl"
GREEDY = unlike_when_greedy(ALL_METHODS)
QUESTIONS = 20
SHARES = 3
"""Each method answers one share of them without a link and again over one of the others: another from method to method.
"""
TOKENS = 16
LONGEST_PROMPT = 250
"""In tokens; those of the tiny pair are bytes."""
AT_ONCE = 12
"""Edges that wait for the link at the same time."""

OUTAGE_PERIOD_S = 1.1
OUTAGES = [
    word for number in range(18) for word in ("--outage", f"{0.2 + OUTAGE_PERIOD_S * number:.1f}:0.8")
]
"""Near to one another, and so many that a busy machine, too, has connected
before the last."""
CONDITIONS = {
    "40 ms RTT and jitter": ("--rtt", "40", "--jitter", "20"),
    "loss": ("--rtt", "4", "--loss", "0.02"),
    "outage": ("--rtt", "20", *OUTAGES),
}
TINY_FORWARD_MS = 5.0
TIMES_BETWEEN_OUTAGES = 4
"""All answers may happen to be given before the first or after the last outage: then they are asked again."""
REPLY_TIMEOUT_S = {"outage": 0.5}
"""Shorter than the outage, so that the link counts as lost; elsewhere long enough for any retransmission."""


@dataclass(frozen=True)
class Cloud:
    """The pair, the questions with the library's answers, and where the verifier process listens."""

    target: LoadedModel
    draft: LoadedModel
    expected: Mapping[Question, tuple[int, ...]]
    address: str


@pytest.fixture(scope="module")
def trained_cloud(tiny_cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """The default text pair; the tiny one where the project has none."""
    folders = (DEFAULT_TEXT_TARGET, DEFAULT_TEXT_DRAFT)
    if not all((folder / "model.safetensors").is_file() for folder in folders):
        yield tiny_cloud
        return
    with running_cloud(*folders, tmp_path_factory.mktemp("trained")) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def tiny_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Two layers, the fewest of which one can be on the edge and one in the cloud, and an exit in between; so slow that
    no answer is over before the link's faults have begun.
    """
    folder = tmp_path_factory.mktemp("tiny")
    target = tiny.build_llama(folder / "tiny-target", layers=2)
    draft = tiny.noisy_copy(target, folder / "tiny-draft", tiny.DRAFT_NOISE)
    (folder / "tiny-exits").mkdir()
    save_exits(folder / "tiny-exits", random_exits(load_model(target), layers=(0,)))
    with running_cloud(target, draft, folder, TINY_FORWARD_MS) as cloud:
        yield cloud


@contextmanager
def running_cloud(
    target_folder: Path, draft_folder: Path, logs: Path, verify_ms: float = 0.0
) -> Iterator[Cloud]:
    target, draft = (load_model(folder, dtype="float32") for folder in (target_folder, draft_folder))
    expected = {question: oracle(target, prompt_of(target, question)) for question in real_questions(target)}
    config = ServerConfig(
        str(target_folder),
        "tcp://127.0.0.1:0",
        dtype="float32",
        draft_model=str(draft_folder),
        threads=1,
        max_sessions=1000,
        verify_ms=verify_ms,
    )
    with Supervisor(logs) as supervisor:
        verifier = supervisor.start(verifier_spec(config, {}))
        yield Cloud(target, draft, expected, endpoint_of(supervisor.wait_ready(verifier, 120.0)))
        supervisor.check()  # it must have lived through all of this


@pytest.fixture(scope="module")
def link_of(tiny_cloud: Cloud) -> Iterator[Callable[[str], AbstractContextManager[str]]]:
    """The address behind a condition's link: one for all methods, except for faults that are timed from its start."""
    with ExitStack() as links:
        addresses: dict[str, str] = {}

        def link(condition: str) -> AbstractContextManager[str]:
            new = emulated(tiny_cloud.address, *CONDITIONS[condition], "--seed", "3")
            if "--outage" in CONDITIONS[condition]:
                return new
            if condition not in addresses:
                addresses[condition] = links.enter_context(new)
            return nullcontext(addresses[condition])

        yield link


def real_questions(model: LoadedModel) -> list[Question]:
    """From every benchmark in turn, those that fit; the project's own where the benchmarks are not there."""
    files = sorted(BENCHMARKS.glob("*.jsonl")) or [OWN_QUESTIONS]
    fit = (one for one in load_questions(files) if len(prompt_of(model, one).ids) <= LONGEST_PROMPT)
    return list(islice(fit, QUESTIONS))


def prompt_of(model: LoadedModel, question: Question) -> Prompt:
    return chat_prompt(model, question.turns[0])


def questions_of(cloud: Cloud, method: str) -> list[Question]:
    return list(cloud.expected)[GREEDY.index(method) % SHARES :: SHARES]


def oracle(model: LoadedModel, prompt: Prompt) -> tuple[int, ...]:
    """Greedy ids of the library, a final EOS not included."""
    assert model.dtype == torch.float32
    ids = torch.tensor([prompt.ids])
    found = model.hf_model.generate(input_ids=ids, do_sample=False, max_new_tokens=TOKENS)
    answer = found[0, ids.shape[1] :].tolist()
    return tuple(answer[:-1] if answer[-1] in model.eos_token_ids else answer)


def answer_all(
    cloud: Cloud,
    address: str,
    method: str,
    reply_timeout_s: float,
    questions: Sequence[Question],
    spread_s: float = 0.0,
) -> list[tuple[str, AnswerStats]]:
    """Ask questions, several at once; what is wrong with each answer ("" = nothing) and what it cost.

    spread_s: the answers begin at equal distances over that long. An outage makes all edges connect at its end, and
    a quick method answers before the next one.
    """

    def ask(asked: tuple[int, Question]) -> tuple[str, AnswerStats]:
        number, question = asked
        with connect(address, reply_timeout_s=reply_timeout_s) as link:
            link.ensure_connected()
            time.sleep(spread_s * number / len(questions))
            decoder = EdgeDecoder(
                link, cloud.draft, method, gamma=3, resume_timeout_s=30.0, front_model=cloud.target
            )
            prompt = prompt_of(cloud.target, question)
            got = [token for chunk in decoder.generate(prompt, GenerationOptions(TOKENS)) for token in chunk]
        return difference(question, got, cloud.expected[question]), decoder.stats

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, enumerate(questions)))


def difference(question: Question, got: Sequence[int], expected: Sequence[int]) -> str:
    """ "" where both are equal, else which question and where."""
    if list(got) == list(expected):
        return ""
    place = next(
        (i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b),
        min(len(got), len(expected)),
    )
    here = f"{question.source} {question.question_id}, token {place}"
    return f"{here}: {list(got[place : place + 4])} instead of {list(expected[place : place + 4])}"


@pytest.mark.parametrize("method", GREEDY)
def test_greedy_ids_equal_the_librarys_without_a_link(trained_cloud: Cloud, method: str) -> None:
    questions = questions_of(trained_cloud, method)
    answers = answer_all(trained_cloud, trained_cloud.address, method, 5.0, questions)
    check_answers(answers, f"{method}, no link")


@pytest.mark.parametrize(("method", "condition"), zip(GREEDY, cycle(CONDITIONS)))
def test_greedy_ids_equal_the_librarys(
    tiny_cloud: Cloud, link_of: Callable[[str], AbstractContextManager[str]], method: str, condition: str
) -> None:
    questions = questions_of(tiny_cloud, method)
    with link_of(condition) as address:
        for _ in range(TIMES_BETWEEN_OUTAGES):
            answers = answer_all(
                tiny_cloud,
                address,
                method,
                REPLY_TIMEOUT_S.get(condition, 5.0),
                questions,
                OUTAGE_PERIOD_S if condition == "outage" else 0.0,
            )
            check_answers(answers, f"{method}, {condition}")
            if condition != "outage" or any(cost.resumes for _, cost in answers):
                return
    raise AssertionError("no answer went through the outage")


def check_answers(answers: Sequence[tuple[str, AnswerStats]], where: str) -> None:
    wrong = [said for said, _ in answers if said]
    assert not wrong, f"{where}: {len(wrong)} of {len(answers)} answers differ:\n" + "\n".join(wrong)


@pytest.mark.parametrize("pair", ["trained", "tiny"])
def test_the_questions_are_many_and_the_answers_say_something(
    trained_cloud: Cloud, tiny_cloud: Cloud, pair: str
) -> None:
    """Else the matrix would show little."""
    cloud = trained_cloud if pair == "trained" else tiny_cloud
    assert len(cloud.expected) >= (20 if BENCHMARKS.is_dir() else 10)
    assert len(set(cloud.expected.values())) > len(cloud.expected) / 2
    assert sum(len(ids) for ids in cloud.expected.values()) > TOKENS * len(cloud.expected) / 2
    _, costs = zip(*answer_all(cloud, cloud.address, "sd", 5.0, list(cloud.expected)), strict=True)
    drafted = sum(one.drafted for cost in costs for one in cost.rounds)
    accepted = sum(one.accepted for cost in costs for one in cost.rounds)
    assert 0.02 < accepted / drafted < 0.98
    if pair == "tiny":
        _, costs = zip(*answer_all(cloud, cloud.address, "fsd", 5.0, list(cloud.expected)), strict=True)
        assert any(one.hints for cost in costs for one in cost.rounds)
