# SPDX-License-Identifier: Apache-2.0
"""Trains a draft model to predict a target: distillation on the draft's own texts, the target's, and logged ones.

A *prompt* is a sample that ends where the answer begins; a *text* is a prompt with its answer. Nothing in this package
can change an answer, because a draft only proposes tokens.
"""
