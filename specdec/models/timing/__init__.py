# SPDX-License-Identifier: Apache-2.0
"""What forwards take: tried by their rows, and made to take longer (pacing)."""
