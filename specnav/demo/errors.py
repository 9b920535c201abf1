# SPDX-License-Identifier: Apache-2.0
"""The one exception of the demo: every message says what was wrong and what to do, in one line."""

from specnav.errors import HarnessError


class DemoError(HarnessError):
    """The demo cannot start or go on."""
