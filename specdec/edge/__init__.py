# SPDX-License-Identifier: Apache-2.0
"""The edge: a draft model proposes, the verifier disposes, and what is verified streams out."""
