"""Sampling: from logits to tokens, as pure functions over tensors.

Logits processors -> distributions; greedy choice; rejection sampling (accept, recover, bonus); and shared
noise, which lets both sides pick the same token without sending probabilities. Nothing in here holds a random
state.
"""

from specdec.sampling.choice import Chooser
from specdec.sampling.noise import gumbel_noise
from specdec.sampling.processors import process_logits
from specdec.sampling.rejection import Rejection, recovery_distribution, verify_chain

__all__ = ["Chooser", "Rejection", "gumbel_noise", "process_logits", "recovery_distribution", "verify_chain"]
