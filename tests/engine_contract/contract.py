"""A client of an engine without a wire, and what the target alone would have said."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from io import StringIO
from typing import Any

from cloud_verifier.engine.interface import AnyEngine, EngineEnvironment, MakeEngine
from cloud_verifier.engine.tasks import (
    CloseTask,
    OpenTask,
    PauseTask,
    SessionKey,
    SessionTask,
    Task,
)
from cloud_verifier.logs import EventLog
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import AloneUp, Down, DraftUp, ErrorDown, Open, Opened, Tokens, VerdictDown
from specdec.models import LoadedModel, Prompt
from specdec.options import GenerationOptions
from specdec.verifying import Verifier
from tests.helpers.tiny_models import picture

GREEDY = GenerationOptions(24)
SAMPLED = GenerationOptions(24, temperature=0.8, seed=5)
SETTINGS = {
    "greedy": GREEDY,
    "sampled": SAMPLED,
    "top-k": GenerationOptions(24, temperature=1.3, seed=6, top_k=20),
    "top-p": GenerationOptions(24, temperature=1.0, seed=(1 << 62) + 7, top_p=0.7),
    "min-p": GenerationOptions(24, temperature=1.5, seed=8, min_p=0.05),
    "penalty": GenerationOptions(24, repetition_penalty=1.3),
    "bias": GenerationOptions(24, logit_bias=((65, 3.0), (66, -2.0)), temperature=0.7, seed=9),
    "all": GenerationOptions(
        24, 0.9, 10, top_k=50, top_p=0.9, min_p=0.01, repetition_penalty=1.1, logit_bias=((70, 2.0),),
        min_new_tokens=20,
    ),
}  # fmt: skip
ACTIONS = r"""
start: reasoning "\n" (action | stop)
reasoning[max_tokens=5]: /[^\n]*/
action: "move " ("25" | "50") "cm"
stop: "stop"
"""
MOST_STEPS = 3000


class Client:
    """One edge, or several: submits what it wants done and collects what is said. `work` makes the engine do it."""

    def __init__(self, make: MakeEngine) -> None:
        self.said: list[tuple[SessionKey, Down, bool]] = []
        self.out: list[Task] = []
        self.log = StringIO()
        self.engine: AnyEngine = make(
            EngineEnvironment(
                lambda *said: self.said.append(said), EventLog(self.log), on_out=self.out.append
            )
        )
        self.rounds = 0
        self.opens = 0

    def open(self, session: int, prompt: Prompt, options: GenerationOptions = GREEDY, **more: Any) -> None:
        message = Open(
            session,
            more.pop("stream", False),
            sampling_to_wire(options),
            list(prompt.ids),
            list(prompt.images),
            **more,
        )
        self.opens += 1
        self.engine.submit(OpenTask(key_of(session), message, 0.0))

    def draft(self, session: int, base: int, ids: Sequence[int], epoch: int = 0, **more: Any) -> int:
        self.rounds += 1
        message = DraftUp(session, self.rounds, base, list(ids), epoch=epoch, **more)
        self.engine.submit(SessionTask(key_of(session), message, 0.0))
        return self.rounds

    def alone(self, session: int, speculate: int = 0) -> None:
        self.rounds += 1
        self.engine.submit(SessionTask(key_of(session), AloneUp(session, self.rounds, speculate), 0.0))

    def close(self, session: int) -> None:
        self.engine.submit(CloseTask(key_of(session)))

    def pause(self, session: int, paused: bool) -> None:
        self.engine.submit(PauseTask((key_of(session)[0], 0), paused))

    def work(self, steps: int = MOST_STEPS) -> None:
        """Until nothing waits (pictures included), or until this many forwards were made."""
        for _ in range(steps):
            while self.engine.idle and self._opening():
                time.sleep(0.001)
            if self.engine.idle:
                return
            self.engine.work_off()
        assert steps < MOST_STEPS, "the engine never rests"

    def _opening(self) -> bool:
        return self.opens > sum(isinstance(task, OpenTask) for task in self.out)

    def messages_of(self, session: int) -> list[Down]:
        return [message for key, message, _ in self.said if key == key_of(session)]

    def last(self, session: int) -> Down:
        return self.messages_of(session)[-1]

    def opened(
        self, session: int, prompt: Prompt, options: GenerationOptions = GREEDY, **more: Any
    ) -> Opened:
        self.open(session, prompt, options, **more)
        self.work()
        found = self.last(session)
        assert isinstance(found, Opened), found
        return found

    def verdict(self, session: int, base: int, ids: Sequence[int], epoch: int = 0) -> VerdictDown:
        round_ = self.draft(session, base, ids, epoch)
        self.work()
        found = self.last(session)
        assert isinstance(found, VerdictDown) and found.round == round_, found
        return found

    def refused(self, session: int) -> ErrorDown:
        """The session's last words, after which it is over."""
        key, message, over = next(said for said in reversed(self.said) if said[0] == key_of(session))
        assert isinstance(message, ErrorDown) and over, (key, message)
        return message

    def streamed(self, session: int, begun: Sequence[int] = ()) -> list[int]:
        """What all messages of a session make of its answer; each goes on where the one before ended."""
        answer = list(begun)
        for message in self.messages_of(session):
            if isinstance(message, Opened) and message.token is not None:
                answer += [message.token, *message.forced]
            elif isinstance(message, Tokens):
                assert message.base == len(answer)
                answer += message.ids
        return answer


def key_of(session: int) -> SessionKey:
    return b"edge %d" % (session // 10), session


def prompt_of(number: int, pictures: int = 0, model: LoadedModel | None = None) -> Prompt:
    """Different ones by number."""
    words = tuple(40 + (number * 7 + place * place) % 60 for place in range(6 + number % 5))
    if not pictures or model is None or model.image_pad_id is None:
        return Prompt(words)
    pads = (model.image_pad_id,) * pictures
    return Prompt(
        (*words[:3], *pads, *words[3:]), tuple(picture(number * 10 + one) for one in range(pictures))
    )


_ANSWERS: dict[tuple[str, Prompt, GenerationOptions], list[int]] = {}


def answer_of(model: LoadedModel, prompt: Prompt, options: GenerationOptions) -> list[int]:
    """What the target alone says, one token a forward, an EOS at its end included."""
    key = (model.path, prompt, options)
    if key not in _ANSWERS:
        verifier = Verifier(model, options)
        verifier.open(prompt)
        while not verifier.finished:
            verifier.step()
        _ANSWERS[key] = verifier.answer
    return list(_ANSWERS[key])


def wrong(token: int) -> int:
    """Another one, which no answer of these tests' models ends with."""
    return 30 + (token + 1) % 50


def check_whole_answer(
    client: Client,
    model: LoadedModel,
    session: int,
    prompt: Prompt,
    options: GenerationOptions,
    sizes: Sequence[int],
) -> None:
    """Round by round: of drafts that are right, wrong from somewhere on, and empty, exactly what is right stays."""
    right = answer_of(model, prompt, options)
    opened = client.opened(session, prompt, options)
    assert opened.token == right[0] and opened.limit == options.max_new_tokens
    at, epoch, number = 1 + len(opened.forced), 0, 0
    assert opened.forced == right[1:at]
    while at < len(right):
        ids, stays = drafted(right, at, sizes[number % len(sizes)], number, model.never_drafted)
        verdict = client.verdict(session, at, ids, epoch)
        assert (verdict.last, verdict.token) == (stays, right[at + stays])
        epoch += stays < len(ids)
        at += stays + 1
        assert verdict.forced == right[at : at + len(verdict.forced)]
        at += len(verdict.forced)
        number += 1


def check_answers_together(
    client: Client, model: LoadedModel, kinds: Mapping[int, tuple[Prompt, GenerationOptions]]
) -> int:
    """Sessions side by side, round by round, to each answer's end: exactly what is right stays.

    Returns how many of them a forward held at most.
    """
    for one, kind in kinds.items():
        client.open(one, *kind)
    client.work()
    right = {one: answer_of(model, *kind) for one, kind in kinds.items()}
    at, epochs, together, number = dict.fromkeys(kinds, 1), dict.fromkeys(kinds, 0), 0, 0
    for one in kinds:
        opened = client.last(one)
        assert isinstance(opened, Opened) and opened.token == right[one][0], opened
    while going := [one for one in kinds if at[one] < len(right[one])]:
        drafts = {one: drafted(right[one], at[one], 4, number + one, model.never_drafted) for one in going}
        for one, (ids, _) in drafts.items():
            client.draft(one, at[one], ids, epochs[one])
        client.work()
        for one, (ids, stays) in drafts.items():
            verdict = client.last(one)
            assert isinstance(verdict, VerdictDown), verdict
            assert (verdict.last, verdict.token) == (stays, right[one][at[one] + stays])
            together = max(together, verdict.batch)
            at[one] += stays + 1
            epochs[one] += stays < len(ids)
        number += 1
    return together


def drafted(
    right: Sequence[int], at: int, size: int, number: int, never: Set[int] = frozenset()
) -> tuple[list[int], int]:
    """A draft behind right[:at], and how much of it is to stay; every third is right as a whole. never: ids that no
    draft may hold, placeholders of pictures.
    """
    ids = list(right[at : at + size])
    stays = min(len(ids), len(right) - at - 1, *(place for place, token in enumerate(ids) if token in never))
    if number % 3 and ids:
        spoilt = (number * 5) % len(ids)
        ids[spoilt] = wrong(ids[spoilt])
        stays = min(stays, spoilt)
    return ids, stays


@lru_cache
def ending_options(model: LoadedModel, length: int) -> tuple[GenerationOptions, int]:
    """Options with which an answer ends, by an EOS, after this many tokens; and that EOS."""
    eos = min(model.eos_token_ids)
    return GenerationOptions(24, logit_bias=((eos, 1000.0),), min_new_tokens=length), eos
