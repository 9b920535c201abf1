"""Joint draft forwards: sessions get what they get alone, those that wait share one, faults stay with who has them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from specdec.drafting.joint import JointForwards, join_forwards
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import ModelError
from specdec.models import LoadedModel, ModelSession, Prompt, chat_prompt, load_draft, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.paths import DEFAULT_TEXT_DRAFT, DEFAULT_TEXT_TARGET
from tests.helpers.servers import Pair, StartServer, patiently_connected

WAIT_S = 20.0


@pytest.fixture
def model(text_pair: Pair) -> Iterator[LoadedModel]:
    """A model whose forwards are its own again behind the test."""
    yield text_pair.draft
    text_pair.draft.runner.joint = None


class Gate:
    """Holds forwards up, once one has begun, until it is opened: meanwhile others ask."""

    def __init__(self, model: LoadedModel, joint: JointForwards, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self._open = threading.Event(), threading.Event()
        self._joint = joint
        forward = model.runner.forward

        def held(*arguments: object, **others: object) -> object:
            self.began.set()
            assert self._open.wait(WAIT_S)
            return forward(*arguments, **others)

        monkeypatch.setattr(model.runner, "forward", held)

    def open_when(self, waiting: int) -> None:
        """Open it once this many wait."""
        deadline = threading.Event()
        for _ in range(2000):
            if len(self._joint._asked) >= waiting:
                break
            deadline.wait(0.01)
        self._open.set()


def session_of(model: LoadedModel, text: str) -> ModelSession:
    session = model.new_session()
    session.prefill(model.encode(chat_prompt(model, text)))
    return session


def at_once(gate: Gate, works: list[Callable[[], object]]) -> list[object]:
    """What comes of each, the first of them begun before the others ask. An exception is the result."""
    found: list[object] = [None] * len(works)

    def run(place: int) -> None:
        try:
            found[place] = works[place]()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(works))]
    threads[0].start()
    assert gate.began.wait(WAIT_S)
    for thread in threads[1:]:
        thread.start()
    gate.open_when(len(works) - 1)
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    return found


def test_what_is_asked_for_while_a_forward_runs_shares_the_next(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [session_of(model, f"number {number}") for number in range(6)]
    rights = [session_of(model, f"number {number}").extend([number, 3]) for number in range(6)]
    joint = join_forwards(model)
    gate = Gate(model, joint, monkeypatch)
    found = at_once(gate, [lambda one=one, n=n: one.extend([n, 3]) for n, one in enumerate(sessions)])
    for mine, right in zip(found, rights, strict=True):
        torch.testing.assert_close(mine, right, atol=1e-4, rtol=1e-4)
    assert (joint.forwards, joint.sessions) == (2, 6)


def test_no_more_sessions_share_a_forward_than_may(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [session_of(model, f"number {number}") for number in range(6)]
    joint = join_forwards(model, most=2)
    gate = Gate(model, joint, monkeypatch)
    at_once(gate, [lambda one=one: one.extend([1]) for one in sessions])
    assert (joint.forwards, joint.sessions) == (4, 6)  # 1, then 2 + 2 + 1


def test_trees_and_chains_share_a_forward(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    first, tree, chain = (session_of(model, text) for text in ("a", "b", "c"))
    right_tree = session_of(model, "b").extend_tree([5, 6, 7], [-1, -1, 0])
    right_chain = session_of(model, "c").extend([9])
    gate = Gate(model, join_forwards(model), monkeypatch)
    works: list[Callable[[], object]] = [
        lambda: first.extend([1]),
        lambda: tree.extend_tree([5, 6, 7], [-1, -1, 0]),
        lambda: chain.extend([9]),
    ]
    _, found_tree, found_chain = at_once(gate, works)
    torch.testing.assert_close(found_tree, right_tree, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found_chain, right_chain, atol=1e-4, rtol=1e-4)


def test_a_fault_is_the_asking_sessions_alone(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    first, bad, good = (session_of(model, text) for text in ("a", "b", "c"))
    gate = Gate(model, join_forwards(model), monkeypatch)
    works: list[Callable[[], object]] = [
        lambda: first.extend([1]),
        lambda: bad.extend([10**6]),
        lambda: good.extend([1]),
    ]
    _, of_bad, of_good = at_once(gate, works)
    assert isinstance(of_bad, ModelError) and "outside the vocabulary" in str(of_bad)
    assert isinstance(of_good, torch.Tensor)


def test_where_a_shared_forward_fails_each_is_tried_alone(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [session_of(model, text) for text in ("a", "b", "c")]
    gate = Gate(model, join_forwards(model), monkeypatch)
    held = model.runner.forward

    def forward(
        hidden: torch.Tensor, rotary: object, segments: list[object], *others: object
    ) -> torch.Tensor:
        if len(segments) > 1:
            raise RuntimeError("no memory for two")
        return held(hidden, rotary, segments, *others)

    monkeypatch.setattr(model.runner, "forward", forward)
    found = at_once(gate, [lambda one=one: one.extend([1]) for one in sessions])
    assert all(isinstance(one, torch.Tensor) for one in found)


def test_nobody_waits_for_the_whole_of_a_long_prompt(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdec.drafting.joint.MOST_ROWS", 7)
    prompt = model.encode(Prompt(tuple(5 + number for number in range(30))))
    long, short = model.new_session(), session_of(model, "short")
    joint = join_forwards(model)
    gate = Gate(model, joint, monkeypatch)
    at_once(gate, [lambda: long.prefill(prompt), lambda: short.extend([1])])
    assert (joint.forwards, joint.sessions) == (5, 6)  # 7, 1 + 6, 7, 7, 3 rows


def test_a_prompt_longer_than_a_forward_is_fed_whole(
    text_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = text_pair.target
    monkeypatch.setattr("specdec.drafting.joint.MOST_ROWS", 7)
    prompt = Prompt(tuple(5 + number % 50 for number in range(30)))
    right = model.new_session().prefill(model.encode(prompt))
    joint = join_forwards(model)
    try:
        found = model.new_session().prefill(model.encode(prompt))
    finally:
        model.runner.joint = None
    torch.testing.assert_close(found, right, atol=1e-4, rtol=1e-4)
    assert joint.forwards == 5  # 7 + 7 + 7 + 7 + 2 rows


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sd", "fsd", "specedge"])
def test_many_answers_at_once_are_the_targets_own(
    text_pair: Pair, start_server: StartServer, model: LoadedModel, method: str
) -> None:
    assert_own_answers(text_pair.target, model, start_server(text_pair.target).address, method)


@pytest.mark.slow
@pytest.mark.gguf
def test_drafts_on_llama_cpp_share_its_calls(start_server: StartServer) -> None:
    target = load_model(DEFAULT_TEXT_TARGET)
    draft = load_draft(DEFAULT_TEXT_DRAFT / "text-draft-q8_0.gguf")
    assert_own_answers(target, draft, start_server(target).address, "fsd")


def assert_own_answers(target: LoadedModel, draft: LoadedModel, address: str, method: str) -> None:
    """Six answers at once over one draft model."""
    prompts = [chat_prompt(draft, f"question {number}") for number in range(6)]
    options = [GenerationOptions(24, 0.0 if number % 2 else 0.8, seed=number) for number in range(6)]
    rights = [generate_local(target, *one) for one in zip(prompts, options, strict=True)]
    joint = join_forwards(draft)
    found: list[list[int]] = [[] for _ in prompts]

    def answer(place: int) -> None:
        with patiently_connected(address) as link:
            for chunk in EdgeDecoder(link, draft, method).generate(prompts[place], options[place]):
                found[place].extend(chunk)

    threads = [threading.Thread(target=answer, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == rights and joint.sessions > 0
