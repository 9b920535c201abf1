"""What every test needs whatever started it."""

import gc
import signal
from importlib.util import find_spec
from typing import Any

import pytest

# A job in the background of a shell ignores SIGINT and hands that down: tests send it to the processes they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing that is imported or collected is garbage: to look for some took a third of the time before the first test.
gc.disable()


LONG = ("monkey", "soak", "pipeline")
"""Marks of tests that take minutes to hours: they run only where `-m` names them."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long ones."""
    unasked = [mark for mark in LONG if mark not in config.option.markexpr]
    left_out = [item for item in items if any(item.get_closest_marker(mark) for mark in unasked)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of one file run in one worker."""
    from xdist.scheduler import LoadFileScheduling  # not in every environment that runs tests
    from xdist.workermanage import WorkerController

    class Scheduling(LoadFileScheduling):
        """xdist's hands out what a crashed worker had finished, and who gets such a file waits for ever."""

        def remove_node(self, node: WorkerController) -> str | None:
            """Return the test that crashed, if any, and give what the worker had left to the others."""
            work = self.assigned_work[node]
            for scope in [scope for scope, tests in work.items() if all(tests.values())]:
                del work[scope]
            return super().remove_node(node)

    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """What is there now stays until the end; what tests leave behind need not be collected after each 700 objects."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what needs llama.cpp where it is not installed, and what needs a published model unless asked for."""
    if item.get_closest_marker("real") is not None and item.config.option.markexpr != "real":
        pytest.skip("it downloads a published model: make test-real")
    if item.get_closest_marker("gguf") is not None and find_spec("llama_cpp") is None:
        pytest.skip("llama.cpp is not installed: make setup-gguf")
