# SPDX-License-Identifier: Apache-2.0
"""From tokens to text: stop strings, and incremental detokenization of verified tokens."""
