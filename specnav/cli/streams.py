# SPDX-License-Identifier: Apache-2.0
"""Standard streams that are closed, or whose encoding lacks characters: no command ends in a traceback by them."""

from __future__ import annotations

import io
import os
import sys


def steady_streams() -> None:
    """A closed descriptor below 3 is opened on nothing: no file or socket gets its number, and no error message ends in
    the output. What the encoding of stdout lacks is printed as an escape.

    sys.stdout stays None where stdout was closed: a command whose output matters can tell.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it takes the lowest free number: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (it lasts as long as the process)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
