"""A photograph taken with the camera on its side is seen, and counted, the right way up, as by the library."""

from __future__ import annotations

import io
import time
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps, PngImagePlugin

from spec_vlm_nav.camera import images as camera
from specdec.models import Prompt, chat_prompt
from specdec.pictures.decoding import decode_image
from specdec.pictures.sizes import orientation_of, picture_size, stored_size
from tests.helpers.servers import Pair

rng = np.random.default_rng(0)
PHOTO = Image.fromarray(rng.integers(0, 255, (28 * 3, 28 * 5, 3), np.uint8)).resize((168, 84))
XMP = '<x:xmpmeta><rdf:Description tiff:Orientation="%d"/></x:xmpmeta>'


def exif(number: int) -> bytes:
    tags = Image.Exif()
    tags[0x010E] = "a description that stands first"
    tags[0x0112] = number
    return tags.tobytes()


def saved(kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    PHOTO.save(buffer, kind, **options)
    return buffer.getvalue()


def png_text(number: int, name: str, packed: bool) -> bytes:
    text = PngImagePlugin.PngInfo()
    if name == "exif":
        block = exif(number).hex()
        lines = [block[at : at + 72] for at in range(0, len(block), 72)]
        said = "\n".join(["", "exif", f"{len(block) // 2:8}", *lines, ""])
        text.add_text("Raw profile type exif", said, zip=packed)
    else:
        text.add_itxt("XML:com.adobe.xmp", XMP % number, zip=packed)
    return saved("PNG", pnginfo=text)


def chunk(kind: bytes, content: bytes) -> bytes:
    whole = kind + content
    return len(content).to_bytes(4, "big") + whole + zlib.crc32(whole).to_bytes(4, "big")


def exif_behind_the_picture(number: int) -> bytes:
    whole = saved("PNG")
    return whole[:-12] + chunk(b"eXIf", exif(number)[6:]) + whole[-12:]


KINDS: dict[str, Callable[[int], bytes]] = {
    "JPEG": lambda number: saved("JPEG", exif=exif(number), comment=b"hello", dpi=(72, 72)),
    "JPEG, progressive": lambda number: saved("JPEG", exif=exif(number), progressive=True),
    "JPEG with XMP": lambda number: saved("JPEG", xmp=(XMP % number).encode()),
    "PNG": lambda number: saved("PNG", exif=exif(number)),
    "PNG, behind the picture": exif_behind_the_picture,
    "PNG of ImageMagick": lambda number: png_text(number, "exif", True),
    "PNG of ImageMagick, not packed": lambda number: png_text(number, "exif", False),
    "PNG with XMP": lambda number: png_text(number, "xmp", False),
    "PNG with packed XMP": lambda number: png_text(number, "xmp", True),
    "WebP": lambda number: saved("WEBP", exif=exif(number), lossless=True),
    "WebP with XMP": lambda number: saved("WEBP", xmp=(XMP % number).encode(), lossless=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(10))
def test_pixels_and_the_size_in_the_header_turn_as_the_librarys(kind: str, number: int) -> None:
    data = KINDS[kind](number)
    right = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    assert orientation_of(data) == (number if 1 <= number <= 8 else 1)
    assert picture_size(data) == right.size == ((84, 168) if number in (5, 6, 7, 8) else (168, 84))
    assert stored_size(data) == (168, 84)
    for found in (decode_image(data), *([] if "WebP" in kind else [camera.decode(data)])):
        assert np.array_equal(np.asarray(found), np.asarray(right))


def test_what_the_robot_scales_down_is_the_right_way_up() -> None:
    data = KINDS["JPEG"](6)
    small = camera.prepare(data, camera.PictureOptions(pixels=2000))
    with Image.open(io.BytesIO(small)) as picture:
        assert picture.height > picture.width and picture.getexif().get(0x0112, 1) == 1
    assert camera.prepare(data, camera.PictureOptions()) == data  # whichever page looks at it turns it


@pytest.mark.parametrize("number", [3, 6])
def test_a_prompt_is_that_of_the_turned_picture(vision_pair: Pair, number: int) -> None:
    model = vision_pair.target
    for kind in ("PNG", "WebP"):
        data = KINDS[kind](number)
        buffer = io.BytesIO()
        ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB").save(buffer, "PNG")
        upright = buffer.getvalue()
        ids = chat_prompt(model, "what is it?", images=[data]).ids
        turned, right = model.encode(Prompt(ids, (data,))), model.encode(Prompt(ids, (upright,)))
        assert turned.grids is not None and right.grids is not None
        assert turned.grids.tolist() == right.grids.tolist()
        assert turned.pixel_values is not None and turned.pixel_values.equal(right.pixel_values)
        assert model.prompt_length(Prompt(ids, (data,))) == len(turned.ids) == len(right.ids)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(1, 8), st.data())
def test_broken_headers_never_raise_and_never_make_two_sizes(
    kind: str, number: int, draw: st.DataObject
) -> None:
    data = bytearray(KINDS[kind](number))
    for _ in range(draw.draw(st.integers(1, 4))):
        data[draw.draw(st.integers(12, min(len(data), 400) - 1))] = draw.draw(st.integers(0, 255))
    damaged = bytes(data)
    assert orientation_of(damaged) in range(1, 9)
    try:
        size = picture_size(damaged)
        if size[0] * size[1] < 1_000_000:
            assert decode_image(damaged).size == size
    except Exception as error:
        assert type(error).__name__ == "ModelError" and "\n" not in str(error)


def test_a_file_of_very_many_parts_is_given_up_soon() -> None:
    parts = chunk(b"IDAT", b"") * 1_000_000
    assert orientation_of(b"\x89PNG\r\n\x1a\n" + parts + exif_behind_the_picture(6)) == 1


PACKED = zlib.compress(bytes(1 << 20))
DIRECTORY = b"II*\0\x08\0\0\0\xff\xff" + bytes(65535 * 12)
HOSTILE = {
    "packed EXIF": chunk(b"zTXt", b"Raw profile type exif\0\0" + PACKED) * 4000,
    "packed XMP": chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + PACKED) * 4000,
    "large directories": chunk(b"eXIf", DIRECTORY) * 8,
    "tiny texts": chunk(b"tEXt", b"") * 500_000,
}


def seconds_for(data: bytes) -> float:
    """The processor's time for a header; the least of three, as Python may look for garbage meanwhile."""

    def once() -> float:
        began = time.thread_time()
        assert picture_size(data) == (168, 84)
        return time.thread_time() - began

    return min(once() for _ in range(3))


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_header_takes_long(kind: str) -> None:
    """A verifier's sockets wait for it."""
    whole = saved("PNG")
    data = whole[:-12] + HOSTILE[kind] + whole[-12:]
    assert seconds_for(data) < 0.1


def test_a_large_exif_in_many_parts_of_a_jpeg_is_not_read_whole() -> None:
    whole, part = saved("JPEG"), b"Exif\0\0" + bytes(65_000)
    segments = (b"\xff\xe1" + (len(part) + 2).to_bytes(2, "big") + part) * 500
    assert seconds_for(whole[:2] + segments + whole[2:]) < 0.1
