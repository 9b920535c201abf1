# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
Access control of the console: tokens, origins, rate limits. Pure except for the tokens' file.

A token is printed once; only its SHA-256 is stored. (Tokens are 32 random bytes, so an unsalted
hash cannot be searched.)
"""

from __future__ import annotations

from dataclasses import dataclass
import enum
import hashlib
import hmac
import ipaddress
import os
from pathlib import Path
import secrets
from urllib.parse import urlsplit

import msgspec
from spec_vlm_nav.common.errors import ConsoleError
from spec_vlm_nav.common.kept_file import given_path, read_small
from specdec.whole_files import alone_in, write_whole

PREFIX = "snc_"
NONE = "none"  # setting of tokens_file that admits every process on this machine


class AccessRole(enum.Enum):
    """A viewer looks and may stop the robot; only an operator may make it move."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True)
class Token:
    """A token as stored."""

    name: str
    role: AccessRole
    sha256: str


def make_token(name: str, role: AccessRole) -> tuple[str, Token]:
    """Return a new token in clear text, to be shown once, and its stored form."""
    clear = PREFIX + secrets.token_urlsafe(32)
    return clear, Token(name, role, _hash(clear))


def _hash(clear: str) -> str:
    return hashlib.sha256(clear.encode()).hexdigest()


def find_token(tokens: tuple[Token, ...], clear: str) -> Token | None:
    """Return the stored token of a clear text, compared in constant time; None if unknown."""
    given = _hash(clear)
    found = [token for token in tokens if hmac.compare_digest(token.sha256, given)]
    return found[0] if found else None


def read_tokens(file: Path) -> tuple[Token, ...] | None:
    """
    Return the tokens in a file; None if there is no such file.

    Raises ConsoleError, also if other users may read the file.
    """
    try:
        data = read_small(file)
        if data is None:
            return None
        if file.stat().st_mode & 0o077:
            raise ConsoleError(f"{file} may be read by others: chmod 600 {file}")
        return msgspec.json.decode(data, type=tuple[Token, ...])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConsoleError(f"{file} holds no tokens: make new ones with --new-token") from error
    except OSError as error:
        raise ConsoleError(f"{file}: {error.strerror or error}") from error
    except ValueError as error:  # not a regular file, or too large
        raise ConsoleError(str(error)) from error


class AccessTokens:
    """
    The tokens of the file, reloaded on changes. known: the tokens; None: every client is an operator.

    If the file disappears, or cannot be read twice in a row, all connections are refused.
    """

    def __init__(self, given: str, default: Path) -> None:
        """given: a file, "none", or "" for the default. Raises ConsoleError."""
        self.file = None if given == NONE else given_path("tokens_file", given, lambda: default)
        self.known: tuple[Token, ...] | None = None
        self._seen = self._state()
        self._was_bad = False
        if self.file is None:
            return
        self.known = read_tokens(self.file)
        if self.known is None and given:
            raise ConsoleError(
                f"tokens_file {self.file} must exist: make a token with ros2 run spec_vlm_nav "
                f"console_node --new-token operator:NAME {self.file}, or set tokens_file: {NONE}"
            )

    def look(self) -> str | None:
        """Reload the file if it changed; returns its problem or "", or None: nothing changed."""
        if self.file is None or (self._state() == self._seen and not self._was_bad):
            return None
        before, self._seen = self.known, self._state()
        try:
            found, wrong = read_tokens(self.file), ""
            if found is None and before is not None:
                wrong = f"{self.file} is gone: all connections are refused"
            self._was_bad = False
        except ConsoleError as error:
            found, wrong = before, ""
            if self._was_bad:
                found, wrong = (), f"{error}; all connections are refused"
            self._was_bad = not self._was_bad
        self.known = () if found is None and before is not None else found
        return None if self.known == before else wrong

    def _state(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self.file or "")
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


def add_token(file: Path, token: Token) -> None:
    """Add a token to a file; it replaces one with the same name. Raises ConsoleError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with alone_in(file.parent):
            kept = [each for each in read_tokens(file) or () if each.name != token.name]
            rows = msgspec.json.format(msgspec.json.encode([*kept, token]), indent=1)
            write_whole(file, rows + b"\n", private=True)
    except OSError as error:
        raise ConsoleError(f"{file}: {error.strerror or error}") from error


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_binding(
    host: str,
    tokens: tuple[Token, ...] | None,
    certificate: str,
    insecure: bool,
    published_on_loopback: bool = False,
) -> None:
    """Raise ConsoleError if the console would be open to the network without protection."""
    if is_loopback(host) or published_on_loopback:
        return
    if not tokens:
        raise ConsoleError(
            f"host {host} is reachable from outside, and there are no tokens: make one with "
            "ros2 run spec_vlm_nav console_node --new-token operator:NAME"
        )
    if not certificate and not insecure:
        raise ConsoleError(
            f"host {host} is reachable from outside without TLS: give certificate and key "
            "(or insecure: true, if the network is an encrypted tunnel)"
        )


def check_origin(origin: str | None, host: str | None, bound_to_loopback: bool) -> str:
    """
    Return why a page of this origin may not connect, or "".

    host: the Host header. If the console is bound to loopback, it must name loopback: a foreign
    page could make its own name resolve to this machine (DNS rebinding).
    """
    if not host:
        return "no Host"
    if not origin:
        return "no Origin: only pages of this console may open the socket"
    try:
        parts = urlsplit(origin)
    except ValueError:  # such as "http://[x"
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or parts.netloc.lower() != host.lower():
        return f"origin {origin[:80]} is not this console"
    if bound_to_loopback and not is_loopback(parts.hostname or ""):
        return f"host {host[:80]} is not loopback"
    return ""


class MessageBucket:
    """A token bucket: `rate` a second on average, `burst` at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = burst, -1e9

    def debt(self, now: float, amount: float) -> float:
        """Take an amount even without credit; returns how long to wait before the next, s."""
        self._fill(now)
        self._left -= amount
        return max(0.0, -self._left / self._rate)

    def _fill(self, now: float) -> None:
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now

    def take(self, now: float, amount: float = 1.0) -> bool:
        """Take an amount if there is credit for it; returns whether there was."""
        self._fill(now)
        if self._left < amount:
            return False
        self._left -= amount
        return True
