"""Makes the core's fixtures known here: a tiny pair, and a verifier in this process."""


import pytest

from tests.helpers.servers import model_root, start_server, text_pair  # noqa: F401


@pytest.fixture
def quickly_started():
    """What a run starts is forked."""
    from tests.graph.forking import forked_children

    with forked_children():
        yield
