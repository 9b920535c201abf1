# SPDX-License-Identifier: Apache-2.0
"""Drafting by looking up what followed before: no model and no forward; the better, the more answers repeat."""
