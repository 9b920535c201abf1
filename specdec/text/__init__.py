# SPDX-License-Identifier: Apache-2.0
"""Between tokens and text: stop strings, and text that streams out of verified tokens."""
