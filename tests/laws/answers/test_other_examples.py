"""Other examples stand where the prompt's own stood, in plain text and in a conversation."""

import pytest

from anchorscope.answers.prompt_variants import EXAMPLE_SETS, has_examples, with_examples
from anchorscope.answers.template import (
    FEW_SHOT,
    FEW_SHOT_TEMPLATE,
    INSTRUCTION,
    ZERO_SHOT_TEMPLATE,
    Template,
    chat_template,
)

CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@pytest.mark.parametrize("examples", EXAMPLE_SETS[1:])
def test_plain_text_shows_the_others_and_nothing_of_its_own(examples: tuple) -> None:
    head = with_examples(FEW_SHOT_TEMPLATE, examples).head
    assert head == "".join(f"Question: {one.question}\nAnswer: {one.answer}\n" for one in examples) + "Question: "


def test_the_first_set_is_the_prompts_own() -> None:
    assert EXAMPLE_SETS[0] == FEW_SHOT
    assert with_examples(FEW_SHOT_TEMPLATE, EXAMPLE_SETS[0]) == FEW_SHOT_TEMPLATE


def test_no_two_sets_share_a_question_or_a_subject() -> None:
    shown = [one for examples in EXAMPLE_SETS for one in examples]
    assert len({one.question for one in shown}) == len({one.subject for one in shown}) == len(shown)
    assert all(one.subject in one.question for one in shown)


def test_a_conversation_keeps_its_turns_and_its_instruction(tiny_llama) -> None:  # type: ignore[no-untyped-def]
    tokenizer = tiny_llama.tokenizer
    old = tokenizer.chat_template
    tokenizer.chat_template = CHAT
    try:
        template = chat_template(tokenizer, None)
    finally:
        tokenizer.chat_template = old
    other = with_examples(template, EXAMPLE_SETS[2])
    assert has_examples(template)
    turns = [f"<|user|>\n{{}}{one.question}\n<|assistant|>\n{one.answer}\n" for one in EXAMPLE_SETS[2]]
    wanted = turns[0].format(f"{INSTRUCTION}\n\n") + "".join(one.format("") for one in turns[1:])
    assert other.head == f"{wanted}<|user|>\n"
    assert (other.tail, other.answer_lead, other.kind) == (template.tail, template.answer_lead, "chat")


def test_a_prompt_without_examples_stays_as_it_is() -> None:
    template: Template = ZERO_SHOT_TEMPLATE
    assert not has_examples(template)
    assert with_examples(template, EXAMPLE_SETS[1]) is template
