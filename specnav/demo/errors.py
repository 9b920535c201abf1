# SPDX-License-Identifier: Apache-2.0
"""The demo's exception: every message says in one line what was wrong and what to do."""

from specnav.errors import HarnessError


class DemoError(HarnessError):
    """The demo cannot start or continue."""
