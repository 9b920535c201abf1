# SPDX-License-Identifier: Apache-2.0
"""vLLM's engine core in this process, behind our vocabulary. With several workers, each is another process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import torch

from cloud_verifier.engine_vllm.checks import check_core, check_version, said_by
from cloud_verifier.engine_vllm.picking import Rules
from cloud_verifier.engine_vllm.target import VllmTarget
from cloud_verifier.errors import VerifierError
from specdec.models import EncodedPrompt, Prompt
from specdec.models.positions import image_token_count

_HERE = "cloud_verifier.engine_vllm"
_EXTRA = "specnav"
_NEWS_S = 1.0
_TIDY = "ignore:resource_tracker:UserWarning"
MOST_DRAFTED = 16
"""Draft tokens of one session per forward pass; longer drafts take several passes."""


@dataclass(frozen=True)
class CoreSettings:
    """kv_bytes: memory for all caches. sessions: most at a time. rows: most per forward pass. dtype: auto, float32,
    float16 or bfloat16. share: whether equal prompts may share caches. images: most per prompt. workers: processes that
    split the target and kv_bytes, each with its own GPU if there are GPUs.
    """

    kv_bytes: int
    sessions: int = 64
    rows: int = 2048
    dtype: str = "auto"
    share: bool = True
    images: int = 8
    workers: int = 1


class VllmCore:
    """One target on vLLM. block_tokens: tokens per cache block. blocks: number of cache blocks."""

    def __init__(self, target: VllmTarget, settings: CoreSettings) -> None:
        """Load the weights, which takes seconds to minutes. Raises VerifierError if this vLLM cannot be used."""
        check_version()
        on_cpu = target.device.type == "cpu"
        workers = settings.workers
        _prepare_environment(on_cpu, workers)
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        arguments = EngineArgs(
            model=target.path,
            skip_tokenizer_init=not target.is_multimodal,
            dtype="float32" if settings.dtype == "auto" and on_cpu else settings.dtype,
            max_model_len=target.context_limit,
            max_num_seqs=settings.sessions,
            max_num_batched_tokens=max(settings.rows, settings.sessions * (MOST_DRAFTED + 1)),
            kv_cache_memory_bytes=settings.kv_bytes // workers,
            tensor_parallel_size=workers,
            distributed_executor_backend="uni" if workers == 1 else "mp",
            scheduler_cls=f"{_HERE}.scheduler.HoldingScheduler",
            worker_extension_cls=f"{_HERE}.worker.PickingWorker",
            speculative_config={
                "method": "custom_class",
                "model": f"{_HERE}.proposer.NoProposer",
                "num_speculative_tokens": MOST_DRAFTED,
            },
            enable_prefix_caching=settings.share,
            async_scheduling=False,
            enforce_eager=on_cpu,
            limit_mm_per_prompt={"image": settings.images, "video": 0} if target.is_multimodal else {},
            mm_processor_cache_gb=0,
            skip_mm_profiling=True,
            mm_device_do_normalize=False,  # done by our own preparation
            disable_log_stats=True,
            seed=0,
        )
        try:
            self._client: Any = LLMEngine.from_engine_args(arguments).engine_core
        except Exception as error:  # any error about a model that it cannot run; the cause stays attached
            raise VerifierError(f"vLLM cannot run {target.path} ({said_by(error)}): try --engine own") from error
        self._core = self._client.engine_core
        check_core(self._core, workers)
        for told in self._client.collective_rpc("what_is_missing"):
            if told:
                raise VerifierError(told)
        self._scheduler = self._core.scheduler
        self._client.collective_rpc("pick_as_specdec", args=(target.vocab_size, sorted(target.eos_token_ids)))
        if workers > 1:
            self._client.collective_rpc("leave_interrupts")
        self._merge = target.picture_merge
        self._eos_ids = sorted(target.eos_token_ids)
        self.block_tokens: int = self._scheduler.block_size
        self.blocks: int = self._scheduler.kv_cache_config.num_blocks - 1  # vLLM reserves one as the null block
        self.kv_bytes = settings.kv_bytes
        self.workers = workers

    def when_lost(self, tell: Callable[[str], None]) -> None:
        """tell: called in another thread, with one line of reason, when a worker process has died."""
        why = f"one of the {self.workers} processes that share the target on vLLM has died: start the verifier again"
        self._core.model_executor.register_failure_callback(lambda: tell(why))

    @property
    def rows(self) -> int:
        """Rows of the last step."""
        return int(self._scheduler.rows)

    @property
    def sessions(self) -> int:
        """Requests in the last step."""
        return int(self._scheduler.sessions)

    @property
    def preempted(self) -> int:
        """Number of times that a request lost its cache to another."""
        return int(self._scheduler.preempted)

    def is_lost(self) -> bool:
        """Whether a worker process has died. Call this after an error, which may be reported before the death."""
        until = time.monotonic() + (_NEWS_S if self.workers > 1 else 0.0)
        while time.monotonic() < until:
            if self._core.model_executor.is_failed:
                return True
            time.sleep(0.01)
        return False

    def add(
        self,
        request: str,
        prompt: Prompt,
        encoded: EncodedPrompt,
        answer: Sequence[int],
        most: int,
        rules: Rules,
        salt: str | None,
    ) -> None:
        """Start a request.

        Args:
            request: Its id.
            prompt: The prompt, with its images.
            encoded: The prompt as the target encodes it.
            answer: Tokens of the answer so far.
            most: Most new tokens.
            rules: How tokens are picked.
            salt: Requests with different salts share no caches.
        """
        from vllm import SamplingParams
        from vllm.v1.engine import EngineCoreRequest

        params = SamplingParams(
            temperature=0.0,
            max_tokens=most,
            stop_token_ids=self._eos_ids,
            detokenize=False,
            extra_args={_EXTRA: rules},
        )
        pictures = features_of(encoded, prompt.images, self._merge, salt) if prompt.images else None
        ids = [*encoded.ids.tolist(), *answer]
        told = EngineCoreRequest(request, ids, pictures, params, None, time.time(), None, salt, None)
        self._client.add_request(told)

    def offer(self, request: str, draft: list[int] | None) -> None:
        """Set what the request does in the next steps: verify a draft, [] for one plain token, None to pause."""
        if draft is None:
            self._scheduler.offers.pop(request, None)
        else:
            self._scheduler.offers[request] = draft

    def drop(self, requests: Sequence[str]) -> None:
        """Abort requests and free what they hold."""
        for request in requests:
            self._scheduler.offers.pop(request, None)
        self._client.abort_requests(list(requests))

    def step(self) -> list[tuple[str, list[int]]]:
        """One forward pass; returns the new tokens of each request that took part."""
        told = self._client.get_output()
        return [(one.request_id, one.new_token_ids) for one in told.outputs]


def _prepare_environment(on_cpu: bool, workers: int) -> None:
    """Set environment variables that vLLM reads when it is imported."""
    told = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the core in this process
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }
    if on_cpu:
        told["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    if workers > 1:
        told["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # forking a process that has threads or uses a GPU may hang
        told["VLLM_HOST_IP"] = "127.0.0.1"  # they are all on this machine
        told["VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS"] = "1"  # workers save nothing, and may wait for a dead one
        # The last line on stderr must be why the process ended, not warnings of Python's cleanup.
        told["PYTHONWARNINGS"] = ",".join(filter(None, [os.environ.get("PYTHONWARNINGS"), _TIDY]))
        if on_cpu:
            told["OMP_NUM_THREADS"] = str(max(1, torch.get_num_threads() // workers))
    os.environ.update(told)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def features_of(encoded: EncodedPrompt, pictures: Sequence[bytes], merge: int, salt: str | None) -> list[Any]:
    """The picture features of a vLLM request.

    They are pictures that our own code has prepared: vLLM's vision tower gets bit for bit the input that ours would
    get. vLLM's own preprocessing, which would resize them again, is bypassed.

    Args:
        encoded: The prompt as the target encodes it.
        pictures: The encoded image files of the prompt.
        merge: Patches along each axis that become one token.
        salt: Only requests with the same salt find each other's cached pictures.
    """
    from transformers import BatchFeature
    from vllm.model_executor.models.qwen2_vl import _create_qwen2vl_field_factory
    from vllm.multimodal.inputs import MultiModalFeatureSpec, MultiModalKwargsItems, PlaceholderRange

    if encoded.pixel_values is None or encoded.grids is None:
        return []
    inputs = {"pixel_values": encoded.pixel_values, "image_grid_thw": encoded.grids}
    items = MultiModalKwargsItems.from_hf_inputs(
        BatchFeature(inputs), _create_qwen2vl_field_factory(merge)(inputs)
    )
    found = []
    for item, picture, grid, start in zip(
        items["image"], pictures, encoded.grids.tolist(), encoded.picture_starts, strict=True
    ):
        name = blake2b(picture, digest_size=16, key=(salt or "").encode()[:64]).hexdigest()
        size = image_token_count((grid[0], grid[1], grid[2]), merge)
        found.append(MultiModalFeatureSpec(item, "image", name, PlaceholderRange(start, size), name))
    return found
