"""Prompts with other examples, and with the permission to say that one does not know."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.template import (
    EXAMPLE_SETS,
    FEW_SHOT,
    FEW_SHOT_TEMPLATE,
    INSTRUCTION,
    Template,
    split_head,
    with_examples,
)
from anchorscope.experiments.boundary import (
    ALLOWED,
    PERMISSION,
    UNANSWERABLE,
    allow_dont_know,
    says_dont_know,
)
from anchorscope.models.language_model import LanguageModel
from chat_templates import CHATML, KINDS, chat


def test_a_conversation_keeps_its_turns_and_its_instruction(
    tiny_llama: LanguageModel,
) -> None:
    template = chat(tiny_llama, CHATML)
    other = with_examples(template, EXAMPLE_SETS[2])
    assert split_head(template) is not None
    turns = [
        f"[user]{{}}{one.question}[end]\n[assistant]{one.answer}[end]\n"
        for one in EXAMPLE_SETS[2]
    ]
    wanted = turns[0].format(f"{INSTRUCTION}\n\n") + "".join(
        one.format("") for one in turns[1:]
    )
    assert other.head == f"{wanted}[user]"
    assert (other.tail, other.answer_lead, other.kind) == (
        template.tail,
        template.answer_lead,
        "chat",
    )


PHRASES = [
    "I don't know",
    "I really don't know",
    "Unknown",
    "It's unclear",
    "I'm not sure",
    "Unsure",
    "I have no idea",
    "I cannot answer",
    "I'm unable to",
    "It is not clear",
    "There is no information",
    "N/A",
]
SENTENCES = [
    "I don't know who wrote it",
    "I'm not sure, but maybe Paris",
    "Unknown to me",
    "I'm sorry, but I don't know.",
    "As an AI language model, I don't have any records of it",
    "There is no record of such a harbour",
    "It cannot be determined from the question",
    "I don't know (there is no such place)",
    "I\u2019m not sure",
]
NAMES = [
    "Unknown Pleasures",
    "The Unknown Soldier",
    "I Don't Know How to Love Him",
    "Sorry Not Sorry",
    "None",
    "I know: Rome",
    "Sorry",
    "Paris",
    "",
    "  ",
    "The man who did not know",
    "n/ab",
]


@pytest.mark.parametrize("text", [*PHRASES, *SENTENCES])
def test_what_says_that_it_is_not_known(text: str) -> None:
    assert says_dont_know(text)


@pytest.mark.parametrize("text", NAMES)
def test_what_is_an_answer(text: str) -> None:
    assert not says_dont_know(text)


@given(
    phrase=st.sampled_from(PHRASES),
    change=st.sampled_from([str.lower, str.upper, str.title, str]),
    before=st.sampled_from(["", " ", '"', "(", "**", "\n"]),
    after=st.sampled_from(
        ["", ".", "!", " .", ")", '"', "...", "; next", ", sorry", "**"]
    ),
)
def test_case_marks_and_space_do_not_matter(
    phrase: str, change: Callable[[str], str], before: str, after: str
) -> None:
    assert says_dont_know(f"{before}{change(phrase)}{after}")


@given(
    phrase=st.sampled_from(PHRASES),
    name=st.sampled_from(["Pleasures", "Why", "Records", "How to Love", "Zürich"]),
)
def test_a_name_goes_on_with_a_capital(phrase: str, name: str) -> None:
    assert not says_dont_know(f"{phrase.title()} {name}")


def examples_in(template: Template) -> list[str]:
    """The questions of the examples, in the order in which they stand."""
    known = [example.question for example in (*FEW_SHOT, *UNANSWERABLE)]
    return sorted(
        (one for one in known if one in template.head), key=template.head.index
    )


def check_allowed(plain: Template, allowed: Template) -> None:
    assert (allowed.kind, allowed.tail, allowed.first_token) == (
        plain.kind,
        plain.tail,
        plain.first_token,
    )
    assert allowed.head.count(PERMISSION) == 1
    order = examples_in(allowed)
    assert len(order) == 5
    assert [one for one in order if one in plain.head] == examples_in(plain)
    assert order[-1] == FEW_SHOT[-1].question, "the last example has an answer"
    for example in (
        *FEW_SHOT,
        *UNANSWERABLE,
    ):  # between a question and its answer stands what stood there before
        between = allowed.head.split(example.question)[1].split(example.answer)[0]
        assert (
            between
            == plain.head.split(FEW_SHOT[1].question)[1].split(FEW_SHOT[1].answer)[0]
        )
    assert says_dont_know(ALLOWED)


def test_the_few_shot_prompt_gets_the_permission_and_two_examples() -> None:
    allowed = allow_dont_know(FEW_SHOT_TEMPLATE)
    check_allowed(FEW_SHOT_TEMPLATE, allowed)
    assert allowed.head.startswith(PERMISSION)
    assert allowed.head.endswith("\nAnswer: Au\nQuestion: ")


@pytest.mark.parametrize("source", KINDS.values(), ids=KINDS)
def test_every_kind_of_chat_prompt_gets_them_too(
    tiny_llama: LanguageModel, source: str
) -> None:
    plain = chat(tiny_llama, source)
    allowed = allow_dont_know(plain)
    check_allowed(plain, allowed)
    assert f"{INSTRUCTION} {PERMISSION}." in allowed.head
