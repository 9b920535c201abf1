# SPDX-License-Identifier: Apache-2.0
"""Request errors in OpenAI's format: a status, and {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from specdec.errors import (
    KeyRefused,
    LinkLost,
    ModelError,
    OptionsError,
    ProtocolError,
    RequestRefused,
    SpecdecError,
    VerifierBusy,
    VersionMismatch,
    VocabularyMismatch,
)
from specdec.isolation.accounts import OverSpent
from specdec.isolation.workers import JobCancelled

CLIENT_GONE = 499
"""Status of a request whose client has gone away; only the log shows it."""
RETRY_AFTER_S = 1
_MOST_SAID = 1000
"""Characters of an error's message: it may quote a field of megabytes."""


class ApiError(Exception):
    """A request that was refused or failed. param: the wrong field; code: for programs. wait_s: when to try again."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        wait_s: int = RETRY_AFTER_S,
    ) -> None:
        message = message if len(message) <= _MOST_SAID else f"{message[:_MOST_SAID]}…"
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.param = param if param is None else param[:_MOST_SAID]
        self.code = code
        self.wait_s = wait_s

    @property
    def body(self) -> dict[str, object]:
        """The error as JSON."""
        return {
            "error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        }

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers that belong to the error."""
        if self.status in (429, 503):
            return {"Retry-After": str(self.wait_s)}
        return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}


_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}


def wrong(param: str, message: str, code: str | None = None) -> ApiError:
    """The error for a field with an unsupported value."""
    return ApiError(400, message, param=param, code=code)


def api_error(error: SpecdecError) -> ApiError:
    """The ApiError for an error of an answer."""
    message = " ".join(str(error).split())
    if isinstance(error, OverSpent):
        return ApiError(429, message, code="rate_limit_exceeded", wait_s=error.wait_s)
    if isinstance(error, JobCancelled):
        return ApiError(429, message, code="rate_limit_exceeded")
    if isinstance(error, VerifierBusy):
        return ApiError(429, message, code="verifier_busy")
    if isinstance(error, LinkLost):
        return ApiError(503, message, code="verifier_unreachable")
    if isinstance(error, KeyRefused | VersionMismatch | VocabularyMismatch):  # the operator of this server must act
        return ApiError(503, message, code="verifier_refused")
    if isinstance(error, ModelError | OptionsError | RequestRefused):
        return ApiError(400, message)
    return ApiError(502 if isinstance(error, ProtocolError) else 500, message)
