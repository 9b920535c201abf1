# SPDX-License-Identifier: Apache-2.0
"""specdec: speculative decoding over an edge and a cloud.

The shared core of the project: tokens, models and links. No robot, no server loop, no plots.

Vocabulary
    draft token: a token that the edge's small model proposes.
    draft: the draft tokens of one round, a tree; a chain is a tree of width 1.
    verdict: the cloud's reply to a draft: how much of it was accepted, and the target's next token.
    bonus token: the next token after a fully accepted draft.
    recovered token: the next token after a rejection.
    round: one draft up and one verdict down.
    session: one answer in progress, on both sides.
    rollback: dropping rejected tokens from the KV cache.
    edge, cloud, link: where the draft model runs, where the target runs, the connection between them.
    method: a named combination of decoding axes (specdec.methods).
"""
