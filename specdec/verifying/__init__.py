# SPDX-License-Identifier: Apache-2.0
"""Verification: one forward pass of the target over a draft -> a verdict. Only the target's picks become tokens."""

from specdec.verifying.judge import Judgement, judge, path_to
from specdec.verifying.sampled import SampledVerdict, SampledVerifier
from specdec.verifying.verifier import Verifier

__all__ = ["Judgement", "SampledVerdict", "SampledVerifier", "Verifier", "judge", "path_to"]
