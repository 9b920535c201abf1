# SPDX-License-Identifier: Apache-2.0
"""Turns errors that a user can act on into one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from specnav.results.errors import one_line

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
FULL = os.strerror(errno.ENOSPC)
"""Libraries have their own errors for a full disk, with these words."""
_OF_THE_DISK = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.EIO,
    errno.EEXIST, errno.ENOTDIR, errno.EISDIR
)  # fmt: skip
"""Full or broken, not to be written by this user, a name that no file can have, or a file in a folder's place."""


class UsageError(Exception):
    """A wrong argument or file; the message says what was wrong and what to do."""


class HarnessError(Exception):
    """A run's processes or environment are not as the run needs them; the message says in one line what to do."""


class ChildFailed(HarnessError):
    """A process ended or never became ready; the message names its log file."""


@contextmanager
def needs_ros(what: str, beside: str = "") -> Iterator[None]:
    """Wrap imports that need ROS: if ROS is missing or does not load, raise a UsageError that says how to get it.

    beside: what works without ROS.
    """
    more = f"; {beside} without it" if beside else ""
    try:
        import rclpy.node  # noqa: F401  # loads its libraries

        failed = None
    except Exception as error:  # a broken installation can raise any error
        failed = error
    if failed is None:
        try:
            yield
            return
        except ImportError as error:
            failed = error
    if isinstance(failed, ModuleNotFoundError):
        raise UsageError(
            f"{what} needs ROS 2 (rclpy): source an installation, or make setup in a clone ({failed}){more}"
        ) from failed
    raise UsageError(
        f"{what} needs ROS 2, whose Python packages do not load ({one_line(failed)}): source an installation that is "
        f"whole and made for Python {sys.version_info[0]}.{sys.version_info[1]}, or make setup in a clone{more}"
    ) from failed


@contextmanager
def user_errors() -> Iterator[None]:
    """Print a UsageError or another package's own error as one line and exit with 1; Ctrl-C exits with 130.

    Errors of the command-line parser are printed as one line too, and exit with the parser's code 2.
    """
    try:
        yield
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Exception as error:
        said = getattr(error, "format_message", None)  # the parser's errors have no common public type
        if said is not None:
            if words := " ".join(said().split()):
                _tell(words)
            sys.exit(getattr(error, "exit_code", 2))
        if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # Path.resolve before Python 3.13
            _tell(f"{os.strerror(errno.ELOOP)}: {str(error).partition('from ')[2]}")
            sys.exit(1)
        if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
            _tell(f"{error.strerror}: {error.filename or 'standard output or a file'}")
            sys.exit(1)
        if not is_for_users(error) and FULL not in str(error):
            raise
        _tell(one_line(error))
        sys.exit(1)


def _tell(words: str) -> None:
    """Print an error. Names in it may come from a file or another machine: no escape sequence reaches the terminal."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in words)
    print(f"specnav: error: {shown}", file=sys.stderr)


def is_for_users(error: Exception) -> bool:
    """Whether an error is one that a user can act on."""
    names = (
        ("specdec.errors", "SpecdecError"),
        ("cloud_verifier.errors", "VerifierError"),
        ("specnav.recipes.errors", "TrainingError"),
        ("specnav.results.errors", "EvaluationError"),
        ("navsim.errors", "NavsimError"),
    )
    # Only packages already imported can have raised; importing them takes seconds (torch).
    found = (getattr(sys.modules.get(module), name, None) for module, name in names)
    return isinstance(error, (UsageError, HarnessError, *filter(None, found)))
