"""The rules for plain text, measured on the PopQA questions, whose subject and property are known.

The dataset's subject and relation are hidden from the rules and only used to count. `pytest -s` prints the tables of
docs/exact-tokens.md. The file is not part of the project; without it the test is skipped.
"""

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
from tokenizers import Tokenizer

import needs
from anchorscope.datasets.question import Question
from anchorscope.spans.locate import tokens_in_spans
from anchorscope.spans.question_spans import QuestionSpans, locate_question_words
from anchorscope.spans.words import Span, words_as_written
from repo import SHARED_DATA

DATA = SHARED_DATA / "popqa.jsonl.gz"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason="PopQA is not beside the repository (shared/data)")

TEMPLATES = {
    "author": "Who is the *author* of {}?",
    "capital": "What is the *capital* of {}?",
    "capital of": "What is {} the *capital* of?",
    "color": "What *color* is {}?",
    "composer": "Who was the *composer* of {}?",
    "country": "In what *country* is {}?",
    "director": "Who was the *director* of {}?",
    "father": "Who is the *father* of {}?",
    "genre": "What *genre* is {}?",
    "mother": "Who is the *mother* of {}?",
    "occupation": "What is {}'s *occupation*?",
    "place of birth": "In what *city* was {} *born*?",
    "producer": "Who was the *producer* of {}?",
    "religion": "What is the *religion* of {}?",
    "screenwriter": "Who was the *screenwriter* for {}?",
    "sport": "What *sport* does {} *play*?",
}
"""What PopQA asks of each relation; the words that name the property are marked."""
Row = tuple[str, str, Span, tuple[str, ...]]
"""A question, its relation, the place of its subject, the words of its property."""


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        raw = [json.loads(line) for line in lines]
    found = []
    for row in raw:
        template = TEMPLATES[row["relation"]]
        start = template.replace("*", "").index("{}")
        assert row["question"] == template.replace("*", "").replace("{}", row["subject"])
        place = (start, start + len(row["subject"]))
        found.append((row["question"], row["relation"], place, tuple(template.split("*")[1::2])))
    return found


@pytest.fixture(scope="module")
def located(rows: list[Row]) -> list[QuestionSpans]:
    return [locate_question_words(Question("popqa", "1", text, ("a",)), use_metadata=False) for text, *_ in rows]


def _in(place: Span, spans: Sequence[Span]) -> bool:
    return any(start <= place[0] and place[1] <= end for start, end in spans)


def _count_words(row: Row, found: QuestionSpans) -> Counter[str]:
    text, _, subject, asked = row
    count: Counter[str] = Counter()
    for word in words_as_written(text):
        place = (word.start, word.end)
        named = _in(place, [subject])
        wanted = named or word.text in asked
        count["subject"] += named
        count["subject in E_Q"] += named and _in(place, found.spans)
        count["subject in subject"] += named and _in(place, found.subject)
        count["property"] += wanted and not named
        count["property in property"] += wanted and not named and _in(place, found.property_spans)
        count["E_Q"] += _in(place, found.spans)
        count["E_Q wanted"] += wanted and _in(place, found.spans)
        count["S"] += _in(place, found.subject)
        count["S wanted"] += named and _in(place, found.subject)
    return count


def _share(count: Counter[str], part: str, whole: str) -> float:
    return 100 * count[part] / max(1, count[whole])


def test_words_per_relation(rows: list[Row], located: list[QuestionSpans]) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row, found in zip(rows, located, strict=True):
        words = _count_words(row, found)
        counts[row[1]] += words
        counts["all"] += words
        counts[row[1]]["questions"] += 1
        counts["all"]["questions"] += 1
    print("\n| relation | questions | recall | precision | subject: recall | precision | property: recall |")  # noqa: T201
    for relation, count in sorted(counts.items(), key=lambda item: item[1]["questions"]):
        shares = [
            ("subject in E_Q", "subject"),
            ("E_Q wanted", "E_Q"),
            ("subject in subject", "subject"),
            ("S wanted", "S"),
            ("property in property", "property"),
        ]
        cells = [f"{_share(count, *share):.1f}" for share in shares]
        print("|", relation, "|", f"{count['questions']:,}", "|", " | ".join(cells), "|")  # noqa: T201
        assert _share(count, "E_Q wanted", "E_Q") > 99.5, relation
        assert _share(count, "subject in E_Q", "subject") > 94, relation
    assert counts["all"]["questions"] == 14_267
    assert _share(counts["all"], "subject in E_Q", "subject") > 99
    assert _share(counts["all"], "subject in subject", "subject") > 98
    assert _share(counts["all"], "S wanted", "S") > 99.5
    assert _share(counts["all"], "property in property", "property") > 99.5


@pytest.mark.embedded
def test_tokens_of_the_embedded_model(rows: list[Row], located: list[QuestionSpans]) -> None:
    folder = needs.embedded_model()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    wanted = kept = chosen = right = 0
    for (text, _, subject, asked), found in zip(rows, located, strict=True):
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        named = set(tokens_in_spans(offsets, [subject], text))
        words = [(word.start, word.end) for word in words_as_written(text) if word.text in asked]
        cut = set(tokens_in_spans(offsets, found.spans, text))
        wanted, kept = wanted + len(named), kept + len(named & cut)
        chosen, right = chosen + len(cut), right + len(cut & (named | set(tokens_in_spans(offsets, words, text))))
    print(f"\n{wanted:,} subject tokens, {100 * kept / wanted:.1f} % in E_Q")  # noqa: T201
    print(f"{chosen:,} tokens of E_Q, {100 * right / chosen:.1f} % of subject or property")  # noqa: T201
    assert kept / wanted > 0.97
    assert right / chosen > 0.99
