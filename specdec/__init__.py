# SPDX-License-Identifier: Apache-2.0
"""specdec: speculative decoding over an edge and a cloud.

The shared core of the project: tokens, models, links; no robots, no server loop, no plots.

The words, one meaning each:
    draft token   a token the edge's small model proposes
    draft         the draft tokens of one round: a tree, in the simplest case a chain (a tree of width 1)
    verdict       the cloud's answer to a draft: how far it was accepted, and the target's own next token
    bonus token   the next token of a verdict that accepted everything
    recovered token   the next token of a verdict that rejected something
    round         one draft up and one verdict down
    session       one answer in progress, on both sides
    rollback      forgetting the KV cache of tokens that were rejected
    edge, cloud, link, method   where the draft model runs, where the target runs, what joins them, how they
    play
"""
