"""Pictures resized where their patches are made: Pillow's own pixels, to the bit, whoever resizes them."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from specdec.models.direct import resizing
from specdec.models.direct.pixels import PixelProcessor
from specdec.models.direct.resizing import resize
from specdec.models.images import ImagePreparer
from tests.specdec.pretended_device import DEVICE, OnDevice, PretendedDevice

SIZES = [
    ((640, 480), (644, 476)),
    ((640, 480), (644, 480)),
    ((480, 640), (476, 644)),
    ((320, 200), (644, 476)),
    ((700, 500), (84, 56)),
    ((97, 301), (84, 308)),
    ((30, 30), (56, 56)),
    ((28, 28), (56, 84)),
    ((5, 700), (28, 700)),
    ((1, 3), (56, 84)),
]


def noise(width: int, height: int, seed: int = 0, hard: bool = False) -> np.ndarray:
    """hard: only black and white, so that both passes leave the range of a byte and are cut off."""
    rng = np.random.default_rng(seed)
    if hard:
        return (rng.integers(0, 2, (height, width, 3)) * 255).astype(np.uint8)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def processor() -> PixelProcessor:
    size = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}
    return PixelProcessor(14, 2, 2, size, 1 / 255, (0.48, 0.46, 0.41), (0.27, 0.26, 0.28))


def jpeg(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(noise(width, height)).save(file, "JPEG", quality=90)
    return file.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize(("before", "after"), SIZES)
def test_pixels_are_pillows(before: tuple[int, int], after: tuple[int, int], hard: bool) -> None:
    pixels = noise(*before, hard=hard)
    expected = np.asarray(Image.fromarray(pixels).resize(after, Image.Resampling.BICUBIC))
    found = resize(torch.from_numpy(pixels), after[1], after[0])
    assert found.dtype == torch.uint8 and np.array_equal(found.numpy(), expected)


def test_the_order_of_passes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong one is found out by `test_pixels_are_pillows`, whatever the version of Pillow."""
    pixels = torch.from_numpy(noise(320, 240, hard=True))
    right = resize(pixels, 196, 336)
    order = resizing._columns_first(320, 240, 336, 196)
    monkeypatch.setattr(resizing, "_columns_first", lambda *sizes: not order)
    assert not torch.equal(resize(pixels, 196, 336), right)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(640, 480), (224, 140), (30, 30), (97, 301), (1280, 736)])
def test_patches_of_a_picture_resized_late_are_those_of_one_resized_early(size: tuple[int, int]) -> None:
    early, late = ImagePreparer(processor()), ImagePreparer(processor())
    late.move_to(torch.device("cpu"))
    first, second = (one.prepare([jpeg(*size), jpeg(size[1], size[0])]) for one in (early, late))
    assert first.grids == second.grids
    assert torch.equal(first.pixel_values, second.pixel_values)


def test_only_a_picture_of_few_pixels_is_handed_over_as_it_is() -> None:
    late = ImagePreparer(processor())
    late.move_to(torch.device("cpu"))
    small, large = late.prepare([jpeg(640, 480)]), late.prepare([jpeg(1600, 1200)])
    assert small.images[0].shape == (480, 640, 3)
    assert large.images[0].shape == (large.grids[0][1] * 14, large.grids[0][2] * 14, 3)


def test_a_device_that_is_tried_makes_the_patches(caplog: pytest.LogCaptureFixture) -> None:
    here, there = ImagePreparer(processor()), ImagePreparer(processor())
    with PretendedDevice():
        there.move_to(DEVICE)
        patches = there.prepare([jpeg(640, 480)]).pixel_values
        assert isinstance(patches, OnDevice) and not caplog.records
        assert torch.equal(patches.cpu(), here.prepare([jpeg(640, 480)]).pixel_values)


def one_bit_off(pixels: torch.Tensor, height: int, width: int) -> torch.Tensor:
    found = resize(pixels, height, width)
    if isinstance(pixels, OnDevice):
        found[0, 0, 0] ^= 1
    return found


def not_implemented(pixels: torch.Tensor, height: int, width: int) -> torch.Tensor:
    if isinstance(pixels, OnDevice):
        raise NotImplementedError("no such kernel\nfor this device")
    return resize(pixels, height, width)


@pytest.mark.parametrize(
    ("faulty", "reason"), [(one_bit_off, "patches differ"), (not_implemented, "(no such kernel)")]
)
def test_a_device_with_other_patches_or_none_leaves_pictures_on_the_cpu_with_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, faulty: object, reason: str
) -> None:
    expected = ImagePreparer(processor()).prepare([jpeg(640, 480)])
    monkeypatch.setattr("specdec.models.direct.pixels.resize", faulty)
    preparer = ImagePreparer(processor())
    with PretendedDevice():
        preparer.move_to(DEVICE)
        found = preparer.prepare([jpeg(640, 480)])
        assert not isinstance(found.pixel_values, OnDevice)
        assert torch.equal(found.pixel_values, expected.pixel_values)
    (line,) = caplog.records
    assert line.name == "specdec.models" and reason in line.getMessage() and "\n" not in line.getMessage()
