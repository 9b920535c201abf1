"""A verifier in this process, a link to it that can be cut, and real deciders on that link.

Imported by every test in here: what loads models is imported in the fixtures.
"""

from dataclasses import replace

import pytest

from tests.robot.launched import started  # noqa: F401


@pytest.fixture(scope="module")
def target():
    from tests.robot.real_decider import load_target

    return load_target()


@pytest.fixture(scope="module")
def verifier(target):
    from tests.robot.real_decider import Verifier

    one = Verifier(target)
    yield one
    one.close()


@pytest.fixture
def proxy(verifier):
    from tests.robot.links import CuttableProxy

    one = CuttableProxy(verifier.address)
    yield one
    one.close()


@pytest.fixture
def make(proxy):
    from tests.robot.real_decider import is_up, make_decider

    deciders = []

    def open_one(settings, address=None, wait=True):
        decider = make_decider(replace(settings, verifier=address or proxy.address))
        decider.open()
        deciders.append(decider)
        assert not wait or is_up(decider), decider.link()
        return decider

    yield open_one
    for decider in deciders:
        decider.close()


@pytest.fixture
def work(proxy):
    from spec_vlm_nav.model.worker import DecisionWorker
    from tests.robot.real_decider import is_up, make_decider

    workers = []

    def start(settings, wait=True):
        decider, events = make_decider(replace(settings, verifier=proxy.address)), []
        workers.append(DecisionWorker(decider, events.append))
        assert not wait or is_up(decider), decider.link()
        return workers[-1], decider, events

    yield start
    for worker in workers:
        assert worker.close()
