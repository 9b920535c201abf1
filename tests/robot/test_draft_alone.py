"""The draft model alone while the link is lost: everything says so, and the target has the last word."""

import random
import threading
import time
from dataclasses import replace
from functools import partial

import pytest

from spec_vlm_nav.common.codes import ErrorCode, LinkState
from spec_vlm_nav.language.actions import find_action
from spec_vlm_nav.model.worker import ActionFound, Answered, Failed, Reconciled
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specdec.text.streaming import StreamingText
from tests.robot.links import until
from tests.robot.real_decider import ALONE, Oracle, at_token, ended, greedy, job, never

pytestmark = pytest.mark.slow


def test_without_a_link_the_draft_goes_on_from_what_is_verified_and_everything_says_so(make, proxy, target):
    decider = make(ALONE)
    on_text = at_token(2, proxy.cut)
    answer = decider.decide(job(), never(), on_text)
    right = Oracle(target, decider)(job())
    question = answer.open
    assert answer.unverified and question.verified == right[: len(question.verified)] and question.verified
    draft = decider._model
    assert answer.token_ids == greedy(draft, question.prompt, question.verified)
    spoken = len(text_of(draft, question.verified))
    for text, bare in on_text.heard:
        assert bare or len(text) <= spoken, "text was told without a mark that nobody verified"
    assert on_text.heard[-1] == (answer.text, True)
    proxy.heal()
    assert until(lambda: decider.link().state is LinkState.UP)
    later = decider.verify(question, never())
    assert later.token_ids == right and later.text == text_of(draft, right) and not later.unverified


def text_of(model, ids):
    text = StreamingText(model.tokenizer)
    text.push(list(ids))
    text.finish()
    return text.text


def test_sampled_answers_share_their_noise_and_are_verified_later_as_they_were_asked(make, proxy, target):
    used = replace(ALONE, temperature=0.8, seed=3, verifier=proxy.address)
    decider = make(used)
    proxy.cut()
    assert until(lambda: decider.link().state is LinkState.LOST)
    answer = decider.decide(job(), never(), at_token(0, None))
    options = GenerationOptions(ALONE.max_new_tokens, 0.8, 3)
    assert list(answer.token_ids) == generate_local(decider._model, answer.open.prompt, options)
    proxy.heal()
    assert until(lambda: decider.link().state is LinkState.UP)
    decider.use(replace(used, temperature=0.0))  # meanwhile
    later = decider.verify(answer.open, never())
    assert list(later.token_ids) == generate_local(target, answer.open.prompt, options)


@pytest.mark.realtime
def test_while_the_link_is_lost_the_draft_decides_at_once(make, proxy):
    decider = make(replace(ALONE, connect_timeout_s=5.0, resume_timeout_s=5.0, reply_timeout_s=5.0))
    proxy.silence()
    assert until(lambda: decider.link().state is LinkState.LOST)
    began = time.monotonic()
    answer = decider.decide(job(), never(), at_token(0, None))
    assert answer.unverified and answer.open.verified == () and time.monotonic() - began < 2.0
    assert find_action(answer.text) is not None


def test_a_lost_link_is_not_waited_for_where_the_draft_can_go_on(make, proxy, target):
    decider = make(replace(ALONE, connect_timeout_s=20.0, resume_timeout_s=20.0))
    answer = decider.decide(job(), never(), at_token(2, proxy.silence))
    assert answer.unverified and answer.open.verified and answer.total_ms < 1500
    known = answer.open.verified
    assert known == Oracle(target, decider)(job())[: len(known)]


def test_the_open_answer_is_verified_by_itself_when_the_link_is_back(work, proxy, target):
    worker, decider, events = work(ALONE)
    proxy.cut()
    assert until(lambda: decider.link().state is LinkState.LOST)
    worker.begin(job(7))
    assert until(lambda: len(events) == 2)
    found, answered = events
    assert isinstance(found, ActionFound) and found.unverified and answered.unverified
    time.sleep(0.3)
    assert len(events) == 2
    proxy.heal()
    assert until(lambda: len(events) == 3)
    right = Oracle(target, decider)(job(7))
    last = events[2]
    assert isinstance(last, Reconciled) and last.job == 7 and last.answer.token_ids == right
    assert last.action == find_action(last.answer.text) and not last.answer.unverified
    worker.begin(job(8))
    assert until(lambda: len(events) == 5)
    assert not events[3].unverified and not events[4].unverified


def test_the_next_job_waits_for_the_open_answer_a_canceled_one_drops_it(work, proxy):
    worker, decider, events = work(ALONE)
    for number, canceled in ((1, False), (11, True)):
        events.clear()
        proxy.cut()
        assert until(lambda: decider.link().state is LinkState.LOST)
        worker.begin(job(number))
        assert until(lambda: len(events) == 2)
        if canceled:
            worker.cancel()
        proxy.heal()
        assert until(lambda: decider.link().state is LinkState.UP)
        worker.begin(job(number + 1))
        assert until(partial(ended, events, number + 1))
        kinds = [(type(e), e.job) for e in events[2:]]
        expected = [] if canceled else [(Reconciled, number)]
        assert kinds[: len(kinds) - 2] == expected and kinds[-1] == (Answered, number + 1)


def test_a_stale_prefetch_that_is_canceled_leaves_the_open_answer(work, proxy):
    worker, decider, events = work(ALONE)
    proxy.cut()
    assert until(lambda: decider.link().state is LinkState.LOST)
    worker.begin(job(1))
    assert until(lambda: len(events) == 2)
    worker.begin(job(2))
    worker.cancel(keep_open=True)
    proxy.heal()
    assert until(lambda: any(isinstance(e, Reconciled) and e.job == 1 for e in events))
    assert any(isinstance(e, Failed) and e.code is ErrorCode.CANCELED and e.job == 2 for e in events)


def test_nothing_unverified_passes_for_verified_over_a_flapping_link(work, proxy, target):
    worker, decider, events = work(replace(ALONE, resume_timeout_s=0.1, link_timeout_s=0.3))
    oracle = Oracle(target, decider)
    over, dice = threading.Event(), random.Random(4)

    def flap():
        while not over.wait(dice.uniform(0.02, 0.4)):
            dice.choice((proxy.cut, proxy.silence))()
            over.wait(dice.uniform(0.1, 1.5))
            proxy.heal()

    def answer(number):
        worker.begin(job(number))
        assert until(partial(ended, events, number), 15), events
        return next(e for e in events if isinstance(e, (Answered, Failed)) and e.job == number)

    assert not answer(1).unverified
    proxy.cut()
    assert until(lambda: decider.link().state is LinkState.LOST)
    assert answer(2).unverified
    proxy.heal()
    flapping = threading.Thread(target=flap, daemon=True)
    flapping.start()
    began, last = time.monotonic(), answer(3)
    while time.monotonic() - began < 1.5:
        last = answer(last.job + 1)
        time.sleep(0.1)
    over.set()
    flapping.join()
    proxy.heal()
    for event in events:
        assert not isinstance(event, Failed)
        if isinstance(event, ActionFound):
            continue
        right = oracle(job(event.job))
        if isinstance(event, Answered) and event.unverified:
            known = event.answer.open.verified
            assert known == right[: len(known)]
        else:
            assert event.answer.token_ids == right
    for found in (e for e in events if isinstance(e, ActionFound) and not e.unverified):
        text = text_of(target, oracle(job(found.job)))
        assert text.startswith(found.text)
    if last.unverified:
        assert until(lambda: isinstance(events[-1], Reconciled) and events[-1].job == last.job)
