# SPDX-License-Identifier: Apache-2.0
"""Hints: early exits' predictions of a verdict, and the vocabulary that they cover."""
