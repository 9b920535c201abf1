"""Makes the fixtures of the HTTP API known to this folder's tests."""

from api_processes import served, target  # noqa: F401
