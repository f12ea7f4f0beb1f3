"""Chat prompts: every kind of template becomes a head and a tail around the question, or is refused in one line.

The templates are small ones of the kinds that models bring: with and without a system role, with the first token in
the text, with a clock, strict about turns, and three ways to think.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

import needs
from anchorscope.answers.template import (
    FEW_SHOT,
    INSTRUCTION,
    Prompt,
    Template,
    build_prompts,
    make_template,
    prefix_length,
)
from anchorscope.datasets.question import Question
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from chat_templates import CHATML, CLOCK, FIRST, KINDS, LLAMA_CLOCK, SYSTEM, chat, tokenizer_with

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="[]<>"), min_size=1, max_size=20)
TEXT = WORDS.map(lambda text: " ".join(text.split())).filter(bool)


def prompts_of(tokenizer: Any, template: Template, *texts: str) -> list[Prompt]:
    return build_prompts(tokenizer, [Question("d", text, text, ("x",)) for text in texts], template)


def question_tokens(prompt: Prompt, question: str) -> list[int]:
    """Indices of the tokens with a character of the question."""
    start, end = prompt.question_start, prompt.question_start + len(question)
    return [index for index, (first, last) in enumerate(prompt.offsets) if first < end and last > start]


@pytest.mark.parametrize("source", KINDS.values(), ids=KINDS)
def test_the_template_itself_gives_the_same_text_for_a_question(tiny_llama: LanguageModel, source: str) -> None:
    tokenizer = tokenizer_with(tiny_llama, source)
    template = make_template("chat", tokenizer)
    turns = [{"role": "user", "content": f"{INSTRUCTION}\n\n{FEW_SHOT[0].question}"}]
    for example, question in zip(FEW_SHOT, [*(one.question for one in FEW_SHOT[1:]), "Who wrote Emma?"], strict=True):
        turns.append({"role": "assistant", "content": example.answer})
        turns.append({"role": "user", "content": question})
    plain = source.replace("strftime_now('%d %b %Y')", "'26 Jul 2024'")
    rendered = tokenizer.apply_chat_template(
        turns, chat_template=plain, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    assert template.text(" Who  wrote\nEmma? ") == rendered
    assert template.kind == "chat"
    assert template.answer_lead == ""


def test_the_instruction_stands_once_in_the_first_user_turn(tiny_llama: LanguageModel) -> None:
    template = chat(tiny_llama, SYSTEM)
    assert template.head.count(INSTRUCTION) == 1
    assert template.head.split("[user]")[1].startswith(INSTRUCTION)
    assert [template.head.count(f"[assistant]{one.answer}[end]") for one in FEW_SHOT] == [1, 1, 1]
    assert template.head.endswith("[user]")
    assert template.tail == "[end]\n[assistant]\n"


@pytest.mark.parametrize("source", [CLOCK, LLAMA_CLOCK])
def test_the_clock_stands_still_so_that_a_run_can_be_repeated(tiny_llama: LanguageModel, source: str) -> None:
    assert "26 Jul 2024" in chat(tiny_llama, source).head.splitlines()[0]


def test_text_before_the_first_tag_of_a_template_with_a_clock_stays(tiny_llama: LanguageModel) -> None:
    assert chat(tiny_llama, "\n\n" + CLOCK).head.startswith("\n\nToday is 26 Jul 2024.\n")


@pytest.mark.parametrize("source", [None, "", {}])
def test_a_tokenizer_without_a_chat_template_names_the_way_out(tiny_llama: LanguageModel, source: Any) -> None:
    with pytest.raises(UserError, match=r"no chat template .*--prompt few-shot"):
        chat(tiny_llama, source)


def test_of_several_templates_the_default_is_taken(tiny_llama: LanguageModel) -> None:
    assert chat(tiny_llama, {"default": SYSTEM, "tool_use": CHATML}).head.startswith("[system]Be kind.")
    with pytest.raises(UserError, match=r"no default chat template.*--prompt few-shot"):
        chat(tiny_llama, {"rag": CHATML, "tool_use": CHATML})


@pytest.mark.parametrize("change", ["lower", "upper", "title", "capitalize", "escape", "tojson", "replace(' ', '_')"])
def test_a_template_that_changes_the_question_is_refused(tiny_llama: LanguageModel, change: str) -> None:
    with pytest.raises(UserError, match=r"changes the question's text.*--prompt few-shot"):
        chat(tiny_llama, CHATML.replace("| trim", f"| {change}"))


def test_a_template_that_repeats_the_question_is_refused(tiny_llama: LanguageModel) -> None:
    with pytest.raises(UserError, match=r"repeats the question 2 times.*--prompt few-shot"):
        chat(tiny_llama, CHATML + "About {{ messages[-1].content }}: ")


def test_a_template_that_forgets_earlier_turns_is_refused(tiny_llama: LanguageModel) -> None:
    with pytest.raises(UserError, match=r"leaves out earlier turns.*--prompt few-shot"):
        chat(tiny_llama, CHATML.replace("in messages", "in messages[-1:]"))


@pytest.mark.parametrize(
    ("source", "reason"),
    [("{{ raise_exception('Only two turns, please.') }}", "Only two turns, please"), ("{% for %}", "Expected")],
)
def test_a_template_that_fails_is_told_in_one_line(tiny_llama: LanguageModel, source: str, reason: str) -> None:
    with pytest.raises(UserError, match=rf"cannot be used \({reason}.*--prompt few-shot") as told:
        chat(tiny_llama, source)
    assert "\n" not in str(told.value)


def test_the_first_token_is_never_there_twice(tiny_llama: LanguageModel) -> None:
    bos = tiny_llama.tokenizer.bos_token_id
    tokenizer = tokenizer_with(tiny_llama, None)
    for source, needed, expected in [(CHATML, None, 0), (CHATML, bos, 1), (FIRST, None, 1), (FIRST, bos, 1)]:
        (prompt,) = prompts_of(tokenizer, chat(tiny_llama, source, needed), "Who?")
        assert prompt.ids.count(bos) == expected
        assert (prompt.ids[0] == bos) == bool(expected)
        assert len(prompt.ids) == len(prompt.offsets)
    (prompt,) = prompts_of(tokenizer, chat(tiny_llama, CHATML, bos), "Who?")
    assert prompt.offsets[0] == (0, 0)
    assert tokenizer.decode(list(prompt.ids[1:])) == prompt.text


@pytest.mark.parametrize(("source", "in_text"), [(CHATML, False), (FIRST, True)])
def test_a_tokenizer_that_adds_the_first_token_itself_adds_it_once(
    tiny_llama: LanguageModel, source: str, in_text: bool
) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = tokenizer_with(tiny_llama, source)
    bos = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", bos), ("</s>", tokenizer.eos_token_id)]
    )
    (prompt,) = prompts_of(tokenizer, make_template("chat", tokenizer), "Who?")
    assert prompt.ids.count(bos) == 1
    assert prompt.ids[0] == bos
    assert tokenizer.eos_token_id not in prompt.ids  # an ended text would be answered by a new one
    assert prompt.offsets[0] == ((0, 3) if in_text else (0, 0))


@pytest.mark.parametrize("source", KINDS.values(), ids=KINDS)
@given(texts=st.lists(TEXT, min_size=1, max_size=3))
def test_a_questions_characters_are_exactly_its_tokens(
    tiny_llama: LanguageModel, source: str, texts: list[str]
) -> None:
    tokenizer = tokenizer_with(tiny_llama, source)
    template = make_template("chat", tokenizer, tokenizer.bos_token_id)
    prompts = prompts_of(tokenizer, template, *texts)
    for text, prompt in zip(texts, prompts, strict=True):
        found = question_tokens(prompt, text)
        assert found == list(range(found[0], found[-1] + 1))
        assert tokenizer.decode([prompt.ids[index] for index in found]) == text
        assert prompt.text[prompt.question_start :] == text + template.tail
    length = prefix_length(prompts)
    # One token per byte: the whole head is shared, and the first token that may have been put in front.
    assert length == question_tokens(prompts[0], texts[0])[0]
    assert all(prompt.ids[:length] == prompts[0].ids[:length] for prompt in prompts)


def test_a_given_answer_follows_at_once(tiny_llama: LanguageModel) -> None:
    template = chat(tiny_llama, CHATML)
    (prompt,) = prompts_of(tiny_llama.tokenizer, template, "Who?")
    ids = template.answer_ids(tiny_llama.tokenizer, prompt.text, prompt.ids, " Jane Austen\n")
    assert tiny_llama.tokenizer.decode(list(ids)) == "Jane Austen"


@pytest.mark.embedded
@pytest.mark.parametrize("question", ["Who wrote Émile 🦀?", "“Ça ira” – who sang it?", "who is the 5th?", "x"])
def test_the_embedded_models_own_template_and_tokens(question: str) -> None:
    folder = needs.embedded_model()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    template = make_template("chat", tokenizer)
    prompts = prompts_of(tokenizer, template, question, "What is the capital of Peru?")
    found = question_tokens(prompts[0], question)
    assert tokenizer.decode([prompts[0].ids[index] for index in found]) == question
    assert prefix_length(prompts) == found[0] == question_tokens(prompts[1], "What")[0]
    assert tokenizer.decode(list(prompts[0].ids[: found[0]])) == template.head
    after = list(prompts[0].ids[found[-1] + 1 :])
    assert tokenizer.decode(after) == template.tail == "<|im_end|>\n<|im_start|>assistant\n"
    assert after[0] == tokenizer.convert_tokens_to_ids("<|im_end|>")
