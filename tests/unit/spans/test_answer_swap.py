"""A right answer and a wrong one of the same kind have their entity in the same place, found by the same rule.

One sentence, once with the accepted answer, once with the answer to another question of the same relation: made of the
built-in questions in sentences that the rules were written for, and of PopQA in others. `pytest -s` prints the tables
behind docs/exact-tokens.md. PopQA is not part of the project; without it that test is skipped.
"""

import gzip
import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest

from anchorscope.datasets import atlas
from anchorscope.datasets.question import Question
from anchorscope.datasets.text import ARTICLES, located_words
from anchorscope.spans.answer_span import answer_entity
from repo import SHARED_DATA

FRAMES = (
    "{entity}",
    "{entity}.",
    " {entity}, I think",
    "It is {entity}, I think",
    "It's {entity}!",
    "I believe the answer is {entity}",
    "Sure! The answer is {entity}.",
    "The {asked} of {subject} is {entity}.",
    "{entity} is the {asked} of {subject}.",
    "Well, I'm not sure, but I think it is {entity}. It is well known.",
    "The answer is {entity}, which many people know.",
)
"""What a chat model says around an entity; {asked} is the property of the question."""


OTHER_FRAMES = (
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
"""Other sentences. The first twelve were seen, and led to small changes; the last seven never did."""
POPQA = SHARED_DATA / "popqa.jsonl.gz"
PAIRS = 300
"""Drawn from all that there are, to keep the tests short."""
Pair = tuple[Question, str]
"""A question, and the first accepted answer of another question of its relation."""


def spoken(frame: str, question: Question, entity: str) -> tuple[str, tuple[int, int]]:
    """A sentence about the entity, and where the entity is in it, less a leading article and last marks."""
    asked = question.property_words[0] if question.property_words else str(question.relation)
    before, after = (
        part.replace("{subject}", str(question.subject)).replace("{asked}", asked) for part in frame.split("{entity}")
    )
    words = located_words(entity, numbers=False)
    named = [word for word in words if word.text not in ARTICLES] or words
    return before + entity + after, (len(before) + named[0].start, len(before) + len(entity.rstrip(".!)")))


def swapped(questions: Sequence[Question]) -> list[Pair]:
    """Questions with a wrong answer of the same kind."""
    by_relation: dict[str, list[str]] = defaultdict(list)
    for question in questions:
        by_relation[str(question.relation)].append(question.answers[0])
    rng = random.Random(3)
    pairs = []
    for question in rng.sample(list(questions), PAIRS):
        others = [other for other in by_relation[str(question.relation)] if other not in question.answers]
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
            table[frame] += Counter(pairs=1, right=hits[0], wrong=hits[1], alike=hits[0] == hits[1])
    lines = [
        [f"{100 * counts[part] / counts['pairs']:.1f}" for part in ("right", "wrong", "alike")]
        for counts in table.values()
    ]
    print("\n| right | wrong | alike | sentence |")  # noqa: T201
    for frame, line in zip(table, lines, strict=True):
        print("|", " | ".join(line), "|", frame, "|")  # noqa: T201
    return table


def test_right_and_wrong_entities_are_found_alike() -> None:
    counts = count(FRAMES, swapped(atlas.load()))
    assert all(min(one["right"], one["wrong"], one["alike"]) / one["pairs"] > 0.99 for one in counts.values())


@pytest.mark.skipif(not POPQA.exists(), reason="PopQA is not beside the repository (shared/data)")
def test_also_in_sentences_that_the_rules_do_not_know() -> None:
    with gzip.open(POPQA, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    questions = [
        Question("popqa", row["id"], row["question"], tuple(row["answers"]), row["subject"], row["relation"])
        for row in rows
        if row["subject"] and located_words(row["answers"][0])
    ]
    counts = count(OTHER_FRAMES, swapped(questions))
    total: Counter[str] = sum(counts.values(), Counter())
    assert all(abs(one["right"] - one["wrong"]) / one["pairs"] < 0.04 for one in counts.values())
    assert abs(total["right"] - total["wrong"]) / total["pairs"] < 0.01  # the place does not tell the label
    assert total["alike"] / total["pairs"] > 0.95
