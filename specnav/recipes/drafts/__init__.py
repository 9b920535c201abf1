# SPDX-License-Identifier: Apache-2.0
"""How a draft model learns to predict a target: distillation on the draft's own words, the target's, and logged ones.

A *prompt* here is a sample that ends where the answer begins; a *text* is a prompt with its answer. Nothing of this
room can change an answer: a draft only ever proposes.
"""
