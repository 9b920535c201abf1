"""Going through frames with made-up methods and a made-up clock: turns, history, the bag's own speed."""

from __future__ import annotations

from spec_vlm_nav.language.actions import ACTION_SENTENCES
from specnav.bags.contents import FrameEntry
from specnav.bags.records import DecisionRecord
from specnav.replay.passes import PassResult, at_bag_speed, by_frames, warm_up
from specnav.replay.plan import ReplayTask
from tests.helpers.waiting import Clock

ACTION = next(iter(ACTION_SENTENCES.values()))


class Method:
    """Takes `takes` seconds; remembers what it was asked."""

    def __init__(self, name, clock, takes=0.0):
        self.method, self._clock, self._takes = name, clock, takes
        self.asked = []

    def decide(self, task, picture, history):
        self.asked.append((task.frame.number, [*history.pictures], [a.short for a in history.actions]))
        self._clock.now += self._takes
        record = DecisionRecord(
            frame=task.frame.number, stamp_ns=task.frame.stamp_ns, method=self.method, instruction="", reference="",
            action="stop", decision_ms=self._takes * 1e3,
        )  # fmt: skip
        return (record, None) if picture == b"bad" else (record, b"jpeg%d" % task.frame.number)


def tasks(count, step_s=0.1, **more):
    return [
        ReplayTask(FrameEntry(n, n, round(n * step_s * 1e9)), more.get("run", 0), "go", carried_out=ACTION)
        for n in range(count)
    ]


def source(found, picture=b"x"):
    return lambda: iter([(task, picture) for task in found])


def test_methods_take_turns_in_beginning_and_see_the_same_history():
    clock, said = Clock(100.0), []
    methods = [Method("a", clock, 0.5), Method("b", clock, 0.5)]
    passage = PassResult()
    by_frames(
        source(tasks(3)),
        methods,
        lambda record, jpeg: said.append((record.frame, record.method)),
        passage,
        clock,
    )
    assert said == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]
    assert methods[0].asked == methods[1].asked
    assert methods[0].asked[2] == (2, [b"jpeg0", b"jpeg1"], [ACTION.short] * 2)
    assert passage.busy_s == 3.0 and passage.frames_per_s == 2.0


def test_another_instruction_begins_a_new_history():
    clock = Clock(100.0)
    method = Method("a", clock)
    first, second = tasks(1), [ReplayTask(FrameEntry(7, 7, 7), 1, "other")]
    by_frames(source(first + second), [method], lambda *_: None, PassResult(), clock)
    assert method.asked[1] == (7, [], [])


def test_unusable_pictures_are_counted_and_not_remembered():
    clock = Clock(100.0)
    method, passage, said = Method("a", clock), PassResult(), []
    found = tasks(3)
    pictures = [(found[0], None), (found[1], b"bad"), (found[2], b"x")]
    by_frames(
        lambda: iter(pictures), [method], lambda record, jpeg: said.append(record.error), passage, clock
    )
    assert said == ["the camera message cannot be read", "", ""]
    assert passage.unusable == {0, 1} and method.asked[-1][1] == []


def test_at_the_bags_speed_a_slow_method_skips_and_a_fast_one_waits():
    clock = Clock(100.0)
    slow, fast = Method("slow", clock, 0.25), Method("fast", clock, 0.01)
    found, passage, kept = tasks(10), PassResult(), []
    times = {task.frame.number: task.frame.time_ns for task in found}
    at_bag_speed(
        source(found),
        times,
        [slow, fast],
        lambda record, jpeg: kept.append(record),
        passage,
        clock,
        clock.sleep,
    )
    assert [number for number, _, _ in slow.asked] == [0, 2, 5, 7, 9]
    assert [number for number, _, _ in fast.asked] == list(range(10))
    assert passage.skipped == {"slow": 5, "fast": 0}
    ages = {(r.method, r.frame): round(r.age_ms) for r in kept}
    assert ages[("slow", 2)] == 300 and ages[("fast", 3)] == 10


def test_warming_up_asks_each_method_once_and_without_a_reference():
    clock = Clock(100.0)
    methods = [Method("a", clock), Method("b", clock)]
    warm_up(lambda: iter([(tasks(1)[0], None), (tasks(2)[1], b"x")]), methods)
    assert [m.asked for m in methods] == [[(1, [], [])]] * 2
