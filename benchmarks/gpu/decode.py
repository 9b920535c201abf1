# SPDX-License-Identifier: Apache-2.0
"""Forward times on a GPU: on the static path and the ordinary path, by rows, at growing lengths, in batches and trees.

    python benchmarks/gpu/decode.py MODEL [--draft MODEL] [--device cuda] [--json FILE] [--skip NAME,NAME]

Times are medians in milliseconds, each measured up to a device synchronisation. Lengths grow by a token from one
forward to the next, as in an answer, because kernels that plan per length look fast when a length is repeated.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from specdec.drafting import ChainDrafter, DraftModel
from specdec.models import Prompt, extend_many, load_model
from specdec.models.images import PreparedImages
from specdec.models.loaded import LoadedModel
from specdec.models.static.recording import CudaGraphs
from specdec.models.static.tower import RecordedTower, tower_of
from specdec.options import GenerationOptions
from specdec.pictures.decoding import decode_image
from specdec.verifying.exits import Exits
from specdec.verifying.exits.adapters import ExitAdapters
from specdec.verifying.hints.hints import HintMaker
from specnav.doctor.gpu.measuring import time_exits

PROMPT = 512
found: dict[str, Any] = {}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("model")
    words.add_argument("--draft")
    words.add_argument("--device", default="cuda")
    words.add_argument("--dtype", default="bfloat16")
    words.add_argument("--json")
    words.add_argument("--quantize", default="none")
    words.add_argument("--skip", default="")
    asked = words.parse_args()
    skip = set(asked.skip.split(","))
    with torch.inference_mode():
        began = time.perf_counter()
        model = load_model(asked.model, asked.device, asked.dtype, asked.quantize)
        note("load_s", time.perf_counter() - began)
        parts = (floor, static, profile, picture, batch, exits, ordinary, library)
        for measure in parts:
            name = measure.__name__
            if name not in skip:
                attempt(name, measure, model)
        if asked.draft and "chain" not in skip:
            draft = load_model(asked.draft, asked.device, asked.dtype)
            attempt("chain", chain, draft)
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


def attempt(name: str, measure: Callable[[LoadedModel], None], model: LoadedModel) -> None:
    began = time.perf_counter()
    try:
        measure(model)
    except Exception as error:  # go on to the other measurements
        import traceback

        traceback.print_exc()
        note(f"{name}_failed", repr(error)[:300])
    print(f"-- {name} took {time.perf_counter() - began:.1f} s", flush=True)


def note(name: str, value: Any) -> None:
    found[name] = round(value, 3) if isinstance(value, float) else value
    print(f"{name:42} {found[name]}", flush=True)


def sync(model: LoadedModel) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize()


def timed(model: LoadedModel, work: Callable[[int], object], times: int = 24, warm: int = 3) -> float:
    """Median milliseconds of work(number)."""
    taken = []
    for number in range(-warm, times):
        sync(model)
        began = time.perf_counter()
        work(number)
        sync(model)
        if number >= 0:
            taken.append(1e3 * (time.perf_counter() - began))
    return statistics.median(taken)


def ids(count: int, start: int = 0) -> list[int]:
    return [(start + 7 * number) % 500 for number in range(count)]


def floor(model: LoadedModel, name: str = "") -> None:
    """Measure the time to read all decoder weights once."""
    if model.device.type != "cuda":
        return
    note("card", torch.cuda.get_device_name())
    runner = model.runner
    size = sum(
        product.weight.numel() * product.weight.element_size()
        for layer in runner.layers
        for product in (layer.qkv, layer.out, layer.gate_up, layer.down)
    )
    size += model.vocab_size * runner.hidden_size * runner.dtype.itemsize
    big = torch.ones(size // 2, dtype=torch.bfloat16, device=model.device)
    note(f"{name}weights_gb", size / 1e9)
    note(f"{name}floor_ms", timed(model, lambda number: big.sum(), 8))


def static(model: LoadedModel) -> None:
    runner = model.runner
    note("static_path", runner.static is not None)
    before = torch.cuda.memory_reserved() if model.device.type == "cuda" else 0
    began = time.perf_counter()
    if runner.static is not None:
        runner.static.warm_up(runner.new_cache(128))
        note("record_s", time.perf_counter() - began)
        note("recordings", runner.static.recordings)
        if model.device.type == "cuda":
            note("record_gb", (torch.cuda.memory_reserved() - before) / 1e9)
    by_rows(model, "static", (1, 2, 4, 5, 8, 16, 32, 64, 128))
    with unfused(model):
        by_rows(model, "unfused", (1, 2))


@contextmanager
def unfused(model: LoadedModel) -> Iterator[None]:
    """The static path with cuBLAS products for one and two rows as well."""
    path = model.runner.static
    if path is None:
        yield
        return
    held, path.fused_rows = path.fused_rows, 0
    path.observe(path.cuts)  # so that it is recorded again
    yield
    path.fused_rows = held
    path.observe(path.cuts)


def ordinary(model: LoadedModel) -> None:
    held, model.runner.static = model.runner.static, None
    by_rows(model, "ordinary", (1, 8))
    model.runner.static = held


def by_rows(model: LoadedModel, name: str, rows_tried: tuple[int, ...]) -> None:
    for past in (PROMPT, 2048):
        session = model.new_session()
        session.most_tokens, session.at_once = past + 600, True
        for number in range(3):
            session.rollback(0)
            sync(model)
            began = time.perf_counter()
            session.prefill(model.encode(Prompt(tuple(ids(past)))))
            sync(model)
            note(f"{name}_prompt_{past}_{number}", 1e3 * (time.perf_counter() - began))
        for rows in rows_tried:
            times = 24 if rows < 64 else 6

            def grow(number: int, rows: int = rows) -> None:
                session.rollback(past + max(0, number))
                session.extend(ids(rows, number))

            note(f"{name}_past_{past}_rows_{rows}", timed(model, grow, times))
        session.rollback(past)

        def tree(number: int) -> None:
            session.rollback(past)
            session.extend_tree(ids(32, number), [-1, -1, *(node // 2 for node in range(30))])

        if rows_tried[-1] > 32:
            note(f"{name}_past_{past}_tree_32", timed(model, tree, 12))
            session.rollback(past)
            steady(model, session, f"{name}_past_{past}")


def steady(model: LoadedModel, session: Any, name: str) -> None:
    """Measure greedy decoding with one read from the device per token, as in an answer."""
    token = 1
    sync(model)
    began = time.perf_counter()
    for _ in range(64):
        token = int(session.extend([token]).argmax(-1))
    note(f"{name}_greedy_ms_a_token", 1e3 * (time.perf_counter() - began) / 64)


def batch(model: LoadedModel) -> None:
    for count in (1, 8, 32):
        sessions = [model.new_session() for _ in range(count)]
        for number, session in enumerate(sessions):
            session.most_tokens, session.at_once = 900, True
            session.prefill(model.encode(Prompt(tuple(ids(300 + 11 * number, number)))))
        for rows in (1, 4):
            note(
                f"batch_{count}_rows_{rows}",
                timed(
                    model,
                    lambda number, rows=rows: extend_many(
                        [one.extension(ids(rows, number)) for one in sessions]
                    ),
                    12,
                ),
            )


def exits(model: LoadedModel) -> None:
    """Measure what observing three exits with random weights adds to a verification."""
    layers = [model.runner.layer_count * part // 4 for part in (1, 2, 3)]
    adapters = ExitAdapters(3, model.runner.hidden_size, 128)
    maker = HintMaker(Exits(model, adapters, layers, frequent=tuple(range(4000))))
    found = time_exits(model, maker, 4, PROMPT, 2.0)
    note("exits_without_ms", found.without_ms)
    note("exits_with_ms", found.with_ms)
    note("exits_cost", found.cost)
    if model.runner.static is not None:
        model.runner.static.observe(())


def profile(model: LoadedModel, name: str = "") -> None:
    session = model.new_session()
    session.prefill(model.encode(Prompt(tuple(ids(PROMPT)))))
    for rows in (1, 8):
        session.extend(ids(rows))
        kernels_of(model, lambda rows=rows: session.extend(ids(rows)), f"{name}rows_{rows}")


def kernels_of(model: LoadedModel, work: Callable[[], object], name: str) -> None:
    """Report the number of kernels that the work launches, how long they keep the device busy, and the costliest."""
    if model.device.type != "cuda":
        return
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recording

    with recording(activities=[ProfilerActivity.CUDA]) as taken:
        for _ in range(3):
            work()
        sync(model)
    kernels = [one for one in taken.events() if one.device_type == torch.autograd.DeviceType.CUDA]
    note(f"kernels_{name}", len(kernels) / 3)
    note(f"busy_ms_{name}", sum(one.device_time for one in kernels) / 3e3)
    print(taken.key_averages().table(sort_by="cuda_time_total", row_limit=14, max_name_column_width=60))


def picture(model: LoadedModel) -> None:
    if not model.is_multimodal:
        return
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(1).random((60, 80, 3))
    image = Image.fromarray((noise * 255).astype("uint8")).resize((640, 480))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    data = file.getvalue()
    prepared = model.decode(data)
    note("picture_prepare_ms", timed(model, lambda number: model.decode(data), 24))
    prepare_by_part(model, data)
    note("picture_patches", prepared.pixel_values.shape[0])
    for number in range(4):
        sync(model)
        began = time.perf_counter()
        model.look([prepared])
        sync(model)
        note(f"picture_tower_ms_{number}", 1e3 * (time.perf_counter() - began))
    note("picture_tower_ms", timed(model, lambda number: model.look([prepared]), 24))
    if model.device.type == "cuda":
        tower_by_way(model, prepared)
        tower_by_kernel(model, prepared)


def prepare_by_part(model: LoadedModel, data: bytes) -> None:
    """Of a GPU resizing and patches count as the tower's, beside the parts as a CPU does them."""
    preparer = model._preparer
    assert preparer is not None
    processor = preparer._processor
    image = decode_image(data)
    prepared = preparer.prepare_opened([image])
    resized, grid = processor.pixels(image)
    parts: dict[str, Callable[[int], object]] = {
        "decode": lambda number: decode_image(data),
        "to_tensor": lambda number: preparer.prepare_opened([image]),
        "upload": lambda number: prepared.images[0].to(model.device),
        "resize_and_patches": lambda number: prepared.pixel_values,
        "resize_on_a_cpu": lambda number: processor.pixels(image),
        "patches_on_a_cpu": lambda number: processor.patches(resized, grid),
    }
    for name, work in parts.items():
        note(f"picture_part_{name}_ms", timed(model, work, 24))
    same = torch.equal(prepared.pixel_values.cpu(), processor.patches(resized, grid))
    note("picture_patches_as_on_a_cpu", same)


def tower_by_way(model: LoadedModel, prepared: PreparedImages) -> None:
    """Replays behind one another, so that only the GPU's time counts; differences are those of the largest value."""
    from specdec.models.direct.modules import TowerOperations
    from specdec.models.static.kernels import TritonTower

    ways = {"plain": TowerOperations(), "kernels": TritonTower()}
    patches, expected = prepared.pixel_values.to(model.device, model.dtype), None
    for name, way in ways.items():
        tower = tower_of(
            model.network.model.visual, model.network.config.vision_config, way, CudaGraphs(model.device)
        )
        assert tower is not None and tower.tower.operations is way, "it gave way to plain torch"
        sync(model)
        began = time.perf_counter()
        tower(patches, prepared.grids)
        sync(model)
        note(f"tower_{name}_first_ms", 1e3 * (time.perf_counter() - began))
        found = [tower(patches, prepared.grids) for _ in range(2)][-1].float()
        expected = found if expected is None else expected
        note(f"tower_{name}_difference", float((found - expected).abs().max() / expected.abs().max()))

        def replays(number: int, tower: RecordedTower = tower) -> None:
            for _ in range(8):
                tower(patches, prepared.grids)

        note(f"tower_{name}_ms", timed(model, replays, 8) / 8)


def tower_by_kernel(model: LoadedModel, prepared: PreparedImages) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recording

    with recording(activities=[ProfilerActivity.CUDA]) as taken:
        for _ in range(3):
            model.look([prepared])
        sync(model)
    kernels = [one for one in taken.events() if one.device_type == torch.autograd.DeviceType.CUDA]
    note("tower_kernels", len(kernels) / 3)
    note("tower_busy_ms", sum(one.device_time for one in kernels) / 3e3)
    print(taken.key_averages().table(sort_by="cuda_time_total", row_limit=24, max_name_column_width=90))


def chain(model: LoadedModel) -> None:
    """A chain of 4 behind a growing answer."""
    note("chain_static_path", model.runner.static is not None)
    floor(model, "chain_")
    held = model.runner.static
    chains(model, "static")
    with unfused(model):
        chains(model, "unfused")
    model.runner.static = None
    chains(model, "ordinary")
    model.runner.static = held
    profile(model, "chain_")


def chains(model: LoadedModel, name: str) -> None:
    for temperature in (0.0, 0.8):
        drafter = ChainDrafter(DraftModel(model, GenerationOptions(temperature=temperature)))
        drafter.at_once = True
        drafter.prefill(Prompt(tuple(ids(PROMPT))))
        answer = [1]

        def draft(number: int, drafter: Any = drafter, answer: list[int] = answer) -> None:
            drafted = drafter.chain(answer, 4).draft.ids
            answer += [*drafted[:2], (number * 3) % 500]

        note(f"chain_4_{name}_t{temperature:g}", timed(model, draft, 24))
        if temperature == 0.0 and name == "static":
            kernels_of(model, lambda: draft(0), "chain_4")
    note(f"chain_{name}_one_row", rows_of_one(model))


def rows_of_one(model: LoadedModel) -> float:
    session = model.new_session()
    session.prefill(model.encode(Prompt(tuple(ids(PROMPT)))))
    return timed(model, lambda number: session.extend([number % 500]), 24)


def library(model: LoadedModel) -> None:
    network = model.hf_model
    prompt = torch.tensor([ids(PROMPT)], device=model.device)

    def generate(count: int, **how: Any) -> float:
        sync(model)
        began = time.perf_counter()
        network.generate(
            input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, min_new_tokens=count,
            do_sample=False, **how,
        )  # fmt: skip
        sync(model)
        return 1e3 * (time.perf_counter() - began) / count

    generate(8)
    note("library_dynamic_ms_a_token", generate(48))
    if (
        model.device.type == "cuda"
    ):  # our process has switched cuDNN's attention off; whoever uses the library has it
        torch.backends.cuda.enable_cudnn_sdp(True)
        generate(8)
        note("library_dynamic_with_cudnn_ms_a_token", generate(40))
        torch.backends.cuda.enable_cudnn_sdp(False)
    began = time.perf_counter()
    generate(64, cache_implementation="static")
    generate(64, cache_implementation="static")
    note("library_static_warm_s", time.perf_counter() - began)
    note("library_static_ms_a_token", generate(64, cache_implementation="static"))


if __name__ == "__main__":
    main()
