# SPDX-License-Identifier: Apache-2.0
"""`specnav bench drafts --backends torch,gguf --models A,B`: compare draft models in one table and one page.

Every draft is timed, then used in bench runs without a link delay and over an emulated link.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from specdec.models import GgufOptions, load_draft
from specdec.models.gguf.files import gguf_file
from specdec.models.threads import set_threads
from specnav.bench.records.study import DraftRecord, SettingRecord, StudyResults
from specnav.bench.runner.ending import noting_the_end
from specnav.bench.runner.forwards import time_rows_of
from specnav.bench.runner.points import is_finished
from specnav.bench.runner.run import run_bench, series_folder
from specnav.bench.runner.study import keep_study, show
from specnav.bench.settings import BenchConfig, DraftsWords, make_config
from specnav.bench.studies.drafts import METHODS, ROWS, RTTS, STUDY
from specnav.errors import UsageError
from specnav.results.demo import SCHEMA
from specnav.run_folder import started_at
from specnav.terminal import say

CONTEXT = 113
"""Tokens in the KV cache while forwards are timed."""
FILES = "gguf"
_SHORT = {"max_new_tokens": 48, "limit": 8}


def run_drafts_study(
    flags: Mapping[str, Any], words: DraftsWords, bench: Callable[[BenchConfig], int] = run_bench
) -> int:
    """Run the comparison; returns the exit code (130 when interrupted). Raises UsageError and other packages' errors.

    flags: of `specnav bench`, None where not given. bench: makes one run.
    """
    if flags.get("draft_model") is not None:
        raise UsageError("--draft-model names a single draft; name the drafts to compare with --models")
    if flags.get("acceptance") is not None or flags.get("at_paper_acceptance"):
        raise UsageError("specnav bench drafts compares real drafts: leave --acceptance out")
    given = {name: value for name, value in flags.items() if value is not None and name not in ("out", "resume")}
    rtt = given.pop("rtt_ms", None)
    config = make_config({"methods": METHODS, **_SHORT, **given})
    rtts = RTTS if rtt is None else (RTTS[0], float(rtt)) if rtt else (0.0,)
    candidates = candidates_of(words, config.draft_model, Path(FILES))  # check before a folder is made
    folder = series_folder(flags, "study") / STUDY.name
    candidates = candidates_of(words, config.draft_model, folder / FILES)
    console, began = Console(stderr=True), time.monotonic()
    results = StudyResults(schema=SCHEMA, name=STUDY.name, settings=[], started_at=started_at())
    with noting_the_end() as ending:
        make_files(candidates)
        for number, one in enumerate(candidates, start=1):
            say(console, f"draft {number} of {len(candidates)}: {one.label}")
            results.drafts.append(_timed(one, config, words.seconds))
            ending.code = _run_links(one, config, rtts, folder, results, bench)
            if ending.code:
                break
    asked, wall_s = len(candidates) * len(rtts), time.monotonic() - began
    results = msgspec.structs.replace(
        results, asked=asked, interrupted=bool(ending.code), error=ending.error, wall_s=wall_s
    )

    def keep() -> None:
        if results.settings:
            keep_study(folder, results)

    show(folder.parent, console, keep)
    return ending.exit_code()


def _timed(one: DraftCandidate, config: BenchConfig, seconds: float) -> DraftRecord:
    """Load a draft and time its forwards in this process, which does nothing else meanwhile."""
    quantize = one.kind if one.backend == TORCH else "none"
    draft = load_draft(one.model, config.device, config.dtype, quantize, gguf=GgufOptions.read(config.gguf))
    set_threads(0, draft)  # same number of threads as in the bench's edge
    kind = str(draft.dtype).removeprefix("torch.") if quantize == "none" and one.backend == TORCH else one.kind
    return DraftRecord(
        label=one.label,
        backend=one.backend,
        kind=kind,
        size_mb=_size_mb(one.model),
        threads=draft.threads,
        context=CONTEXT,
        row_ms=time_rows_of(draft, ROWS, CONTEXT, seconds),
        folders=[],
    )


def _run_links(
    one: DraftCandidate, config: BenchConfig, rtts: tuple[float, ...], folder: Path, results: StudyResults,
    bench: Callable[[BenchConfig], int],
) -> int:  # fmt: skip
    for rtt in rtts:
        name = f"{one.slug}-rtt-{rtt:g}"
        place = folder / name
        run = replace(
            config,
            draft_model=str(one.model.resolve()),
            draft_quantize=one.kind if one.backend == TORCH else "none",
            rtt_ms=rtt,
            out=place,
            resume=place.is_dir(),
        )
        results.settings.append(SettingRecord(folder=name, label=f"{one.label}, RTT {rtt:g} ms", x=rtt))
        results.drafts[-1].folders.append(name)
        if is_finished(run, place):
            continue
        code = bench(run)
        if code:
            return code
    return 0


def _size_mb(model: Path) -> float:
    files = [model] if model.is_file() else [*model.glob("*.safetensors")]
    return sum(file.stat().st_size for file in files) / 1e6


TORCH, GGUF = "torch", "gguf"
TORCH_KINDS = ("none", "8bit", "4bit")
GGUF_KINDS = ("f16", "q8_0", "q4_0")
"""Number types to which a folder is converted if none is named."""


@dataclass(frozen=True)
class DraftCandidate:
    """One draft to compare. kind: its number type; for torch "none", "8bit" or "4bit" (bitsandbytes).

    convert: the folder from which to make the GGUF file; None if `model` exists already.
    """

    label: str
    backend: str
    kind: str
    model: Path
    convert: Path | None = None

    @property
    def slug(self) -> str:
        """The label as a folder name."""
        return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in self.label)


def candidates_of(asked: DraftsWords, default: str, work: Path) -> list[DraftCandidate]:
    """Every model on every backend. Raises UsageError.

    default: the model if none is named. work: folder for converted files.
    """
    backends = [_backend(word) for word in asked.backends or (TORCH, GGUF)]
    found: list[DraftCandidate] = []
    for name in asked.models or (default,):
        path = Path(name)
        file = gguf_file(path)
        if not (path.is_dir() if file is None else file.is_file()):
            raise UsageError(f"draft model {name} does not exist: give Hugging Face folders or GGUF files")
        for backend, kind in backends:
            found += _of(path, file, backend, kind, work)
    if not found:
        raise UsageError("no draft is left to compare: a GGUF file runs on gguf, a folder on torch or gguf")
    found = list(dict.fromkeys(found))
    if len({one.slug for one in found}) < len(found):
        raise UsageError("two of the drafts have the same name, which would mix them up: give a folder another name")
    return found


def _of(path: Path, file: Path | None, backend: str, kind: str, work: Path) -> list[DraftCandidate]:
    if file is not None:
        return [DraftCandidate(f"gguf {file.stem}", GGUF, "as is", file)] if backend == GGUF and not kind else []
    name = path.resolve().name
    if backend == TORCH:
        label = f"torch {name}" + f" {kind}" * (kind not in ("", "none"))
        return [DraftCandidate(label, TORCH, kind or "none", path)]
    return [
        DraftCandidate(f"gguf {name} {one}", GGUF, one, work / f"{name}-{one}.gguf", path)
        for one in ((kind,) if kind else GGUF_KINDS)
    ]


def make_files(candidates: list[DraftCandidate]) -> None:
    """Convert the missing GGUF files. Raises UsageError or ModelError."""
    from specnav.convert.run import ConvertConfig, run_convert

    for one in candidates:
        if one.convert is not None and not one.model.is_file():
            one.model.parent.mkdir(parents=True, exist_ok=True)
            run_convert(ConvertConfig(one.convert, one.kind, one.model))


def _backend(word: str) -> tuple[str, str]:
    backend, _, kind = word.partition(":")
    if backend not in (TORCH, GGUF):
        raise UsageError(f"--backends {word!r} is unknown: choose torch, gguf, torch:8bit, gguf:q4_0 ...")
    if backend == TORCH and kind and kind not in TORCH_KINDS:
        raise UsageError(f"--backends {word!r}: torch takes {', '.join(TORCH_KINDS)}")
    return backend, kind
