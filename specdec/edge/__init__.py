# SPDX-License-Identifier: Apache-2.0
"""The edge: a draft model proposes tokens, the verifier judges them, and verified tokens stream out."""
