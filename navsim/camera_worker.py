# SPDX-License-Identifier: Apache-2.0
"""The camera's thread: it owns the rendered world, serves the newest request and drops older ones.

Rendering takes milliseconds and releases the interpreter lock; in a separate thread it does not delay the base.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from navsim.faults import NONE, BrokenCamera, Image, Stamp
from navsim.rooms import Room
from navsim.simulation import Snapshot

if TYPE_CHECKING:
    from navsim.world import World


@dataclass(frozen=True, slots=True)
class CameraShot:
    """A request for one picture, stamped; `fault`: one of CAMERA_FAULTS."""

    snapshot: Snapshot
    stamp: Stamp
    fault: str = NONE


class CameraWorker:
    """Renders `CameraShot`s in a thread, which also calls `deliver` with each picture (uint8 [H, W, 3] RGB)."""

    def __init__(self, width: int, height: int, deliver: Callable[[CameraShot, Image], None]):
        self._size = (width, height)
        self._deliver = deliver
        self._wake = threading.Condition()
        self._next: CameraShot | None = None
        self._stopping = False
        self._started = threading.Event()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="navsim-camera")

    def start(self) -> None:
        """Start the thread and wait until the world is made. Raises the thread's error."""
        self._thread.start()
        self._started.wait()
        if self.failure is not None:
            raise self.failure

    def request(self, shot: CameraShot) -> None:
        """Request a picture; it replaces an older request that has not begun."""
        with self._wake:
            self._next = shot
            self._wake.notify()

    def stop(self) -> None:
        """End the thread and wait for it."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            # Imported here: without OpenGL the import fails, which is reported to the owner like any failure.
            from navsim.world import World

            with World(*self._size) as world:
                self._started.set()
                self._serve(world)
        except Exception as error:  # the owner must learn of any failure and end the process
            self.failure = error
        finally:
            self._started.set()

    def _serve(self, world: World) -> None:
        shown: Room | None = None
        camera = BrokenCamera()
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._next is not None)
                shot, self._next = self._next, None
                if self._stopping or shot is None:
                    return
            room = shot.snapshot.episode.room
            if room is not shown:
                world.load(room)
                shown = room
                camera = BrokenCamera()
            render = partial(world.render, shot.snapshot.pose)
            picture, stamp = camera.take(shot.fault, shot.stamp, render)
            self._deliver(replace(shot, stamp=stamp), picture)
