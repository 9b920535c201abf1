"""An engine with random exits, and rounds whose hints can be read."""

from __future__ import annotations

from io import StringIO

import torch

from cloud_verifier.engine.engine import Engine
from cloud_verifier.engine.interface import EngineEnvironment
from cloud_verifier.engine.tasks import OpenTask, SessionTask
from cloud_verifier.engine.work import Models
from cloud_verifier.logs import EventLog
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import Down, DraftUp, HintDown, Open, Opened, VerdictDown
from specdec.models import LoadedModel, chat_prompt
from specdec.options import GenerationOptions
from specdec.verifying.exits import ExitAdapters, Exits
from specdec.verifying.hints.hints import HintMaker


def make_exits(model: LoadedModel, seed: int = 0) -> Exits:
    torch.manual_seed(seed)
    adapters = ExitAdapters(2, model.runner.hidden_size, 16)
    torch.nn.init.normal_(adapters.up, std=0.3)
    return Exits(model, adapters, (0, 1))


class Cloud:
    """An engine, and what it says; every answer goes on with the drafts that it is given."""

    def __init__(self, model: LoadedModel, maker: HintMaker | None) -> None:
        self.model = model
        self.said: list[Down] = []
        self.log = StringIO()
        environment = EngineEnvironment(lambda _, message, __: self.said.append(message), EventLog(self.log))
        self.engine = Engine(Models(model, hint_maker=maker), environment)

    def open(
        self, session: int, text: str = "hello", options: GenerationOptions | None = None, **more: int
    ) -> int:
        """Returns the answer's length."""
        ids = list(chat_prompt(self.model, text).ids)
        message = Open(session, False, sampling_to_wire(options or GenerationOptions(60)), ids, **more)
        self.engine.submit(OpenTask((b"edge", session), message, 0.0))
        self.engine.work_off()
        opened = self.said[-1]
        assert isinstance(opened, Opened)
        return 1

    def judge(self, draft: DraftUp) -> list[Down]:
        """What is said about a draft."""
        before = len(self.said)
        self.engine.submit(SessionTask((b"edge", draft.session), draft, 0.0))
        self.engine.work_off()
        return self.said[before:]


def hints_of(messages: list[Down]) -> list[HintDown]:
    return [message for message in messages if isinstance(message, HintDown)]


def plain(messages: list[Down]) -> list[tuple[int, int, int | None]]:
    """The verdicts without their times."""
    return [(m.round, m.last, m.token) for m in messages if isinstance(m, VerdictDown)]


def rounds(cloud: Cloud, session: int, **more: int) -> list[Down]:
    """Five drafts, of ids that no text contains and a tree of them; each follows on what was verified."""
    base = cloud.open(session, **more)
    said: list[Down] = []
    epoch = 0
    for number in range(1, 6):
        parents = [-1, 0, 0, -1] if number == 3 else None
        answer = cloud.judge(
            DraftUp(session, number, base, [number, number + 9, 40, number + 60], parents, epoch)
        )
        verdict = answer[-1]
        assert isinstance(verdict, VerdictDown)
        base += verdict.last + 1 if parents is None else {0: 1, 1: 2, 2: 3, 3: 3, 4: 2}[verdict.last]
        epoch += verdict.last < 4
        said += answer
    return said
