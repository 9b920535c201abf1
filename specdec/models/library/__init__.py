# SPDX-License-Identifier: Apache-2.0
"""Models that run on the transformers library's own forward pass."""
