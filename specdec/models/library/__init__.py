# SPDX-License-Identifier: Apache-2.0
"""Models on the library's own forward, and what they need beside it."""
