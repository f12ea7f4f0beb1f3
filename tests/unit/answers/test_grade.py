"""What must hold of grading for any answer; labelled answers are in test_grade_precision.py."""

import unicodedata

from hypothesis import assume, given
from hypothesis import strategies as st

from anchorscope.answers.grade import grade
from anchorscope.datasets.text import normalise


@given(st.text())
def test_an_accepted_answer_is_right_if_it_says_anything(text: str) -> None:
    assert grade(text, ["other", text]) == bool(text.strip())


# No number words: they would join the number at the alias's end.
AROUND = st.sampled_from(
    ["It is", "I think", "so", "of course", "indeed", "", "«", "—", "perhaps the", "!"]
)


@given(st.text(), AROUND, AROUND)
def test_words_around_a_long_enough_alias_keep_it_right(
    alias: str, before: str, after: str
) -> None:
    assume(len(normalise(alias).replace(" ", "")) > 2)
    assert grade(f"{before} {alias} {after}", [alias])


LATIN = st.text(
    st.characters(max_codepoint=0x17F, categories=["L", "Nd", "Zs"]), min_size=1
)


@given(
    LATIN,
    st.sampled_from(["upper", "lower", "title"]),
    st.sampled_from(["NFC", "NFD", "NFKD"]),
)
def test_case_and_the_spelling_of_accents_do_not_matter(
    alias: str, case: str, form: str
) -> None:
    assume(
        normalise(alias) and "ŉ" not in alias
    )  # "ŉ" is an apostrophe and a letter, and title case sees two words
    assert grade(unicodedata.normalize(form, getattr(alias, case)()), [alias])  # type: ignore[arg-type]


WORDS = "Paris London or not the 1776 July 4 Henry VIII eighth yes no Mr. J. C a"
PHRASES = st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=4).map(" ".join)
QUESTIONS = st.sampled_from(
    [None, "Who was Henry?", "Which is older, Paris or London?", "When was 4 July?"]
)


@given(
    PHRASES | st.text(),
    st.lists(PHRASES | st.text()),
    st.lists(PHRASES | st.text()),
    QUESTIONS,
)
def test_more_accepted_answers_never_make_a_right_answer_wrong(
    answer: str, some: list[str], more: list[str], question: str | None
) -> None:
    if grade(answer, some, question):
        assert grade(answer, [*more, *some], question)


@given(PHRASES | st.text(), st.lists(PHRASES, min_size=1), QUESTIONS)
def test_the_order_and_the_repetition_of_accepted_answers_do_not_matter(
    answer: str, accepted: list[str], question: str | None
) -> None:
    assert grade(answer, accepted, question) == grade(
        answer, [*reversed(accepted), *accepted], question
    )


def test_the_question_makes_a_surname_enough_and_its_own_name_no_answer() -> None:
    assert grade("Einstein", ["Albert Einstein"], "Who found relativity?")
    assert not grade("York", ["New York"], "Which state is Albany in?")
    assert grade("Dracula", ["Dracula"])
    assert not grade("Dracula", ["Dracula"], "Who wrote Dracula?")
    assert grade("Dracula", ["Dracula"], "Which book is older, Dracula or Ulysses?")
