"""What every test needs whatever started it."""

import signal
from importlib.util import find_spec

import pytest

# A job in the background of a shell ignores SIGINT and hands that down: tests send it to the processes they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what needs llama.cpp where it is not installed."""
    if item.get_closest_marker("gguf") is not None and find_spec("llama_cpp") is None:
        pytest.skip("llama.cpp is not installed: make setup-gguf")
