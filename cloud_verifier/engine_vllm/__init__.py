# SPDX-License-Identifier: Apache-2.0
"""vLLM as the engine: verifies draft chains from outside exactly, with many sessions in one forward pass.

Only `specnav serve --engine vllm` imports this package. Only `core` and the modules that vLLM itself loads by name
(`scheduler`, `proposer`, `worker`) import vLLM; the rest is our own code and is tested without it.
"""
