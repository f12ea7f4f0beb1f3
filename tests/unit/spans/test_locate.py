"""Characters and tokens, with a byte-level tokenizer trained on the spot."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from anchorscope.spans.locate import offsets_by_decoding, tokens_in_spans

LETTERS = st.one_of(
    st.sampled_from("aàé ßñ?.\n日本語🙂👍🏽👨‍👩‍👧🇫🇷"),
    st.characters(exclude_categories=["Cs"]),
)
TEXTS = st.lists(
    st.one_of(LETTERS, st.sampled_from([" France", "Bogotá", " capital", "🙂🙂"]))
).map("".join)


def tiny_tokenizer() -> Tokenizer:
    """Byte-level BPE with a few merges: whole words of its corpus, single bytes of everything else."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False, trim_offsets=False
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=alphabet,
        special_tokens=["<end>"],
        show_progress=False,
    )
    corpus = [
        "What is the capital of France?",
        "Bogotá est à Cuba.",
        "the capital of Côte d'Ivoire 🙂",
    ] * 9
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


TINY = tiny_tokenizer()


def decoded_bytes(ids: Sequence[int]) -> bytes:
    """What the ids stand for, without any decoder."""
    letters = {letter: byte for byte, letter in byte_letters().items()}
    return bytes(letters[letter] for id_ in ids for letter in TINY.id_to_token(id_))


def byte_letters() -> dict[int, str]:
    """The letter that byte-level tokenizers write for each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {
        byte: chr(256 + i) for i, byte in enumerate(others)
    }


@given(TEXTS)
def test_offsets_by_decoding_agree_with_the_bytes(text: str) -> None:
    ids = TINY.encode(text).ids
    decoded, offsets = offsets_by_decoding(TINY.decode, ids)
    assert decoded == text
    byte_of = [at for at, character in enumerate(text) for _ in character.encode()]
    done = 0
    for id_, (start, end) in zip(ids, offsets, strict=True):
        size = len(decoded_bytes([id_]))
        if (
            "\ufffd" not in text
        ):  # a real replacement character looks like an unfinished one
            assert (start, end) == (byte_of[done], byte_of[done + size - 1] + 1)
        done += size


@given(st.lists(st.integers(0, TINY.get_vocab_size() - 1)))
def test_any_ids_have_offsets_that_cover_the_text(ids: list[int]) -> None:
    text, offsets = offsets_by_decoding(TINY.decode, ids)
    assert text == TINY.decode(ids)
    assert len(offsets) == len(ids)
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    assert {at for place in offsets for at in range(*place)} == set(range(len(text)))


@given(text=TEXTS, data=st.data())
def test_tokens_of_several_spans_are_those_of_each(
    text: str, data: st.DataObject
) -> None:
    place = st.tuples(st.integers(0, len(text) + 2), st.integers(0, len(text) + 2)).map(
        lambda two: tuple(sorted(two))
    )
    spans, offsets = (
        data.draw(st.lists(place, max_size=4)),
        data.draw(st.lists(place, max_size=6)),
    )
    visible = {
        at
        for start, end in spans
        for at in range(start, min(end, len(text)))
        if not text[at].isspace()
    }
    wanted = [
        index
        for index, (start, end) in enumerate(offsets)
        if not visible.isdisjoint(range(start, end))
    ]
    assert tokens_in_spans(offsets, spans, text) == wanted
