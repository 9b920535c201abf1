"""Text that streams is `decode`'s: for every kind of tokenizer, every script, and ids in any order."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdec.text.stop import StopText
from specdec.text.streaming import StreamingText, pieces_of

WORDS = ["\n", *"it is n't do not . , ? ! ' s 've 're 'm \" Hello world the a b ab abc 12 é".split()]  # noqa: SIM905
TEXTS = (
    'He said "餮餮餮" and left.',
    "餮餮餮",
    "日本語のテキスト、漢字とかな。",
    "한국어 텍스트입니다",
    "မြန်မာဘာသာစကား ဖြစ်ပါတယ်",
    "👨‍👩‍👧‍👦 and 🏳️‍🌈, 👍🏽!",
    "हिन्दी में कुछ पाठ",
    "ภาษาไทย",
    "e\u0301\u0323 a\u0308 combined",
    "العربية والفارسية",
    "it 's n ' t  ' ve , is n't it ? do not  .",
    "a\ufffdb \ufffd",
    "  two spaces  and\n\n\n lines\t.",
    "𝕏 𓀀 ∑ ß",
)


def _bytes_pieces(first: int) -> dict[str, int]:
    return {f"<0x{byte:02X}>": first + byte for byte in range(256)}


def _sentencepiece(prefix: bool) -> Tokenizer:
    """As in Llama 2, Mistral v1 and Phi-3 (prefix) or Gemma: what is not in the vocabulary is spelled in bytes."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2, **_bytes_pieces(3)}
    merges = []
    for word in ["▁", *(f"▁{word}" for word in WORDS), *WORDS, "本", "語", "の", "한국", "ا", "'"]:
        for letter in word:
            vocabulary.setdefault(letter, len(vocabulary))
        for left, right in zip(accumulate(word), word[1:], strict=False):
            if left + right not in vocabulary:
                vocabulary[left + right] = len(vocabulary)
                merges.append((left, right))
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _byte_level() -> Tokenizer:
    """As in GPT-2, Llama 3 and Qwen: a token may hold parts of characters."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "i"), ("i", "t"), ("æ", "Ĺ"), ("ð", "Ł"), ("Ł", "ĳ"), ("¨", "âĢ")]
    vocabulary = {letter: index for index, letter in enumerate(letters)}
    for left, right in [*merges, ("â", "Ģ")]:
        vocabulary.setdefault(left + right, len(vocabulary))
    usable = [("â", "Ģ"), *merges]
    for left, right in usable:
        vocabulary.setdefault(left + right, len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocabulary, usable))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _wordpiece(cleanup: bool) -> Tokenizer:
    """As in BERT."""
    pieces = ["[UNK]", *dict.fromkeys([*WORDS, *"abcdefghilmnorstuvwHn't", "漢", "字"])]
    pieces += [f"##{piece}" for piece in pieces[1:]]
    tokenizer = Tokenizer(
        models.WordPiece({piece: index for index, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=cleanup)
    return tokenizer


def _unigram(fallback: bool) -> Tokenizer:
    """As in T5 and XLM-R, with a space before the text; with bytes as in newer ones."""
    pieces = [
        "<unk>",
        "▁",
        *dict.fromkeys([*(f"▁{word}" for word in WORDS), *WORDS, *"abcdehilorstw", "漢", "字"]),
    ]
    scored = [(piece, -float(len(pieces) - len(piece))) for piece in pieces]
    if fallback:
        scored += [(piece, -1e3) for piece in _bytes_pieces(0)]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=0, byte_fallback=fallback))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    metaspace = decoders.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), metaspace]) if fallback else metaspace
    return tokenizer


def _word_ends() -> Tokenizer:
    """As in CLIP: the last piece of a word says so."""
    pieces = [*dict.fromkeys("".join(WORDS)), *dict.fromkeys(f"{letter}</w>" for letter in "".join(WORDS))]
    vocabulary = {piece: index for index, piece in enumerate(["<unk>", *pieces])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder()
    return tokenizer


KINDS: dict[str, tuple[Callable[[], Tokenizer], bool]] = {
    "byte-level BPE": (_byte_level, False),
    "SentencePiece BPE with a prefix": (lambda: _sentencepiece(True), False),
    "SentencePiece BPE without one": (lambda: _sentencepiece(False), False),
    "BPE with word ends": (_word_ends, False),
    "WordPiece": (lambda: _wordpiece(False), False),
    "WordPiece that cleans up": (lambda: _wordpiece(True), False),
    "WordPiece, cleaned up by the library": (lambda: _wordpiece(False), True),
    "Unigram": (lambda: _unigram(False), False),
    "Unigram, cleaned up by the library": (lambda: _unigram(True), True),
}


@cache
def tokenizer_of(kind: str) -> PreTrainedTokenizerFast:
    make, cleans = KINDS[kind]
    backend = make()
    backend.add_special_tokens(["<|end|>", "<|turn|>"])
    backend.add_tokens(["<tool>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", clean_up_tokenization_spaces=cleans
    )


def ids_of(draw: st.DataObject, tokenizer: Any) -> list[int]:
    """Texts of all scripts, characters cut in two, bytes and special tokens at any place."""
    bytes_ = sorted(index for piece, index in tokenizer.get_vocab().items() if piece.startswith("<0x"))
    anything = st.integers(0, len(tokenizer) + 1)  # two that the vocabulary does not have
    some = st.lists(st.sampled_from(bytes_) | anything if bytes_ else anything, max_size=6)
    spelled = st.sampled_from(TEXTS).map(lambda text: tokenizer(text, add_special_tokens=False)["input_ids"])
    cut = st.tuples(spelled, st.integers(0, 40), st.integers(1, 40)).map(
        lambda one: one[0][one[1] :][: one[2]]
    )
    parts = draw.draw(st.lists(spelled | cut | some, max_size=7))
    return [token for part in parts for token in part]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(draw=st.data(), chunk=st.integers(1, 5))
def test_what_is_shown_is_what_decode_says_and_never_changes(
    kind: str, draw: st.DataObject, chunk: int
) -> None:
    tokenizer = tokenizer_of(kind)
    ids = ids_of(draw, tokenizer)
    for skips in (True, False):
        stream, shown = StreamingText(tokenizer, skips), [""]
        for end in range(chunk, len(ids) + chunk, chunk):
            fresh = stream.push(ids[end - chunk : end])
            shown.append(shown[-1] + fresh)
            assert shown[-1] + stream.tail == tokenizer.decode(ids[:end], skip_special_tokens=skips)
        whole = tokenizer.decode(ids, skip_special_tokens=skips)
        assert all(whole.startswith(one) for one in shown)
        stream.finish()
        assert stream.text == whole and stream.tail == ""
    pieces = pieces_of(tokenizer, ids)
    assert len(pieces) == len(ids) and "".join(pieces) == tokenizer.decode(ids)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(draw=st.data(), begun=st.integers(0, 30), least=st.integers(0, 20))
def test_an_answer_ends_with_the_first_token_whose_text_holds_a_stop_string(
    kind: str, draw: st.DataObject, begun: int, least: int
) -> None:
    tokenizer = tokenizer_of(kind)
    ids = ids_of(draw, tokenizer)
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    places = st.tuples(st.integers(0, max(0, len(whole) - 1)), st.integers(1, 5))
    pick = places.map(lambda at: whole[at[0] :][: at[1]]).filter(lambda text: text and "\ufffd" not in text)
    stops = tuple(draw.draw(st.lists(pick if whole.strip("\ufffd") else st.just("zz"), max_size=2)))

    def holds(n: int) -> bool:
        return any(stop in tokenizer.decode(ids[:n]) for stop in stops)

    expected = next((n for n in range(1, len(ids) + 1) if holds(n)), None)
    watcher = StopText(tokenizer, stops)
    assert next((n for n, token in enumerate(ids, 1) if watcher.push(token)), None) == expected
    if expected is not None and watcher.place is not None:
        shown = tokenizer.decode(ids[:expected], skip_special_tokens=True)
        assert shown.startswith(stops, watcher.place)
    assert StopText(tokenizer, stops, ids[:begun]).found == (expected is not None and expected <= begun)
    late = StopText(tokenizer, stops, least=least)
    ended = next((n for n, token in enumerate(ids, 1) if late.push(token)), None)
    assert ended is None or (ended >= max(least, 1) and holds(ended))
    assert ended == expected if (expected or 0) >= least else True


def test_consecutive_characters_of_bytes_are_whole_and_a_stop_string_among_them_is_found() -> None:
    tokenizer = tokenizer_of("SentencePiece BPE with a prefix")
    ids = tokenizer('"餮餮餮" b', add_special_tokens=False)["input_ids"]
    stream = StreamingText(tokenizer)
    assert "".join([*(stream.push([token]) for token in ids), stream.finish()]) == '"餮餮餮" b'
    watcher = StopText(tokenizer, ("餮餮",))
    ended = next(n for n, token in enumerate(ids, 1) if watcher.push(token))
    assert ids[ended - 6 : ended] == ids[-8 - 3 : -2 - 3]  # two characters of three bytes each, and none more


def test_a_long_answer_is_decoded_in_parts() -> None:
    tokenizer = tokenizer_of("byte-level BPE")
    longest = 0

    class Counted:
        backend_tokenizer = tokenizer.backend_tokenizer

        def decode(self, ids: list[int], **settings: Any) -> str:
            nonlocal longest
            longest = max(longest, len(ids))
            return str(tokenizer.decode(ids, **settings))

    ids = tokenizer("it was long, " * 200, add_special_tokens=False)["input_ids"]
    stream = StreamingText(Counted())
    assert "".join(stream.push([token]) for token in ids) + stream.finish() == "it was long, " * 200
    assert longest < 80 < len(ids)
