# SPDX-License-Identifier: Apache-2.0
"""Loads a LoadedModel from a Hugging Face folder or hub id, and reports the usual mistakes in one line each.

Supports every causal language model that the library loads. Families in `specdec.models.families` run on our own
forward pass, all others on the library's. Weights may be plain, quantised with bitsandbytes on loading, or quantised
already. A folder is read by `specdec.models.direct` if that supports it, and by the library otherwise.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch

from specdec.downloads import shipped
from specdec.errors import ModelError, first_line
from specdec.models.direct import read_model, read_tokenizer
from specdec.models.families import FAMILIES, Family
from specdec.models.gguf_header import read_header
from specdec.models.images import ImagePreparer
from specdec.models.layers.compiled import check_compiler
from specdec.models.library.generic import length_dependent_rope
from specdec.models.library.pictures import pictures_of, takes_pictures
from specdec.models.loaded import LoadedModel
from specdec.models.runner import ForwardOptions
from specdec.models.shared import shared_of, tokenizer_folder
from specdec.options import ModelOptions
from specdec.pictures.decoding import MAX_IMAGE_PIXELS
from specdec.settings_files import check_regular

Quantize = Literal["none", "8bit", "4bit"]
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_CPU_4BIT_BLOCK = 64
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_NO_CODE = {"trust_remote_code": False}
"""A model folder is data: its Python code is never run. Set explicitly, because otherwise the library asks on the
terminal.
"""
_DIGITS_APART = ("smollm", "starcoder", "refact", "command-r")
"""llama.cpp's names of the pre-tokenizers that split off single digits first."""
_LOG = logging.getLogger("specdec.models")


def load_model(
    path: str | Path, device: str = ModelOptions.device, dtype: str = ModelOptions.dtype,
    quantize: str = ModelOptions.quantize, pixels: int = ModelOptions.pixels,
    deterministic: bool = False, compile: bool = False, recorded: bool = True,
) -> LoadedModel:  # fmt: skip
    """Load a model folder or hub id.

    Args:
        path: A Hugging Face folder or a hub id; default_models/NAME is the shipped one from any directory.
        device: "auto" (CUDA if present), "cpu", "cuda" or "cuda:1".
        dtype: "auto" (float32 on a CPU, otherwise the checkpoint's), "float32", "float16" or "bfloat16".
        quantize: "none", "8bit" or "4bit" (bitsandbytes, also on a CPU).
        pixels: Most pixels of a picture; larger ones are scaled down. 0: about a megapixel (specdec.models.images).
        deterministic: Slower. Chains give bit-identical results to one token per pass, also in half precision.
        compile: Compile the layers with torch. This takes seconds and needs a C++ compiler.
        recorded: On a GPU, record forward passes as CUDA graphs. This takes seconds.

    Returns:
        The model with its tokenizer, ready for sessions.

    Raises:
        ModelError: One line, for anything that cannot be used.
    """
    name = shipped(str(path))
    if dtype != "auto" and dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is unknown: choose auto, {', '.join(DTYPES)}")
    if quantize not in ("none", "8bit", "4bit"):
        raise ModelError(f"quantize {quantize!r} is unknown: choose none, 8bit or 4bit")
    if isinstance(pixels, bool) or not 0 <= pixels <= MAX_IMAGE_PIXELS:
        raise ModelError(f"pixels = {pixels!r} is out of range: choose 0 to {MAX_IMAGE_PIXELS}")
    if compile and (deterministic or quantize != "none"):
        what = "deterministic products" if deterministic else "quantised weights"
        raise ModelError(f"{what} cannot be compiled: choose one of the two")
    _check_folder(name)
    place = _resolve_device(device)
    if compile:
        check_compiler(place)  # before anything large is loaded
    number_type = _resolve_dtype(dtype, place)
    if place.type == "cpu" and number_type == torch.float32 and quantize == "none":
        direct = read_model(Path(name))
        if direct is not None:
            preparer = (
                None if direct.processor is None else ImagePreparer(direct.processor, most_pixels=pixels)
            )
            return LoadedModel(
                direct.network,
                direct.tokenizer,
                name,
                direct.eos_token_ids,
                FAMILIES[direct.network.config.model_type],
                preparer,
                lambda: _load_library_model(name, read_config(name), place, number_type, quantize),
                ForwardOptions(deterministic, compile),
            )
    config = read_config(name)
    tokenizer = _load_library_tokenizer(name)
    hf_model = _load_library_model(name, config, place, number_type, quantize)
    family, reason = family_of(config)
    preparer = (
        ImagePreparer.from_folder(name, config.vision_config, pixels) if family and family.vision else None
    )
    if family is None and (deterministic or compile):
        what = "never deterministic" if deterministic else "not compiled"
        raise ModelError(f"{name} runs on transformers' own forward pass ({reason}), which is {what}")
    loaded = LoadedModel(
        hf_model, tokenizer, name, eos_ids(name, hf_model, tokenizer), family, preparer,
        how=ForwardOptions(deterministic, compile, recorded),
    )
    if family is None:
        lacks = "pictures, exits and splits"
        if takes_pictures(config):
            with _quiet_loading():
                why_not = loaded.add_pictures(
                    lambda takes: pictures_of(name, config, tokenizer, takes, pixels)
                )
            lacks = f"pictures ({why_not}), exits and splits" if why_not else "exits and splits"
        how = "" if loaded.runner.keeps_cache else " with no cache to roll back, so each pass recomputes the sequence"
        _LOG.warning(
            "%s runs on transformers' own forward pass%s (%s): exact, but slower, one sequence at a time, without %s",
            name, how, reason, lacks,
        )  # fmt: skip
    return loaded


def load_tokenizer(path: str | Path) -> Any:
    """Load only the tokenizer of a model, which is enough for an edge that does not draft.

    Args:
        path: A Hugging Face folder or a hub id.

    Returns:
        A tokenizer of the tokenizers or transformers library.

    Raises:
        ModelError: There is no tokenizer, or it cannot be read.
    """
    name = shipped(str(path))
    _check_folder(name)
    return read_tokenizer(Path(name)) or _load_library_tokenizer(name)


def _load_library_tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    _check_folder(name)
    name = tokenizer_folder(name)
    if "gguf_file" in _place(name) and (Path(name).parent / "tokenizer.json").is_file():
        name = str(Path(name).parent)  # the original is better than one rebuilt from the GGUF file
    try:
        with _quiet_loading():
            tokenizer = AutoTokenizer.from_pretrained(**_place(name), **_NO_CODE)
    except Exception as error:  # the tokenizers library raises plain Exception; the cause stays attached
        raise ModelError(
            f"{name} has no usable tokenizer ({first_line(error)}): add tokenizer.json"
        ) from error
    if not tokenizer.get_vocab():
        raise ModelError(f"{name} has no usable tokenizer (its vocabulary is empty): add tokenizer.json")
    if "gguf_file" in _place(name):
        _split_as_the_file_says(tokenizer, Path(name))
    return tokenizer


def _split_as_the_file_says(tokenizer: Any, path: Path) -> None:
    """Fix the pre-tokenizer: the library uses GPT-2's for every byte-level vocabulary, but some split off digits first.
    """
    from tokenizers.pre_tokenizers import ByteLevel, Digits
    from tokenizers.pre_tokenizers import Sequence as Stages

    if read_header(path).metadata.get("tokenizer.ggml.pre") in _DIGITS_APART:
        stages = [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
        tokenizer.backend_tokenizer.pre_tokenizer = Stages(stages)


def eos_ids(name: str, hf_model: Any, tokenizer: Any) -> frozenset[int]:
    """All ids that end an answer, as in the library's `generate`. Raises ModelError for anything but ids."""
    for source in (hf_model.generation_config, hf_model.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        if value is not None:
            ids = value if isinstance(value, (list, tuple)) else [value]
            if wrong := [token for token in ids if type(token) is not int]:
                raise ModelError(
                    f"{name} has an eos_token_id of {wrong[0]!r}, which is no token id: correct its "
                    "generation_config.json or config.json"
                )
            return frozenset(ids)
    return frozenset()


def _resolve_device(device: str) -> torch.device:
    try:
        place = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    except RuntimeError as error:
        raise ModelError(f"device {device!r} is unknown: choose auto, cpu or cuda") from error
    if place.type == "cuda":
        if not torch.cuda.is_available():
            raise ModelError(f"device {device!r} is not available: this machine or this torch has no CUDA")
        # On Hopper torch prefers cuDNN's attention, which makes a new plan (about 30 ms) for every new cache length.
        # This leaves torch's own flash and memory-efficient kernels.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return place


def _resolve_dtype(dtype: str, place: torch.device) -> torch.dtype | str:
    if dtype == "auto":
        return torch.float32 if place.type == "cpu" else "auto"
    return DTYPES[dtype]


def _place(name: str) -> dict[str, str]:
    """The library's arguments for a folder, a hub id, or a GGUF file."""
    path = Path(name)
    if path.suffix == ".gguf" and path.is_file():
        return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    return {"pretrained_model_name_or_path": name}


def _with_shared(name: str) -> dict[str, Any] | None:
    """All weights of a draft that shares its target's embeddings; None for other models."""
    shared = shared_of(name)
    if shared is None:
        return None
    from safetensors.torch import load_file

    weights: dict[str, Any] = shared.tensors()
    for file in sorted(Path(name).glob("*.safetensors")):
        weights |= load_file(file)
    return weights


def _check_folder(name: str) -> None:
    """Raise ModelError for a name that is neither a folder nor a GGUF file and does not look like a hub id, and for a
    folder with a pipe or the like.
    """
    if not name:
        raise ModelError("the model's name is empty: give a Hugging Face folder or a hub id like org/name")
    path = Path(name)
    if path.is_dir() or "gguf_file" in _place(name):
        try:
            check_regular(path if path.is_dir() else path.parent)
        except OSError as error:
            raise ModelError(f"{name} cannot be read ({error.strerror}): copy the model again") from error
        return
    looks_local = name.startswith((".", "/", "~")) or name.count("/") != 1 or path.parent.is_dir()
    if looks_local:
        raise ModelError(
            f"model folder {name} does not exist: give a Hugging Face folder or a hub id like org/name"
        )


def read_config(name: str) -> Any:
    """The library's config of a folder or hub id. Raises ModelError."""
    from transformers import AutoConfig

    _check_folder(name)
    local = Path(name).exists()
    if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
        raise ModelError(f"{name} has no config.json: it is not a Hugging Face model folder")
    try:
        with _quiet_loading():
            config = AutoConfig.from_pretrained(**_place(name), **_NO_CODE)
    except Exception as error:  # whatever the library raises for a broken file; the cause stays attached
        hint = (
            "its configuration cannot be read" if local else "the hub cannot be reached or has no such model"
        )
        raise ModelError(f"{name} cannot be loaded, {hint} ({first_line(error)})") from error
    if getattr(config.get_text_config(), "num_hidden_layers", 1) < 1:  # the library takes any number
        raise ModelError(f"{name} cannot be loaded, its configuration has no layers (num_hidden_layers)")
    return config


def family_of(config: Any) -> tuple[Family | None, str]:
    """The family for our own forward pass, or None with the reason."""
    family = FAMILIES.get(config.model_type)
    if family is None:
        return None, f"models of type {config.model_type!r} have no forward pass of ours"
    text = config.get_text_config()
    if rope := length_dependent_rope(text):
        return None, f"its rope type {rope!r} changes with the length"
    missing = family.missing(text)
    return (None, f"it has {missing}") if missing else (family, "")


def _load_library_model(name: str, config: Any, place: torch.device, dtype: Any, quantize: str) -> Any:
    loader = loader_of(name, config)
    _check_weight_files(name)
    settings: dict[str, Any] = {"dtype": dtype, "config": config, "output_loading_info": True}
    settings |= {"use_safetensors": True, **_NO_CODE}
    quantised = quantised_with(name, config)
    if quantised and quantize != "none":
        raise ModelError(f"{name} is quantised already: load it with quantize none")
    if quantised:
        settings["device_map"] = {"": str(place)}
    if quantize != "none":
        _check_quantisable(name, config.get_text_config(), place, quantize)
        settings["quantization_config"] = _quantization(quantize, dtype)
        settings["device_map"] = {"": str(place)}
    try:
        with _quiet_loading():
            if (whole := _with_shared(name)) is None:
                hf_model, info = loader.from_pretrained(**_place(name), **settings)
            else:  # Auto classes need a path
                hf_model, info = loader._model_mapping[type(config)].from_pretrained(None, state_dict=whole, **settings)
            if quantised:  # some are unpacked by the first pass of the whole model
                hf_model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=place), use_cache=False)
    except ModelError:
        raise
    except ImportError as error:
        raise ModelError(
            f"{name} needs a package that is not installed{f' ({quantised})' if quantised else ''}: "
            f"{first_line(error)}"
        ) from error
    except Exception as error:  # the library raises nearly everything here; the cause stays attached
        if quantised:
            raise ModelError(
                f"{name} is quantised ({quantised}) and cannot be used here: {first_line(error)}"
            ) from error
        raise ModelError(
            f"{name} has no usable weights ({first_line(error)}): check its safetensors files"
        ) from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelError(
            f"{name} lacks {len(missing)} weights ({missing[0]}, ...): the checkpoint is incomplete"
        )
    placed = hf_model if "device_map" in settings else hf_model.to(place)
    return placed.eval().requires_grad_(False)


def quantised_with(name: str, config: Any) -> str:
    """The quantisation method of a checkpoint, as named in its config; "" if it is not quantised.

    Raises ModelError for a method that the library does not know: it would use such weights without their scales.
    """
    told = getattr(config, "quantization_config", None)
    if told is None:
        return ""
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

    settings = told if isinstance(told, dict) else told.to_dict()
    method = settings.get("quant_method")
    method = str(getattr(method, "value", method or ""))
    if not method and (settings.get("load_in_4bit") or settings.get("load_in_8bit")):
        return "bitsandbytes"
    known = set(AUTO_QUANTIZATION_CONFIG_MAPPING)
    if method != "bitsandbytes" and method not in known:
        raise ModelError(
            f"{name} is quantised with {method or 'a method that its config.json does not name'!r}, which the library "
            "does not support: use another checkpoint"
        )
    return method


def loader_of(name: str, config: Any) -> Any:
    """The library's class that loads the model. Raises ModelError for a model that predicts no next token."""
    import transformers

    family = FAMILIES.get(config.model_type)
    if family is not None:
        return getattr(transformers, family.loader)
    kinds = ["AutoModelForCausalLM", "AutoModelForImageTextToText"]
    if takes_pictures(config):  # some types may also be loaded without their vision tower
        kinds.reverse()
    for kind in kinds:
        loader = getattr(transformers, kind)
        if type(config) in loader._model_mapping:
            return loader
    raise ModelError(
        f"{name} is of type {config.model_type!r}, which does not predict a next token: give a causal language model"
    )


def _check_weight_files(name: str) -> None:
    """Raise ModelError for a folder with only pickled weights, which may run code when read."""
    folder = Path(name)
    if not folder.is_dir() or any(folder.glob("*.safetensors")):
        return
    pickles = sorted(file.name for file in folder.iterdir() if file.suffix in _PICKLES)
    if pickles:
        raise ModelError(
            f"{name} has its weights in {pickles[0]}, a pickle, which may run code: convert them to safetensors"
        )


def _check_quantisable(name: str, text_config: Any, place: torch.device, quantize: str) -> None:
    """Raise ModelError if bitsandbytes' 4-bit product on a CPU does not support the layer widths."""
    if quantize != "4bit" or place.type != "cpu":
        return
    for size in (text_config.hidden_size, text_config.intermediate_size):
        if size % _CPU_4BIT_BLOCK:
            raise ModelError(
                f"{name} has a layer width of {size}: 4bit on a CPU needs multiples of {_CPU_4BIT_BLOCK}, use 8bit"
            )


def _quantization(quantize: str, dtype: Any) -> Any:
    try:
        with _quiet_loading():
            import bitsandbytes  # noqa: F401
        from transformers import BitsAndBytesConfig
    except ImportError as error:
        raise ModelError("quantize needs bitsandbytes: pip install bitsandbytes accelerate") from error
    compute = dtype if isinstance(dtype, torch.dtype) else torch.bfloat16
    # Not quantised: the vision tower, which runs once per answer and suffers most from rounding, and the LM head, which
    # decides the tokens.
    keep = ["lm_head", "visual", "model.visual"]
    if quantize == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=keep)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=compute,
        llm_int8_skip_modules=keep,
    )


@contextlib.contextmanager
def _quiet_loading() -> Iterator[None]:
    """Suppress progress bars and known harmless warnings; errors are still raised."""
    from transformers.utils import logging as hf_logging

    warnings.filterwarnings("ignore", message=r"MatMul8bitLt: inputs will be cast")
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)  # that `kernels` is not installed
    hub_log = logging.getLogger("huggingface_hub")
    hub_level = hub_log.level
    hub_log.setLevel(logging.ERROR)
    shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    verbosity = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        hub_log.setLevel(hub_level)
        if shown:
            hf_logging.enable_progress_bar()
