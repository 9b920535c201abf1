# SPDX-License-Identifier: Apache-2.0
"""llama.cpp as the engine: a target in a GGUF file behind our own scheduler, one `llama_decode` for all sessions' rows.

What a session is on llama.cpp stands in `specdec.models.gguf`, which drafts use too: a tree takes one sequence of the
context for each of its branches. Here the target is loaded and its context is sized. There are no layers to look at,
so no exits and no split. Nothing else imports this package: `specnav serve --engine llamacpp` loads it when asked for.
"""
