# SPDX-License-Identifier: Apache-2.0
"""The rendered world: one compiled MuJoCo model whose pooled bodies are moved and recoloured for every room.

A `World` belongs to the thread that made it, as its OpenGL context does. It renders a room; it never moves a robot.
"""

from __future__ import annotations

import math
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from navsim.errors import BadRequest, RoomError
from navsim.geometry import Pose2D, Rect
from navsim.headless import explain, prepare_headless_rendering
from navsim.kinds import (
    COLOURS,
    FURNITURE,
    FURNITURE_BY_NAME,
    FURNITURE_TONES,
    KIND_BY_NAME,
    KINDS,
    RGB,
    ObjectKind,
)
from navsim.rooms import DOORWAY_HEIGHT, WALL_HEIGHT, WALL_THICKNESS, Furniture, Room, SceneObject
from navsim.scene_xml import HIDDEN_GROUP, SHOWN_GROUP, WALL_SLOTS, scene_assets, scene_xml, slot_count
from navsim.visibility import CAMERA_HFOV, EYE_HEIGHT

prepare_headless_rendering()
try:
    import mujoco
except (ImportError, AttributeError, RuntimeError) as error:  # how a back-end fails without its library
    raise explain(error) from error

WIDTH, HEIGHT = 224, 140
BACKGROUND = -1


class _Slot:
    """One pooled body: indices of its mocap entry and geoms, and the unscaled sizes of its parts."""

    def __init__(self, model: Any, name: str):
        self.mocap = int(model.body_mocapid[model.body(name).id])
        body = model.body(name)
        self.geoms = np.arange(body.geomadr[0], body.geomadr[0] + body.geomnum[0])
        self.size = model.geom_size[self.geoms].copy()
        self.pos = model.geom_pos[self.geoms].copy()


class World:
    """A camera in a room. Make it once (about a second), `load` a room, then `render` and `segment` from any pose."""

    def __init__(self, width: int = WIDTH, height: int = HEIGHT, hfov: float = CAMERA_HFOV):
        if width < 16 or height < 16 or not 0.1 < hfov < 3.0:
            raise BadRequest(
                f"camera {width}x{height}, {hfov:.2f} rad is not usable; use >= 16 pixels and 0.1..3 rad"
            )
        self.width, self.height, self.hfov = width, height, hfov
        vfov = 2.0 * math.atan(math.tan(hfov / 2) * height / width)
        self._model: Any = mujoco.MjModel.from_xml_string(
            scene_xml(width, height, math.degrees(vfov)), scene_assets()
        )
        self._data: Any = mujoco.MjData(self._model)
        try:
            self._renderer: Any = mujoco.Renderer(self._model, height, width)
        except (ImportError, RuntimeError) as error:
            raise explain(error) from error
        self._option = mujoco.MjvOption()
        self._slots = {
            kind.name: [_Slot(self._model, f"{kind.name}/{i}") for i in range(slot_count(kind))]
            for kind in (*KINDS, *FURNITURE)
        }
        self._walls = [_Slot(self._model, f"wall/{i}") for i in range(WALL_SLOTS)]
        self._materials = {self._model.mat(i).name: i for i in range(self._model.nmat)}
        self._eye = int(self._model.body_mocapid[self._model.body("eye").id])
        self._floor = self._model.geom("floor").id
        # The last entry is for the background (geom id -1).
        self._label = np.full(self._model.ngeom + 1, BACKGROUND, dtype=np.int32)
        self._scene_pose: Pose2D | None = None
        self.room: Room | None = None

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the OpenGL context; call it from the thread that made the world."""
        self._renderer.close()

    # --- rooms -------------------------------------------------------------------------------------------

    def load(self, room: Room) -> None:
        """Show this room from now on. Raises RoomError if it needs more bodies than the pools have."""
        model = self._model
        model.geom_group[:] = HIDDEN_GROUP
        for geom in ("floor", "ceiling"):
            model.geom_group[model.geom(geom).id] = SHOWN_GROUP
        self._label[:] = BACKGROUND
        used: dict[str, int] = {}
        for index, thing in enumerate(room.objects):
            metal = thing.colour == "silver"
            slot = self._place(
                used, KIND_BY_NAME[thing.kind], thing, COLOURS[thing.colour], thing.tone, metal
            )
            self._label[slot.geoms] = index
        for piece in room.furniture:
            self._place(used, FURNITURE_BY_NAME[piece.kind], piece, FURNITURE_TONES[piece.tone], 1.0, False)
        self._build_walls(room)
        self._set_look(room)
        self.room = room
        self._scene_pose = None

    def _place(
        self,
        used: dict[str, int],
        kind: ObjectKind,
        thing: SceneObject | Furniture,
        colour: RGB,
        tone: float,
        metal: bool,
    ) -> _Slot:
        number = used.get(kind.name, 0)
        slots = self._slots[kind.name]
        if number >= len(slots):
            raise RoomError(f"room has more than {len(slots)} of kind {kind.name}, which is the limit")
        used[kind.name] = number + 1
        slot, model = slots[number], self._model
        model.geom_size[slot.geoms] = slot.size * thing.scale
        model.geom_pos[slot.geoms] = slot.pos * thing.scale
        model.geom_group[slot.geoms] = SHOWN_GROUP
        for geom, part in zip(slot.geoms, kind.parts, strict=True):
            base = part.fixed or colour
            gain = part.shade * (1.0 if part.fixed else tone)
            model.geom_rgba[geom] = (*(min(channel * gain, 1.0) for channel in base), 1.0)
            model.geom_matid[geom] = self._materials["metal" if metal and not part.fixed else "paint"]
        self._data.mocap_pos[slot.mocap] = (thing.x, thing.y, 0.0)
        self._data.mocap_quat[slot.mocap] = _upright(thing.yaw)
        return slot

    def _build_walls(self, room: Room) -> None:
        pieces = [(wall.shape, 0.0, WALL_HEIGHT) for wall in room.walls]
        for door in room.doorways:
            half = WALL_THICKNESS / 2
            shape = Rect(
                *door.centre,
                0.0,
                max(abs(door.x1 - door.x0) / 2, half),
                max(abs(door.y1 - door.y0) / 2, half),
            )
            pieces.append((shape, DOORWAY_HEIGHT, WALL_HEIGHT))
        if len(pieces) > len(self._walls):
            raise RoomError(f"room has {len(pieces)} wall pieces; the limit is {len(self._walls)}")
        for slot, (shape, low, high) in zip(self._walls, pieces, strict=False):
            geom = int(slot.geoms[0])
            # Local z is the wall's normal and local y is up, so that the texture lies flat on its face.
            along_x = shape.hx >= shape.hy
            length, thickness = (shape.hx, shape.hy) if along_x else (shape.hy, shape.hx)
            self._model.geom_size[geom] = (length, (high - low) / 2, thickness)
            self._model.geom_group[geom] = SHOWN_GROUP
            self._model.geom_matid[geom] = self._materials[f"wall{room.look.wall}"]
            self._model.geom_rgba[geom] = (*room.look.wall_tint, 1.0)
            self._data.mocap_pos[slot.mocap] = (shape.x, shape.y, (low + high) / 2)
            self._data.mocap_quat[slot.mocap] = _standing(0.0 if along_x else math.pi / 2)

    def _set_look(self, room: Room) -> None:
        look, model = room.look, self._model
        model.geom_matid[self._floor] = self._materials[f"floor{look.floor}"]
        model.geom_rgba[self._floor] = (*look.floor_tint, 1.0)
        model.light_dir[0] = _unit(0.5 * math.cos(look.light_yaw), 0.5 * math.sin(look.light_yaw), -1.0)
        model.light_diffuse[0] = 0.42 * look.light_gain
        model.vis.headlight.ambient[:] = 0.50 * look.light_gain

    # --- frames ------------------------------------------------------------------------------------------

    def render(self, pose: Pose2D) -> NDArray[np.uint8]:
        """The camera's picture, uint8 [height, width, 3] RGB."""
        self._look_from(pose)
        return self._renderer.render()

    def segment(self, pose: Pose2D) -> NDArray[np.int32]:
        """Index into `room.objects` of the object in each pixel, -1 for everything else; int32 [height, width]."""
        self._look_from(pose)
        self._renderer.enable_segmentation_rendering()
        try:
            geoms = self._renderer.render()[:, :, 0]
        finally:
            self._renderer.disable_segmentation_rendering()
        return self._label[geoms]

    def frame(self, pose: Pose2D) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """`render` and `segment` of the same pose, in one go."""
        return self.render(pose), self.segment(pose)

    def _look_from(self, pose: Pose2D) -> None:
        if self.room is None:
            raise BadRequest("no room is loaded; call load(room) first")
        if pose == self._scene_pose:
            return
        self._data.mocap_pos[self._eye] = (pose.x, pose.y, EYE_HEIGHT)
        self._data.mocap_quat[self._eye] = _upright(pose.yaw)
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_camlight(self._model, self._data)
        self._renderer.update_scene(self._data, "eye", self._option)
        self._scene_pose = pose


def _upright(yaw: float) -> tuple[float, float, float, float]:
    return math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)


def _standing(yaw: float) -> tuple[float, float, float, float]:
    """Return the quaternion of a 90 degree turn about x (local y up), then a yaw about the vertical."""
    h = math.sqrt(0.5)
    c, s = math.cos(yaw / 2), math.sin(yaw / 2)
    return c * h, c * h, s * h, s * h


def _unit(x: float, y: float, z: float) -> tuple[float, float, float]:
    span = math.sqrt(x * x + y * y + z * z)
    return x / span, y / span, z / span
