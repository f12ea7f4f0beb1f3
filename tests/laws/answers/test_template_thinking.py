"""Thinking is switched off, whatever way a template has to ask for it; and a block that comes anyway is skipped."""

from copy import deepcopy

import pytest

from anchorscope.answers.template import after_thinking, make_template
from anchorscope.models.language_model import LanguageModel

TURNS = "{% for message in messages %}[{{ message.role }}]{{ CONTENT }}[end]{% endfor %}"
PLAIN = TURNS.replace("CONTENT", "message.content")
FORGETS = TURNS.replace("CONTENT", "message.content.split('</think>')[-1]")
"""Templates of reasoning models drop the thinking of earlier turns."""
EMPTY = "<think>\n\n</think>\n\n"
ASSISTANT = "{{ '[assistant]\\n' }}"
BLOCK = "{{ '<think>\\n\\n</think>\\n' }}"
KINDS = {
    # A switch in the generation prompt (Qwen3), with one line break after the block (SmolLM3), by another name and with
    # the end of the block alone (DeepSeek-V3.1).
    "switch": (FORGETS + ASSISTANT + "{% if enable_thinking is false %}" + BLOCK + "{{ '\\n' }}{% endif %}", EMPTY),
    "no_think": (PLAIN + ASSISTANT + "{% if not enable_thinking %}" + BLOCK + "{% endif %}", EMPTY[:-1]),
    "thinking": (PLAIN + ASSISTANT + "{% if thinking %}<think>{% else %}</think>{% endif %}", "</think>"),
    # An open block for the model to go on in (DeepSeek-R1 and its distills, QwQ).
    "open": (FORGETS + ASSISTANT + "{{ '<think>\\n' }}", EMPTY),
    "open without a line break": (FORGETS + ASSISTANT + "<think>", EMPTY),
    "open with a beginning": (FORGETS + ASSISTANT + "{{ '<think>\\nWell,' }}", "<think>\nWell,\n</think>\n\n"),
    # The model opens the block itself (the first DeepSeek-R1 templates).
    "by itself": (FORGETS + ASSISTANT, EMPTY),
    # Not a reasoning model.
    "never": (PLAIN + ASSISTANT, ""),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_begins_after_a_closed_block(tiny_llama: LanguageModel, kind: str) -> None:
    source, expected = KINDS[kind]
    tokenizer = deepcopy(tiny_llama.tokenizer)
    tokenizer.chat_template = source
    template = make_template("chat", tokenizer)
    assert template.tail == f"[end][assistant]\n{expected}"
    assert "think" not in template.head


def test_knowing_the_tags_does_not_make_a_reasoning_model(tiny_llama: LanguageModel) -> None:
    tokenizer = deepcopy(tiny_llama.tokenizer)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.chat_template = KINDS["never"][0]
    assert make_template("chat", tokenizer).tail == "[end][assistant]\n"


def test_words_about_thinking_before_the_question_are_no_open_block(tiny_llama: LanguageModel) -> None:
    tokenizer = deepcopy(tiny_llama.tokenizer)
    tokenizer.chat_template = "Think inside <think> first.\n" + KINDS["switch"][0]
    assert make_template("chat", tokenizer).tail == f"[end][assistant]\n{EMPTY}"


def test_few_shot_prompts_know_nothing_of_it(tiny_llama: LanguageModel) -> None:
    tokenizer = deepcopy(tiny_llama.tokenizer)
    tokenizer.chat_template = KINDS["open"][0]
    assert make_template("few-shot", tokenizer).tail == "\nAnswer:"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("Paris", "Paris"),
        ("", ""),
        ("\n<think>\nHm.\n</think>\n\nParis", "\n\nParis"),
        ("<think></think>", ""),
        ("<think>\nHm", None),
        ("Paris <think>", "Paris <think>"),
        ("<think>a</think>b</think>c", "b</think>c"),
    ],
)
def test_what_stands_after_the_block(text: str, rest: str | None) -> None:
    assert after_thinking(text) == rest
