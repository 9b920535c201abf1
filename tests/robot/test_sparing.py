"""What the executor waits for where a node is to cost little: messages at once, the rest now and then."""

from itertools import pairwise

import pytest

pytest.importorskip("rclpy")

from rclpy.subscription import Subscription

from spec_vlm_nav.ros import subscriptions as sparing
from spec_vlm_nav.ros.subscriptions import ANSWER_S, EVERY_S, FOR_S, ThrottledExecutor


class Other:
    """What is not a subscription."""


def group_of(*entities):
    group = ThrottledExecutor()
    for entity in entities:
        group.add_entity(entity)
    return group


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 10 * EVERY_S + FOR_S + 0.5

        def monotonic(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(sparing, "time", made)
    return made


def test_messages_are_waited_for_always_and_events_now_and_then(clock):
    message, event = Subscription.__new__(Subscription), Other()
    group = group_of(message, event)
    seen = []
    for _ in range(200):
        assert group.can_execute(message)
        seen.append(group.can_execute(event))
        clock.now += 0.05  # as long as an executor sleeps
    assert 0 < sum(seen) <= 0.1 * len(seen)
    assert sum(a and not b for a, b in pairwise(seen)) == 5, "in each period"


def test_an_answer_that_is_expected_is_waited_for(clock):
    client = Other()
    group = group_of(client)
    assert not group.can_execute(client)
    group.expect()
    assert group.can_execute(client)
    clock.now += ANSWER_S + 0.6
    assert not group.can_execute(client)
