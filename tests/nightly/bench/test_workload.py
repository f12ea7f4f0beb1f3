"""The items: what is shared, what is cut, what is said."""

import pytest

from anchorscope.bench.measuring import real, synthetic
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel


def test_synthetic_items_share_their_beginning_and_are_the_same_for_one_seed():
    work = synthetic(20, 8, 14, 1000, seed=3)
    assert work == synthetic(20, 8, 14, 1000, seed=3)
    assert work != synthetic(20, 8, 14, 1000, seed=4)
    assert {item.length for item in work.items} == {22}
    assert {item.keys for item in work.items} == {tuple(range(12, 18))}
    assert work.shared == 8
    last = {label: {item.ids[-1] for item in work.items if item.label == label} for label in (True, False)}
    assert not last[True] & last[False]  # the label can be read
    assert work.tokens == 20 * 22


def test_items_too_short_to_be_cut_are_refused():
    with pytest.raises(UserError, match="--own 11 is too short"):
        synthetic(2, 8, 11, 1000, seed=0)


def test_real_items_are_questions_with_true_and_other_answers(tiny_llama: LanguageModel):
    work = real(12, "atlas", tiny_llama.tokenizer, tiny_llama.needs_bos, seed=1)
    texts = [tiny_llama.tokenizer.decode(item.ids) for item in work.items]
    assert len({text.rpartition("Question: ")[2] for text in texts}) == 12
    assert [item.label for item in work.items] == [True, False] * 6
    for item, text in zip(work.items, texts, strict=True):
        cut = tiny_llama.tokenizer.decode([item.ids[key] for key in item.keys])
        assert cut.strip()
        assert "Answer:" not in cut
        assert not text.rstrip().endswith("Answer:")
        assert work.shared <= min(item.keys)
    assert all(text.startswith(texts[0][: work.shared - 1]) for text in texts)
    assert work.first(5).items == work.items[:5]
    assert any("\n" in tiny_llama.tokenizer.decode([token]) for token in work.end_tokens)
