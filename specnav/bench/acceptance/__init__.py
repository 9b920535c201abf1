"""Emulated acceptance: what was asked for, how strongly a draft must be disturbed for it, and what came of it.

The draft is the target's own weights, its logits disturbed (specdec.sampling.disturbed). Nothing here starts processes.
"""
