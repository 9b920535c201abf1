"""The real decider with the default models against a verifier whose link is cut: what it hands out as verified is the
target's own answer, token by token, whatever the link did.
"""

import gc
import random
import threading
import time
import weakref
from dataclasses import replace
from functools import partial

import pytest

from spec_vlm_nav.common.codes import ErrorCode, LinkState
from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.language.actions import find_action
from spec_vlm_nav.model.decider import ROBOT_METHODS, DecisionFailed
from spec_vlm_nav.model.speculative import SpeculativeDecider
from spec_vlm_nav.model.worker import DecisionWorker
from specdec.link.channel import connect
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import Close, Open, Opened
from specdec.methods import get_method
from specdec.options import GenerationOptions
from tests.robot.links import until
from tests.robot.real_decider import ALONE, SETTINGS, Oracle, Verifier, at_token, ended, job, never

pytestmark = [pytest.mark.realtime, pytest.mark.slow]


ALL_ON_THE_EDGE = [name for name in ROBOT_METHODS if not get_method(name).cloud_drafts]


@pytest.mark.parametrize("method", [*ALL_ON_THE_EDGE, "sd+length:worth"])
def test_without_faults_the_answer_is_the_targets(make, target, method):
    decider = make(replace(SETTINGS, method=method))
    answer = decider.decide(job(), never(), at_token(0, None))
    assert answer.token_ids == Oracle(target, decider)(job()) and not answer.unverified
    assert find_action(answer.text) is not None


def test_a_method_that_needs_a_draft_model_in_the_cloud_says_so_where_there_is_none(make):
    decider = make(replace(SETTINGS, method="cloud-sd"))
    with pytest.raises(DecisionFailed, match="this verifier has no draft model: start it with --draft-model"):
        decider.decide(job(), never(), at_token(0, None))


@pytest.mark.parametrize("fault", ["cut", "silence"])
@pytest.mark.parametrize("seconds", [0.1, 0.7])
@pytest.mark.parametrize("method", ["fsd", "ar"])
def test_a_short_cut_in_the_middle_is_resumed_with_the_same_tokens(
    make, proxy, target, fault, seconds, method
):
    decider = make(replace(SETTINGS, method=method))

    def interrupt():
        getattr(proxy, fault)()
        threading.Timer(seconds, proxy.heal).start()

    on_text = at_token(2, interrupt)
    answer = decider.decide(job(2), never(), on_text)
    assert answer.token_ids == Oracle(target, decider)(job(2)) and not answer.unverified
    assert decider.figures()["resumes"] >= 1 and not any(bare for _, bare in on_text.heard)


def test_a_cut_at_any_time_of_a_decision_does_not_change_its_tokens(make, proxy, target):
    decider, dice = make(SETTINGS), random.Random(7)
    oracle, span_s = Oracle(target, decider), 0.1

    def interrupt(after_s, fault):
        time.sleep(after_s)
        fault()
        time.sleep(span_s + 0.1)
        proxy.heal()

    for number in range(10):
        faults = dice.uniform(0, span_s), dice.choice((proxy.cut, proxy.silence))
        interrupting = threading.Thread(target=interrupt, args=faults)
        interrupting.start()
        answer = decider.decide(job(number), never(), at_token(0, None))
        interrupting.join()
        assert answer.token_ids == oracle(job(number)) and not answer.unverified
    assert decider.figures()["resumes"] >= 2


def test_a_long_cut_fails_within_its_bound_and_the_next_answer_is_right(make, proxy, target):
    decider = make(SETTINGS)
    cut_at = []

    def interrupt():
        proxy.silence()
        cut_at.append(time.monotonic())

    with pytest.raises(DecisionFailed) as failed:
        decider.decide(job(), never(), at_token(2, interrupt))
    s = SETTINGS
    bound_s = s.reply_timeout_s + s.resume_timeout_s + s.connect_timeout_s + 0.5
    assert failed.value.code is ErrorCode.LINK_LOST and time.monotonic() - cut_at[0] < bound_s
    right = Oracle(target, decider)(job())
    known = failed.value.answer.token_ids
    assert 0 < len(known) < len(right) and known == right[: len(known)]
    proxy.heal()
    assert until(lambda: decider.link().state is LinkState.UP)
    assert decider.decide(job(), never(), at_token(0, None)).token_ids == right


def test_a_connection_that_died_unnoticed_between_answers_is_not_tried_first(make, proxy, target):
    decider = make(SETTINGS)
    decider.decide(job(), never(), at_token(0, None))
    proxy.silence()
    assert until(lambda: decider.link().state is LinkState.LOST)
    old, proxy._pairs = proxy._pairs, []  # open, and carry nothing, as a TCP connection that backs off
    proxy.heal()
    assert until(lambda: decider.link().state is LinkState.UP)
    assert decider.decide(job(), never(), at_token(0, None)).token_ids == Oracle(target, decider)(job())
    assert decider.figures()["resumes"] == 0
    proxy._pairs += old


def test_a_restarted_verifier_is_resumed(target, make, proxy):
    mine = Verifier(target)
    proxy._target = ("127.0.0.1", int(mine.address.rsplit(":", 1)[1]))
    decider = make(replace(SETTINGS, resume_timeout_s=5.0))
    again = []

    def restart():
        mine.close()
        again.append(Verifier(target, mine.address))

    answer = decider.decide(job(), never(), at_token(2, restart))
    assert answer.token_ids == Oracle(target, decider)(job()) and decider.figures()["resumes"] >= 1
    again[0].close()


def test_settings_are_taken_live_or_refused_with_a_reason(make, proxy, target):
    decider = make(SETTINGS)
    used = replace(SETTINGS, verifier=proxy.address)
    for method in ("sd", "ar", "fsd"):
        changed = replace(used, method=method, gamma=2, temperature=0.0)
        decider.check(changed)
        decider.use(changed)
        answer = decider.decide(job(), never(), at_token(0, None))
        assert answer.token_ids == Oracle(target, decider)(job())
        assert all(r.drafted == 0 for r in answer.rounds) == (method == "ar")
    with pytest.raises(ParameterError, match="verifier"):
        decider.check(replace(used, verifier="tcp://127.0.0.1:9"))
    with pytest.raises(ParameterError, match="draft_model"):
        decider.check(replace(used, draft_model="elsewhere"))
    with pytest.raises(ParameterError, match="answer_order"):
        decider.check(replace(used, answer_order="action_first"))
    without = make(replace(SETTINGS, method="ar"))
    with pytest.raises(ParameterError, match="draft model is not loaded"):
        without.check(used)
    with pytest.raises(ParameterError, match="draft_only_slow"):
        without.check(replace(used, method="ar", on_link_loss="draft_only_slow"))
    with pytest.raises(ParameterError, match="draft_only_slow"):
        SpeculativeDecider(replace(SETTINGS, method="ar", on_link_loss="draft_only_slow"))


def test_open_and_closed_again_and_gone_when_dropped(proxy, target):
    decider = SpeculativeDecider(replace(SETTINGS, verifier=proxy.address))
    before = threading.active_count()
    assert decider.link().state is LinkState.UNKNOWN and proxy.accepted == 0
    for _ in range(3):
        events = []
        worker = DecisionWorker(decider, events.append)
        assert until(lambda: decider.link().state is LinkState.UP)
        worker.begin(job())
        assert until(partial(ended, events, 1))
        assert events[1].answer.token_ids == Oracle(target, decider)(job())
        assert worker.close() and threading.active_count() == before
        assert decider.link().state is LinkState.UNKNOWN
    model = weakref.ref(decider._model)
    decider = worker = None
    gc.collect()
    assert model() is None


@pytest.mark.parametrize("phase", ["first words", "connecting", "resuming", "alone"])
def test_cancel_ends_a_decision_at_once(make, proxy, phase):
    alone = phase == "alone"
    settings = replace(ALONE if alone else SETTINGS, connect_timeout_s=20.0, resume_timeout_s=20.0)
    decider, cancel, canceled_at = make(settings), threading.Event(), []

    def stop():
        canceled_at.append(time.monotonic())
        cancel.set()

    def stop_soon():
        proxy.cut()
        threading.Timer(0.3, stop).start()

    on_text = at_token(1, stop_soon if phase == "resuming" else stop)
    if phase in ("connecting", "alone"):
        proxy.silence()
        assert until(lambda: decider.link().state is LinkState.LOST)
    if phase == "connecting":
        threading.Timer(0.3, stop).start()
    with pytest.raises(DecisionFailed) as failed:
        decider.decide(job(), cancel, on_text)
    took_s = time.monotonic() - canceled_at[0]
    assert failed.value.code is ErrorCode.CANCELED and took_s < 0.25


def test_a_busy_verifier_is_as_good_as_none_and_the_next_answer_is_right(make, target):
    """Said in one line, within the time for resuming; who may go on with the draft alone does."""
    small = Verifier(target, max_sessions=1)
    holder = connect(small.address)
    try:
        holder.ensure_connected()
        holder.send(Open(1, False, sampling_to_wire(GenerationOptions(4)), [1]))
        assert isinstance(holder.receive(5.0)[0], Opened)
        decider = make(replace(SETTINGS, resume_timeout_s=0.5), small.address)
        began = time.monotonic()
        with pytest.raises(DecisionFailed, match="is busy") as failed:
            decider.decide(job(), never(), at_token(0, None))
        assert failed.value.code is ErrorCode.LINK_LOST and time.monotonic() - began < 2.0
        alone = make(ALONE, small.address)
        assert alone.decide(job(), never(), at_token(0, None)).unverified
        holder.send(Close(1))
        assert decider.decide(job(), never(), at_token(0, None)).token_ids == Oracle(target, decider)(job())
    finally:
        holder.close()
        small.close()


def test_what_the_verifier_finds_too_large_is_no_fault_of_the_link(make, target):
    small = Verifier(target, max_image_megapixels=0.001)
    decider = make(SETTINGS, small.address)
    with pytest.raises(DecisionFailed, match="pixels") as failed:
        decider.decide(job(), never(), at_token(0, None))
    assert failed.value.code is ErrorCode.INVALID_INPUT
    small.close()
