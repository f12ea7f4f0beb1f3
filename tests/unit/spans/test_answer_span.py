"""The entity of an answer, also when it is swapped for another: right and wrong ones are found alike."""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.datasets.question import Question
from anchorscope.datasets.relations import load_atlas
from anchorscope.datasets.text import ARTICLES, located_words
from anchorscope.spans.answer_span import answer_entity


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
    ("St. Louis. It is a city in Missouri.", "St. Louis"),
    ("J. R. R. Tolkien. He wrote it in 1937.", "J. R. R. Tolkien"),
    ("In the Heat of the Night", "In the Heat of the Night"),
    ("Who's Afraid of Virginia Woolf?", "Who's Afraid of Virginia Woolf"),
    ("the Good, the Bad and the Ugly", "Good, the Bad and the Ugly"),
    ("C++", "C++"),
    ("0%0", "0%0"),
    ("A", "A"),
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
    ("It is {}, I think", CAPITAL),
    ("it's {}!", CAPITAL),
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
@pytest.mark.parametrize(
    "name", ["Paris", "Lyon", "Bogotá", "New York City", "Santiago de Compostela"]
)
def test_right_and_wrong_names_are_found_in_the_same_place(
    frame: str, question: str | None, name: str
) -> None:
    assert answer_entity(frame.format(name), question) == (
        frame.index("{"),
        frame.index("{") + len(name),
    )


WITH_A_QUESTION = [
    ("I believe the answer is 42", None, "42"),
    ("He was born in Vienna, Austria", "In what city was he born?", "Vienna, Austria"),
    ("Bram Stoker wrote Dracula.", WROTE, "Bram Stoker"),
    ("It was written by the Irish author Bram Stoker in 1897.", WROTE, "Bram Stoker"),
    ("Leonardo da Vinci", "Who wrote The Da Vinci Code?", "Leonardo da Vinci"),
    ("Dracula is unknown to me, but it is like Carmilla by Le Fanu.", WROTE, "unknown"),
    ("The book came out in 1937 in London.", "When was the book published?", "1937"),
    ("There are about 300 of them in Lyon", "How many bridges are in Lyon?", "300"),
    ("In Vienna", "Where was he born?", "Vienna"),
    (
        "Marlow was a British politician and soldier.",
        "What is Marlow's occupation?",
        "British politician",
    ),
    (
        "This Is It is by Kenny Ortega",
        "Who was the director of This Is It?",
        "Kenny Ortega",
    ),
    (
        "The Iron Road is a novel by Ada Quill",
        "Which novel did Ada Quill write?",
        "Iron Road",
    ),
    (
        "Oklahoma City is the capital of Oklahoma.",
        "Which city is the capital of Oklahoma?",
        "Oklahoma City",
    ),
    ("1,000,000 people live in the city today", None, "1,000,000"),
]


@pytest.mark.parametrize(("answer", "question", "expected"), WITH_A_QUESTION)
def test_words_of_the_question_are_not_the_entity(
    answer: str, question: str | None, expected: str
) -> None:
    assert entity(answer, question) == expected


@given(st.text(min_size=1), st.one_of(st.none(), st.text()))
def test_never_empty(answer: str, question: str | None) -> None:
    start, end = answer_entity(answer, question)
    assert 0 <= start < end <= len(answer)
    if answer.strip():
        assert answer[start:end].strip()


LIKE_ANSWERS = st.lists(
    st.sampled_from(
        """It is was the a of in by I think, that's Paris Lyon, "let it be" 'Emma's' 1970. Sure! No: (well) the-end but
        who born answer capital and St. Louis 東京 5% an he wrote""".split()  # noqa: SIM905
    ),
    min_size=1,
    max_size=14,
).map(" ".join)


@given(
    LIKE_ANSWERS,
    st.sampled_from(
        [None, CAPITAL, WROTE, "When was it?", "where is the capital of Lyon"]
    ),
)
def test_a_sentence_has_an_entity_that_begins_and_ends_with_its_words(
    answer: str, question: str | None
) -> None:
    start, end = answer_entity(answer, question)
    assert 0 <= start < end <= len(answer)
    assert answer[start:end].strip(" .,!?:") == answer[start:end]
    assert answer_entity(answer + " ", question) == (start, end)


FRAMES = (
    "{entity}",
    "My guess would be {entity}.",
    "That would be {entity}.",
    "{entity}, as far as I remember",
    "The correct response is {entity}.",
    "As of 2023, it is {entity}.",
    "For {subject}, the {asked} is {entity}.",
    "The {asked} for {subject} was {entity}, according to most sources.",
    "I recall that the {asked} of {subject} was {entity}.",
    "{subject}'s {asked} is {entity}.",
    "{entity} was the {asked} of {subject}, born in 1950.",
    "Many would say {entity}",
    "You are looking for {entity}.",
    "I would go with {entity} here.",
    "Definitely {entity}!",
    "{entity} comes to mind first.",
    "People usually say that it was {entity}.",
    "The {asked} in question was called {entity}.",
    "According to the records, {entity} it is.",
)
"""What a chat model says around an entity; {asked} is the property of the question. The first twelve were seen, and led
to small changes; the last seven never did."""
PAIRS = 150
"""Drawn from all that there are, to keep the tests short."""
Pair = tuple[Question, str]
"""A question, and the first accepted answer of another question of its relation."""


def spoken(frame: str, question: Question, entity: str) -> tuple[str, tuple[int, int]]:
    """A sentence about the entity, and where the entity is in it, less a leading article and last marks."""
    asked = (
        question.property_words[0]
        if question.property_words
        else str(question.relation)
    )
    before, after = (
        part.replace("{subject}", str(question.subject)).replace("{asked}", asked)
        for part in frame.split("{entity}")
    )
    words = located_words(entity, numbers=False)
    named = [word for word in words if word.text not in ARTICLES] or words
    return before + entity + after, (
        len(before) + named[0].start,
        len(before) + len(entity.rstrip(".!)")),
    )


def swapped(questions: Sequence[Question]) -> list[Pair]:
    by_relation: dict[str, list[str]] = defaultdict(list)
    for question in questions:
        by_relation[str(question.relation)].append(question.answers[0])
    rng = random.Random(3)
    pairs = []
    for question in rng.sample(list(questions), PAIRS):
        others = [
            other
            for other in by_relation[str(question.relation)]
            if other not in question.answers
        ]
        if others:
            pairs.append((question, rng.choice(others)))
    return pairs


def count(frames: Sequence[str], pairs: Sequence[Pair]) -> dict[str, Counter[str]]:
    """Per frame: pairs, entities found exactly, right and wrong ones, and pairs of which both or none was."""
    table: dict[str, Counter[str]] = {}
    for frame in frames:
        table[frame] = Counter()
        for question, wrong in pairs:
            hits = []
            for entity in (question.answers[0], wrong):
                sentence, place = spoken(frame, question, entity)
                hits.append(answer_entity(sentence, question.question) == place)
            table[frame] += Counter(
                pairs=1, right=hits[0], wrong=hits[1], alike=hits[0] == hits[1]
            )
    return table


def test_right_and_wrong_entities_are_found_alike() -> None:
    counts = count(FRAMES, swapped(load_atlas()))
    total: Counter[str] = sum(counts.values(), Counter())
    assert all(
        abs(one["right"] - one["wrong"]) / one["pairs"] < 0.04
        for one in counts.values()
    )
    assert (
        abs(total["right"] - total["wrong"]) / total["pairs"] < 0.01
    )  # the place does not tell the label
    assert total["alike"] / total["pairs"] > 0.95
