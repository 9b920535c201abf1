# SPDX-License-Identifier: Apache-2.0
"""Serving: build a verifier from its configuration and run it, with its signal handlers and metrics."""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import TextIO

from cloud_verifier.config import LOOKUP, ServerConfig
from cloud_verifier.engine.engine import own_engine
from cloud_verifier.engine.memory import SHARE, check_room_for, free_bytes, left_in_container
from cloud_verifier.engine.prompts import shared_bytes
from cloud_verifier.engine.work import Models
from cloud_verifier.errors import VerifierError
from cloud_verifier.loading import (
    check_pair,
    forwards_are_quick,
    load_hint_maker,
    warm_up,
)
from cloud_verifier.logs import EventLog, pass_on_warnings
from cloud_verifier.net.server import Server, check_can_listen
from cloud_verifier.observing.counts import SLOW_S, STUCK_S
from cloud_verifier.observing.http import StatusServer, check_can_serve
from cloud_verifier.observing.metrics import VerifierCollector, render
from cloud_verifier.security.keyring import Keyring
from specdec.isolation.workers import Launcher
from specdec.models import GgufOptions, LoadedModel, load_draft, load_model
from specdec.models.threads import check_threads, set_threads
from specdec.models.timing.pacing import pace
from specdec.models.timing.row_times import paced_row_times, time_rows
from specdec.sampling.disturbed import Disturbance
from specdec.signals import unless_ignored
from specdec.tracing import Tracing, tracing_from_environment


def serve(config: ServerConfig, log_stream: TextIO | None = None) -> int:
    """Load the model and serve until SIGTERM, after which running answers may finish, or SIGINT, or SIGHUP (terminal
    closed; under nohup it stays ignored).

    Must run in the main thread: it handles signals.

    Args:
        config: All settings of the verifier.
        log_stream: Where JSON log lines go; None: stderr.

    Returns:
        The exit code 0.

    Raises:
        VerifierError: One line: the verifier cannot serve, or its engine failed for good.
        ModelError: One line: the model cannot be used.
        OptionsError: One line: a setting does not fit this machine or the model.
        VerdictLogError: One line: the verdict log cannot be written.
    """
    check_threads(config.threads)
    log = EventLog(log_stream or sys.stderr, contents=config.log_contents)
    # What cannot be used is reported before a large model is loaded.
    check_can_listen(config.bind)
    if config.metrics:
        check_can_serve(config.metrics)
    if config.keys:
        Keyring(config.keys, log)
    tracing = tracing_from_environment("specnav-verifier")
    if tracing is not None:
        pass_on_warnings("opentelemetry", log)
    log.info("loading", model=config.model, quantize=config.quantize, engine=config.engine)
    launcher = Launcher()
    make_server = _server_on_vllm if config.engine == "vllm" else _own_server
    server, grammars = make_server(config, log, tracing, launcher)
    settle_memory()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            server.drain()
        else:
            server.stop()

    for number in unless_ignored((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
        signal.signal(number, on_signal)
    launcher.end_in_time(config.drain_s)
    launcher.warm_up(grammars)
    # The socket thread must get the interpreter quickly even during a forward pass: heartbeats and verdicts go
    # through it.
    sys.setswitchinterval(0.0005)
    with ExitStack() as stack:
        if config.metrics:
            status = open_status(config.metrics, server, lambda: launcher.wrong(time.monotonic()))
            stack.callback(status.close)
            log.info("metrics", bind=status.bind)
        server.run()
    if server.failed:
        raise VerifierError(server.failed)
    return 0


def _own_server(
    config: ServerConfig, log: EventLog, tracing: Tracing | None, launcher: Launcher
) -> tuple[Server, Callable[[], int]]:
    """A server on our own engine (torch or llama.cpp), and a call that prepares its vocabulary for grammars."""
    device, dtype, quantize, pixels = config.device, config.dtype, config.quantize, config.pixels
    check_room_for(config.model, left_in_container())
    if config.engine == "llamacpp":
        from cloud_verifier.engine_llamacpp.target import load_target

        model: LoadedModel = load_target(config, log)
    else:
        model = load_model(config.model, device, dtype, quantize, pixels, config.deterministic, config.compile)
    draft_model = None
    if config.draft_model and config.draft_model != LOOKUP:
        gguf = GgufOptions.read(config.gguf)
        draft_model = load_draft(
            config.draft_model, device, dtype, quantize, pixels, gguf=gguf, compile=config.compile
        )
        check_pair(draft_model, model)
        draft_model.disturbance = Disturbance.read(config.draft_disturbed)
    grammars = model.isolate(launcher)
    if draft_model is not None:
        draft_model.isolate(launcher)
        draft_model.grammars = model.grammars  # both have the same vocabulary
    hint_maker = load_hint_maker(config, model, log)
    set_threads(config.threads, model)
    inline = forwards_are_quick(config, model)
    kv_bytes = model.cache_bytes or int(config.kv_gb * 2**30) or int(SHARE * free_bytes(model.device))
    shared = shared_of(config, kv_bytes, model)
    models = Models(model, draft_model, hint_maker, looks_up=config.draft_model == LOOKUP)
    make_engine = own_engine(config.policy, models, kv_bytes, shared)
    server = Server(config, model, log, make_engine, inline=inline, tracing=tracing)
    for loaded in (model, draft_model):
        if loaded is not None:
            warm_up(loaded)
    row_us = time_rows(model, config.verify_ms)
    pace(model, config.verify_ms)
    draft_us = 0
    if draft_model is not None:
        pace(draft_model, config.draft_ms)
        draft_us = paced_row_times(draft_model)[0][1]
    server.tell_prices(row_us, draft_us)
    return server, grammars.vocabulary


def _server_on_vllm(
    config: ServerConfig, log: EventLog, tracing: Tracing | None, launcher: Launcher
) -> tuple[Server, Callable[[], int]]:
    """A server on vLLM, and a call that prepares its vocabulary for grammars. vLLM is imported only from here."""
    from cloud_verifier.engine_vllm.starting import start

    target, make_engine = start(config, log)
    grammars = target.isolate(launcher)
    return Server(config, target, log, make_engine, tracing=tracing), grammars.vocabulary


def shared_of(config: ServerConfig, kv_bytes: int, model: LoadedModel) -> int:
    """Bytes of prompts and pictures that are kept for future sessions."""
    if config.share == "none":
        return 0
    told = int(config.shared_mb * 2**20)
    return min(told, kv_bytes) if told else shared_bytes(kv_bytes, model.runner.kv_bytes_a_token)


def open_status(bind: str, server: Server, workers_wrong: Callable[[], str] = lambda: "") -> StatusServer:
    """Serve metrics and health of a server over HTTP. workers_wrong: see `Launcher.wrong`.

    Raises VerifierError if the address cannot be used.
    """
    collector = VerifierCollector(server)
    return StatusServer(
        bind,
        lambda: render(collector),
        healthy=lambda: server.late(STUCK_S) or workers_wrong(),
        ready=lambda: (
            "the verifier is draining" if server.draining else server.late(SLOW_S) or workers_wrong()
        ),
    )


def settle_memory() -> None:
    """Exclude everything loaded so far from garbage collection: a full pass in the middle of an answer takes long."""
    gc.collect()
    gc.freeze()
    # Collect once more: a full pass is delayed until new objects reach a quarter of those that the last full pass saw.
    gc.collect()
