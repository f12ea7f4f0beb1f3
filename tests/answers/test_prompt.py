"""Prompts: the same examples for all, the question on one line, and a shared prefix that ends before any question."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.prompt import FEW_SHOT, Prompt, build_prompts, prefix_length
from anchorscope.datasets.question import Question
from anchorscope.models.language_model import LanguageModel

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).map(str.strip).filter(bool)


def prompts_of(lm: LanguageModel, *texts: str) -> list[Prompt]:
    return build_prompts(lm.tokenizer, [Question("d", text, text, ("x",)) for text in texts])


def test_a_prompt_holds_the_examples_and_ends_at_the_answer(tiny_llama: LanguageModel) -> None:
    (prompt,) = prompts_of(tiny_llama, "Who wrote Emma?")
    lines = prompt.text.split("\n")
    assert lines[-2:] == ["Question: Who wrote Emma?", "Answer:"]
    for place, example in enumerate(FEW_SHOT):
        assert lines[2 * place : 2 * place + 2] == [f"Question: {example.question}", f"Answer: {example.answer}"]
    assert len(lines) == 2 * len(FEW_SHOT) + 2
    assert prompt.text[prompt.question_start :].startswith("Who wrote Emma?")


def test_tokens_and_offsets_are_those_of_the_text(tiny_llama: LanguageModel) -> None:
    (prompt,) = prompts_of(tiny_llama, "Who wrote Émma?")
    assert tiny_llama.tokenizer.decode(list(prompt.ids)) == prompt.text
    assert len(prompt.ids) == len(prompt.offsets)
    for token, (start, end) in zip(prompt.ids, prompt.offsets, strict=True):
        if prompt.text[start:end].isascii():
            assert tiny_llama.tokenizer.decode([token]) == prompt.text[start:end]


@pytest.mark.parametrize(
    "text", ["Who\nwrote Emma?", "Who wrote\r\n\r\nEmma?", "Who  wrote\tEmma?", "\n Who wrote Emma? \n"]
)
def test_a_question_with_line_breaks_goes_on_one_line(tiny_llama: LanguageModel, text: str) -> None:
    broken, whole = prompts_of(tiny_llama, text, "Who wrote Emma?")
    assert broken == whole


@given(texts=st.lists(TEXT, min_size=1, max_size=4))
def test_the_shared_prefix_never_touches_a_question(tiny_llama: LanguageModel, texts: list[str]) -> None:
    prompts = prompts_of(tiny_llama, *texts)
    length = prefix_length(prompts)
    assert length > 0
    for prompt in prompts:
        assert prompt.ids[:length] == prompts[0].ids[:length]
        assert all(end <= prompt.question_start for _, end in prompt.offsets[:length])


def test_the_shared_prefix_is_as_long_as_it_can_be(tiny_llama: LanguageModel) -> None:
    # With one token per byte the whole head is shared, even where the questions begin alike.
    prompts = prompts_of(tiny_llama, "Who wrote Emma?", "Who wrote Ulysses?")
    assert prefix_length(prompts) == prompts[0].question_start


def test_a_token_that_reaches_into_the_question_is_not_shared() -> None:
    ids = (10, 11, 12, 13)
    prompts = [
        Prompt("abcd", ids, ((0, 1), (1, 3), (3, 4), (3, 4)), question_start=2),
        Prompt("abcd", ids, ((0, 1), (1, 2), (2, 3), (3, 4)), question_start=2),
    ]
    assert prefix_length(prompts) == 1


def test_prompts_whose_heads_were_tokenised_differently_share_less() -> None:
    offsets = ((0, 1), (1, 2), (2, 3), (3, 4))
    prompts = [Prompt("abcd", (10, 11, 12, 13), offsets, 3), Prompt("abce", (10, 99, 12, 14), offsets, 3)]
    assert prefix_length(prompts) == 1
