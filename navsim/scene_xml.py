# SPDX-License-Identifier: Apache-2.0
"""The MuJoCo model as text: floor, ceiling, lights, camera and pools of bodies to be placed and recoloured per room.

Built once per world. Slots of a pool are named "<kind>/<n>"; geoms of a slot are "<kind>/<n>/<part>".
"""

from __future__ import annotations

from navsim.kinds import FURNITURE, KINDS, ObjectKind
from navsim.rooms import WALL_HEIGHT
from navsim.textures import floor_textures, png, wall_textures

SLOTS_PER_KIND = 4
SLOTS_PER_FURNITURE = 2
WALL_SLOTS = 12
HIDDEN_GROUP = 5
SHOWN_GROUP = 0


def slot_count(kind: ObjectKind) -> int:
    """How many of a kind a room may hold."""
    return SLOTS_PER_FURNITURE if kind in FURNITURE else SLOTS_PER_KIND


def scene_assets() -> dict[str, bytes]:
    """Texture files of the model, by file name."""
    assets = {f"floor{i}.png": png(image) for i, image in enumerate(floor_textures())}
    assets |= {f"wall{i}.png": png(image) for i, image in enumerate(wall_textures())}
    return assets


def scene_xml(width: int, height: int, vfov_degrees: float) -> str:
    """The model's XML for a camera of this size."""
    floors, walls = len(floor_textures()), len(wall_textures())
    asset = [
        f'<texture name="{part}{i}" type="2d" file="{part}{i}.png"/>'
        for part, count in (("floor", floors), ("wall", walls))
        for i in range(count)
    ]
    asset += [
        f'<material name="floor{i}" texture="floor{i}" texuniform="true" texrepeat="0.8 0.8" '
        'specular="0.1" shininess="0.1"/>'
        for i in range(floors)
    ]
    asset += [
        f'<material name="wall{i}" texture="wall{i}" texuniform="true" texrepeat="{1 / WALL_HEIGHT} {1 / WALL_HEIGHT}" '
        'specular="0" shininess="0"/>'
        for i in range(walls)
    ]
    asset += [
        '<material name="paint" specular="0.15" shininess="0.4"/>',
        '<material name="metal" specular="1" shininess="0.6"/>',
        '<material name="matt" specular="0" shininess="0"/>',
    ]
    bodies = [_slot(kind, index) for kind in (*KINDS, *FURNITURE) for index in range(slot_count(kind))]
    bodies += [
        f'<body name="wall/{i}" mocap="true">'
        f'<geom name="wall/{i}/0" type="box" size="1 1 1" group="{HIDDEN_GROUP}"/></body>'
        for i in range(WALL_SLOTS)
    ]
    newline = "\n    "
    return f"""
<mujoco model="navsim">
  <visual>
    <global offwidth="{width}" offheight="{height}"/>
    <quality shadowsize="0" offsamples="4"/>
    <map znear="0.005" zfar="10"/>
    <headlight ambient="0.50 0.50 0.50" diffuse="0.30 0.30 0.30" specular="0.15 0.15 0.15"/>
  </visual>
  <statistic extent="4" center="0 0 1"/>
  <asset>
    {newline.join(asset)}
  </asset>
  <default><geom contype="0" conaffinity="0" mass="0"/></default>
  <worldbody>
    <light name="sun" directional="true" castshadow="false" pos="0 0 3" dir="0.4 0.2 -1"
      diffuse="0.42 0.42 0.42" specular="0.45 0.45 0.45" ambient="0 0 0"/>
    <geom name="floor" type="box" size="10 10 0.05" pos="2.5 2.5 -0.05" material="floor0"/>
    <geom name="ceiling" type="box" size="10 10 0.05" pos="2.5 2.5 {WALL_HEIGHT + 0.05}" rgba="0.92 0.92 0.90 1"/>
    <body name="eye" mocap="true"><camera name="eye" fovy="{vfov_degrees}" xyaxes="0 -1 0 0 0 1"/></body>
    {newline.join(bodies)}
  </worldbody>
</mujoco>
"""


def _slot(kind: ObjectKind, index: int) -> str:
    name = f"{kind.name}/{index}"
    geoms = []
    for number, part in enumerate(kind.parts):
        size = " ".join(f"{value:g}" for value in part.size)
        pos = " ".join(f"{value:g}" for value in part.pos)
        euler = " ".join(f"{value:g}" for value in part.euler)
        geoms.append(
            f'<geom name="{name}/{number}" type="{part.shape}" size="{size}" pos="{pos}" euler="{euler}" '
            f'material="paint" group="{HIDDEN_GROUP}"/>'
        )
    return f'<body name="{name}" mocap="true">{"".join(geoms)}</body>'
