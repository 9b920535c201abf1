# SPDX-License-Identifier: Apache-2.0
"""How often each GGUF number type keeps a draft model's top choice.

llama.cpp on the file is compared with torch in float32 on the folder from which the file is made, after every token of
the beginning of a page of the documentation. Needs `make setup-gguf`.

    python -m benchmarks.gguf_types                                    # both shipped drafts, every type
    python -m benchmarks.gguf_types models/my-draft --tokens 400 --types q8_0,q4_0
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from specdec.errors import SpecdecError
from specdec.models import Prompt, load_model
from specdec.models.drafts import load_draft
from specdec.models.loaded import LoadedModel

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = [ROOT / "default_models/text-draft", ROOT / "default_models/nav-draft"]
TYPES = "f32,f16,bf16,q8_0,q5_1,q5_0,q4_1,q4_0"
CHUNK = 100
"""Number of tokens after which a model starts again with an empty cache."""


def main() -> int:
    """Convert, compare, print a table for each folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=SHIPPED, metavar="FOLDER", help="(the shipped drafts)")
    parser.add_argument("--tokens", type=int, default=1500, help="most tokens of text to read (1500)")
    parser.add_argument("--types", default=TYPES, help="comma-separated (all)")
    flags = parser.parse_args()
    if flags.tokens < 1:
        parser.error("--tokens is at least 1")
    try:
        for folder in flags.folders:
            report(folder, flags.types.split(","), flags.tokens)
    except SpecdecError as error:
        print(f"gguf_types: error: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(error.stderr.strip(), file=sys.stderr)
        return 1
    return 0


def report(folder: Path, types: list[str], most: int) -> None:
    """Print one folder's table. Raises SpecdecError, or CalledProcessError if the folder cannot be converted."""
    model = load_model(folder, device="cpu", dtype="float32")
    text = (ROOT / "docs" / "walk_of_a_token.md").read_text()
    ids = list(model.tokenizer(text, add_special_tokens=False)["input_ids"])[:most]
    choices = top_choices(model, ids)
    print(f"{folder.name}: {len(ids)} tokens")
    for kind in types:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "draft.gguf"
            specnav = Path(sys.executable).with_name("specnav")
            command = [specnav, "convert", "gguf", folder, "--type", kind, "--out", path]
            subprocess.run(command, check=True, capture_output=True, text=True)
            kept = (top_choices(load_draft(path), ids) == choices).float().mean()
            print(f"  {kind:5} {100 * float(kept):6.1f} %  {path.stat().st_size / 1e6:.2f} MB", flush=True)


def top_choices(model: LoadedModel, ids: list[int]) -> torch.Tensor:
    """The model's likeliest next token after each token, int64 [len(ids)]."""
    session, found = model.new_session(), []
    for place in range(0, len(ids), CHUNK):
        chunk = ids[place : place + CHUNK]
        rows = [session.prefill(model.encode(Prompt(tuple(chunk[:1]))))[None]]
        rows += [session.extend(chunk[1:])] if len(chunk) > 1 else []
        found.append(torch.cat(rows).argmax(-1))
    return torch.cat(found)


if __name__ == "__main__":
    sys.exit(main())
