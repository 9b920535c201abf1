"""The thread that reads the sensor: who hears does not wait, the newest wins, and a hanging one is silent."""

import threading
import time

import pytest

from spec_vlm_nav.common.newest import NewestWorker
from spec_vlm_nav.motion.ahead.collision import AheadConfig, AheadWatch, Clearance


class Slow:
    """Work that goes on only when it is let."""

    def __init__(self):
        self.began, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.done = []

    def __call__(self, heard):
        self.began.release()
        assert self.go.acquire(timeout=5)
        self.done.append(heard)
        return heard * 10


@pytest.mark.realtime
def test_what_comes_while_it_works_waits_and_only_the_newest_of_it_is_worked_on():
    slow, made = Slow(), threading.Semaphore(0)
    worker = NewestWorker(slow, made.release)
    worker.put(1, 1.0)
    assert slow.began.acquire(timeout=5)
    began = time.perf_counter()
    for number in range(2, 1002):
        worker.put(number, float(number))
    assert time.perf_counter() - began < 0.5  # a thousand of them: no thread waits for the work
    assert worker.take() is None
    slow.go.release()
    assert made.acquire(timeout=5) and worker.take() == (10, 1.0)
    slow.go.release()
    assert made.acquire(timeout=5) and worker.take() == (10010, 1001.0)
    assert slow.done == [1, 1001] and worker.take() is None
    assert worker.close()


def test_what_is_not_fetched_in_time_is_replaced_by_the_newer():
    made = threading.Semaphore(0)
    with_time = NewestWorker(lambda heard: heard, made.release)
    for number in (1, 2):
        with_time.put(number, float(number))
        assert made.acquire(timeout=5)
    assert with_time.take() == (2, 2.0) and with_time.take() is None
    assert with_time.close()


def test_a_sensor_whose_reader_hangs_is_a_silent_sensor():
    slow, watch = Slow(), AheadWatch()
    config = AheadConfig(collision_watched=True, collision_timeout_s=0.5)
    worker = NewestWorker(lambda heard: slow(1) and Clearance(), lambda: None)
    watch.hear(Clearance(), 9.9)
    for number in range(20):
        worker.put(number, 10.0 + number / 20)
    assert slow.began.acquire(timeout=5)
    assert worker.take() is None  # nothing new, though messages come all the time
    assert watch.blind(10.3, config) == ""
    assert "silent for 1.10 s" in watch.blind(11.0, config)
    assert not worker.close(0.05)  # it hangs, and does not hold up who ends
    slow.go.release()


def test_a_reader_that_died_gives_nothing_more(monkeypatch):
    died = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda args: died.set())
    worker = NewestWorker(lambda heard: 1 // heard, lambda: None)
    worker.put(0, 1.0)
    assert died.wait(5)
    worker.put(1, 2.0)
    assert worker.close() and worker.take() is None


def test_nothing_is_handed_on_after_the_end():
    slow, made = Slow(), []
    worker = NewestWorker(slow, lambda: made.append(1))
    worker.put(1, 1.0)
    assert slow.began.acquire(timeout=5)
    assert not worker.close(0.01)
    slow.go.release()
    assert worker.close(5) and made == []
