# SPDX-License-Identifier: Apache-2.0
"""vLLM as the engine: chains of draft tokens that come from outside, judged exactly, many sessions a forward.

Nothing else imports this package: `specnav serve --engine vllm` loads it when asked for. Only `core` and what vLLM
itself loads by name (`scheduler`, `proposer`, `worker`) import vLLM; the rest is ours alone and is tested without it.
"""
