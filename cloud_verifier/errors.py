# SPDX-License-Identifier: Apache-2.0
"""Errors of the server meant for people: one line, what was wrong and what to do."""

from __future__ import annotations


class VerifierError(Exception):
    """The server cannot start or go on."""
