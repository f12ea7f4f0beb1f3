"""The exact words of a question: from the user, the dataset, and rules for plain text; counted over PopQA."""

import gzip
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from anchorscope.datasets.question import Question
from anchorscope.datasets.relations import sentences
from anchorscope.datasets.text import Span, located_words, words
from anchorscope.spans.question_spans import (
    QuestionSpans,
    locate_question_words,
    read_plain_text,
)
from anchorscope.spans.words import is_clear, words_as_written
from repo import SHARED_DATA


def ask(
    text: str,
    subject: str | None = None,
    property_words: tuple[str, ...] = (),
    relation: str | None = None,
    exact_spans: tuple[tuple[int, int], ...] = (),
) -> Question:
    return Question(
        "d",
        "q7",
        text,
        ("a",),
        subject,
        relation,
        property_words=property_words,
        exact_spans=exact_spans,
    )


def found(question: Question) -> tuple[list[str], str]:
    located = locate_question_words(question)
    return [question.question[start:end] for start, end in located.spans], located.rule


METADATA = [
    (
        ask("What is the capital of France?", "France", ("capital",)),
        ["capital", "France"],
    ),
    (
        ask("What is George Marlow's occupation?", "George Marlow", ("occupation",)),
        ["George Marlow", "occupation"],
    ),
    (
        ask("Who was the director of The Circus?", "The Circus", ("director",)),
        ["director", "Circus"],
    ),
    (
        ask("What is the capital of Sao Tome?", "São Tomé", ("capital",)),
        ["capital", "Sao Tome"],
    ),
    (
        ask("The capital of SA\u0303O TOME\u0301?", "São Tomé", ("capital",)),
        ["capital", "SA\u0303O TOME\u0301"],
    ),
    (
        ask("In France, what is the capital of France?", "France", ("capital",)),
        ["France", "capital", "France"],
    ),
    (
        ask("Who is the author of Story of the Eye?", "Story of the Eye", ("author",)),
        ["author", "Story of the Eye"],
    ),
    (
        ask("Who leads the capital of Peru?", "capital of Peru", ("capital", "leads")),
        ["leads", "capital of Peru"],
    ),
    (
        ask("Who built the new capital of Peru?", "capital of Peru", ("new capital",)),
        ["new", "capital of Peru"],
    ),
    (ask("What genre is What?", "What", ("genre",)), ["genre", "What"]),
    (ask("What genre is !!!?", "!!!", ("genre",)), ["genre", "!!!"]),
    (
        ask("Who was the composer of Frances in France?", "France", ("composer",)),
        ["composer", "France"],
    ),
    (
        ask("What is the capital of France?", "France", relation="capital"),
        ["capital", "France"],
    ),
]


@pytest.mark.parametrize(("question", "expected"), METADATA)
def test_what_the_dataset_says_comes_before_the_rules(
    question: Question, expected: list[str]
) -> None:
    assert found(question) == (expected, "metadata")


RULES = [
    (ask("What is the capital of France?"), ["capital", "France"]),
    (
        ask("who wrote she isn't lonely she's my sister lyrics"),
        ["wrote", "lonely", "sister", "lyrics"],
    ),
    (ask("How many US states are there in May?"), ["US", "states", "May"]),
    (ask("Who is it?"), ["is", "it"]),
    (ask("What?"), ["What"]),
    (ask("¿Dónde está «Bogotá»?"), ["Dónde", "está", "Bogotá"]),
    # Known in part, or not in the text: the rules add to what was found.
    (
        ask("What is the capital of France?", "Germany", ("capital",)),
        ["capital", "France"],
    ),
    (
        ask("What is the capital of France?", "France", ("capital", "seat")),
        ["capital", "France"],
    ),
    (ask("Who sang Let It Be?", "Let It Be"), ["sang", "Let It Be"]),
    (
        ask("In what city was Al Gore born?", "Al Gore", relation="place of birth"),
        ["city", "Al Gore", "born"],
    ),
]


@pytest.mark.parametrize(("question", "expected"), RULES)
def test_the_rules_add_what_the_dataset_does_not_say(
    question: Question, expected: list[str]
) -> None:
    assert found(question) == (expected, "rules")


def test_the_users_own_spans_win() -> None:
    text = "What is the capital of France?"
    located = locate_question_words(
        ask(text, "France", ("capital",), exact_spans=((5, 7), (23, 29), (23, 26)))
    )
    assert (located.spans, located.rule) == (((5, 7), (23, 29)), "own")
    assert (located.subject, located.property_spans) == (located.spans, ())
    assert located.content == ((5, 7), (12, 19), (23, 29))


@given(
    st.text(),
    st.one_of(st.none(), st.text()),
    st.lists(st.text(), max_size=2).map(tuple),
    st.booleans(),
)
def test_spans_are_sorted_apart_and_there_if_there_is_a_word(
    text: str, subject: str | None, property_words: tuple[str, ...], use_metadata: bool
) -> None:
    located = locate_question_words(ask(text, subject, property_words), use_metadata)
    for spans in (
        located.spans,
        located.subject,
        located.property_spans,
        located.content,
    ):
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert located.spans or not words(text)
    assert located.subject or not located.spans
    assert tuple(sorted(located.subject + located.property_spans)) == located.spans
    covered = {at for start, end in located.content for at in range(start, end)}
    assert covered.issuperset(
        at for start, end in located.spans for at in range(start, end)
    )


NAMES = st.text(st.characters(categories=["Lu", "Ll"], max_codepoint=0x17F), min_size=3)


@given(NAMES, st.sampled_from(["upper", "lower", "title"]))
def test_a_subject_is_found_in_any_case(name: str, case: str) -> None:
    assume(
        len(located_words(name)) == 1 and "ŉ" not in name
    )  # "Ŀ" and "ŉ" hold a mark beside their letter
    written = getattr(name, case)()
    before = "What is the capital of "
    spans = locate_question_words(ask(f"{before}{written}?", name, ("capital",))).spans
    assert (len(before), len(before) + len(written)) in spans


def said(text: str, spans: tuple[Span, ...]) -> list[str]:
    return [text[start:end] for start, end in spans]


PLAIN_NAMES = [
    (
        "Who was the director of A Man for All Seasons?",
        ["A Man for All Seasons"],
        ["director"],
    ),
    ("What is Juan de la Cruz's occupation?", ["Juan de la Cruz"], ["occupation"]),
    (
        "Leonardo da Vinci was born in which town?",
        ["Leonardo da Vinci"],
        ["born", "town"],
    ),
    ("In what city was Mary-Ann O'Neil born?", ["Mary-Ann O'Neil"], ["city", "born"]),
    ("What sport does J. P. Hale play?", ["J. P. Hale"], ["sport", "play"]),
    ("What genre is Who's That Girl?", ["Who's That Girl"], ["genre"]),
    ("What genre is What?", ["What"], ["genre"]),
    ("What genre is The Who?", ["The Who"], ["genre"]),
    ("Where were The Who formed?", ["The Who"], ["formed"]),
    ("What genre is 東京物語?", ["東京物語"], ["genre"]),
    ("Who composed I Will Follow?", ["I Will Follow"], ["composed"]),
    ("What did I say about Lima?", ["Lima"], ["say"]),
    ("Did Bell in Boston meet Watson?", ["Bell", "Boston", "Watson"], ["meet"]),
    ("Which city is older, Lima or Quito?", ["Lima", "Quito"], ["city", "older"]),
    ('Who sang "let it be" in 1970?', ["let it be", "1970"], ["sang"]),
    ("Who wrote 'Emma's Year' in May 1920?", ["Emma's Year", "May 1920"], ["wrote"]),
    (
        "Dr. Watson met Holmes. Who wrote it?",
        ["Dr. Watson", "Holmes"],
        ["met", "wrote"],
    ),
    ("What is the name of the dog in Peter Pan?", ["Peter Pan"], ["dog"]),
]


@pytest.mark.parametrize(("text", "subject", "asked"), PLAIN_NAMES)
def test_names_quotations_and_numbers_are_the_subject(
    text: str, subject: list[str], asked: list[str]
) -> None:
    read = read_plain_text(text)
    assert (said(text, read.subject), said(text, read.property_spans)) == (
        subject,
        asked,
    )


ORDER = [
    (
        "what is the largest organ of the human body",
        ["human", "body"],
        ["largest", "organ"],
    ),
    ("WHAT IS THE CAPITAL OF FRANCE?", ["FRANCE"], ["CAPITAL"]),
    ("What Is the Capital of France?", ["France"], ["Capital"]),
    ("who wrote the call of the wild", ["call", "wild"], ["wrote"]),
    ("when did the wall go up in berlin", ["wall", "berlin"], ["go"]),
    ("where is the match being played", ["match"], ["played"]),
    ("when did the club get a new stadium", ["club", "new", "stadium"], ["get"]),
    ("how many seasons of thrones are there", ["thrones"], ["seasons"]),
    ("what is sherlock's brother's name", ["sherlock"], ["brother"]),
    ("who was elected on 4 june 1928", ["4 june 1928"], ["elected"]),
    ("who is the president", ["president"], []),
]


@pytest.mark.parametrize(("text", "subject", "asked"), ORDER)
def test_the_order_of_words_decides_where_nothing_stands_out(
    text: str, subject: list[str], asked: list[str]
) -> None:
    read = read_plain_text(text)
    assert (said(text, read.subject), said(text, read.property_spans)) == (
        subject,
        asked,
    )


LIKE_QUESTIONS = st.lists(
    st.sampled_from(
        """who what which when is was did does the a an of in and capital author born sings Lima The Who Émile Zola I's
        'Emma' "let it be" 1970 may okapi, Is sherlock's (Pan) St. Louis? O'Neil über 東京 - name type""".split()  # noqa: SIM905
    ),
    min_size=1,
    max_size=12,
).map(" ".join)


@given(LIKE_QUESTIONS)
def test_a_question_mark_changes_nothing(text: str) -> None:
    assert read_plain_text(text + "?") == read_plain_text(text)


@given(LIKE_QUESTIONS)
def test_composed_and_decomposed_letters_are_read_alike(text: str) -> None:
    composed, decomposed = (
        unicodedata.normalize(form, text) for form in ("NFC", "NFD")
    )
    one, other = read_plain_text(composed), read_plain_text(decomposed)
    for part in ("subject", "property_spans", "content"):
        read = said(decomposed, getattr(other, part))
        assert [unicodedata.normalize("NFC", name) for name in read] == said(
            composed, getattr(one, part)
        )


@given(LIKE_QUESTIONS)
def test_subject_and_property_are_apart(text: str) -> None:
    read = read_plain_text(text)
    assert all(is_clear(*span, read.subject) for span in read.property_spans)


DATA = SHARED_DATA / "popqa.jsonl.gz"

Row = tuple[str, str, Span, tuple[str, ...]]
"""A question, its relation, the place of its subject, the words of its property."""


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Every fifth."""
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        raw = [json.loads(line) for number, line in enumerate(lines) if number % 5 == 0]
    found = []
    for row in raw:
        template = sentences()["popqa_original"][
            row["relation"]
        ]  # the words that name the property in brackets
        plain = re.sub(r"[][]", "", template)
        assert row["question"] == plain.format(subject=row["subject"])
        start = plain.index("{subject}")
        place = (start, start + len(row["subject"]))
        found.append(
            (
                row["question"],
                row["relation"],
                place,
                tuple(re.findall(r"\[(.*?)]", template)),
            )
        )
    return found


@pytest.fixture(scope="module")
def located(rows: list[Row]) -> list[QuestionSpans]:
    return [
        locate_question_words(Question("popqa", "1", text, ("a",)), use_metadata=False)
        for text, *_ in rows
    ]


def _in(place: Span, spans: Sequence[Span]) -> bool:
    return any(start <= place[0] and place[1] <= end for start, end in spans)


@pytest.mark.skipif(
    not DATA.exists(), reason="PopQA is not beside the repository (shared/data)"
)
def test_words_per_relation(rows: list[Row], located: list[QuestionSpans]) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for (text, relation, subject, asked), found in zip(rows, located, strict=True):
        count: Counter[str] = Counter(questions=1)
        for word in words_as_written(text):
            place = (word.start, word.end)
            named, chosen, about = (
                _in(place, spans) for spans in ([subject], found.spans, found.subject)
            )
            asks = word.text in asked and not named
            count += Counter(
                named=named,
                asks=asks,
                chosen=chosen,
                about=about,
                wanted=chosen and (named or asks),
            )
            count += Counter(named_chosen=named and chosen, named_about=named and about)
            count += Counter(asks_property=asks and _in(place, found.property_spans))
        counts[relation] += count
        counts["all"] += count
    for relation, count in counts.items():
        assert count["wanted"] > 0.995 * count["chosen"], relation
        assert count["named_chosen"] >= min(
            0.94 * count["named"], count["named"] - 1
        ), relation
    whole = counts["all"]
    assert whole["questions"] == 2_854
    assert whole["named_chosen"] > 0.99 * whole["named"]
    assert whole["named_about"] > max(0.98 * whole["named"], 0.995 * whole["about"])
    assert whole["asks_property"] > 0.995 * whole["asks"]
