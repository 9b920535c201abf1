"""Tiny, randomly initialised models in Hugging Face format, for tests that need a real pair and no training.

Every draft is its target plus noise on the weights, so that some of its tokens are accepted and some are not.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

if TYPE_CHECKING:  # the library takes 4 s to import: only what builds a model waits for it
    from transformers import PreTrainedTokenizerFast

BUILT = Path(sys.prefix).resolve() / "test-models"
DRAFT_NOISE = 0.03
SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
PADDING = 24
"""Rows of the embedding beyond the real vocabulary, as real checkpoints have them."""

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ c['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level tokenizer: 256 bytes and the special tokens of Qwen2-VL."""
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=SPECIALS,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build_llama(
    folder: Path, *, layers: int = 3, hidden: int = 64, seed: int = 0, eos_bias: bool = False
) -> Path:
    """A small Llama with grouped query heads."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer) + PADDING,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.2,
        eos_token_id=tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]),
        bos_token_id=None,
        pad_token_id=None,
        tie_word_embeddings=False,
    )
    return _save(LlamaForCausalLM(config), tokenizer, folder)


def build_qwen2vl(
    folder: Path, *, layers: int = 3, hidden: int = 64, seed: int = 0, max_shard_size: str = "50GB"
) -> Path:
    """A shrunken Qwen2-VL: same files, same architecture, same special tokens."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    tokenizer = make_tokenizer()
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in SPECIALS}
    torch.manual_seed(seed)
    config = Qwen2VLConfig(
        text_config=dict(
            vocab_size=len(tokenizer) + PADDING,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            initializer_range=0.2,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [part * hidden // 64 for part in (2, 3, 3)],
            },
            eos_token_id=[ids["<|im_end|>"], ids["<|endoftext|>"]],
            bos_token_id=None,
            pad_token_id=None,
        ),
        vision_config=dict(depth=2, embed_dim=32, hidden_size=hidden, num_heads=2, mlp_ratio=2),
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    model = Qwen2VLForConditionalGeneration(config)
    model.generation_config.eos_token_id = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    saved = _save(model, tokenizer, folder, max_shard_size)
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    Qwen2VLImageProcessorPil(size={"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 64}).save_pretrained(
        saved
    )
    return saved


def noisy_copy(source: Path, folder: Path, noise: float, seed: int = 1) -> Path:
    """The same model with noise of `noise` standard deviations on every matrix: an imperfect draft."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder)
    weights = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in weights.items():
        if tensor.dim() > 1:
            weights[name] = tensor + noise * tensor.std() * torch.randn(tensor.shape, generator=generator)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def built_pairs() -> Path:
    """A folder of text-target, text-draft, vision-target and vision-draft; nobody may write into it.

    Built once, beside the environment, and kept under a hash of what it was built by: most processes of the tests
    need the folders and not the library that makes them.
    """
    versions = [metadata.version(name) for name in ("torch", "transformers", "tokenizers", "safetensors")]
    hasher = hashlib.sha256("\n".join(versions).encode() + Path(__file__).read_bytes())
    target = BUILT / hasher.hexdigest()[:16]
    if not target.is_dir():
        BUILT.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=BUILT))
        try:
            for kind, build in (("text", build_llama), ("vision", build_qwen2vl)):
                build(scratch / f"{kind}-target")
                noisy_copy(scratch / f"{kind}-target", scratch / f"{kind}-draft", DRAFT_NOISE)
            scratch.rename(target)  # one rename at the end: a build that was interrupted is none
        except OSError:  # another client was faster
            if not target.is_dir():
                raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target


def picture(seed: int, width: int = 168, height: int = 112) -> bytes:
    """A JPEG of coloured blocks, different for every seed."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, size=(4, 6, 3), dtype=np.uint8)
    pixels = np.kron(blocks, np.ones((height // 4, width // 6, 1), dtype=np.uint8))
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="JPEG", quality=90)
    return buffer.getvalue()


def _save(
    model: torch.nn.Module, tokenizer: PreTrainedTokenizerFast, folder: Path, shard: str = "50GB"
) -> Path:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lm_head" in name:
                parameter[len(tokenizer) :] = 0  # padded rows of real checkpoints never win either
    model.float().save_pretrained(folder, max_shard_size=shard)
    tokenizer.save_pretrained(folder)
    return folder
