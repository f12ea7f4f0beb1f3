"""Where the entity is in an answer, right or wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.spans.answer_span import LONGEST_ENTITY, answer_entity


def entity(answer: str, question: str | None = None) -> str:
    start, end = answer_entity(answer, question)
    return answer[start:end]


FEW_WORDS = [
    ("Paris", "Paris"),
    (" Paris.", "Paris"),
    ("It is Bogota\u0301.", "Bogota\u0301"),
    ("The Lord of the Rings", "Lord of the Rings"),
    (" “The Great Gatsby”. ", "Great Gatsby"),
    ("Lyon, France", "Lyon, France"),
    ("New York City", "New York City"),
    ("St. Louis. It is a city in Missouri.", "St. Louis"),
    ("J. R. R. Tolkien. He wrote it in 1937.", "J. R. R. Tolkien"),
    ("In the Heat of the Night", "In the Heat of the Night"),
    ("Who's Afraid of Virginia Woolf?", "Who's Afraid of Virginia Woolf"),
    ("No Country for Old Men", "No Country for Old Men"),
    ("the Good, the Bad and the Ugly", "Good, the Bad and the Ugly"),
    ("calcium", "calcium"),
    ("C++", "C++"),
    ("0%0", "0%0"),
    ("the", "the"),
    ("A", "A"),
    ("i:0", "i:0"),
    ("🤔!", "🤔"),
    (" ?! ", "?!"),
    ("   ", "   "),
    ("", ""),
]


@pytest.mark.parametrize(("answer", "expected"), FEW_WORDS)
def test_a_few_words_are_the_entity(answer: str, expected: str) -> None:
    assert entity(answer) == expected


CAPITAL = "What is the capital of France?"
WROTE = "Who wrote Dracula?"
SENTENCES = [
    ("It is {}, I think", None),
    ("It is {}, I think", CAPITAL),
    ("it's {}!", CAPITAL),
    ("The capital of France is {}.", None),
    ("The capital of France is {}.", CAPITAL),
    ("{} is the capital of France.", None),
    ("{} is the capital of France, I believe.", CAPITAL),
    ("Capital of France: {}", CAPITAL),
    ("{}, France", CAPITAL),
    ("{}, which is a city in the south", None),
    ("{} (a large city in the east of the country)", None),
    ("Sure! The answer is {}.", None),
    ("Hmm. I'm not sure, but I think it is {}. It is large.", CAPITAL),
    ("If I am not mistaken, {}", CAPITAL),
    ("My guess would be {}.", CAPITAL),
]


@pytest.mark.parametrize(("frame", "question"), SENTENCES)
@pytest.mark.parametrize("name", ["Paris", "Lyon", "Bogotá", "New York City", "Santiago de Compostela"])
def test_right_and_wrong_names_are_found_in_the_same_place(frame: str, question: str | None, name: str) -> None:
    assert answer_entity(frame.format(name), question) == (frame.index("{"), frame.index("{") + len(name))


WITH_A_QUESTION = [
    ("I believe the answer is 42", None, "42"),
    ("He was born in Vienna, Austria", "In what city was he born?", "Vienna, Austria"),
    ("Bram Stoker wrote Dracula.", WROTE, "Bram Stoker"),
    ("Stoker wrote Dracula", WROTE, "Stoker"),
    ("It was written by the Irish author Bram Stoker in 1897.", WROTE, "Bram Stoker"),
    ("Leonardo da Vinci", "Who wrote The Da Vinci Code?", "Leonardo da Vinci"),
    ("Wright brothers", "Who built it?", "Wright brothers"),
    ("Dracula is unknown to me, but it is like Carmilla by Le Fanu.", WROTE, "unknown"),
    ("The book came out in 1937 in London.", "When was the book published?", "1937"),
    ("There are about 300 of them in Lyon", "How many bridges are in Lyon?", "300"),
    ("In Vienna", "Where was he born?", "Vienna"),
    ("Marlow was a British politician and soldier.", "What is Marlow's occupation?", "British politician"),
    ("It is a candle used in winter.", "What is it?", "candle"),
    ("This Is It is by Kenny Ortega", "Who was the director of This Is It?", "Kenny Ortega"),
    ("The Iron Road is a novel by Ada Quill", "Which novel did Ada Quill write?", "Iron Road"),
    ("Oklahoma City is the capital of Oklahoma.", "Which city is the capital of Oklahoma?", "Oklahoma City"),
    ("1,000,000 people live in the city today", None, "1,000,000"),
]


@pytest.mark.parametrize(("answer", "question", "expected"), WITH_A_QUESTION)
def test_words_of_the_question_are_not_the_entity(answer: str, question: str | None, expected: str) -> None:
    assert entity(answer, question) == expected


@given(st.text(min_size=1), st.one_of(st.none(), st.text()))
def test_never_empty(answer: str, question: str | None) -> None:
    start, end = answer_entity(answer, question)
    assert 0 <= start < end <= len(answer)
    if answer.strip():
        assert answer[start:end].strip()


WORDS = st.text(st.characters(categories=["Ll"], max_codepoint=0x7F), min_size=2)


@given(st.lists(WORDS, min_size=1, max_size=LONGEST_ENTITY), st.sampled_from([".", "!", '"', " "]))
def test_capitalised_words_stay_whole(names: list[str], mark: str) -> None:
    answer = " ".join(f"Q{name}" for name in names)  # no word of grammar begins so
    assert entity(answer) == entity(answer + mark) == answer


LIKE_ANSWERS = st.lists(
    st.sampled_from(
        """It is was the a of in by I think, that's Paris Lyon, "let it be" 'Emma's' 1970. Sure! No: (well) the-end but
        who born answer capital and St. Louis 東京 5% an he wrote""".split()  # noqa: SIM905
    ),
    min_size=1,
    max_size=14,
).map(" ".join)


@given(LIKE_ANSWERS, st.sampled_from([None, CAPITAL, WROTE, "When was it?", "where is the capital of Lyon"]))
def test_a_sentence_has_an_entity_that_begins_and_ends_with_its_words(answer: str, question: str | None) -> None:
    start, end = answer_entity(answer, question)
    assert 0 <= start < end <= len(answer)
    assert answer[start:end].strip(" .,!?:") == answer[start:end]
    assert answer_entity(answer + " ", question) == (start, end)
