"""The real decider with the default models, a verifier in this process, and what its answers are compared with."""

import threading
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import torch

from cloud_verifier.config import ServerConfig
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from spec_vlm_nav.camera.images import Frame
from spec_vlm_nav.common.codes import LinkState
from spec_vlm_nav.language.prompting import build_prompt
from spec_vlm_nav.model.asking import spec_of
from spec_vlm_nav.model.decider import DecisionJob, DecoderSettings
from spec_vlm_nav.model.speculative import SpeculativeDecider
from spec_vlm_nav.model.worker import Answered, Failed
from specdec.models import load_model
from tests.helpers.tiny_models import built_pairs, picture  # noqa: F401
from tests.robot.links import until

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

    def __init__(self, model, bind="tcp://127.0.0.1:0", **bounds):
        config = ServerConfig(model=model.path, bind=bind, **bounds)
        self.server = Server(config, model, EventLog(StringIO()))
        self.address = self.server.bind
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()

    def close(self):
        self.server.stop()
        self._thread.join(10)


def load_target():
    """The target, after a first forward: the first answer must not be late."""
    torch.set_num_threads(1)
    model = load_model(str(MODELS / "nav-target"))
    prompt = build_prompt(spec_of(SETTINGS), model.tokenizer, "warm up", [picture(0)])
    model.new_session().prefill(model.encode(prompt))
    return model


def make_decider(settings):
    return SpeculativeDecider(settings)


def is_up(decider):
    return until(lambda: decider.link().state is LinkState.UP)


def job(number=1, instruction="find the red ball"):
    return DecisionJob(number, instruction, Frame(picture(number), (0, 0), time.monotonic()))


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
    """An on_text that calls `action` once, when this many pieces of text were told."""
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
