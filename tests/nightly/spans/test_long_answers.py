"""Offsets of long answers: what decoding every prefix would give, in memory linear in the length of the answer."""

import tracemalloc
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import takewhile
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from anchorscope.answers.generate import Answer
from anchorscope.answers.template import build_prompts
from anchorscope.datasets.question import Question
from anchorscope.models.language_model import LanguageModel
from anchorscope.spans import locate as locate_file
from anchorscope.spans.locate import locate, offsets_by_decoding
from anchorscope.spans.question_spans import locate_question_words

Offsets = list[tuple[int, int]]
Decode = Callable[[list[int]], str]

PIECES = ["▁the", "▁cat", "s", "▁", ".", "é", "▁Lima", "日本"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
EMOJI = [*"🙂".encode()]  # as ids of SENTENCE_PIECES: the bytes come first


def sentence_pieces() -> Tokenizer:
    """As Llama 2 decodes: one more byte of an unfinished run turns the whole run back into marks."""
    tokenizer = Tokenizer(models.WordLevel({piece: at for at, piece in enumerate([*BYTES, *PIECES])}, unk_token="s"))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(parts)
    return tokenizer


def byte_letters() -> Tokenizer:
    """As GPT-2 decodes, one token per byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.WordLevel({letter: at for at, letter in enumerate(letters)}, unk_token="a"))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def word_pieces() -> Tokenizer:
    """As BERT decodes: spaces between words, and none before punctuation."""
    pieces = ["a", "##b", ".", ",", "'", "s", "n", "t", "do", "not"]
    tokenizer = Tokenizer(models.WordLevel({piece: at for at, piece in enumerate(pieces)}, unk_token="a"))
    tokenizer.decoder = decoders.WordPiece("##", cleanup=True)
    return tokenizer


DECODERS = {"sentence pieces": sentence_pieces(), "bytes": byte_letters(), "word pieces": word_pieces()}
SENTENCE_PIECES = DECODERS["sentence pieces"]


def offsets_from_all_prefixes(decode: Decode, ids: list[int]) -> tuple[str, Offsets]:
    """The reference, quadratic in time and memory: every prefix is decoded from the first id and kept."""
    prefixes = [decode(ids[: index + 1]) for index in range(len(ids))]
    text, settled = "", 0
    offsets: Offsets = []
    waiting: list[int] = []
    for index, longer in enumerate(prefixes):
        if longer == text and not waiting:
            offsets.append((len(text), len(text)))
            continue
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, longer, strict=False)))
        finished = len(longer.rstrip("\ufffd"))
        if finished > settled:
            for earlier in waiting:
                offsets[earlier] = (offsets[earlier][0], max(offsets[earlier][1], same))
            waiting = []
        if finished < len(longer):
            offsets.append((min(same, finished), finished + 1))
            waiting.append(index)
        else:
            offsets.append((same, finished))
        text, settled = longer, finished
    for earlier in waiting:
        offsets[earlier] = (offsets[earlier][0], len(text))
    return text, [(min(start, len(text)), min(end, len(text))) for start, end in offsets]


def small_windows(window: int, context: int) -> AbstractContextManager[object]:
    return patch.multiple(locate_file, WINDOW=window, _CONTEXT=context)


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=300)
@given(data=st.data(), window=st.integers(1, 12), context=st.integers(1, 4))
def test_windows_give_what_all_prefixes_give(name: str, data: st.DataObject, window: int, context: int) -> None:
    tokenizer = DECODERS[name]
    some = st.integers(0, tokenizer.get_vocab_size() - 1)
    if name == "sentence pieces":  # mostly whole pieces, and runs of bytes that are characters
        some = st.one_of(st.integers(256, 255 + len(PIECES)), st.sampled_from([0x0A, *EMOJI, *"é".encode()]), some)
    ids = data.draw(st.lists(some, max_size=60))
    with small_windows(window, context):
        assert offsets_by_decoding(tokenizer.decode, ids) == offsets_from_all_prefixes(tokenizer.decode, ids)


def test_a_text_that_windows_cannot_know_is_decoded_from_every_prefix() -> None:
    def decode(part: list[int]) -> str:
        return ("b" if len(part) > 400 else "a") * len(part)

    ids = list(range(500))
    text, offsets = offsets_by_decoding(decode, ids)
    assert text == "b" * 500
    assert (text, offsets) == offsets_from_all_prefixes(decode, ids)


def test_an_answer_of_20000_letters_takes_little_memory(tiny_llama: LanguageModel) -> None:
    question = Question("d", "1", "What is the capital of Peru?", ("Lima",), "Peru", "capital", ("capital",))
    (prompt,) = build_prompts(tiny_llama.tokenizer, [question])
    said = " It is Lima" + ", a large city on the coast that many have seen" * 420
    ids = tuple(tiny_llama.tokenizer(said, add_special_tokens=False)["input_ids"])
    assert len(ids) >= 19_000
    words, answer = locate_question_words(question), Answer(said.strip(), ids, None, "answered")
    tracemalloc.start()
    try:
        located = locate(tiny_llama.tokenizer, question, words, prompt, answer)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert tiny_llama.tokenizer.decode([located.input_ids[index] for index in located.answer_tokens]) == "Lima"
    assert peak < 10e6  # every prefix kept would be 1.6 GB of ids alone
