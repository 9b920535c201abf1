# SPDX-License-Identifier: Apache-2.0
"""The engine owns every answer in progress and runs their plans in one thread, many of them in one forward pass.

It takes tasks from a queue and hands replies to an outbox, and takes in new tasks between two forward passes. The
scheduler chooses which of the ready sessions' rows share a forward pass. A failure of one session ends only that
session. The engine uses no sockets; time comes from the clock it is given.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cloud_verifier.engine.hints import HintShare
from cloud_verifier.engine.interface import Capabilities, EngineEnvironment, MakeEngine, failure_of
from cloud_verifier.engine.memory import KvBudget
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.prompts import Continuation, PreparedTask, Prompts, Request
from cloud_verifier.engine.scheduler import Scheduler, WaitingSession
from cloud_verifier.engine.tasks import (
    CloseTask,
    OpenTask,
    PauseTask,
    SessionKey,
    SessionTask,
    StopTask,
    Task,
    arrivals,
)
from cloud_verifier.engine.work import EngineContext, Models, SessionWork
from cloud_verifier.observing.counts import BEAT_S, EngineLoad
from specdec.errors import ModelError, NoRoom
from specdec.isolation.accounts import Accounts, charged
from specdec.isolation.workers import Ticket
from specdec.link.wire import ERROR_INTERNAL, Down, ErrorDown
from specdec.models.loaded import record_forwards
from specdec.models.plans import AwaitedWorker, Extension, Plan, Prepared, Staged, forward_together, stage
from specdec.row_ms import RowMs
from specdec.sampling.choice import is_sound

OPENING_S = 0.002
"""Time for starting new sessions between two forward passes; at least one is always started."""


_LATER = NoRoom("a session's rows wait until other sessions have released the memory of their forward pass")


class Engine:
    """Runs forward passes: `run()` in its own thread until stop(), or `work_off()` in a thread with other duties."""

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
        self._outbox = environment.outbox
        self._log = environment.log
        self._clock = clock
        self._wake = environment.wake
        self.load = EngineLoad(clock())
        self._row_ms: RowMs | None = None
        self._context = EngineContext(models, environment, self._reply, clock, self.load, self._admit, self._price_s)
        self._on_out = environment.on_out
        self._paused: set[bytes] = set()
        self._beside = None if hint_maker is None else hint_maker.beside
        self._hint_share = None if hint_maker is None else HintShare(clock, self.load.hints)
        self._models = [one for one in (models.target, models.draft_model) if one is not None]
        self.prompts = Prompts(
            shared_bytes, self._arrive, lambda one: self._plans.get(one.work.key) is one.plan
        )
        a_token = sum(each.runner.kv_bytes_a_token for each in self._models)
        self.budget = KvBudget(kv_bytes, a_token, self.prompts.store.leave)
        self._starved: list[SessionWork] = []
        self._awaited: dict[SessionKey, Future[Any]] = {}
        self.accounts = Accounts()
        self.scheduler = scheduler or Scheduler()
        self._arriving: queue.SimpleQueue[Task | PreparedTask] = queue.SimpleQueue()
        self._works: dict[SessionKey, SessionWork] = {}
        self._plans: dict[SessionKey, Plan[None]] = {}
        self._waiting: dict[SessionKey, WaitingSession] = {}
        self._opened = 0
        self._forward_ended: float | None = None
        self._unbegun: dict[SessionKey, SessionWork] = {}
        self._stopping = False
        self._beats = environment.beats
        self.prompts.pictures.beats = self._beats

    def tell_prices(self, row_us: Sequence[tuple[int, int]]) -> None:
        """Set how long forward passes take, as (rows, microseconds) pairs."""
        self._row_ms = RowMs(tuple((rows, us / 1e3) for rows, us in row_us)) if row_us else None

    def _price_s(self, rows: int) -> float | None:
        return None if self._row_ms is None else self._row_ms.for_rows(rows) / 1e3

    def submit(self, task: Task) -> None:
        """Hand over a task, from any thread."""
        self._arriving.put(task)

    def stop(self) -> None:
        """Stop after the current forward pass; from any thread."""
        self._stopping = True
        self._arriving.put(StopTask())
        self.prompts.close()

    def run(self) -> None:
        """Work until stop()."""
        with torch.inference_mode():
            for model in self._models:
                record_forwards(model)
            while not self._stopping:
                self._beats.mark("engine")
                if not self._waiting and not self._unbegun:
                    self._forward_ended = None  # nothing waits
                    try:
                        first = self._arriving.get(timeout=BEAT_S)
                    except queue.Empty:
                        continue
                    self._take_arrivals(first)
                self._work_off()
        self._beats.end("engine")

    @torch.inference_mode()
    def work_off(self) -> None:
        """Take in new tasks, and run one forward pass if any session needs one."""
        self._work_off()

    def _work_off(self) -> None:
        try:
            self._take_arrivals()
            self._begin_some()
            if self._waiting and not self._stopping:
                self._forward()
            for task in self.prompts.free():
                self._take_prepared(task)
        except Exception as error:  # not one session's fault: nobody can tell which answers are sound
            self._log.error("engine_failed", sessions=len(self._works), traceback=self._log.trace_of(error))
            for key in list(self._works):
                self._end(
                    key,
                    ERROR_INTERNAL,
                    f"the verifier failed ({type(error).__name__}): open the session again",
                )

    def _take_arrivals(self, first: Task | PreparedTask | None = None) -> None:
        prepared, arrived, dropped = arrivals(self._arriving, PreparedTask, first)
        for one in prepared:
            self._take_prepared(one)
        for task in dropped:
            self._on_out(task)
        for task in arrived:
            self._take(task)

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
        self._arriving.put(task)
        self._wake()

    def _resume(self, work: SessionWork, plan: Plan[None], result: Any) -> None:
        """Continue a plan, and start the session's next one if it ends."""
        if self._go_on(work, plan, result):
            self._begin(work)

    @property
    def idle(self) -> bool:
        """True if no session waits for a forward pass and no task is queued."""
        return not self._waiting and not self._unbegun and self._arriving.empty()

    def kv_admitted(self) -> dict[SessionKey, int]:
        """Bytes of KV cache that each session may come to hold; from any thread."""
        return self.budget.admitted.copy()

    def gauges(self) -> dict[str, float]:
        """Current values for the metrics; from any thread."""
        return self.budget.gauges() | {"shared_bytes": self.prompts.store.bytes}

    def counters(self) -> dict[str, float]:
        """Counters for the metrics; from any thread."""
        return {"kv_evictions": self.budget.evictions}

    def _reply(self, key: SessionKey, message: Down) -> None:
        self._outbox(key, message, False)

    def _take(self, task: Task) -> None:
        if isinstance(task, SessionTask):
            work = self._works.get(task.key)
            if work is None:  # closed meanwhile
                self._on_out(task)
                return
            work.tasks.put(task)
            if task.key not in self._plans and task.key not in self._unbegun:
                self._begin(work)
            return
        if isinstance(task, CloseTask):
            self._on_out(task)
            self._forget(task.key)
        elif isinstance(task, OpenTask):
            self._forget(task.key)
            self._opened += 1
            work = SessionWork(self._context, task, self._opened, task.rank)
            self._works[task.key] = self._unbegun[task.key] = work
        elif isinstance(task, PauseTask):
            self._on_out(task)
            self._pause(task.key[0], task.paused)

    def _pause(self, client: bytes, paused: bool) -> None:
        """A client stopped reading, or reads again: meanwhile its sessions are not decoded without drafts."""
        if paused:
            self._paused.add(client)
            return
        self._paused.discard(client)
        for key, work in list(self._works.items()):
            if key[0] == client and key not in self._plans and key not in self._unbegun:
                self._begin(work)

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
                if not self._make_room(work.key, self.budget.needed(work.tokens, work.prompt_bytes)):
                    self._starved.append(work)  # until another session ends or has nothing to do
                    return
                work.evicted = False
                self.load.restored += 1
                work.use.log.info("restored")
            plan = work.next_plan()
            if plan is None:
                break
            self._plans[work.key] = plan
            if not self._go_on(work, plan, None):
                return
        self._feed_the_starved()

    def _feed_the_starved(self) -> None:
        """Retry the sessions that wait for KV room: a session has ended or become idle."""
        starved, self._starved = self._starved, []
        for work in starved:
            if self._works.get(work.key) is work:
                self._begin(work)

    def _admit(self, work: SessionWork, tokens: int) -> None:
        if not self._make_room(work.key, self.budget.needed(tokens, work.prompt_bytes)):
            raise self.budget.exhausted()

    def _make_room(self, key: SessionKey, needed: int) -> bool:
        """Take KV budget for a session, evicting idle sessions if necessary. needed: bytes. False without room."""
        if not self.budget.fits(needed):
            for other, work in list(self._works.items()):  # the session that has been idle longest comes first
                rests = other != key and other not in self._plans and not work.has_work
                if rests and other in self.budget.admitted and work.evict():
                    self.budget.give_back(other)
                    self.budget.evictions += 1
                    work.use.log.info("evicted", tokens=work.tokens)
                    if self.budget.fits(needed):
                        break
            else:
                return False
        self.budget.take(key, needed)
        return True

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
                result = self.prompts.prepare(Request(work, plan, need), account)
                if result is None:
                    return False
        except StopIteration:
            self.prompts.ended(work)
            del self._plans[work.key]
            self._works[work.key] = self._works.pop(work.key)  # now the most recently idle one
            return True
        except Exception as error:  # one session's fault must not end the others'
            self._end(work.key, *failure_of(error, work.use))
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

    def _end(self, key: SessionKey, code: str, reason: str) -> None:
        if key in self._works:
            self._works[key].use.ended_with(code)
        self._forget(key)
        self._outbox(key, ErrorDown(key[1], code, reason[:1900]), True)

    def _forget(self, key: SessionKey) -> None:
        work = self._works.pop(key, None)
        self._unbegun.pop(key, None)
        if work is not None:
            work.ended()
            self.prompts.ended(work)
        for task in work.tasks.drop() if work is not None else ():
            self._on_out(task)
        self._waiting.pop(key, None)
        awaited = self._awaited.pop(key, None)
        if isinstance(awaited, Ticket):
            awaited.abandon()
        self.budget.give_back(key)
        plan = self._plans.pop(key, None)
        if plan is not None:
            plan.close()
        if self._starved:
            self._feed_the_starved()

    def _forward(self) -> None:
        """Run one forward pass for the sessions that the scheduler picks, and hand each its result."""
        began = self._clock()
        if self._forward_ended is not None:
            self.load.between.add(began - self._forward_ended)
        picked = self.scheduler.pick(list(self._waiting.values()), began, len(self._works))
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
            self._log.warning("forward_failed", sessions=len(staged), error=type(error).__name__)
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
