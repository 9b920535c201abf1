# SPDX-License-Identifier: Apache-2.0
"""The cost of hints: verify forwards of a chain with and without them, alternating on one engine.

    python -m benchmarks.hint_cost default_models/nav-target [--exit-layers 1,3,5] [--temperature 0.8] [--verify-ms 30]

Prints medians. Hints are made, queued and encoded as in a server; only the socket is left out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import replace
from io import StringIO

from cloud_verifier.config import ServerConfig
from cloud_verifier.engine.engine import Engine
from cloud_verifier.engine.interface import EngineEnvironment
from cloud_verifier.engine.tasks import OpenTask, SessionTask
from cloud_verifier.engine.work import Models
from cloud_verifier.loading import load_hint_maker
from cloud_verifier.logs import EventLog
from cloud_verifier.serving import settle_memory
from specdec.errors import SpecdecError
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import Down, DraftUp, HintDown, Open, VerdictDown, encode
from specdec.models import Prompt, chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.models.threads import set_threads
from specdec.models.timing.pacing import pace
from specdec.options import GenerationOptions

WITHOUT, WITH = 1, 2


def main() -> int:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(description="The cost of hints per verify forward.")
    parser.add_argument("model")
    parser.add_argument("--exits", default="")
    parser.add_argument("--exit-layers", default="auto")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--verify-ms", type=float, default=0.0)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--hints", type=int, default=8, help="at most this many a round")
    parser.add_argument("--answers", type=int, default=40, help="pairs of answers")
    given = parser.parse_args()
    try:
        model = load_model(given.model)
        config = ServerConfig(
            given.model, exits=given.exits, exit_layers=given.exit_layers, verify_ms=given.verify_ms
        )
        maker = load_hint_maker(config, model, EventLog(StringIO()))
        if maker is None:
            raise SpecdecError(f"{given.model} has no early exits: name some with --exits")
    except SpecdecError as error:
        print(f"hint_cost: error: {error}", file=sys.stderr)
        return 1
    set_threads(0, model)
    settle_memory()
    pace(model, given.verify_ms)
    said: list[Down] = []

    def outbox(_: object, message: Down, __: bool) -> None:
        encode(message)
        said.append(message)

    engine = Engine(Models(model, hint_maker=maker), EngineEnvironment(outbox, EventLog(StringIO())))
    prompt = list(chat_prompt(model, "what is to the left of the red ball, and how far is it?").ids)
    taken: dict[int, list[int]] = {WITHOUT: [], WITH: []}
    first: list[float] = []
    sent: list[int] = []
    for seed in range(given.answers):
        options = GenerationOptions(8 * (given.gamma + 1), given.temperature, seed)
        answer = generate_local(model, Prompt(tuple(prompt)), replace(options, max_new_tokens=1000))
        bases, epochs = {WITHOUT: 1, WITH: 1}, {WITHOUT: 0, WITH: 0}
        for session in (WITHOUT, WITH):
            wanted = given.hints if session == WITH else 0
            message = Open(session, False, sampling_to_wire(options), prompt, hints=wanted)
            engine.submit(OpenTask((b"", session), message, 0.0))
            engine.work_off()
        for number in range(1, 7):
            for session in (WITHOUT, WITH):
                # The target's coming tokens, with one wrong token of its own.
                ids = [answer[(bases[session] + place) % len(answer)] for place in range(given.gamma)]
                ids[(seed + number) % given.gamma] = answer[(seed + 3 * number) % len(answer)]
                draft = DraftUp(session, number, bases[session], ids, None, epochs[session])
                said.clear()
                engine.submit(SessionTask((b"", session), draft, 0.0))
                engine.work_off()
                verdict = said[-1]
                assert isinstance(verdict, VerdictDown), verdict
                bases[session] += verdict.last + 1
                epochs[session] += verdict.last < given.gamma
                taken[session].append(verdict.verify_us)
                if session == WITH:
                    hints = [hint for hint in said if isinstance(hint, HintDown)]
                    sent.append(len(hints))
                    first += [hint.at_us / verdict.verify_us for hint in hints[:1]]
    plain, hinted = (statistics.median(taken[session]) / 1e3 for session in (WITHOUT, WITH))
    print(
        f"{given.model} exits {','.join(map(str, maker.layers))} temperature {given.temperature:g}: "
        f"{plain:.2f} ms without, {hinted:.2f} ms with hints ({hinted / plain - 1:+.1%}); "
        f"{statistics.mean(sent):.1f} hints a round, the first at {statistics.median(first or [1]):.0%}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
