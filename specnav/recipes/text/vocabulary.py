# SPDX-License-Identifier: Apache-2.0
"""The text pair's common tokenizer: a byte-level BPE trained on the corpus, with tokens for the end and two roles.

Decoding restores any text exactly. Both models of the pair have the same files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END, USER, ASSISTANT = "<|endoftext|>", "<|user|>", "<|assistant|>"
CONTEXT = 2048

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}" + ASSISTANT + "{% else %}" + USER + "{% endif %}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for piece in message['content'] %}{{ piece['text'] }}{% endfor %}{% endif %}"
    "{% if message['role'] == 'assistant' %}" + END + "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}" + ASSISTANT + "{% endif %}"
)
"""A system prompt is written as a user message, because the models know only two roles."""


def learn_tokenizer(texts: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """Train a tokenizer with `size` entries, including the special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END, USER, ASSISTANT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
