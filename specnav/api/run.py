# SPDX-License-Identifier: Apache-2.0
"""`specnav api`: load the draft model, check that the verifier is reachable, and serve until SIGINT or SIGTERM."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from specnav.api.config import ApiConfig
from specnav.errors import UsageError
from specnav.paths import DEFAULT_TEXT_DRAFT
from specnav.published.pairs import LOOKUP_METHOD, pair_named

INSTALL = "pip install 'specnav[api]'"
FILES_PER_ANSWER = 8
"""Descriptors used by an edge's link to the verifier."""


def make_key(path: Path | None, name: str) -> int:
    """Print a new key, once, and store its hash; returns the exit code. Raises UsageError."""
    from specnav.api.keys import new_key

    if path is None:
        raise UsageError("--new-key needs a file to store the key's hash in: give --api-keys FILE")
    print(new_key(path, name))
    print(f"{name}'s key is stored nowhere: copy it now; {path} holds only its hash", file=sys.stderr)
    return 0


def check_packages() -> None:
    """Raise UsageError if packages that only this command needs are missing."""
    missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UsageError(f"specnav api needs {' and '.join(missing)}: {INSTALL}")


def draft_of(config: ApiConfig) -> tuple[str, ApiConfig]:
    """The draft model to load, and the adapted config. If a pair has no draft, its target is loaded for the tokenizer,
    and the method is one that needs no draft model.

    Raises UsageError.
    """
    if config.draft_model is not None or config.pair is None:
        return config.draft_model or str(DEFAULT_TEXT_DRAFT), config
    pair = pair_named(config.pair)
    if pair.draft:
        return pair.draft, config
    print(f"specnav: {pair.tells_no_draft(f'{LOOKUP_METHOD} drafts')}", file=sys.stderr)
    return pair.target, replace(config, method=LOOKUP_METHOD)


def run_api(config: ApiConfig) -> int:
    """Serve; returns the exit code 0. Must run in the main thread. Raises UsageError or a SpecdecError."""
    check_packages()
    from cloud_verifier.logs import EventLog, pass_on_warnings
    from specdec.errors import OptionsError
    from specdec.link.keys import read_key
    from specdec.methods import get_method
    from specnav.api.keys import ApiKeys
    from specnav.api.server import address_of, listen

    # Check the flags before a large model is loaded.
    log = EventLog(sys.stderr, contents=config.log_contents)
    keys = None if config.api_keys is None else ApiKeys(config.api_keys, log)
    if config.key is not None:
        read_key(config.key)
    if get_method(config.method).split:
        raise OptionsError(
            f"method {config.method!r} runs layers of the target on the edge: choose another method"
        )
    listening = listen(config.bind)
    with listening:
        from cloud_verifier.loading import warm_up
        from cloud_verifier.serving import settle_memory
        from specdec.drafting.joint import join_forwards
        from specdec.errors import LinkLost
        from specdec.isolation.workers import Launcher
        from specdec.models import GgufOptions, load_draft
        from specdec.models.threads import set_threads
        from specdec.models.timing.pacing import pace
        from specnav.api.app import Routes
        from specnav.api.counters import Counters
        from specnav.api.edge_pool import EdgePool
        from specnav.api.request_queue import RequestQueue
        from specnav.api.server import ApiServer

        for name in ("specdec", "uvicorn"):  # uvicorn's tracebacks could quote prompts
            pass_on_warnings(name, log)
        name, config = draft_of(config)
        log.info("loading", draft_model=name)
        gguf = GgufOptions.read(config.gguf)
        draft = load_draft(name, config.device, quantize=config.quantize, pixels=config.pixels, gguf=gguf)
        set_threads(0, draft)
        launcher = Launcher()
        launcher.end_in_time(config.drain_s)
        launcher.warm_up(draft.isolate(launcher).vocabulary)
        warm_up(draft)
        pace(draft, config.draft_ms)
        joint = join_forwards(draft, config.together)
        pool = EdgePool(config, draft, log)
        queue = RequestQueue(config.answers, config.queue)
        counters = Counters(joint, lambda: queue.busy, lambda: queue.waiting)
        try:
            pool.knock()
        except LinkLost as error:
            log.warning("verifier_unreachable", reason=str(error))
        settle_memory()
        # Answer threads and the sending thread take turns: in the default 5 ms others could make several tokens.
        sys.setswitchinterval(0.0005)
        bound = address_of(listening)

        def ready() -> None:
            launcher.hear_signals()
            log.info("ready", bind=bound, model=pool.name, method=config.method)

        server = ApiServer(
            Routes(config, pool, queue, keys, counters, log, lambda: launcher.wrong(time.monotonic())).app(),
            config.drain_s,
            ready=ready,
            drain=queue.close,
            stop=pool.cancel_all,
            own_files=64 + FILES_PER_ANSWER * config.answers,
        )
        try:
            server.run([listening])
        finally:
            pool.close()
        log.info("stopped")
    return 0
