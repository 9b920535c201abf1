"""The engine: many sessions in one forward, the fault of one, long prompts, and who comes first."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from cloud_verifier.engine.memory import TREE_TOKENS
from cloud_verifier.engine.scheduler import Policy, Scheduler
from cloud_verifier.engine.tasks import CloseTask, OpenTask, SessionTask
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import (
    ERROR_INTERNAL,
    ERROR_REFUSED,
    ERROR_TOO_LARGE,
    AloneUp,
    Down,
    DraftUp,
    ErrorDown,
    Open,
    Opened,
    Tokens,
    VerdictDown,
)
from specdec.models import Prompt
from specdec.models.local import generate_local
from specdec.models.plans import Staged
from specdec.options import GenerationOptions
from tests.cloud_verifier.engine_cloud import OPTIONS, Cloud, key_of
from tests.helpers.servers import Pair


def prompt_ids(session: int) -> list[int]:
    return [40 + session, 50, 60 + session]


def opened(pair: Pair, sessions: int, **settings: Any) -> Cloud:
    cloud = Cloud(pair.target, **settings)
    for session in range(1, sessions + 1):
        cloud.submit_open(session, prompt_ids(session))
        cloud.work()
    assert all(isinstance(cloud.last(session), Opened) for session in range(1, sessions + 1))
    return cloud


def expected(pair: Pair, session: int, tokens: int) -> list[int]:
    return generate_local(pair.target, Prompt(tuple(prompt_ids(session))), GenerationOptions(tokens))


def draft_all(cloud: Cloud, pair: Pair, sessions: Sequence[int]) -> None:
    """For each a draft whose first two tokens are right."""
    for session in sessions:
        right = expected(pair, session, 3)
        cloud.submit_draft(session, 1, 1, [*right[1:3], 7])


def assert_right(cloud: Cloud, pair: Pair, session: int, batch: int) -> None:
    verdict = cloud.last(session)
    right = expected(pair, session, 4)
    assert isinstance(verdict, VerdictDown) and verdict.last == (3 if right[3] == 7 else 2)
    assert verdict.last == 3 or verdict.token == right[3]
    assert verdict.batch == batch


def test_who_opens_and_vanishes_again_and_again_holds_no_draft_up(
    text_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud_verifier.engine.engine.OPENING_S", 0.0)  # one session between two forwards
    cloud = opened(text_pair, 1)
    for session in range(2, 22):
        cloud.submit_open(session, prompt_ids(session))
    draft_all(cloud, text_pair, [1])
    cloud.engine.work_off()
    assert_right(cloud, text_pair, 1, batch=2)
    for session in range(4, 22):  # they begin as they came
        cloud.engine.submit(CloseTask(key_of(session)))
    cloud.work()
    assert {number for number, _ in cloud.said} == {1, 2, 3}, "nothing was begun of those that had gone"
    cloud.submit_open(30, prompt_ids(3))
    cloud.submit_draft(30, 1, 1, [7, 7])
    cloud.work()
    assert isinstance(cloud.last(30), VerdictDown), "what comes before it has begun is not lost"


def test_sessions_that_are_closed_before_they_begin_stop_waiting(
    text_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud_verifier.engine.engine.OPENING_S", 0.0)  # one session between two forwards
    cloud = Cloud(text_pair.target)
    for session in range(1, 6):
        cloud.submit_open(session, prompt_ids(session))
    cloud.engine.work_off()
    for session in range(1, 6):
        cloud.engine.submit(CloseTask(key_of(session)))
    cloud.work()
    assert sorted(cloud.out) == [1, 2, 3, 4, 5], "what waits counts against its client until it is told out, once"


def test_what_arrived_with_a_task_that_failed_is_still_done(text_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(text_pair.target)
    open_one = cloud.engine._open

    def fails_at_the_second(task: OpenTask) -> None:
        if task.key == key_of(2):
            raise RuntimeError("not one session's fault")
        open_one(task)

    monkeypatch.setattr(cloud.engine, "_open", fails_at_the_second)
    for session in range(1, 5):
        cloud.submit_open(session, prompt_ids(session))
    cloud.work()
    ended = cloud.last(1)
    assert isinstance(ended, ErrorDown) and ended.code == ERROR_INTERNAL, "nobody can tell what is sound"
    assert all(isinstance(cloud.last(session), Opened) for session in (3, 4))
    assert {1, 3, 4} <= set(cloud.out)


def test_drafts_that_wait_are_judged_in_one_forward(text_pair: Pair) -> None:
    cloud = opened(text_pair, 5)
    forwards = cloud.engine.load.forwards
    draft_all(cloud, text_pair, range(1, 6))
    cloud.work()
    assert cloud.engine.load.forwards == forwards + 1
    for session in range(1, 6):
        assert_right(cloud, text_pair, session, batch=5)


def test_one_that_does_not_fit_goes_before_anything_has_changed(text_pair: Pair) -> None:
    cloud = opened(text_pair, 3)
    draft_all(cloud, text_pair, (1, 3))
    cloud.submit_draft(2, 1, 1, [10**6])
    cloud.work()
    refused = cloud.last(2)
    assert isinstance(refused, ErrorDown) and refused.code == ERROR_REFUSED
    for session in (1, 3):
        assert_right(cloud, text_pair, session, batch=2)


@pytest.mark.slow
def test_nothing_of_a_session_that_has_failed_stays_until_the_collector_comes(text_pair: Pair) -> None:
    """An error refers to the frames it went through; one of them must not refer to the error."""
    cloud = opened(text_pair, 1)
    gc.collect()
    gc.disable()
    try:
        message = Open(2, False, sampling_to_wire(OPTIONS), [text_pair.target.vocab_size + 1])
        task = OpenTask(key_of(2), message, 0.0)
        watched = weakref.ref(task)
        cloud.engine.submit(task)
        del task
        cloud.work()
        assert isinstance(cloud.last(2), ErrorDown) and watched() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(("stream", "first"), [(True, ErrorDown), (False, Opened)])
def test_drafts_that_the_cloud_cannot_make_are_refused_before_the_first_token(
    text_pair: Pair, stream: bool, first: type[Down]
) -> None:
    cloud = Cloud(text_pair.target)
    cloud.submit_open(1, prompt_ids(1), stream=stream, speculate=4)
    cloud.work()
    assert [type(message) for _, message in cloud.said] == [first]


def test_a_draft_model_is_left_in_peace_where_one_token_is_left(
    text_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloud_verifier.engine import engine

    original, rows = engine.forward_together, []

    def forward(staged: Sequence[Staged]) -> list[torch.Tensor]:
        rows.append([one.segment.rows for one in staged])
        return original(staged)

    monkeypatch.setattr(engine, "forward_together", forward)
    cloud = Cloud(text_pair.target, draft_model=text_pair.draft)
    cloud.submit_open(1, prompt_ids(1), stream=True, speculate=4, options=GenerationOptions(2))
    cloud.work()
    last = cloud.last(1)
    assert isinstance(last, Tokens) and (last.ids, last.drafted) == (expected(text_pair, 1, 2)[1:], 0)
    assert rows == [[3], [1]], "the prompt, and the token"


@pytest.mark.parametrize("others", [0, 1])
def test_tokens_tell_what_their_drafts_took(text_pair: Pair, monkeypatch: pytest.MonkeyPatch, others: int) -> None:
    """A forward of the draft model takes 1 ms here, one of the target 10. What another session's prompts take between,
    this one has waited; and what its own draft model takes to take in the prompt says nothing of a draft.
    """
    from cloud_verifier.engine import engine

    now, original = [0.0], engine.forward_together

    def forward(staged: Sequence[Staged]) -> list[torch.Tensor]:
        if others and len(cloud.said) > 3 and not prompts:
            prompts.append(7)
            cloud.submit_open(7, list(range(30, 130)))
        of_target = any(one.extension.session.model is text_pair.target for one in staged)
        now[0] += 0.010 if of_target else 0.001
        return original(staged)

    prompts: list[int] = []
    cloud = Cloud(text_pair.target, draft_model=text_pair.draft, clock=lambda: now[0])
    monkeypatch.setattr(engine, "forward_together", forward)
    cloud.submit_open(1, prompt_ids(1), stream=True, speculate=3, options=GenerationOptions(22))
    cloud.work()
    said = [message for number, message in cloud.said if number == 1 and isinstance(message, Tokens)]
    whole = [one for one in said if one.drafted == 3]
    assert whole[0].draft_us == 0 and len(whole) > 3 and len(prompts) == others
    assert said[-1].drafted == 0, "one token was left"
    assert not any(one.draft_us for one in said if not one.drafted)
    for one in whole[1:]:
        assert abs(one.draft_us - 3_000) <= 1 and abs(one.verify_us - 13_000) <= 1, one


def failing_for(monkeypatch: pytest.MonkeyPatch, session_rows: int, fail: Any) -> None:
    """Every forward that has a part of this many rows fails."""
    from cloud_verifier.engine import engine

    original = engine.forward_together

    def forward(staged: Sequence[Staged]) -> list[torch.Tensor]:
        if any(one.segment.rows == session_rows for one in staged):
            return fail(staged, original)
        return original(staged)

    monkeypatch.setattr(engine, "forward_together", forward)


def raise_(staged: Sequence[Staged], original: Any) -> list[torch.Tensor]:
    raise torch.OutOfMemoryError("made up")


def no_numbers(staged: Sequence[Staged], original: Any) -> list[torch.Tensor]:
    return [
        logits * float("nan") if one.segment.rows == 6 else logits
        for one, logits in zip(staged, original(staged), strict=True)
    ]


@pytest.mark.parametrize(("fail", "code"), [(raise_, ERROR_INTERNAL), (no_numbers, ERROR_REFUSED)])
def test_a_forward_that_fails_for_one_ends_that_one_only(
    text_pair: Pair, monkeypatch: pytest.MonkeyPatch, fail: Any, code: str
) -> None:
    cloud = opened(text_pair, 3)
    failing_for(monkeypatch, 6, fail)
    draft_all(cloud, text_pair, (1, 3))
    cloud.submit_draft(2, 1, 1, [1, 2, 3, 4, 5])
    cloud.work()
    ended = cloud.last(2)
    assert isinstance(ended, ErrorDown) and ended.code == code
    for session in (1, 3):
        verdict = cloud.last(session)
        assert isinstance(verdict, VerdictDown)
        assert_right(cloud, text_pair, session, batch=verdict.batch)
    draft_all(cloud, text_pair, ())
    cloud.submit_open(4, prompt_ids(4))
    cloud.work()
    assert isinstance(cloud.last(4), Opened)


def test_what_fails_for_nobody_in_particular_ends_all_and_the_engine_lives(
    text_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = opened(text_pair, 2)
    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "pick", lambda *_: 1 / 0)
        draft_all(cloud, text_pair, (1,))
        cloud.work()
    assert all(isinstance(cloud.last(session), ErrorDown) for session in (1, 2))
    assert not cloud.engine.budget.admitted
    cloud.submit_open(1, prompt_ids(1))
    cloud.work()
    assert isinstance(cloud.last(1), Opened)


def test_a_long_prompt_comes_in_chunks_while_others_are_served(text_pair: Pair) -> None:
    cloud = opened(text_pair, 2, policy=Policy(chunk=16))
    long = [30 + index % 50 for index in range(200)]
    cloud.submit_open(9, long)
    draft_all(cloud, text_pair, (1,))
    cloud.engine.work_off()
    assert_right(cloud, text_pair, 1, batch=2)
    assert not any(number == 9 for number, _ in cloud.said)
    rows = cloud.engine.load.rows
    cloud.engine.work_off()
    assert cloud.engine.load.rows - rows == 16
    cloud.work()
    first = cloud.last(9)
    assert isinstance(first, Opened)
    assert first.token == generate_local(text_pair.target, Prompt(tuple(long)), GenerationOptions(1))[0]


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["chain", "deep tree", "flat tree"])
def test_a_very_long_draft_comes_in_chunks_while_others_are_served(
    text_pair: Pair, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its verdict is the one on the whole draft, and those of others come meanwhile."""
    monkeypatch.setattr("cloud_verifier.engine.scheduler.LONGEST_WHOLE", 8)
    right = expected(text_pair, 2, 40)
    if shape == "flat tree":  # the right token comes in the last part
        others = [token for token in range(30, 70) if token != right[1]]
        draft = DraftUp(2, 1, 1, [*others[:30], right[1]], [-1] * 31)
        accepted, then = 31, right[2]
    else:
        wrong = 7 if right[30] != 7 else 8
        draft = DraftUp(2, 1, 1, [*right[1:30], wrong, 9, 9], None if shape == "chain" else list(range(-1, 31)))
        accepted, then = 29, right[30]
    cloud = opened(text_pair, 2, policy=Policy(chunk=8))
    cloud.engine.submit(SessionTask(key_of(2), draft, 0.0))
    draft_all(cloud, text_pair, (1,))
    cloud.engine.work_off()
    assert_right(cloud, text_pair, 1, batch=2)
    assert isinstance(cloud.last(2), Opened)
    rows = cloud.engine.load.rows
    cloud.engine.work_off()
    assert cloud.engine.load.rows - rows == 8
    cloud.work()
    verdict = cloud.last(2)
    assert isinstance(verdict, VerdictDown) and (verdict.last, verdict.token) == (accepted, then)


def test_a_prompt_alone_is_done_at_once(text_pair: Pair) -> None:
    cloud = Cloud(text_pair.target, Policy(chunk=16))
    cloud.submit_open(1, range(30, 130))
    cloud.engine.work_off()
    assert cloud.engine.load.forwards == 1 and isinstance(cloud.last(1), Opened)


def kv_bytes_for(pair: Pair, sessions: int) -> int:
    tokens = len(prompt_ids(1)) + OPTIONS.max_new_tokens + TREE_TOKENS
    return sessions * tokens * pair.target.runner.kv_bytes_a_token


@pytest.mark.slow
def test_sessions_that_rest_make_room_and_come_back(text_pair: Pair) -> None:
    """Five sessions take turns in the room of two, and no answer changes."""
    cloud = opened(text_pair, 5, kv_bytes=kv_bytes_for(text_pair, 2))
    engine = cloud.engine
    assert engine.budget.evictions == 3 and len(engine.budget.admitted) == 2
    base = 1
    for round_ in range(1, 4):
        for session in range(1, 6):
            right = expected(text_pair, session, 4 * round_ + 1)
            cloud.submit_draft(session, round_, base, right[base : base + 3])
            cloud.work()
            assert engine.budget.used <= engine.budget.total
            held = sum(work._verifier._session.kv_bytes for work in engine._sessions.values())
            assert held <= engine.budget.total
            verdict = cloud.last(session)
            assert isinstance(verdict, VerdictDown) and verdict.round == round_
            assert (verdict.last, verdict.token) == (3, right[base + 3])
        base += 4
    assert engine.budget.evictions > 10


def test_who_waits_for_room_goes_on_when_there_is_some(text_pair: Pair) -> None:
    cloud = opened(text_pair, 3, kv_bytes=kv_bytes_for(text_pair, 2))
    draft_all(cloud, text_pair, (1, 2, 3))  # at once, and one of them was evicted
    cloud.work()
    for session in (1, 2, 3):
        verdict = cloud.last(session)
        assert isinstance(verdict, VerdictDown)
        assert_right(cloud, text_pair, session, batch=verdict.batch)


def test_who_gets_more_to_do_while_it_waits_for_room_does_one_thing_after_another(text_pair: Pair) -> None:
    cloud = opened(text_pair, 3, kv_bytes=kv_bytes_for(text_pair, 2))
    evicted = next(one for one in (1, 2, 3) if key_of(one) not in cloud.engine.budget.admitted)
    others = [one for one in (1, 2, 3) if one != evicted]
    draft_all(cloud, text_pair, [*others, evicted])
    cloud.engine.submit(SessionTask(key_of(evicted), AloneUp(evicted, 2, 0), 0.0))
    cloud.work()
    said = [message for number, message in cloud.said if number == evicted][1:]
    assert isinstance(said[0], VerdictDown), "its draft was not lost"
    assert isinstance(said[-1], Tokens) and said[-1].base + len(said[-1].ids) == OPTIONS.max_new_tokens
    streamed = [token for message in said[1:] if isinstance(message, Tokens) for token in message.ids]
    right = expected(text_pair, evicted, OPTIONS.max_new_tokens)
    assert streamed == right[-len(streamed) :]


def test_a_prompt_that_there_is_no_room_for_is_told_so(text_pair: Pair) -> None:
    cloud = opened(text_pair, 1, kv_bytes=kv_bytes_for(text_pair, 1))
    cloud.submit_open(2, range(30, 250))
    cloud.work()
    refused = cloud.last(2)
    assert isinstance(refused, ErrorDown) and refused.code == ERROR_TOO_LARGE and "--kv-gb" in refused.message
    draft_all(cloud, text_pair, (1,))
    cloud.work()
    assert_right(cloud, text_pair, 1, batch=1)
