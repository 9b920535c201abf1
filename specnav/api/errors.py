# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a request, in OpenAI's words: a status, and {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from specdec.errors import (
    KeyRefused,
    LinkLost,
    ModelError,
    OptionsError,
    ProtocolError,
    SpecdecError,
    VerifierBusy,
    VersionMismatch,
)
from specdec.isolation.accounts import OverSpent

CLIENT_GONE = 499
"""Of a request whose client has gone away; no client gets this, it stands in the log."""
RETRY_AFTER_S = 1


class ApiError(Exception):
    """A request that is refused, or that failed. param: the field that is wrong; code: for programs."""

    def __init__(
        self, status: int, message: str, kind: str = "", param: str | None = None, code: str | None = None
    ) -> None:
        """kind: OpenAI's "type"; "": the one that goes with the status."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.param = param
        self.code = code

    @property
    def body(self) -> dict[str, object]:
        """As it travels."""
        return {
            "error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        }

    @property
    def headers(self) -> dict[str, str]:
        """Headers that go with it."""
        if self.status in (429, 503):
            return {"Retry-After": str(RETRY_AFTER_S)}
        return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}


_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}


def wrong(param: str, message: str, code: str | None = None) -> ApiError:
    """A field that cannot be taken as it is."""
    return ApiError(400, message, param=param, code=code)


def api_error(error: SpecdecError) -> ApiError:
    """What an answer's error means for the one who asked."""
    message = " ".join(str(error).split())
    if isinstance(error, OverSpent):
        return ApiError(429, message, code="rate_limit_exceeded")
    if isinstance(error, VerifierBusy):
        return ApiError(429, message, code="verifier_busy")
    if isinstance(error, LinkLost):
        return ApiError(503, message, code="verifier_unreachable")
    if isinstance(error, KeyRefused | VersionMismatch):  # the operator of this server has to do something
        return ApiError(503, message, code="verifier_refused")
    if isinstance(error, ModelError | OptionsError):
        return ApiError(400, message)
    return ApiError(502 if isinstance(error, ProtocolError) else 500, message)
