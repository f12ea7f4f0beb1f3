"""Prompts: templates of every kind, what chat templates may do, thinking switched off."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers
from transformers import AutoTokenizer

import needs
from anchorscope.answers.template import (
    FEW_SHOT,
    FEW_SHOT_TEMPLATE,
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
from chat_templates import (
    CHATML,
    CLOCK,
    FIRST,
    KINDS,
    LLAMA_CLOCK,
    chat,
    tokenizer_with,
)

TEXT = (
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
    .map(str.strip)
    .filter(bool)
)


def prompts_of(tokenizer: Any, template: Template, *texts: str) -> list[Prompt]:
    return build_prompts(
        tokenizer, [Question("d", text, text, ("x",)) for text in texts], template
    )


@given(texts=st.lists(TEXT, min_size=1, max_size=4))
def test_the_shared_prefix_never_touches_a_question(
    tiny_llama: LanguageModel, texts: list[str]
) -> None:
    prompts = prompts_of(tiny_llama.tokenizer, FEW_SHOT_TEMPLATE, *texts)
    length = prefix_length(prompts)
    assert length > 0
    for prompt in prompts:
        assert prompt.ids[:length] == prompts[0].ids[:length]
        assert all(end <= prompt.question_start for _, end in prompt.offsets[:length])


def test_an_answer_given_elsewhere_is_read_in_its_place(
    tiny_llama: LanguageModel,
) -> None:
    # A tokenizer that puts a space before every text: alone, " Lima" would get two.
    tokenizer = deepcopy(tiny_llama.tokenizer)
    signs = [
        normalizers.Prepend("Ġ"),
        normalizers.Replace(" ", "Ġ"),
        normalizers.Replace("\n", "Ċ"),
    ]
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(signs)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(
        "never", "isolated"
    )
    template = make_template("few-shot", tokenizer)
    (prompt,) = build_prompts(
        tokenizer, [Question("d", "1", "Where?", ("x",))], template
    )
    (found,) = template.answer_ids(tokenizer, [(prompt.text, prompt.ids)], ["Lima "])
    assert tokenizer.convert_ids_to_tokens(list(found)) == ["Ġ", "L", "i", "m", "a"]
    assert tokenizer.convert_ids_to_tokens(tokenizer(" Lima")["input_ids"]) == [
        "Ġ",
        "Ġ",
        "L",
        "i",
        "m",
        "a",
    ]


WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="[]<>"), min_size=1, max_size=20
)
CHAT_TEXT = WORDS.map(lambda text: " ".join(text.split())).filter(bool)


def question_tokens(prompt: Prompt, question: str) -> list[int]:
    """Indices of the tokens with a character of the question."""
    start, end = prompt.question_start, prompt.question_start + len(question)
    return [
        index
        for index, (first, last) in enumerate(prompt.offsets)
        if first < end and last > start
    ]


@pytest.mark.parametrize("source", KINDS.values(), ids=KINDS)
def test_the_template_itself_gives_the_same_text_for_a_question(
    tiny_llama: LanguageModel, source: str
) -> None:
    tokenizer = tokenizer_with(tiny_llama, source)
    template = make_template("chat", tokenizer)
    turns = [{"role": "user", "content": f"{INSTRUCTION}\n\n{FEW_SHOT[0].question}"}]
    for example, question in zip(
        FEW_SHOT,
        [*(one.question for one in FEW_SHOT[1:]), "Who wrote Emma?"],
        strict=True,
    ):
        turns.append({"role": "assistant", "content": example.answer})
        turns.append({"role": "user", "content": question})
    plain = source.replace("strftime_now('%d %b %Y')", "'26 Jul 2024'")
    rendered = tokenizer.apply_chat_template(
        turns,
        chat_template=plain,
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    assert template.text(" Who  wrote\nEmma? ") == rendered
    assert template.kind == "chat"
    assert template.answer_lead == ""


@pytest.mark.parametrize("source", [CLOCK, LLAMA_CLOCK])
def test_the_clock_stands_still_so_that_a_run_can_be_repeated(
    tiny_llama: LanguageModel, source: str
) -> None:
    assert "26 Jul 2024" in chat(tiny_llama, source).head.splitlines()[0]


@pytest.mark.parametrize(
    "change",
    ["lower", "upper", "title", "capitalize", "escape", "tojson", "replace(' ', '_')"],
)
def test_a_template_that_changes_the_question_is_refused(
    tiny_llama: LanguageModel, change: str
) -> None:
    with pytest.raises(
        UserError, match=r"changes the question's text.*--prompt few-shot"
    ):
        chat(tiny_llama, CHATML.replace("| trim", f"| {change}"))


def test_a_template_that_forgets_earlier_turns_is_refused(
    tiny_llama: LanguageModel,
) -> None:
    with pytest.raises(UserError, match=r"leaves out earlier turns.*--prompt few-shot"):
        chat(tiny_llama, CHATML.replace("in messages", "in messages[-1:]"))


def test_the_first_token_is_never_there_twice(tiny_llama: LanguageModel) -> None:
    bos = tiny_llama.tokenizer.bos_token_id
    tokenizer = tokenizer_with(tiny_llama, None)
    for source, needed, expected in [
        (CHATML, None, 0),
        (CHATML, bos, 1),
        (FIRST, None, 1),
        (FIRST, bos, 1),
    ]:
        (prompt,) = prompts_of(tokenizer, chat(tiny_llama, source, needed), "Who?")
        assert prompt.ids.count(bos) == expected
        assert (prompt.ids[0] == bos) == bool(expected)
        assert len(prompt.ids) == len(prompt.offsets)
    (prompt,) = prompts_of(tokenizer, chat(tiny_llama, CHATML, bos), "Who?")
    assert prompt.offsets[0] == (0, 0)
    assert tokenizer.decode(list(prompt.ids[1:])) == prompt.text


@pytest.mark.parametrize("source", KINDS.values(), ids=KINDS)
@given(texts=st.lists(CHAT_TEXT, min_size=1, max_size=3))
def test_a_questions_characters_are_its_tokens(
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


@pytest.mark.embedded
@pytest.mark.parametrize(
    "question",
    ["Who wrote Émile 🦀?", "“Ça ira” – who sang it?", "who is the 5th?", "x"],
)
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
    assert (
        tokenizer.decode(after)
        == template.tail
        == "<|im_end|>\n<|im_start|>assistant\n"
    )
    assert after[0] == tokenizer.convert_tokens_to_ids("<|im_end|>")


TURNS = (
    "{% for message in messages %}[{{ message.role }}]{{ CONTENT }}[end]{% endfor %}"
)
PLAIN = TURNS.replace("CONTENT", "message.content")
FORGETS = TURNS.replace("CONTENT", "message.content.split('</think>')[-1]")
"""Templates of reasoning models drop the thinking of earlier turns."""
EMPTY = "<think>\n\n</think>\n\n"
ASSISTANT = "{{ '[assistant]\\n' }}"
BLOCK = "{{ '<think>\\n\\n</think>\\n' }}"
THINKERS = {
    # A switch in the generation prompt (Qwen3), with one line break after the block (SmolLM3), by another name and with
    # the end of the block alone (DeepSeek-V3.1).
    "switch": (
        FORGETS
        + ASSISTANT
        + "{% if enable_thinking is false %}"
        + BLOCK
        + "{{ '\\n' }}{% endif %}",
        EMPTY,
    ),
    "no_think": (
        PLAIN + ASSISTANT + "{% if not enable_thinking %}" + BLOCK + "{% endif %}",
        EMPTY[:-1],
    ),
    "thinking": (
        PLAIN + ASSISTANT + "{% if thinking %}<think>{% else %}</think>{% endif %}",
        "</think>",
    ),
    # An open block for the model to go on in (DeepSeek-R1 and its distills, QwQ).
    "open": (FORGETS + ASSISTANT + "{{ '<think>\\n' }}", EMPTY),
    "open without a line break": (FORGETS + ASSISTANT + "<think>", EMPTY),
    "open with a beginning": (
        FORGETS + ASSISTANT + "{{ '<think>\\nWell,' }}",
        "<think>\nWell,\n</think>\n\n",
    ),
    # The model opens the block itself (the first DeepSeek-R1 templates).
    "by itself": (FORGETS + ASSISTANT, EMPTY),
    # Not a reasoning model.
    "never": (PLAIN + ASSISTANT, ""),
}


@pytest.mark.parametrize("kind", THINKERS)
def test_the_answer_begins_after_a_closed_block(
    tiny_llama: LanguageModel, kind: str
) -> None:
    source, expected = THINKERS[kind]
    tokenizer = deepcopy(tiny_llama.tokenizer)
    tokenizer.chat_template = source
    template = make_template("chat", tokenizer)
    assert template.tail == f"[end][assistant]\n{expected}"
    assert "think" not in template.head


def test_knowing_the_tags_does_not_make_a_reasoning_model(
    tiny_llama: LanguageModel,
) -> None:
    tokenizer = deepcopy(tiny_llama.tokenizer)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.chat_template = THINKERS["never"][0]
    assert make_template("chat", tokenizer).tail == "[end][assistant]\n"
