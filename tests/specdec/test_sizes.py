"""How large pictures are by their headers: what PIL says, without decoding; and what they take of a context."""

from __future__ import annotations

import io
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from specdec.errors import ModelError
from specdec.models import Prompt, chat_prompt
from specdec.pictures.decoding import decode_image
from specdec.pictures.sizes import FORMATS, PictureRules, picture_size, total_pixels
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair


def encoded(format_: str, size: tuple[int, int] = (53, 31), mode: str = "RGB", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, 7).save(buffer, format=format_, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (53, 31), (1920, 1080)])
def test_sizes_are_read_from_the_header(format_: str, size: tuple[int, int]) -> None:
    data = encoded(format_, size)
    assert picture_size(data) == size == Image.open(io.BytesIO(data)).size
    assert decode_image(data).size == size


@pytest.mark.parametrize(
    "data",
    [
        encoded("JPEG", progressive=True),
        encoded("JPEG", exif=b"Exif\0\0" + b"x" * 60_000, comment=b"\xff\xc0 not a header" * 99),
        encoded("JPEG", mode="L"),
        encoded("JPEG", mode="CMYK"),
        encoded("PNG", mode="P"),
        encoded("PNG", mode="RGBA"),
        encoded("PNG", mode="I;16"),
        encoded("WEBP", lossless=True),
        encoded("WEBP", mode="RGBA"),
    ],
)
def test_all_kinds_of_headers_are_read(data: bytes) -> None:
    assert picture_size(data) == (53, 31)


@pytest.mark.parametrize("format_", ["GIF", "TIFF", "EPS", "PPM", "ICO"])
def test_foreign_formats_are_refused_without_a_try(format_: str) -> None:
    data = encoded(format_)
    for read in (picture_size, decode_image):
        with pytest.raises(ModelError, match="send a JPEG or PNG"):
            read(data)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FORMATS), st.integers(0, 2**32), st.integers(0, 200))
def test_damaged_headers_give_a_size_or_an_error_and_decoding_never_another_size(
    format_: str, seed: int, cut: int
) -> None:
    noise = random.Random(seed)
    data = bytearray(encoded(format_))
    for _ in range(noise.randrange(1, 4)):
        data[noise.randrange(min(len(data), 60))] = noise.randrange(256)
    given_ = bytes(data[: max(1, len(data) - cut)])
    try:
        size = picture_size(given_)
    except ModelError:
        return
    if size[0] * size[1] < 1_000_000:
        try:
            assert decode_image(given_).size == size
        except ModelError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xd8" + b"\xff\xfe\0\2" * 4_000_000,
        b"\xff\xd8" + b"\xff" * 16_000_000,
        encoded("PNG")[:33] + b"\0\0\0\0abCd\0\0\0\0" * 1_300_000,
    ],
    ids=["jpeg-segments", "jpeg-fill", "png-chunks"],
)
@pytest.mark.realtime
def test_headers_made_to_take_long_are_refused_at_once(data: bytes) -> None:
    started = time.perf_counter()
    with pytest.raises(ModelError):
        picture_size(data)
    assert time.perf_counter() - started < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("size", [(56, 56), (640, 480), (1920, 1080), (333, 77), (20, 3000), (4032, 3024)])
def test_tokens_are_those_that_the_model_makes_of_it(vision_pair: Pair, size: tuple[int, int]) -> None:
    model = vision_pair.target
    data = encoded("PNG", size)
    assert model._preparer is not None
    grid = model._preparer.prepare([data]).grids[0]
    assert model.picture_rules is not None
    assert model.picture_rules.tokens(*size) == grid[1] * grid[2] // model._preparer.merge**2


def test_the_length_of_a_prompt_is_known_without_decoding(
    vision_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = vision_pair.target
    prompt = chat_prompt(model, "look", images=[tiny.picture(1), tiny.picture(2, 112, 224)])
    assert model.prompt_length(prompt) == model.encode(prompt).ids.shape[0]
    monkeypatch.setattr("specdec.pictures.decoding.decode_image", forbidden)
    many = Prompt(prompt.ids * 64, prompt.images * 64)
    with pytest.raises(ModelError, match="shorten"):
        model.encode(many)


def forbidden(data: bytes) -> Image.Image:
    raise AssertionError("decoded")


def test_strips_that_cannot_be_resized_are_an_error() -> None:
    with pytest.raises(ModelError, match="resized"):
        PictureRules(28, 3136, 10_000).tokens(30_000, 10)


def test_pixels_are_summed_over_all_pictures() -> None:
    assert total_pixels([encoded("PNG", (100, 10)), encoded("JPEG", (7, 7))]) == 1049
