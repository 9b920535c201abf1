# SPDX-License-Identifier: Apache-2.0
"""Time of a round of many sessions at once on one engine, within this process.

    python -m benchmarks.engine_rounds --engine NAME

Each session sends a draft of γ tokens, some right and some partly wrong; a round ends with the last verdict. Prints the
median round times, and one JSON line at the end. Run it once in the environment of each engine, one after the other, on
a quiet machine: the ratios are what matters. llamacpp takes a GGUF file or a folder with one. With other sessions
beside it, a quantised target may pick another token at a near-tie: such a verdict ends a measurement early and is
counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from io import StringIO
from pathlib import Path

import torch

from cloud_verifier.config import ServerConfig
from cloud_verifier.engine.interface import AnyEngine, EngineEnvironment
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.tasks import CloseTask, OpenTask, SessionKey, SessionTask
from cloud_verifier.logs import EventLog
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import Down, DraftUp, Open, Opened, VerdictDown
from specdec.models import LoadedModel, Prompt, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions

ROOT = Path(__file__).resolve().parent.parent
TOKENS = 64
PROMPT = 48
WARM_UP = 2
CACHE_BYTES = 1 << 30


class EngineCloud:
    """An engine and its last message to each session."""

    def __init__(self, name: str, model: LoadedModel) -> None:
        self.last: dict[SessionKey, Down] = {}
        self.may_flip, self.flips = name == "llamacpp", 0
        around = EngineEnvironment(
            lambda key, message, over: self.last.update({key: message}), EventLog(StringIO())
        )
        self.engine: AnyEngine = _vllm(model, around) if name == "vllm" else _own(model, around)

    def work(self) -> None:
        """Let the engine work until nothing is waiting."""
        while not self.engine.idle:
            self.engine.work_off()


def _own(model: LoadedModel, around: EngineEnvironment) -> AnyEngine:
    from cloud_verifier.engine.engine import own_engine
    from cloud_verifier.engine.work import Models

    return own_engine(Policy(), Models(model), kv_bytes=model.cache_bytes or CACHE_BYTES)(around)


def _llamacpp(path: str, threads: int) -> LoadedModel:
    from cloud_verifier.engine_llamacpp.target import load_target

    config = ServerConfig(path, engine="llamacpp", threads=threads, kv_gb=0.25, max_sessions=64)
    return load_target(config, EventLog(StringIO()))


def _vllm(model: LoadedModel, around: EngineEnvironment) -> AnyEngine:
    from cloud_verifier.engine_vllm.core import CoreSettings, VllmCore
    from cloud_verifier.engine_vllm.engine import VllmEngine
    from cloud_verifier.engine_vllm.target import VllmTarget

    target = VllmTarget(model.path)
    return VllmEngine(VllmCore(target, CoreSettings(CACHE_BYTES)), target, around)


def rounds_ms(
    cloud: EngineCloud,
    prompts: list[Prompt],
    answers: list[list[int]],
    options: GenerationOptions,
    gamma: int,
) -> list[float]:
    """Milliseconds of each round of all sessions together. Raises SystemExit at a wrong verdict (see the module)."""
    keys = [(b"edge", number) for number in range(1, len(prompts) + 1)]
    for key, prompt in zip(keys, prompts, strict=True):
        message = Open(key[1], False, sampling_to_wire(options), list(prompt.ids))
        cloud.engine.submit(OpenTask(key, message, time.perf_counter()))
    cloud.work()
    for key in keys:
        if not isinstance(cloud.last[key], Opened):
            raise SystemExit(f"not opened: {cloud.last[key]}")
    at, epochs = dict.fromkeys(keys, 1), dict.fromkeys(keys, 0)
    times = []
    number, ended = 0, False
    while not ended and all(at[key] + gamma + 1 < len(answer) for key, answer in zip(keys, answers, strict=True)):
        number += 1
        drafts = {}
        for key, answer in zip(keys, answers, strict=True):
            ids = answer[at[key] : at[key] + gamma]
            stays = (number + key[1]) % (gamma + 1)  # how much of the draft is right: from none to all
            if stays < gamma:
                ids = [*ids[:stays], (ids[stays] + 1) % 200, *ids[stays + 1 :]]
            drafts[key] = ids, stays
        began = time.perf_counter()
        for key, (ids, _) in drafts.items():
            cloud.engine.submit(
                SessionTask(key, DraftUp(key[1], number, at[key], ids, epoch=epochs[key]), began)
            )
        cloud.work()
        times.append((time.perf_counter() - began) * 1e3)
        for key, answer in zip(keys, answers, strict=True):
            verdict, (ids, stays) = cloud.last[key], drafts[key]
            if (
                not isinstance(verdict, VerdictDown)
                or verdict.last != stays
                or verdict.token != answer[at[key] + stays]
            ):
                if not cloud.may_flip or not isinstance(verdict, VerdictDown):
                    raise SystemExit(f"a wrong verdict: {verdict}")
                cloud.flips, ended = cloud.flips + 1, True
            epochs[key] += stays < len(ids)
            at[key] += stays + 1
    for key in keys:
        cloud.engine.submit(CloseTask(key))
    cloud.work()
    return times[WARM_UP:]


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="own", choices=("own", "vllm", "llamacpp"))
    parser.add_argument("--model", default=str(ROOT / "default_models" / "text-target"))
    parser.add_argument("--sessions", default="1,4,8,16,32")
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    options = GenerationOptions(TOKENS, given.temperature, seed=1)
    on_llamacpp = given.engine == "llamacpp"
    model = _llamacpp(given.model, given.threads) if on_llamacpp else load_model(given.model)
    counts = [int(word) for word in given.sessions.split(",")]
    prompts = [
        Prompt(tuple(300 + (7 * number + place * place) % 500 for place in range(PROMPT)))
        for number in range(max(counts))
    ]
    answers = [generate_local(model, prompt, options) for prompt in prompts]
    long = [number for number, answer in enumerate(answers) if len(answer) == TOKENS]
    prompts, answers = [prompts[one] for one in long], [answers[one] for one in long]
    cloud = EngineCloud(given.engine, model)
    found = {}
    for count in counts:
        several = (
            [prompts[one % len(prompts)] for one in range(count)],
            [answers[one % len(answers)] for one in range(count)],
        )
        times = [one for _ in range(given.repeat) for one in rounds_ms(cloud, *several, options, given.gamma)]
        found[count] = round(statistics.median(times), 2)
        print(
            f"{given.engine} {count:3d} sessions: {found[count]:7.2f} ms a round, median of {len(times)}"
            + (f", {cloud.flips} verdicts differed so far" if cloud.flips else ""),
            flush=True,
        )
    print(json.dumps({"engine": given.engine, "temperature": given.temperature, "round_ms": found}))


if __name__ == "__main__":
    main()
