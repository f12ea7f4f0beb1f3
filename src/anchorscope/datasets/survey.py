"""What a question set holds, counted in one pass: repeats, answers and their kinds, filled columns, a few examples.

All but the repeats is counted over different questions: of a question that comes twice the first row counts, as in a
run. Memory stays small whatever the number of rows: eight bytes of a digest per question, counters with a limited
number of names, and a reservoir from which the examples are drawn.

A question is `yes/no` by the rule of `asks_yes_no`. Any other is of the kind that most of its accepted answers
have; of equals the one that comes first:
- `date`: a month with a number ("May 1984"), 4/7/1776, a decade ("1980s"), a century, a year with BC or AD; and, where
  the question asks for a year, month, day, date or "when", also a year, a month or a weekday alone.
- `number`: numbers in digits or words, ordinals in digits, with or without a unit ("90 minutes", "$5 million", "2nd").
- `name`: some word begins with a capital letter, or in a script that has none.
- `other`: the rest ("film director", symbols).
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from anchorscope.datasets.question import Question, asks_yes_no
from anchorscope.datasets.text import small_hash, words, words_once

KINDS = ("name", "number", "date", "yes/no", "other")
SHORT = 2
"""An accepted answer of so many characters or fewer is called short: it must be a model's whole answer to count."""
MOST_NAMES = 10_000
"""So many different relations are counted, and so many metadata columns; later ones are not."""

_OPTIONAL = {
    "subject": "subject",
    "relation": "relation",
    "property_words": "property_words",
    "exact_question": "exact_spans",
    "model_answer": "model_answer",
    "truthful": "truthful",
}
_DAY = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_LONG_MONTH = "january|february|march|april|may|june|july|august|september|october|november|december"
_MONTH = f"(?:{_LONG_MONTH}|jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec)"
_DATE = re.compile(
    rf"\b{_MONTH}\b\.?[^a-z]*[0-9]|[0-9](?:st|nd|rd|th)?(?: of)? {_MONTH}\b"
    r"|\b[0-9]{1,4}([-/.])[0-9]{1,2}\1[0-9]{1,4}\b|\b[0-9]{3,4}['’]?s\b|\b[0-9]{1,2}(?:st|nd|rd|th) century\b"
    r"|\b[0-9]+ ?(?:bc|bce|ad|ce)\b|\bad [0-9]",
    re.IGNORECASE,
)
_BARE_DATE = re.compile(rf"[0-9]{{3,4}}(?: [0-9]{{2,4}})?|{_MONTH}|{_DAY}")
_ASKS_WHEN = re.compile(r"\b(?:when|years?|dates?|months?|days?|decade|century)\b", re.IGNORECASE)
_ASKS_HOW_MANY = re.compile(r"\bhow (?:many|much|long|old|far|often)\b", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:st|nd|rd|th)?")
_DIGIT = re.compile(r"\d")
# How a spelled number, a month or a day begins; an answer that begins otherwise needs no second look.
_SPELLED = re.compile(
    r"\W*(?:(?:a|an|the) )?(?:zero|one|tw|three|thirt|fo|fi|six|seven|eight|nin|ten|eleven|hundred|thousand"
    rf"|{_MONTH}|{_DAY})",
    re.IGNORECASE,
)
_UNIT_WORDS = """percent per cent cents degrees years year months month weeks week days day hours hour minutes minute
    seconds second miles mile mi km kilometres kilometers metres meters metre meter m cm mm ft feet foot inches inch in
    yards kg g grams pounds pound lb lbs tons tonnes dollars dollar usd euros euro points times people mph kmh square
    cubic litres liters acres hectares point and"""
_UNITS = frozenset(_UNIT_WORDS.split())


@dataclass(frozen=True)
class Spread:
    """How a count spreads over the questions."""

    mean: float
    median: float
    largest: int


@dataclass(frozen=True)
class Survey:
    """What was counted."""

    read: int
    """Usable rows."""
    questions: int
    """Different questions among them; every count below is over these."""
    repeated: int
    wordless: int
    """Questions without any letter or digit; a run leaves them out."""
    answers: int
    answers_per_question: Spread
    short_answers: int
    parenthesised_answers: int
    """Accepted answers with a parenthesis, as Wikipedia's titles have them: "Scorpio (disambiguation)"."""
    answer_types: Mapping[str, int]
    words_per_question: Spread
    filled: Mapping[str, int]
    """Questions in which an optional column is given, by the name that a user's file has for it."""
    labelled_true: int
    """Questions whose given label says that the given answer is true."""
    relations: Mapping[str, int]
    metadata: Mapping[str, int]
    """Questions in which another column holds a value, in the order of the file."""
    examples: tuple[Question, ...]
    """Some questions drawn at random, in the order of the file."""


def question_kind(question: str, answers: Sequence[str]) -> str:
    """One of `KINDS`."""
    if asks_yes_no(question, answers):
        return "yes/no"
    asks_when = bool(_ASKS_WHEN.search(question)) and not _ASKS_HOW_MANY.search(question)
    kinds = Counter(_answer_kind(answer, asks_when) for answer in answers)
    return kinds.most_common(1)[0][0]


def _answer_kind(answer: str, asks_when: bool) -> str:
    in_digits = _DIGIT.search(answer)
    if in_digits or _SPELLED.match(answer):
        spoken = words(answer)
        if (in_digits and _DATE.search(answer)) or (asks_when and _BARE_DATE.fullmatch(" ".join(spoken))):
            return "date"
        numbers = sum(1 for word in spoken if _NUMBER.fullmatch(word))
        if numbers and numbers + sum(1 for word in spoken if word in _UNITS) == len(spoken):
            return "number"
    first = (word.lstrip("\"'“‘([¡¿")[:1] for word in answer.split())
    return "name" if any(letter.isalpha() and not letter.islower() for letter in first) else "other"


def take_survey(
    questions: Iterable[Question], examples: int = 3, seed: int = 0, each: Callable[[Question], None] | None = None
) -> Survey:
    """Reads the questions once and counts; `each` sees every different question."""
    tally = _Tally(examples, seed, each)
    for question in questions:
        tally.add(question)
    return tally.result()


class _Tally:
    def __init__(self, examples: int, seed: int, each: Callable[[Question], None] | None) -> None:
        self.read = self.wordless = self.answers = self.short = self.parenthesised = self.labelled_true = 0
        self.seen: set[int] = set()
        self.answer_counts: Counter[int] = Counter()
        self.word_counts: Counter[int] = Counter()
        self.kinds: Counter[str] = Counter()
        self.filled: Counter[str] = Counter()
        self.relations: Counter[str] = Counter()
        self.metadata: Counter[str] = Counter()
        self.reservoir: list[tuple[int, Question]] = []
        self.wanted, self.random, self.each = examples, random.Random(seed), each

    def add(self, question: Question) -> None:
        self.read += 1
        spoken = words_once(question.question)
        digest = small_hash(" ".join(spoken) or question.question)
        if digest in self.seen:
            return
        self.seen.add(digest)
        self._draw(question)
        if self.each is not None:
            self.each(question)
        self.wordless += not spoken
        self.word_counts[len(question.question.split())] += 1
        self.answers += len(question.answers)
        self.answer_counts[len(question.answers)] += 1
        self.short += sum(1 for answer in question.answers if len(answer) <= SHORT)
        self.parenthesised += sum(1 for answer in question.answers if "(" in answer and ")" in answer)
        self.kinds[question_kind(question.question, question.answers)] += 1
        self._fields(question)

    def _draw(self, question: Question) -> None:
        """Algorithm R: after n questions each of them is in the reservoir with the same chance."""
        number = len(self.seen)
        if number <= self.wanted:
            self.reservoir.append((number, question))
        elif (place := self.random.randrange(number)) < self.wanted:
            self.reservoir[place] = (number, question)

    def _fields(self, question: Question) -> None:
        for name, field in _OPTIONAL.items():
            self.filled[name] += getattr(question, field) not in (None, ())
        self.labelled_true += question.truthful is True
        _count(self.relations, question.relation)
        for name, value in question.metadata.items():
            _count(self.metadata, name if value is not None else None)

    def result(self) -> Survey:
        return Survey(
            read=self.read,
            questions=len(self.seen),
            repeated=self.read - len(self.seen),
            wordless=self.wordless,
            answers=self.answers,
            answers_per_question=_spread(self.answer_counts),
            short_answers=self.short,
            parenthesised_answers=self.parenthesised,
            answer_types={kind: self.kinds[kind] for kind in KINDS},
            words_per_question=_spread(self.word_counts),
            filled={name: self.filled[name] for name in _OPTIONAL},
            labelled_true=self.labelled_true,
            relations=dict(self.relations.most_common()),
            metadata=dict(self.metadata),
            examples=tuple(question for _, question in sorted(self.reservoir, key=lambda pair: pair[0])),
        )


def _count(counter: Counter[str], name: str | None) -> None:
    """Counts a name unless there are too many of them: a column may hold something else in every row."""
    if name is not None and (name in counter or len(counter) < MOST_NAMES):
        counter[name] += 1


def _spread(counts: Counter[int]) -> Spread:
    """Mean, median and maximum of numbers of which each is known with how often it occurs."""
    total = counts.total()
    if not total:
        return Spread(0.0, 0.0, 0)
    middle = {(total - 1) // 2, total // 2}  # one or two places of the sorted numbers
    medians: list[int] = []
    passed = 0
    for number in sorted(counts):
        medians += [number for place in middle if passed <= place < passed + counts[number]]
        passed += counts[number]
    mean = sum(number * times for number, times in counts.items()) / total
    return Spread(mean, sum(medians) / len(medians), max(counts))
