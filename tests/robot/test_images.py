"""Camera pictures: broken ones are refused in one line, good ones go through unchanged."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from spec_vlm_nav.camera.images import (
    PictureOptions,
    RawImage,
    black_like,
    decode,
    fit,
    from_raw,
    prepare,
    same_scene,
    to_jpeg,
)
from spec_vlm_nav.common.errors import FrameError
from tests.helpers.hostile_inputs import with_empty_scans

AS_IS = PictureOptions()


def picture(size=(64, 40), kind="JPEG"):
    pixels = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_good_compressed_picture_goes_through_unchanged(kind):
    data = picture(kind=kind)
    assert prepare(data, AS_IS) is data
    assert prepare(data, PictureOptions(64, 40)) is data


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty camera frame"),
        (b"\x00\x00\x00\x01\x67h264", "neither JPEG nor PNG"),
        (picture()[:-200], "corrupt camera frame"),
        (picture()[:100], "camera frame"),
        (picture(kind="PNG")[:-300], "corrupt camera frame"),
    ],
)
def test_a_broken_picture_is_refused_in_one_line(data, why):
    with pytest.raises(FrameError, match=why) as caught:
        prepare(data, AS_IS)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_never_raise_anything_else(data):
    with pytest.raises(FrameError):
        decode(data)


def test_a_picture_of_another_size_is_cropped_not_stretched():
    wide = np.zeros((100, 400, 3), np.uint8)
    wide[:, 150:250] = 255
    out = io.BytesIO()
    Image.fromarray(wide).save(out, "PNG")
    fitted = decode(prepare(out.getvalue(), PictureOptions(50, 50)))
    assert fitted.size == (50, 50) and np.asarray(fitted).min() > 200


@pytest.mark.parametrize("encoding", ["rgb8", "bgr8", "rgba8", "bgra8", "mono8"])
def test_raw_pixels_keep_their_colours_and_row_padding_is_skipped(encoding):
    channels = {"mono8": 1}.get(encoding, 4 if "a" in encoding else 3)
    red = {"rgb8": (200, 10, 20), "bgr8": (20, 10, 200), "rgba8": (200, 10, 20, 0), "bgra8": (20, 10, 200, 0)}
    pixel = bytes(red.get(encoding, (200,)))
    row = pixel * 32 + b"\xff" * 5
    raw = RawImage(encoding, 32, 16, 32 * channels + 5, row * 16)
    seen = np.asarray(decode(prepare(raw, PictureOptions(quality=95)))).mean(axis=(0, 1))
    expected = (200, 200, 200) if encoding == "mono8" else (200, 10, 20)
    assert seen == pytest.approx(expected, abs=6)


@pytest.mark.parametrize(
    "raw",
    [
        RawImage("yuv422", 4, 4, 8, bytes(32)),
        RawImage("rgb8", 4, 4, 12, bytes(40)),
        RawImage("rgb8", 4, 4, 3, bytes(48)),
        RawImage("rgb8", 0, 0, 0, b""),
    ],
)
def test_raw_pictures_that_make_no_sense_are_refused(raw):
    with pytest.raises(FrameError):
        prepare(raw, AS_IS)


def test_an_encoding_of_any_words_is_named_in_one_line():
    with pytest.raises(FrameError) as told:
        from_raw(RawImage("no\nencoding\x1b[2J" * 1000, 16, 16, 16, bytes(256)))
    assert "encoding 'no encoding?[2J" in str(told.value) and str(told.value).isprintable()
    assert len(str(told.value)) < 500


def test_black_history_has_the_size_of_the_frame():
    black = decode(black_like(picture((96, 60))))
    assert black.size == (96, 60) and np.asarray(black).max() < 8


@pytest.mark.parametrize(
    ("level", "refused"),
    [(0, "is black"), (3, "is black"), (30, ""), (225, ""), (252, "is white"), (255, "is white")],
)
def test_a_black_or_white_picture_is_refused_a_dark_or_light_one_is_not(level, refused):
    picture = to_jpeg(Image.new("RGB", (64, 40), (level, level, level)))
    if refused:
        with pytest.raises(FrameError, match=f"the camera picture {refused}"):
            prepare(picture, PictureOptions())
    else:
        assert prepare(picture, PictureOptions()) == picture


@pytest.mark.parametrize("size", [(1, 1), (5000, 1), (15, 200), (224, 8)])
def test_a_picture_that_is_no_cameras_is_refused(size):
    with pytest.raises(FrameError, match=f"of {size[0]}x{size[1]} pixels refused: each side must have 16"):
        prepare(picture(size), PictureOptions())


@pytest.mark.parametrize("size", [(1, 6000), (6000, 1), (1, 1)])
def test_a_picture_of_odd_shape_never_grows_to_more_than_what_is_asked_for(size, monkeypatch):
    made, resize = [], Image.Image.resize

    def resized(picture, to, *how):
        made.append(to)
        return resize(picture, to, *how)

    monkeypatch.setattr(Image.Image, "resize", resized)
    assert fit(Image.new("RGB", size, (9, 80, 200)), 224, 224).size == (224, 224)
    assert made == [(224, 224)]


def test_a_picture_is_cropped_in_its_middle_before_it_is_scaled():
    wide = np.zeros((100, 300, 3), np.uint8)
    wide[:, 100:200] = 255
    assert np.asarray(fit(Image.fromarray(wide), 50, 50)).min() > 200  # not 0


def test_a_picture_of_sixteen_bits_is_refused_in_one_line():
    out = io.BytesIO()
    Image.fromarray(np.full((20, 20), 40_000, np.uint16)).save(out, "PNG")
    with pytest.raises(FrameError, match="8 bits per channel"):
        decode(out.getvalue())


@pytest.mark.parametrize("kind", ["JPEG", "MPO"])
def test_very_many_scans_are_refused_in_a_jpeg_of_several_pictures_too(kind):
    out = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    several = {"save_all": True, "append_images": [Image.fromarray(pixels)]} if kind == "MPO" else {}
    Image.fromarray(pixels).save(out, kind, progressive=True, **several)
    data = out.getvalue()
    assert prepare(data, AS_IS) is data and same_scene(data, data, 0.0)
    bomb = with_empty_scans(data, 1000)
    with pytest.raises(FrameError, match="too many JPEG scans"):
        decode(bomb)
    assert not same_scene(bomb, bomb, 0.0)


@pytest.mark.parametrize(("width", "height"), [(65_501, 16), (16, 70_000)])
def test_a_picture_that_no_jpeg_can_hold_is_refused_in_one_line(width, height):
    raw = RawImage("rgb8", width, height, 3 * width, bytes(3 * width * height))
    out = io.BytesIO()
    Image.new("RGB", (width, height)).save(out, "PNG")
    for look in (lambda: from_raw(raw), lambda: decode(out.getvalue())):
        with pytest.raises(FrameError, match="too large"):
            look()


def test_a_raw_picture_has_the_bound_of_a_compressed_one():
    huge = RawImage("mono8", 1 << 14, (1 << 12) + 1, 1 << 14, bytes((1 << 26) + (1 << 14)))
    with pytest.raises(FrameError, match="too large"):
        prepare(huge, AS_IS)
