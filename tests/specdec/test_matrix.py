"""Every method on every kind of link answers real questions as the library's own `generate` of the target does.

Verifier and link emulator are processes of their own, the edge is this one. Without a link in between, the project's
default text pair answers: trained models of a real size, in numbers as they come in use. What a link does to the
messages has nothing to do with the models that they speak of, so over the others a tiny random pair answers the same
questions, in a fraction of the time, and all methods answer at once, as they mostly wait; without the default pair the
tiny one answers all. These tests are not marked as `graph`, because those may be run twice: an answer that differs once
is a fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch

from cloud_verifier.config import ServerConfig
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.edge.stats import AnswerStats
from specdec.errors import SpecdecError
from specdec.models import LoadedModel, Prompt, chat_prompt, load_model
from specdec.options import GenerationOptions
from specdec.verifying.exits import save_exits
from specnav.bench.data.questions import Question, load_questions
from specnav.paths import CONFIG, DEFAULT_TEXT_DRAFT, DEFAULT_TEXT_TARGET, ROOT
from specnav.supervise.children import endpoint_of, verifier_spec
from specnav.supervise.processes import Supervisor
from tests.helpers import tiny_models as tiny
from tests.helpers.emulated import emulated
from tests.specdec.checks import ALL_METHODS
from tests.specdec.random_exits import random_exits

pytestmark = pytest.mark.slow

BENCHMARKS = ROOT.parent / "shared" / "data" / "benchmarks"
OWN_QUESTIONS = CONFIG / "questions" / "short.jsonl"
QUESTIONS = 20
"""Each method answers half of them without a link, and a quarter of them over each of the others: which ones, changes
from method to method and from link to link."""
TOKENS = 16
LONGEST_PROMPT = 250
"""In tokens; those of the tiny pair are bytes."""
AT_ONCE = 12
"""Edges that wait for the link at the same time."""

OUTAGE_PERIOD_S = 2.2
OUTAGES = [
    word for number in range(100) for word in ("--outage", f"{0.2 + OUTAGE_PERIOD_S * number:.1f}:1.2")
]
"""Near to one another, and so many that a busy machine, too, is done before the last."""
CONDITIONS = {
    "40 ms RTT and jitter": ("--rtt", "40", "--jitter", "20"),
    "loss": ("--rtt", "4", "--loss", "0.02"),
    "outage": ("--rtt", "20", *OUTAGES),
}
TINY_FORWARD_MS = 5.0
TIMES_BETWEEN_OUTAGES = 4
"""All answers of a method may happen to be given between two outages: then they are asked again."""
REPLY_TIMEOUT_S = {"outage": 1.0}
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


Answers = list[tuple[str, AnswerStats]]
"""What is wrong with each ("" = nothing), and what it cost."""


@pytest.fixture(scope="module")
def answers_over(tiny_cloud: Cloud) -> Callable[[str], Mapping[str, Answers]]:
    """What every method answers over the link of a condition."""
    return cache(lambda condition: ask_over(tiny_cloud, condition))


def ask_over(cloud: Cloud, condition: str) -> dict[str, Answers]:
    """Ask every method at once; those that met no outage are asked again."""
    found: dict[str, Answers] = {}
    left = ALL_METHODS
    outage = condition == "outage"
    for _ in range(TIMES_BETWEEN_OUTAGES if outage else 1):
        asked = {method: quarter(cloud, condition, method) for method in left}
        with emulated(cloud.address, *CONDITIONS[condition], "--seed", "3") as address:
            spread_s = OUTAGE_PERIOD_S if outage else 0.0
            found |= answer_all(cloud, address, asked, REPLY_TIMEOUT_S.get(condition, 5.0), spread_s)
        left = [
            method for method in left if all(not said and not cost.resumes for said, cost in found[method])
        ]
        if not left:
            break
    return found


def quarter(cloud: Cloud, condition: str, method: str) -> list[Question]:
    turn = (list(CONDITIONS).index(condition) + 1 + ALL_METHODS.index(method)) % 4
    return list(cloud.expected)[turn::4]


def real_questions(model: LoadedModel) -> list[Question]:
    """From every benchmark in turn, those that fit; the project's own where the benchmarks are not there."""
    files = sorted(BENCHMARKS.glob("*.jsonl")) or [OWN_QUESTIONS]
    fit = [one for one in load_questions(files) if len(prompt_of(model, one).ids) <= LONGEST_PROMPT]
    return fit[:QUESTIONS]


def prompt_of(model: LoadedModel, question: Question) -> Prompt:
    return chat_prompt(model, question.turns[0])


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
    questions: Mapping[str, Sequence[Question]],
    reply_timeout_s: float = 5.0,
    spread_s: float = 0.0,
) -> dict[str, Answers]:
    """Ask each method its questions, several at once.

    spread_s: the answers begin at equal distances over that long. An outage makes all edges connect at its end, and
    a quick method answers before the next one.
    """

    def ask(asked: tuple[int, tuple[str, Question]]) -> tuple[str, AnswerStats]:
        number, (method, question) = asked
        with connect(address, reply_timeout_s=reply_timeout_s) as link:
            link.ensure_connected()
            time.sleep(spread_s * (number % AT_ONCE) / AT_ONCE)
            decoder = EdgeDecoder(
                link, cloud.draft, method, gamma=3, resume_timeout_s=60.0, front_model=cloud.target
            )
            prompt = prompt_of(cloud.target, question)
            try:
                got = [
                    token for chunk in decoder.generate(prompt, GenerationOptions(TOKENS)) for token in chunk
                ]
            except SpecdecError as error:
                return f"{question.source} {question.question_id}: {error}", decoder.stats
        return difference(question, got, cloud.expected[question]), decoder.stats

    pairs = [(method, question) for method, several in questions.items() for question in several]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(ask, enumerate(pairs)))
    found: dict[str, Answers] = {method: [] for method in questions}
    for (method, _), one in zip(pairs, answers, strict=True):
        found[method].append(one)
    return found


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


@pytest.mark.parametrize("method", ALL_METHODS)
def test_greedy_ids_equal_the_librarys_without_a_link(trained_cloud: Cloud, method: str) -> None:
    questions = list(trained_cloud.expected)[ALL_METHODS.index(method) % 2 :: 2]
    answers = answer_all(trained_cloud, trained_cloud.address, {method: questions})
    check_answers(answers[method], f"{method}, no link")


@pytest.mark.parametrize("method", ALL_METHODS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_greedy_ids_equal_the_librarys(
    answers_over: Callable[[str], Mapping[str, Answers]], method: str, condition: str
) -> None:
    answers = answers_over(condition)[method]
    check_answers(answers, f"{method}, {condition}")
    assert condition != "outage" or any(cost.resumes for _, cost in answers), (
        "no answer went through an outage"
    )


def check_answers(answers: Answers, where: str) -> None:
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
    methods = ("sd",) if pair == "trained" else ("sd", "fsd")
    answers = answer_all(cloud, cloud.address, {method: list(cloud.expected) for method in methods})
    rounds = {method: [one for _, cost in found for one in cost.rounds] for method, found in answers.items()}
    accepted = sum(one.accepted for one in rounds["sd"]) / sum(one.drafted for one in rounds["sd"])
    assert 0.02 < accepted < 0.98
    assert pair == "trained" or any(one.hints for one in rounds["fsd"])
