"""What every test needs whatever started it."""

import signal

import pytest

# A job in the background of a shell ignores SIGINT and hands that down: tests send it to the processes they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Tests of whole processes keep real time bounds, which a starved machine can miss: they may miss once.

    A second miss fails, and every rerun is shown as R in the output.
    """
    for item in items:
        if item.get_closest_marker("graph"):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=2))


def pytest_terminal_summary(terminalreporter):
    """How many tests of whole processes missed once, and which: a number that has to stay small."""
    again = terminalreporter.stats.get("rerun", [])
    if again:
        terminalreporter.write_sep("=", f"{len(again)} missed once and ran again")
    for report in again:
        terminalreporter.write_line(report.nodeid)
