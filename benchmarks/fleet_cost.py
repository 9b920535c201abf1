# SPDX-License-Identifier: Apache-2.0
"""What a fleet costs an edge: the same questions to the same verifier, directly and through the fleet's directory.

    python -m benchmarks.fleet_cost [--answers 100] [--method sd] [--out FILE.json]

One replica of the text pair's target runs in its own Ray cluster. Two decoders take turns, one connected to the
replica's address and one to fleet://, so that any other load on the machine affects both alike. Answers are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from cloud_verifier.serving import settle_memory
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.models import chat_prompt, load_model
from specdec.models.threads import set_threads
from specdec.options import GenerationOptions
from specnav.paths import DEFAULT_TEXT_DRAFT
from tests.stress.soak_fleet import fleet_of

ASKED = ("hello", "what is a dog?", "1 + 1 =", "Tell me a story about a ship that lost its way.")
WARM = 8


def main() -> int:
    """Measure; returns the exit code, 1 if any answers differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--answers", type=int, default=100, help="answers of each of the two")
    parser.add_argument("--method", default="sd")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    given = parser.parse_args()
    draft = load_model(str(DEFAULT_TEXT_DRAFT))
    set_threads(0, draft)
    settle_memory()
    options = GenerationOptions(max_new_tokens=given.tokens)
    prompts = [chat_prompt(draft, text) for text in ASKED]
    took: dict[str, list[float]] = {"direct": [], "fleet": []}
    first: dict[str, list[float]] = {"direct": [], "fleet": []}
    differ = 0
    state = Path(tempfile.mkdtemp(prefix="fleet-cost-"))
    with fleet_of(1, 0.0, state) as (ray, actor, address):
        replica = ray.get(actor.status.remote()).replicas[0].report.address
        with connect(replica, reply_timeout_s=30) as direct, connect(address, reply_timeout_s=30) as by_fleet:
            decoders = {
                "direct": EdgeDecoder(direct, draft, given.method),
                "fleet": EdgeDecoder(by_fleet, draft, given.method),
            }
            for number in range(given.answers + WARM):
                prompt, said = prompts[number % len(prompts)], {}
                order = sorted(decoders, reverse=bool(number % 2))
                for name in order:
                    began = time.perf_counter()
                    said[name] = [token for chunk in decoders[name].generate(prompt, options) for token in chunk]
                    if number >= WARM:
                        took[name].append(time.perf_counter() - began)
                        first[name].append(decoders[name].stats.ttft_ms)
                differ += said["direct"] != said["fleet"]
    ratios = [b / a for a, b in zip(took["direct"], took["fleet"], strict=True)]
    result = {
        "method": given.method,
        "answers": given.answers,
        "different": differ,
        "median_answer_ms": {name: 1e3 * statistics.median(values) for name, values in took.items()},
        "median_first_token_ms": {name: statistics.median(values) for name, values in first.items()},
        "median_of_paired_ratios": statistics.median(ratios),
        "quartiles_of_paired_ratios": statistics.quantiles(ratios, n=4),
    }
    print(json.dumps(result, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
