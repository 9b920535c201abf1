# SPDX-License-Identifier: Apache-2.0
"""The engine owns every answer in progress and runs their plans in one thread, many of them in one forward pass.

The scheduler chooses which of the ready sessions' rows share a forward pass. Time comes from the clock it is given.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cloud_verifier.engine.hints import HintShare
from cloud_verifier.engine.interface import Capabilities, EngineEnvironment, MakeEngine, SessionEngine
from cloud_verifier.engine.memory import KvBudget
from cloud_verifier.engine.pictures import Continuation, Request
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.prompts import PreparedTask, Prompts
from cloud_verifier.engine.scheduler import Scheduler, WaitingSession
from cloud_verifier.engine.tasks import OpenTask, SessionKey
from cloud_verifier.engine.work import EngineContext, Models, SessionWork
from specdec.errors import ModelError, NoRoom
from specdec.isolation.accounts import charged
from specdec.isolation.workers import Ticket
from specdec.models.loaded import record_forwards
from specdec.models.plans import AwaitedWorker, Extension, Plan, Prepared, Staged, forward_together, stage
from specdec.row_ms import RowMs
from specdec.sampling.choice import is_sound

OPENING_S = 0.002
"""Time for starting new sessions between two forward passes; at least one is always started."""


_LATER = NoRoom("a session's rows wait until other sessions have released the memory of their forward pass")


class Engine(SessionEngine[SessionWork]):
    """Runs the forward passes itself."""

    def __init__(
        self,
        models: Models,
        environment: EngineEnvironment,
        scheduler: Scheduler | None = None,
        kv_bytes: int = 1 << 62,
        shared_bytes: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """scheduler: chooses the rows of a forward pass. kv_bytes: budget for all caches. shared_bytes: how much of
        that may hold prompts and pictures for future sessions, as long as sessions leave room for it.
        """
        hint_maker = models.hint_maker
        exits = () if hint_maker is None else tuple(hint_maker.layers)
        self.can = Capabilities(
            exits, models.draft_model is not None or models.looks_up, split=models.target.runner.sees_layers
        )
        self._beside = None if hint_maker is None else hint_maker.beside
        self._models = [one for one in (models.target, models.draft_model) if one is not None]
        self.prompts = Prompts(
            shared_bytes, self._arrive, lambda one: self._plans.get(one.work.key) is one.plan
        )
        self.prompts.pictures.beats = environment.beats
        a_token = sum(each.runner.kv_bytes_a_token for each in self._models)
        super().__init__(environment, KvBudget(kv_bytes, a_token, self.prompts.store.leave), clock)
        self._context = EngineContext(models, environment, clock, self.load, self._admit, self._price_s)
        self._hint_share = None if hint_maker is None else HintShare(clock, self.load.hints)
        self._row_ms: RowMs | None = None
        self.scheduler = scheduler or Scheduler()
        self._awaited: dict[SessionKey, Future[Any]] = {}
        self._plans: dict[SessionKey, Plan[None]] = {}
        self._waiting: dict[SessionKey, WaitingSession] = {}
        self._unbegun: dict[SessionKey, SessionWork] = {}
        self._forward_ended: float | None = None

    def tell_prices(self, row_us: Sequence[tuple[int, int]]) -> None:
        """Set how long forward passes take, as (rows, microseconds) pairs."""
        self._row_ms = RowMs(tuple((rows, us / 1e3) for rows, us in row_us)) if row_us else None

    def _price_s(self, rows: int) -> float | None:
        return None if self._row_ms is None else self._row_ms.for_rows(rows) / 1e3

    def stop(self) -> None:
        """Stop after the current forward pass; from any thread."""
        super().stop()
        self.prompts.close()

    @torch.inference_mode()
    def run(self) -> None:
        """Work until stop()."""
        for model in self._models:
            record_forwards(model)
        super().run()

    @torch.inference_mode()
    def work_off(self) -> None:
        """Take in new tasks, and run one forward pass if any session needs one."""
        super().work_off()

    def _advance(self) -> None:
        self._begin_some()
        if self._waiting and not self._stopping:
            self._forward()
        for task in self.prompts.free():
            self._take_prepared(task)
        if not self._busy:
            self._forward_ended = None

    def _take_prepared(self, task: PreparedTask) -> None:
        request, result = task.request, task.result
        if self._plans.get(request.work.key) is not request.plan:
            return  # the session was closed meanwhile
        self._awaited.pop(request.work.key, None)
        shared: object = result
        if isinstance(request, Request) and isinstance(result, Prepared):
            shared = self.prompts.share(request, result)
        if shared is not None:
            self._resume(request.work, request.plan, shared)

    def _arrive(self, task: PreparedTask) -> None:
        """Called in the thread that prepares pictures, and in the threads of workers."""
        self._arriving.put(lambda: self._take_prepared(task))
        self._environment.wake()

    def _resume(self, work: SessionWork, plan: Plan[None], result: Any) -> None:
        """Continue a plan, and start the session's next one if it ends."""
        if self._go_on(work, plan, result):
            self._begin(work)

    @property
    def _busy(self) -> bool:
        return bool(self._waiting or self._unbegun)

    def gauges(self) -> dict[str, float]:
        """Current values for the metrics; from any thread."""
        return super().gauges() | {"shared_bytes": self.prompts.store.bytes}

    def _open(self, task: OpenTask) -> None:
        work = SessionWork(self._context, task, self._opened)
        self._sessions[task.key] = self._unbegun[task.key] = work

    def _take_up(self, session: SessionWork) -> None:
        if session.key not in self._plans and session.key not in self._unbegun:
            self._begin(session)

    def _begin_some(self) -> None:
        """Start new sessions for a moment, by class and arrival; the rest wait until after the next forward pass.
        A client that opens and vanishes again and again delays nobody: most of its sessions are never started.
        """
        until = self._clock() + OPENING_S
        while self._unbegun:
            key = min(self._unbegun, key=lambda one: self._unbegun[one].rank)
            self._begin(self._unbegun.pop(key))
            if self._clock() >= until:
                return

    def _begin(self, work: SessionWork) -> None:
        """Start a session's next plan, if there is one."""
        while work.has_work:
            if work.only_streams and work.key[0] in self._paused:
                break
            if work.evicted:
                if not self._make_room(work, self.budget.needed(work.tokens, work.prompt_bytes)):
                    self._starve(work)
                    return
                work.evicted = False
                self._restored(work)
            plan = work.next_plan()
            if plan is None:
                break
            self._plans[work.key] = plan
            if not self._go_on(work, plan, None):
                return
        self._feed_the_starved()

    def _admit(self, work: SessionWork, tokens: int) -> None:
        if not self._make_room(work, self.budget.needed(tokens, work.prompt_bytes)):
            raise self.budget.exhausted()

    def _drop_cache(self, session: SessionWork) -> bool:
        return session.key not in self._plans and not session.has_work and session.evict()

    def _go_on(self, work: SessionWork, plan: Plan[None], result: Any) -> bool:
        """Send a plan the result of its last need and handle its next one; True if the plan ended without error."""
        account = self.accounts.account_of(work.owner)
        token = charged.set(account)
        try:
            while True:
                need = plan.throw(result) if isinstance(result, BaseException) else plan.send(result)
                if isinstance(need, Extension):
                    self._waiting[work.key] = WaitingSession(work, need, self._clock())
                    return False
                if isinstance(need, AwaitedWorker):
                    self._await(Continuation(work, plan), need)
                    return False
                result = self.prompts.prepare(Request(work, plan, need, account))
                if result is None:
                    return False
        except StopIteration:
            self.prompts.ended(work)
            del self._plans[work.key]
            self._rested(work)
            return True
        except Exception as error:  # one session's fault must not end the others'
            self._fail(work, error)
        finally:
            charged.reset(token)
            result = (
                None  # a thrown error refers to this frame, which would keep the session's memory alive
            )
        return False

    def _await(self, request: Continuation, need: AwaitedWorker) -> None:
        """A worker process works for a session: its plan continues when the worker is done."""
        self._awaited[request.work.key] = need.future
        need.future.add_done_callback(lambda _: self._arrive(PreparedTask(request, need)))

    def _release(self, session: SessionWork) -> None:
        key = session.key
        self._unbegun.pop(key, None)
        session.ended()
        self.prompts.ended(session)
        self._waiting.pop(key, None)
        awaited = self._awaited.pop(key, None)
        if isinstance(awaited, Ticket):
            awaited.abandon()
        plan = self._plans.pop(key, None)
        if plan is not None:
            plan.close()

    def _forward(self) -> None:
        """Run one forward pass for the sessions that the scheduler picks, and hand each its result."""
        began = self._clock()
        if self._forward_ended is not None:
            self.load.between.add(began - self._forward_ended)
        picked = self.scheduler.pick(list(self._waiting.values()), began, len(self._sessions))
        staged: list[tuple[WaitingSession, Staged]] = []
        share, observed = self._hint_share, 0
        allowed = 0 if share is None else share.allowed(len(picked))
        for waiting in picked:
            part = waiting.part
            if part.observer is not None and share is not None:
                observer = share.timed(part.observer) if observed < allowed else None
                observed += observer is not None
                part = replace(part, observer=observer)
            try:
                staged.append((waiting, stage(part)))
            except Exception as error:  # this session's own fault, found before any state has changed
                self._settle(waiting, error)
        if not staged:
            return
        for waiting, _ in staged:
            waiting.work.waited_s += began - waiting.since_s
            waiting.work.batch = max(waiting.work.batch, len(staged))
        results = self._run(staged)
        ended = self._forward_ended = self._clock()
        self.scheduler.ran([waiting for waiting, _ in staged], ended - began)
        if share is not None:
            share.ran(ended - began, observed)
        self.load.ran(len(staged), sum(one.segment.rows for _, one in staged), ended - began)
        for (waiting, _), result in zip(staged, results, strict=True):
            if result is _LATER:
                waiting.work.waited_s -= began - waiting.since_s
                continue
            settling = self._clock()
            waiting.work.waited_s += settling - ended  # time that earlier sessions' replies took
            if waiting.work.trace is not None:
                waiting.work.trace.forward(began, ended, len(staged))
            self._settle(waiting, result)

    def _run(self, staged: list[tuple[WaitingSession, Staged]]) -> list[Tensor | Exception]:
        """The logits or the error of each. If a shared forward pass fails, each session is run alone."""
        try:
            logits = forward_together([one for _, one in staged])
            if self._beside is not None:  # while the GPU is busy, send hints as they get ready
                self._beside.finish()
            return _sound(logits)
        except NoRoom as error:
            half = len(staged) // 2
            return [*self._run(staged[:half]), *[_LATER] * (len(staged) - half)] if half else [error]
        except Exception as error:
            if self._beside is not None:
                self._beside.forget()
            self.load.failed += 1
            if len(staged) == 1:
                return [error]
            self._environment.log.warning("forward_failed", sessions=len(staged), error=type(error).__name__)
        return [result for one in staged for result in self._run([one])]

    def _settle(self, waiting: WaitingSession, result: Tensor | Exception) -> None:
        """Hand a session the result of its part of a forward pass."""
        work = waiting.work
        del self._waiting[work.key]
        if isinstance(result, Exception):
            self._resume(work, self._plans[work.key], result)
        elif (left := waiting.after(result, self._clock())) is not None:
            self._waiting[work.key] = left
        else:
            self._resume(work, self._plans[work.key], waiting.whole(result))


def own_engine(policy: Policy, models: Models, kv_bytes: int = 1 << 62, shared_bytes: int = 0) -> MakeEngine:
    """A factory of this engine, for a server."""
    return lambda environment: Engine(models, environment, Scheduler(policy), kv_bytes, shared_bytes)


def _sound(logits: list[Tensor]) -> list[Tensor | Exception]:
    """The logits of each session, or an error where they are not finite. The device is synchronised once for all.

    NaNs propagate: to every logit of a row and to every row that attends to it, so the last row shows them.
    """
    known = [is_sound(rows) for rows in logits]
    if None not in known:
        good = [0.0 if one else math.nan for one in known]
    elif len(logits) == 1:
        good = [float(logits[0][-1, 0])]
    else:
        good = torch.stack([rows[-1, 0] for rows in logits]).tolist()
    broken = ModelError("the model's logits are NaN or infinite: try dtype float32, or check the weights")
    return [rows if math.isfinite(one) else broken for rows, one in zip(logits, good, strict=True)]
