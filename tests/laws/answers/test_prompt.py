"""Prompts: the same examples for all, the question on one line, and a shared prefix that ends before any question."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers
from transformers import AutoTokenizer

import needs
from anchorscope.answers import template as template_file
from anchorscope.answers.generate import given_answer, given_answers
from anchorscope.answers.template import (
    FEW_SHOT,
    FEW_SHOT_TEMPLATE,
    Prompt,
    build_prompts,
    make_template,
    prefix_length,
)
from anchorscope.datasets.question import Question
from anchorscope.errors import UserError
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


WHOLE = """Question: What is the capital of Japan?
Answer: Tokyo
Question: Who wrote Romeo and Juliet?
Answer: William Shakespeare
Question: What is the chemical symbol of gold?
Answer: Au
Question: Who wrote Emma?
Answer:"""


@pytest.mark.embedded
def test_the_embedded_model_sees_this_text_as_its_tokenizer_reads_it() -> None:
    folder = needs.embedded_model()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    question = Question("d", "1", "Who wrote Emma?", ("x",))
    (prompt,) = build_prompts(tokenizer, [question], make_template("few-shot", tokenizer))
    assert prompt.text == WHOLE
    assert prompt.ids == tuple(tokenizer(WHOLE)["input_ids"])
    template = make_template("few-shot", tokenizer)
    given_ids = template.answer_ids(tokenizer, prompt.text, prompt.ids, "Jane Austen")
    assert given_ids == tuple(tokenizer(" Jane Austen")["input_ids"])


def test_a_first_token_that_the_model_needs_is_put_in_front_once(tiny_llama: LanguageModel) -> None:
    tokenizer, question = tiny_llama.tokenizer, Question("d", "1", "Who?", ("x",))
    bos = tokenizer.bos_token_id
    (plain,) = build_prompts(tokenizer, [question])
    (needed,) = build_prompts(tokenizer, [question], make_template("few-shot", tokenizer, bos))
    assert needed.ids == (bos, *plain.ids)
    assert needed.offsets == ((0, 0), *plain.offsets)
    assert prefix_length([needed]) == prefix_length([plain]) + 1
    # A token that is there already (as if the tokenizer had put it there) does not come a second time.
    first = plain.ids[0]
    (same,) = build_prompts(tokenizer, [question], make_template("few-shot", tokenizer, first))
    assert same == plain


def test_an_answer_given_elsewhere_is_read_in_its_place(tiny_llama: LanguageModel) -> None:
    # A tokenizer that puts a space before every text: alone, " Lima" would get two.
    tokenizer = deepcopy(tiny_llama.tokenizer)
    signs = [normalizers.Prepend("Ġ"), normalizers.Replace(" ", "Ġ"), normalizers.Replace("\n", "Ċ")]
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(signs)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split("never", "isolated")
    template = make_template("few-shot", tokenizer)
    (prompt,) = build_prompts(tokenizer, [Question("d", "1", "Where?", ("x",))], template)
    found = template.answer_ids(tokenizer, prompt.text, prompt.ids, "Lima ")
    assert tokenizer.convert_ids_to_tokens(list(found)) == ["Ġ", "L", "i", "m", "a"]
    assert tokenizer.convert_ids_to_tokens(tokenizer(" Lima")["input_ids"]) == ["Ġ", "Ġ", "L", "i", "m", "a"]


def test_an_answer_that_would_melt_into_the_prompt_is_read_alone(tiny_llama: LanguageModel) -> None:
    tokenizer, ids = tiny_llama.tokenizer, (1, 2, 3)  # not the tokens of the text: as if its end had become another
    found = FEW_SHOT_TEMPLATE.answer_ids(tokenizer, "Answer:", ids, "Lima")
    assert found == tuple(tokenizer(" Lima")["input_ids"])


def test_an_unknown_kind_of_prompt_names_the_known_ones(tiny_llama: LanguageModel) -> None:
    told = r"Unknown prompt 'chatty'; allowed: chat, few-shot, zero-shot\. Did you mean 'chat'"
    with pytest.raises(UserError, match=told):
        make_template("chatty", tiny_llama.tokenizer)


def test_without_examples_the_question_stands_alone_and_all_else_is_the_same(tiny_llama: LanguageModel) -> None:
    tokenizer, question = tiny_llama.tokenizer, Question("d", "1", "Who wrote Emma?", ("x",))
    with_examples, alone = (make_template(kind, tokenizer, 7) for kind in ("few-shot", "zero-shot"))
    (long,), (short,) = (build_prompts(tokenizer, [question], one) for one in (with_examples, alone))
    assert short.text == "Question: Who wrote Emma?\nAnswer:"
    assert long.text.endswith(short.text)
    assert short.text[short.question_start :].startswith("Who wrote Emma?")
    assert short.ids[0] == 7
    assert short.ids[1:] == long.ids[-len(short.ids) + 1 :]  # one token per byte
    given_ids = alone.answer_ids(tokenizer, short.text, short.ids, "Jane Austen")
    assert given_ids == tuple(tokenizer(" Jane Austen")["input_ids"])
    assert alone.kind == "zero-shot"


def test_without_examples_prompts_share_the_word_before_the_question(tiny_llama: LanguageModel) -> None:
    questions = [Question("d", text, text, ("x",)) for text in ("Who wrote Emma?", "Where is Lima?")]
    prompts = build_prompts(tiny_llama.tokenizer, questions, make_template("zero-shot", tiny_llama.tokenizer))
    assert prefix_length(prompts) == len("Question: ")


def test_many_given_answers_are_those_of_one_at_a_time(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, template, texts = tiny_llama.tokenizer, FEW_SHOT_TEMPLATE, ["Jane Austen ", "", "  Emily Brontë"]
    prompts = prompts_of(tiny_llama, "Who wrote Emma?", "Who wrote It?", "Who wrote Wuthering Heights?")
    alone = [given_answer(tokenizer, template, prompt, text) for prompt, text in zip(prompts, texts, strict=True)]
    assert given_answers(tokenizer, template, prompts, texts) == alone
    monkeypatch.setattr(template_file, "_TOGETHER", 1)
    assert given_answers(tokenizer, template, prompts, texts) == alone
    assert [one.text for one in alone] == ["Jane Austen", "", "Emily Brontë"]
    assert [one.status for one in alone] == ["answered", "empty", "answered"]
