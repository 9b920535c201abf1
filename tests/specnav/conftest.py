"""Makes the fixtures of the HTTP API known to this folder's tests."""

from tests.specnav.api_processes import served, target  # noqa: F401
