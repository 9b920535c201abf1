# SPDX-License-Identifier: Apache-2.0
"""The time of a draft token on each engine that can draft, and the time of llama.cpp itself without our layer.

The model is a Qwen2 with the shape of the published 0.5 B one and random weights, made here in every number type. Speed
does not depend on the weights' values, so random ones serve as well as the published ones. Each engine is measured in a
process of its own. Needs `make setup-gguf`, 8 GB of memory and, temporarily, as much disk space.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SHAPE = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
TOKENS = 151_643
ENGINES = {
    "torch float32": ("torch", "float32", "none"),
    "torch bfloat16": ("torch", "bfloat16", "none"),
    "bitsandbytes 8 bit": ("torch", "float32", "8bit"),
    "bitsandbytes 4 bit": ("torch", "float32", "4bit"),
    "gguf f16": ("gguf", "f16", ""),
    "gguf q8_0": ("gguf", "q8_0", ""),
    "gguf q4_0": ("gguf", "q4_0", ""),
}
ROWS = (1, 2, 4, 8, 16)
CONTEXT = 113


def make_folder(folder: Path) -> None:
    """Make a model folder with as many tokens as the published one."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"t{number}" for number in range(TOKENS - len(alphabet)))]
    tokenizer = Tokenizer(models.BPE(vocab={word: place for place, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    config = Qwen2Config(**SHAPE, vocab_size=151_936, eos_token_id=fast.eos_token_id, bos_token_id=None)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = fast.eos_token_id
    model.save_pretrained(folder)
    fast.save_pretrained(folder)


def measure(engine: str, folder: Path, threads: int, seconds: float) -> dict[str, Any]:
    """Measure in this process: milliseconds of a forward by its rows, and of llama.cpp itself for one row."""
    import torch

    from specdec.models import GgufOptions, load_draft
    from specnav.bench.runner.forwards import time_rows_of

    torch.set_num_threads(threads)
    backend, kind, quantize = ENGINES[engine]
    if backend == "gguf":
        model = load_draft(folder / f"{kind}.gguf", gguf=GgufOptions(threads=threads))
    else:
        model = load_draft(folder, "cpu", kind, quantize)
    found: dict[str, Any] = {"ms": time_rows_of(model, ROWS, CONTEXT, seconds)}
    if backend == "gguf":
        found["own_ms"] = own_time(model, seconds / 2)
    return found


def own_time(model: Any, budget_s: float) -> float:
    """Milliseconds of llama.cpp's call alone, for one row after CONTEXT tokens."""
    decoder = model.runner.decoder
    library, taken = decoder._library, []

    class Timed:
        def __getattr__(self, name: str) -> Any:
            if name != "llama_decode":
                return getattr(library, name)

            def decode(context: Any, batch: Any) -> Any:
                began = time.perf_counter()
                state = library.llama_decode(context, batch)
                taken.append(time.perf_counter() - began)
                return state

            return decode

    from specdec.models import Prompt

    session = model.new_session()
    session.prefill(model.encode(Prompt(tuple(range(300, 300 + CONTEXT)))))
    decoder._library = Timed()
    until = time.monotonic() + budget_s
    while len(taken) < 8 or time.monotonic() < until:
        session.extend([301])
        session.rollback(CONTEXT)
    decoder._library = library
    return 1e3 * statistics.median(taken[1:])


def main() -> None:
    """Make the model, measure each engine, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=6.0, help="time per engine")
    parser.add_argument("--engines", default=",".join(ENGINES), help="comma-separated")
    parser.add_argument("--measure", nargs=2, metavar=("ENGINE", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure[0], Path(given.measure[1]), given.threads, given.seconds)))
        return
    names = [name.strip() for name in given.engines.split(",")]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        print(f"making a model of 494 M parameters in {folder}", file=sys.stderr)
        make_folder(folder)
        from specnav.convert.run import ConvertConfig, run_convert

        for backend, kind, _ in (ENGINES[name] for name in names):
            if backend == "gguf":
                run_convert(ConvertConfig(folder, kind, folder / f"{kind}.gguf"))
        print("| engine | " + " | ".join(f"{rows}" for rows in ROWS) + " | llama.cpp alone, 1 row |")
        print("|---|" + "---|" * (len(ROWS) + 1))
        for name in names:
            call = [sys.executable, __file__, "--threads", str(given.threads), "--seconds", str(given.seconds)]
            run = subprocess.run([*call, "--measure", name, place], capture_output=True, text=True)
            if run.returncode:
                print(f"| {name} | failed: {run.stderr.strip().splitlines()[-1][:120]} |")
                continue
            found = json.loads(run.stdout.strip().splitlines()[-1])
            own = f"{found['own_ms']:.1f}" if "own_ms" in found else ""
            print(f"| {name} | " + " | ".join(f"{ms:.1f}" for _, ms in found["ms"]) + f" | {own} |", flush=True)


if __name__ == "__main__":
    main()
