# SPDX-License-Identifier: Apache-2.0
"""Plans: work on sessions as generators that yield what they need and are told the result.

A plan says which rows it wants of a model's next forward (an Extension) or which prompt it wants prepared (a
Preparation), and goes on when it has them. So what is wanted and what it means stand in one function, and the one
that runs the plans decides when: `carry_out` runs one alone; an engine runs many side by side, their rows in one
forward.

A method that is `planned` can be had both ways: `verifier.verify(draft)` verifies here and now,
`verifier.verify.plan(draft)` is the plan, for an engine or as a part (`yield from`) of a larger plan.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from specdec.errors import ModelError
from specdec.isolation.workers import Ticket
from specdec.models.attention.segment import Segment
from specdec.models.images import PreparedImages, SeenPicture
from specdec.models.prompt import EncodedPrompt, Prompt
from specdec.models.runner import DecoderRunner, LayerObserver
from specdec.models.static import ChainRun

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


class Extensible(Protocol):
    """What a forward needs of a session; a ModelSession has it."""

    runner: DecoderRunner
    layers: range | None

    def room_for(self, extension: Extension) -> Segment:
        """Where an extension's rows go."""
        ...

    def hold(self, extension: Extension) -> None:
        """Count in what a forward has written."""
        ...


class PromptModel(Protocol):
    """What prepares prompts; a LoadedModel does."""

    runner: DecoderRunner

    def encode(self, prompt: Prompt, seen: Sequence[SeenPicture] | None = None) -> EncodedPrompt:
        """A prompt as this model takes it."""
        ...

    def decode(self, image: bytes) -> PreparedImages:
        """A picture as the vision tower takes it."""
        ...

    def open_soon(self, image: bytes) -> Ticket[Image.Image] | None:
        """A picture opened by workers, for `decode_opened`; None where `decode` does all of it."""
        ...

    def decode_opened(self, image: Image.Image) -> PreparedImages:
        """A picture that is opened as the vision tower takes it."""
        ...

    def look(self, pictures: Sequence[PreparedImages]) -> list[SeenPicture]:
        """What the vision tower makes of pictures."""
        ...

    def prompt_length(self, prompt: Prompt) -> int:
        """How many tokens a prompt takes, images by their headers."""
        ...

    def embed_prompt(self, encoded: EncodedPrompt) -> Tensor:
        """Embeddings [n, hidden_size] of a prompt."""
        ...


@dataclass(frozen=True)
class Extension:
    """What one session appends in a forward: a chain (parents None), tree nodes, or rows of its prompt.

    ids: one token a row. hidden: rows [n, hidden_size] that go into the session's layers instead of the embeddings of
    `ids`, which are not looked at then. last_only: only the last row's logits are wanted. observer: sees this session's
    rows after each layer. device_ids: int64 [rows] that count instead of `ids`, where the host has not read them. run:
    predict a chain behind these rows and return its ids (`StaticForward.chain`) where that can be, else their logits.
    """

    session: Extensible
    ids: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None
    last_only: bool = False
    hidden: Tensor | None = None
    observer: LayerObserver | None = None
    device_ids: Tensor | None = None
    run: ChainRun | None = None

    @property
    def more(self) -> int:
        """Tokens that the session will hold behind its rows."""
        return 0 if self.run is None else self.run.count - 1

    @property
    def rows(self) -> int:
        """Rows it brings into a forward."""
        return len(self.ids) if self.hidden is None else self.hidden.shape[0]

    @property
    def together_with(self) -> tuple[int, range | None]:
        """Extensions for which this is equal may share a forward."""
        return id(self.session.runner), self.session.layers

    @property
    def divisible(self) -> bool:
        """Whether it may be done in parts: nothing is wanted but the last row's logits."""
        return self.last_only and self.parents is None and self.rows > 1 and self.observer is None

    def divide(self, rows: int) -> tuple[Extension, Extension]:
        """Its first `rows` rows, and the others. Nothing observes them: who does wants all rows at once."""
        whole = replace(self, observer=None)
        if self.hidden is not None:
            return replace(whole, hidden=self.hidden[:rows]), replace(whole, hidden=self.hidden[rows:])
        first, others = replace(whole, ids=self.ids[:rows]), replace(whole, ids=self.ids[rows:])
        if self.parents is not None:  # they count from the tree's first node in both parts
            first, others = (
                replace(first, parents=self.parents[:rows]),
                replace(others, parents=self.parents[rows:]),
            )
        return first, others


@dataclass(frozen=True)
class Preparation:
    """A prompt to encode and embed: pictures decoded, resized and seen by the vision tower. Comes back as Prepared."""

    model: PromptModel
    prompt: Prompt
    embed: bool = True

    def carry_out(self, seen: Sequence[SeenPicture] | None = None) -> Prepared:
        """Do it here and now. Raises ModelError for a prompt that the model cannot take.

        seen: what the model has made of the prompt's pictures, where it has looked at them already.
        """
        encoded = self.model.encode(self.prompt, seen)
        return Prepared(encoded, self.model.embed_prompt(encoded) if self.embed else None)


class KnownPrefix(Protocol):
    """What is known already of a prompt's keys and values, and who wants to know the others.

    Caches are [layers, 2, kv_heads, capacity, head_dim].
    """

    def fill(self, cache: Tensor) -> int:
        """Write those of the prompt's first tokens, short of its last; returns how many tokens."""
        ...

    def learn(self, cache: Tensor) -> None:
        """Called when the cache holds all of the prompt, and nothing behind it."""
        ...


@dataclass(frozen=True)
class Prepared:
    """A prompt as a model takes it. hidden: its embeddings [n, hidden_size], where they were asked for.

    prefix: None: nothing is known of its keys and values. kept: this many of its tokens, the first ones, stand in the
    session's cache already.
    """

    encoded: EncodedPrompt
    hidden: Tensor | None = None
    prefix: KnownPrefix | None = None
    kept: int = 0


@dataclass(frozen=True)
class AwaitedWorker:
    """What a worker (specdec.isolation) does. The plan goes on once it is done, and looks itself the result."""

    future: Future[Any]


Need = Extension | Preparation | AwaitedWorker
Plan = Generator[Need, Any, T]
"""Yields what it needs: for an Extension comes back a Tensor of logits float32 [rows or 1, vocab], for a Preparation a
Prepared, or the error that was met is thrown in; for an Awaited anything. Returns what it was about."""


@dataclass(frozen=True)
class Staged:
    """An Extension with room in its session's cache, ready for a forward; the session has not changed."""

    extension: Extension
    segment: Segment


@overload
def settled(value: Future[T] | None) -> Plan[T | None]: ...


@overload
def settled(value: T | Future[T]) -> Plan[T]: ...


def settled(value: Any) -> Plan[Any]:
    """A value that may come later. Raises what its future raises."""
    if not isinstance(value, Future):
        return value
    if not value.done():
        yield AwaitedWorker(value)
    return value.result()


@torch.inference_mode()
def carry_out(plan: Plan[T]) -> T:
    """Run one plan alone, here and now; returns what it returns and raises what it raises."""
    try:
        need = next(plan)
        while True:
            if isinstance(need, Preparation):
                need = plan.send(need.carry_out())
            elif isinstance(need, AwaitedWorker):
                need.future.exception()  # the plan meets it
                need = plan.send(None)
            else:
                need = plan.send(extend_many([need])[0])
    except StopIteration as end:
        result: T = end.value
        return result


class PlanStep(Generic[P, T]):
    """A planned method of one object. plan: makes the plan."""

    __slots__ = ("plan",)

    def __init__(self, plan: Callable[P, Plan[T]]) -> None:
        self.plan = plan

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Carry it out here and now."""
        return carry_out(self.plan(*args, **kwargs))


class planned(Generic[S, P, T]):
    """Makes a method that returns a plan a Step of each object."""

    def __init__(self, method: Callable[Concatenate[S, P], Plan[T]]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> planned[S, P, T]: ...

    @overload
    def __get__(self, owner: S, kind: type | None = None) -> PlanStep[P, T]: ...

    def __get__(self, owner: S | None, kind: type | None = None) -> planned[S, P, T] | PlanStep[P, T]:
        return self if owner is None else PlanStep(MethodType(self.method, owner))


@torch.inference_mode()
def extend_many(extensions: Sequence[Extension]) -> list[Tensor]:
    """Extend several sessions of one loaded model in one forward pass.

    Rows of different sessions share the matrix products and attend only to their own caches.

    Args:
        extensions: One for each session, all of the same `LoadedModel`.

    Returns:
        The logits of each extension, in order.

    Raises:
        ModelError: A session cannot be extended like this. No session has changed then.
    """
    joint = extensions[0].session.runner.joint
    if joint is not None and len(extensions) == 1 and extensions[0].run is None:
        return [joint.extend(extensions[0])]
    return forward_together([stage(extension) for extension in extensions])


def stage(extension: Extension) -> Staged:
    """Make one ready for a forward. Raises ModelError for what its session cannot take."""
    if not extension.rows:
        raise ModelError("nothing to extend by: give at least one token")
    session = extension.session
    if extension.hidden is None:
        low, high = min(extension.ids), max(extension.ids)
        if low < 0 or high >= session.runner.vocab_size:
            token = low if low < 0 else high
            raise ModelError(f"token id {token} is outside the vocabulary of {session.runner.vocab_size}")
    return Staged(extension, session.room_for(extension))


def forward_together(staged: Sequence[Staged]) -> list[Tensor]:
    """One forward for all of them, which may share it; then each session holds what it was extended by. To be called
    in torch's inference mode.

    Returns the logits float32 of each, in order. A forward that fails raises what it raises; no session has changed.
    """
    runner = staged[0].extension.session.runner
    static = runner.static
    if static is not None and static.takes(staged):
        if staged[0].extension.run is not None:
            return [static.chain(staged[0])]
        _check_together(staged)
        return static.logits(staged, _observer(staged))
    staged = [replace(one, extension=replace(one.extension, run=None)) for one in staged]
    hidden = hidden_together(staged)
    wanted = []
    start = 0
    for one in staged:
        stop = start + one.segment.rows
        wanted.append(hidden[stop - 1 : stop] if one.extension.last_only else hidden[start:stop])
        start = stop
    logits = runner.logits(wanted[0] if len(wanted) == 1 else torch.cat(wanted))
    return [logits] if len(wanted) == 1 else list(torch.split(logits, [rows.shape[0] for rows in wanted]))


def hidden_together(staged: Sequence[Staged]) -> Tensor:
    """The same, but returns what comes out of the sessions' last layers: [rows of all, hidden_size]."""
    first = staged[0].extension
    runner = first.session.runner
    _check_together(staged)
    static = runner.static
    if static is not None and not static.cuts and first.session.layers is not None and static.takes(staged):
        return static.hidden(staged, _observer(staged))
    segments = [one.segment for one in staged]
    rotary = runner.rotary(segments)
    hidden = runner.forward(_input(runner, staged), rotary, segments, _observer(staged), first.session.layers)
    for one in staged:
        one.extension.session.hold(one.extension)
    return hidden


def _check_together(staged: Sequence[Staged]) -> None:
    if any(one.extension.together_with != staged[0].extension.together_with for one in staged):
        raise ModelError("sessions of different models cannot share a forward: group them by model")


def _input(runner: DecoderRunner, staged: Sequence[Staged]) -> Tensor:
    """What goes into the first layer: [rows, hidden_size]. The ids of all are looked up at once."""
    if len(staged) == 1 and staged[0].extension.hidden is None:
        known = staged[0].extension.device_ids
        return runner.embed(
            torch.tensor(staged[0].extension.ids, device=runner.device) if known is None else known
        )
    ids = [token for one in staged if one.extension.hidden is None for token in one.extension.ids]
    embedded = runner.embed(torch.tensor(ids, device=runner.device)) if ids else None
    if embedded is not None and all(one.extension.hidden is None for one in staged):
        return embedded
    parts = []
    start = 0
    for one in staged:
        if one.extension.hidden is not None:
            parts.append(one.extension.hidden)
        else:
            assert embedded is not None
            parts.append(embedded[start : start + one.segment.rows])
            start += one.segment.rows
    return _cat(parts)


def _cat(parts: Sequence[Tensor]) -> Tensor:
    """Rows one after another; those of prompts with pictures may be wider than others, which get zeros there."""
    if len(parts) == 1:
        return parts[0]
    widest = max(part.shape[1] for part in parts)
    return torch.cat(
        [F.pad(part, (0, widest - part.shape[1])) if part.shape[1] < widest else part for part in parts]
    )


def _observer(staged: Sequence[Staged]) -> LayerObserver | None:
    """Shows each session's observer its own rows."""
    if len(staged) == 1:
        return staged[0].extension.observer
    watched: list[tuple[int, int, LayerObserver]] = []
    start = 0
    for one in staged:
        if one.extension.observer is not None:
            watched.append((start, start + one.segment.rows, one.extension.observer))
        start += one.segment.rows
    if not watched:
        return None

    def after_layer(layer: int, hidden: Tensor) -> None:
        for first, last, observer in watched:
            observer(layer, hidden[first:last])

    return after_layer
