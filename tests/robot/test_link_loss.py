"""The real decider with the default models against a verifier whose link is cut: what it hands out as verified is the
target's own answer, token by token, whatever the link did.
"""

import gc
import random
import sys
import threading
import time
import weakref
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
import torch
from links import CuttableProxy, until

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conftest_models import picture

from cloud_verifier.config import ServerConfig
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from spec_vlm_nav.camera.frame import Frame
from spec_vlm_nav.common.codes import ErrorCode, LinkState
from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.language.actions import find_action
from spec_vlm_nav.model.answers import DecisionFailed, Job
from spec_vlm_nav.model.decider import DecoderSettings
from spec_vlm_nav.model.speculative import SpeculativeDecider
from spec_vlm_nav.model.worker import ActionFound, Answered, DecisionWorker, Failed, Reconciled
from specdec.models import load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specdec.text.streaming import StreamingText

MODELS = Path(__file__).resolve().parents[2] / "default_models"
SETTINGS = DecoderSettings(
    draft_model=str(MODELS / "nav-draft"),
    reply_timeout_s=0.4,
    connect_timeout_s=0.5,
    link_timeout_s=0.4,
    resume_timeout_s=1.5,
    max_new_tokens=48,
)
ALONE = replace(SETTINGS, on_link_loss="draft_only_slow", resume_timeout_s=0.0)


class Verifier:
    """A verifier in a thread of this process."""

    def __init__(self, model, bind="tcp://127.0.0.1:0"):
        self.server = Server(ServerConfig(model=model.path, bind=bind), model, EventLog(StringIO()))
        self.address = self.server.bind
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()

    def close(self):
        self.server.stop()
        self._thread.join(10)


@pytest.fixture(scope="module")
def target():
    torch.set_num_threads(1)
    return load_model(str(MODELS / "nav-target"))


@pytest.fixture(scope="module")
def verifier(target):
    one = Verifier(target)
    yield one
    one.close()


@pytest.fixture
def proxy(verifier):
    one = CuttableProxy(verifier.address)
    yield one
    one.close()


@pytest.fixture
def make(proxy):
    deciders = []

    def open_one(settings, wait=True):
        decider = SpeculativeDecider(replace(settings, verifier=proxy.address))
        decider.open()
        deciders.append(decider)
        assert not wait or until(lambda: decider.link().state is LinkState.UP)
        return decider

    yield open_one
    for decider in deciders:
        decider.close()


@pytest.fixture
def work(proxy):
    workers = []

    def start(settings, wait=True):
        decider, events = SpeculativeDecider(replace(settings, verifier=proxy.address)), []
        workers.append(DecisionWorker(decider, events.append))
        assert not wait or until(lambda: decider.link().state is LinkState.UP)
        return workers[-1], decider, events

    yield start
    for worker in workers:
        assert worker.close()


def job(number=1, instruction="find the red ball"):
    return Job(number, instruction, Frame(picture(number), (0, 0), time.monotonic()))


def greedy(model, prompt, history=()):
    """What a model says alone, behind `history`, by the plainest loop there is."""
    session, answer = model.new_session(), list(history)
    row = session.prefill(model.encode(prompt))
    if answer:
        row = session.extend(answer)[-1]
    while len(answer) < SETTINGS.max_new_tokens and (token := int(row.argmax())) not in model.eos_token_ids:
        answer.append(token)
        row = session.extend([token])[-1]
    return tuple(answer)


class Oracle:
    """The target's answers to jobs, worked out once each and without a verifier."""

    def __init__(self, target, decider):
        self._target, self._decider, self._known = target, decider, {}

    def __call__(self, job):
        if job.number not in self._known:
            settings, asker = self._decider._current
            question, _ = asker.ask(job, settings)
            self._known[job.number] = greedy(self._target, question.prompt)
        return self._known[job.number]


def at_token(count, action):
    """An on_text that calls `action` once, when so many pieces of text were told."""
    heard = []

    def on_text(text, jpeg, unverified=False):
        heard.append((text, unverified))
        if len(heard) == count:
            action()

    on_text.heard = heard
    return on_text


def ended(events, number):
    """Whether that job is over."""
    return any(isinstance(e, (Answered, Failed)) and e.job == number for e in events)


def never():
    return threading.Event()


@pytest.mark.parametrize("method", ["fsd", "sd", "ar", "auto"])
def test_without_faults_the_answer_is_the_targets(make, target, method):
    decider = make(replace(SETTINGS, method=method))
    answer = decider.decide(job(), never(), at_token(0, None))
    assert answer.token_ids == Oracle(target, decider)(job()) and not answer.unverified
    assert find_action(answer.text) is not None


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
    while time.monotonic() - began < 3.0:
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
