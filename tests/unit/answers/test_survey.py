"""The survey counts what is there, against plain counting."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.choose import take_survey, why_not_asked
from anchorscope.datasets.question import Question, asks_yes_no
from anchorscope.datasets.text import question_key

TEXTS = ["Who?", "who", "Is it?", "???", "!!!", "Who is the one?", "Who  is", "Oslo"]
QUESTIONS = st.lists(
    st.builds(
        Question,
        st.just("mine"),
        st.just("1"),
        st.sampled_from(TEXTS),
        st.lists(st.sampled_from(["yes", "no", "Ann"]), min_size=1, max_size=4).map(tuple),
        st.sampled_from([None, "Oslo"]),
        st.sampled_from([None, "capital", "sport"]),
        truthful=st.sampled_from([None, True, False]),
        metadata=st.sampled_from([{}, {"year": 1}, {"year": None, "x": "y"}]),
    )
)


@given(QUESTIONS, st.integers(0, 4))
def test_counts_are_those_of_different_questions(questions: list[Question], examples: int) -> None:
    first = {question_key(question.question): question for question in reversed(questions)}
    different = [question for question in questions if first[question_key(question.question)] is question]
    record, outlook, shown = take_survey(questions, examples)
    assert shown == different[:examples]
    assert outlook.questions == sum(not why_not_asked(question) for question in different)
    assert (record["questions"], record["repeated"]) == (len(different), len(questions) - len(different))
    assert record["answers"] == sum(len(question.answers) for question in different)
    assert record["yes_no"] == sum(asks_yes_no(question.question, question.answers) for question in different)
    assert record["filled"]["subject"] == sum(question.subject is not None for question in different)
    assert record["labelled_true"] == sum(question.truthful is True for question in different)
    assert record["relations"] == Counter(question.relation for question in different if question.relation)
    assert record["metadata"].get("year", 0) == sum(question.metadata.get("year") is not None for question in different)
