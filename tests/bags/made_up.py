"""Made-up bags: pictures, instructions and decisions written with rosbags, in every format a user may have."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image as Picture
from rosbags.interfaces import Qos
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

from specnav.bags.contents import COMMAND, COMPRESSED, IMAGE, METRICS, STRING
from specnav.bags.types import Types
from specnav.record.types import own_definitions

CAMERA = "/camera/compressed"
START_NS = 1_700_000_000_000_000_000
STEP_NS = 200_000_000


def types_of(distro: str = "kilted") -> Types:
    return Types(own_definitions(), distro)


def encoded(shade: int, kind: str = "JPEG", size: tuple[int, int] = (56, 28)) -> bytes:
    out = io.BytesIO()
    Picture.new("RGB", size, (shade % 256, 40, 200)).save(out, kind)
    return out.getvalue()


def raw_image(encoding: str, pixels: np.ndarray, padding: int = 0) -> dict:
    """Values of a sensor_msgs/Image; pixels: uint8 [height, width, channels]; padding: bytes at the end of each row."""
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)
    padded = np.concatenate([rows, np.full((height, padding), 77, np.uint8)], axis=1)
    return {
        "encoding": encoding,
        "width": width,
        "height": height,
        "step": padded.shape[1],
        "data": padded.reshape(-1),
    }


def stamp(time_ns: int) -> dict:
    return {"sec": time_ns // 10**9, "nanosec": time_ns % 10**9}


@dataclass
class MadeUp:
    """Messages of a bag in the making: (topic, type, time, values)."""

    messages: list[tuple[str, str, int, dict]] = field(default_factory=list)
    now_ns: int = START_NS

    def say(self, text: str, topic: str = "/instruction") -> MadeUp:
        self.messages.append((topic, STRING, self.now_ns, {"data": text}))
        return self

    def frame(
        self, picture: bytes | dict | None = None, topic: str = CAMERA, stamp_ns: int | None = None
    ) -> int:
        """A camera message, a step of time later; returns its stamp."""
        self.now_ns += STEP_NS
        at = self.now_ns if stamp_ns is None else stamp_ns
        header = {"stamp": stamp(at), "frame_id": "camera"}
        if isinstance(picture, dict):
            self.messages.append((topic, IMAGE, self.now_ns, {"header": header, **picture}))
        else:
            data = np.frombuffer(encoded(len(self.messages)) if picture is None else picture, np.uint8)
            values = {"header": header, "format": "jpeg", "data": data}
            self.messages.append((topic, COMPRESSED, self.now_ns, values))
        return at

    def decided(
        self,
        frame_ns: int,
        sentence: str,
        sent: str = "",
        instruction: str = "",
        code: int = 0,
        robot: str = "/robot",
    ) -> MadeUp:
        values = {
            "frame_stamp": stamp(frame_ns),
            "model_action": sentence,
            "action": sent,
            "instruction_text": instruction,
            "error_code": code,
        }
        self.messages.append((f"{robot}/vlm_nav_node/metrics", METRICS, self.now_ns + 1, values))
        return self

    def commanded(self, frame_ns: int, text: str, kind: int = 2, source: int = 0) -> MadeUp:
        values = {"frame_stamp": stamp(frame_ns), "text": text, "kind": kind, "source": source}
        self.messages.append(("/motion_command", COMMAND, self.now_ns + 1, values))
        return self

    def save(
        self,
        path: Path,
        storage: str = "mcap",
        distro: str = "kilted",
        compression: CompressionMode = CompressionMode.NONE,
        offered: Sequence[Qos] = (),
    ) -> Path:
        """Write a bag's folder; its file is NAME/NAME.mcap or .db3."""
        types = types_of(distro)
        plugin = StoragePlugin.MCAP if storage == "mcap" else StoragePlugin.SQLITE3
        writer = Writer(path, version=8 if distro == "humble" else 9, storage_plugin=plugin)
        writer.set_compression(compression, CompressionFormat.ZSTD)
        with writer:
            topics = {}
            for topic, kind, time_ns, values in self.messages:
                if topic not in topics:
                    topics[topic] = writer.add_connection(
                        topic, kind, typestore=types.store, offered_qos_profiles=offered
                    )
                writer.write(topics[topic], time_ns, types.encode(kind, values))
        return path

    def save_without_definitions(self, path: Path, distro: str) -> Path:
        """A .db3 file as Humble wrote it: schema 3 and older hold no definitions of types."""
        import sqlite3

        self.save(path, "sqlite3", distro)
        file = path / f"{path.name}.db3"
        with sqlite3.connect(file) as database:
            database.executescript("DROP TABLE message_definitions; DROP TABLE schema;")
        database.close()
        return file


def noise(seed: int) -> bytes:
    """A JPEG that does not shrink any further."""
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (56, 84, 3), np.uint8)
    Picture.fromarray(pixels).save(out, "JPEG", quality=95)
    return out.getvalue()


def walk(frames: int = 6, noisy: bool = False) -> MadeUp:
    """An instruction and some frames, every other one with a recorded decision."""
    bag = MadeUp().say("find the blue lamp")
    for number in range(frames):
        at = bag.frame(noise(number) if noisy else None)
        if number % 2 == 0:
            bag.decided(at, "The next action is move forward 50 cm.", "forward 50", "find the blue lamp")
    return bag
