# SPDX-License-Identifier: Apache-2.0
"""The common vocabulary of the default pair: a byte-level BPE in Qwen2's format, small enough for tiny models.

Every word of the templates is one token (with its leading space) and digits are separate tokens. Other text is encoded
as pieces or bytes, so any instruction can be encoded. Both models must use the same files.
"""

from __future__ import annotations

from pathlib import Path

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


KIND_WORDS = _words(
    "chair bottle box ball door plant table lamp sofa couch bed desk shelf cup mug vase bin bucket cone stool cabinet "
    "barrel book bag suitcase fridge screen person crate cube cylinder bench pot tree cart sign doorway hallway room"
)
COLOUR_WORDS = _words(
    "red green blue yellow orange purple pink brown black white grey gray silver gold cyan magenta teal violet beige"
)
INSTRUCTION_WORDS = _words(
    "find go to look for walk drive move stop at the a next near in front of reach approach head over towards toward "
    "get bring me and please then wait search where is can you it robot your turn left right"
)
ANSWER_WORDS = _words(
    "I see do not left right ahead degrees about m clear blocked The next action is move forward cm turn degree think "
    "should stop because have finished the instruction"
)
FIRST_WORDS = ("Task", "user", "assistant", "system")
"""Words at the beginning of a line: single tokens without a leading space."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'user' %}Task: {% endif %}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}"
    "{% for piece in message['content'] %}{% if 'text' in piece %}{{ piece['text'] }}{% endif %}{% endfor %}"
    "{% for piece in message['content'] %}"
    "{% if piece['type'] == 'image' or 'image' in piece or 'image_url' in piece %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% endif %}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Qwen2-VL's turns without its default system message, with the instruction always BEFORE the images: models this small
find nothing in a picture that comes before the name of the object to look for."""


def template_words() -> tuple[str, ...]:
    """All words that are one token with a leading space."""
    return tuple(dict.fromkeys((*KIND_WORDS, *COLOUR_WORDS, *INSTRUCTION_WORDS, *ANSWER_WORDS)))


def build_bpe() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of the byte-level BPE.

    Each word is merged letter by letter from its beginning, so that no merge can split another word. Words with a
    leading space come first, because only their merges can start at a space and they take precedence.
    """
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    stands_for = bytes_to_unicode()
    alphabet = [stands_for[byte] for byte in range(256)]
    vocabulary = {symbol: index for index, symbol in enumerate(alphabet)}
    merges: list[tuple[str, str]] = []
    space = alphabet[ord(" ")]
    for word in (*(space + word for word in template_words()), *FIRST_WORDS):
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append((word[: end - 1], word[end - 1]))
    return vocabulary, merges


def build_tokenizer():
    """The pair's tokenizer: transformers' Qwen2Tokenizer with this module's vocabulary and chat template."""
    from transformers import AddedToken, Qwen2Tokenizer

    vocabulary, merges = build_bpe()
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary,
        merges=merges,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token="<|endoftext|>",
        model_max_length=2048,
    )
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def save_tokenizer(folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json, vocab.json, merges.txt and the chat template."""
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(folder)
    tokenizer.backend_tokenizer.model.save(str(folder))
