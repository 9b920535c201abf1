"""Whether two pictures show the same scene: noise does, another view does not, rubbish never does."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from spec_vlm_nav.camera.images import RawImage, difference, same_scene, thumbnail
from spec_vlm_nav.common.errors import FrameError


def scene(shift=0, noise=0, seed=0, size=(320, 200)):
    """A bright block on a gradient; `shift` pixels to the right."""
    rng = np.random.default_rng(seed)
    pixels = np.tile(np.linspace(60, 160, size[0]), (size[1], 1))
    pixels[60:160, 80 + shift : 140 + shift] = 230
    pixels = np.clip(pixels + rng.normal(0, noise, pixels.shape), 0, 255)
    return np.repeat(pixels[:, :, None], 3, axis=2).astype(np.uint8)


def jpeg(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=90)
    return out.getvalue()


def test_the_thumbnail_is_small_grey_and_shows_the_scene():
    small = thumbnail(jpeg(scene()))
    assert small.shape == (35, 56) and small.dtype == np.float32
    assert small[18, 19] > 220 and abs(small[2, 54] - 158) < 6


def test_camera_noise_is_the_same_scene_a_turn_of_the_robot_is_not():
    before = jpeg(scene(noise=8, seed=1))
    assert same_scene(before, jpeg(scene(noise=8, seed=2)), 3.0)
    assert difference(before, jpeg(scene(shift=40, noise=8, seed=2))) > 6
    assert not same_scene(before, jpeg(scene(shift=40, noise=8, seed=2)), 3.0)


def test_raw_pictures_are_compared_as_well():
    pixels = scene()
    raw = RawImage("rgb8", 320, 200, 960, pixels.tobytes())
    assert difference(raw, jpeg(pixels)) < 2


@pytest.mark.parametrize("bad", [b"", b"rubbish", RawImage("rgb8", 320, 200, 960, b"short")])
def test_what_cannot_be_decoded_is_never_the_same_scene(bad):
    good = jpeg(scene())
    assert not same_scene(good, bad, 255.0) and not same_scene(bad, good, 255.0)
    with pytest.raises(FrameError):
        difference(good, bad)
