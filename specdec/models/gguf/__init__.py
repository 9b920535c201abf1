# SPDX-License-Identifier: Apache-2.0
"""Drafting on llama.cpp: a GGUF file behind the interface of a LoadedModel.

A draft's numbers decide only how often it is accepted, never what comes out, so the quickest quantised engine is the
right one. `binding` talks to the library, `decoder` holds its context and sequences, `session` puts an answer's chain
and trees on them, `model` ties them to a tokenizer and a vision tower.
"""
