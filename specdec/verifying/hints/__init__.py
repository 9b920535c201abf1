# SPDX-License-Identifier: Apache-2.0
"""Hints: what early exits expect of a verdict, and the vocabulary they are asked about."""
