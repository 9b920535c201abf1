"""Point clouds as a lidar sends them."""

import numpy as np

from spec_vlm_nav.motion.ahead.cloud import Field, PointCloud
from spec_vlm_nav.motion.ahead.corridor import CloudConfig, CorridorConfig, Mounting

HIGH = 0.3  # of the frame over the floor
CORRIDOR = CorridorConfig(cloud=CloudConfig(Mounting(z=HIGH)))


def cloud(points, kind="f4", offsets=(0, 4, 8), step=None, big_endian=False, rows=1, pad=0, frame="lidar"):
    """A message of points, shape (N, 3), in the layout asked for; `pad` bytes end each row."""
    points = np.asarray(points, np.float64).reshape(-1, 3)
    size = int(kind[1])
    step = step or max(offsets) + size
    width = len(points) // rows
    data = np.zeros((rows, width * step + pad), np.uint8)
    numbers = points[: rows * width].astype(f"{'>' if big_endian else '<'}{kind}")
    for axis, offset in enumerate(offsets):
        raw = np.frombuffer(np.ascontiguousarray(numbers[:, axis]).tobytes(), np.uint8).reshape(
            rows, width, size
        )
        for byte in range(size):
            data[:, offset + byte : offset + byte + (width - 1) * step + 1 : step] = raw[:, :, byte]
    datatype = 7 if kind == "f4" else 8
    fields = tuple(Field(name, offset, datatype) for name, offset in zip("xyz", offsets, strict=True))
    return PointCloud(fields, width, rows, step, width * step + pad, data.tobytes(), big_endian, frame)


def floor(far=4.0, near=-4.0, z=-HIGH):
    """What a sensor sees of the floor, from `near` to `far`."""
    x, y = np.meshgrid(np.arange(near, far, 0.1), np.arange(-2.0, 2.01, 0.1))
    return np.column_stack([x.ravel(), y.ravel(), np.full(x.size, z)])
