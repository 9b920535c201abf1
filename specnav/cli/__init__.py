# SPDX-License-Identifier: Apache-2.0
"""The `specnav` command: flags in, errors as one line; the rooms do the work."""

from specnav.cli.app import main

__all__ = ["main"]
