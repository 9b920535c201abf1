# SPDX-License-Identifier: Apache-2.0
"""The `specnav` command: parses flags and prints errors as one line; other packages do the work."""

from specnav.cli.app import main

__all__ = ["main"]
