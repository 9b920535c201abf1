# SPDX-License-Identifier: Apache-2.0
"""llama.cpp as the engine: a target in a GGUF file behind our own scheduler, one `llama_decode` for all sessions' rows.

Sessions on llama.cpp are implemented in `specdec.models.gguf`, which drafts use too: each branch of a tree takes one
sequence of the context. This package loads the target and sizes its context. llama.cpp gives no access to single
layers, so there are no early exits and no layer split. Only `specnav serve --engine llamacpp` imports this package.
"""
