# SPDX-License-Identifier: Apache-2.0
"""Models on llama.cpp: a GGUF file behind the interface of a LoadedModel.

The numerical precision of a draft model affects only how often drafts are accepted, never the output. So the fastest
quantised engine is the right one. `binding` wraps the library, `decoder` holds a context and its sequences, `session`
maps an answer's chain and trees to them, `model` combines them with a tokenizer and a vision tower.
"""
