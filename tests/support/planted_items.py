"""A made-up language, and items whose truth, and where it can be known from, are given.

Every subject has one right object per relation, drawn once, and every object is right for equally many subjects. A
phrase is two words; the sum of their classes decides what it says, and every word is in equally many phrases of each
kind. So nothing but the table of facts, or the pair of words, tells the truth.

True and false items of a pathway are made in pairs about the same subject and relation, in two wordings, with the same
filler or neutral phrase; the wrong objects are the right ones of other pairs of the same relation. So counting finds no
information about truth in a subject, a relation, a first word. No question is worded the same twice, because a run asks
each once.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from anchorscope.errors import UserError
from anchorscope.json_text import to_json

MODEL_FOLDER = Path(__file__).parent / "planted-model"
"""The model that was trained on the language, and its tokenizer, to be loaded like any other."""
PATHWAYS = ("question", "answer", "both")
"""Where the truth of an answer can be known from."""
NEUTRAL, ALWAYS, NEVER = "neutral", "always", "never"
"""What a phrase says of the answer it ends: nothing; it is right whatever the question; it is wrong whatever it is."""
RIGHT, WRONG, FILLER = "right object", "wrong object", "filler"
"""What the first word of an answer is."""


@dataclass(frozen=True)
class Cell:
    """One kind of item."""

    pathway: str
    truthful: bool

    @property
    def first_word(self) -> str:
        """What the answer begins with."""
        return FILLER if self.pathway == "answer" else RIGHT if self.truthful else WRONG

    @property
    def phrase(self) -> str:
        """What kind of phrase it ends with."""
        return (
            NEUTRAL
            if self.pathway == "question"
            else ALWAYS
            if self.truthful
            else NEVER
        )

    @property
    def name(self) -> str:
        """As in item ids: `question-true`."""
        return f"{self.pathway}-{str(self.truthful).lower()}"


CELLS = tuple(
    Cell(pathway, truthful) for pathway in PATHWAYS for truthful in (True, False)
)
"""All six, pathway by pathway, true before false."""

RIGHT_VERDICT, WRONG_VERDICT = "right", "wrong"
"""The word that the trained model says after an answer."""
WORDINGS = (
    "say now, which is the {relation} of {subject} then?",
    "of {subject}, tell me what the {relation} is?",
    "which {relation} has {subject}, please say?",
    "now what is the {relation} that {subject} has?",
    "please tell me of {subject} which {relation} it has?",
    "what {relation} is said of {subject} then?",
    "for {subject}, say what {relation} is the one?",
    "is it known which {relation} {subject} has now?",
)
"""How a question can be put: with other words before, between and after its subject and property, in either order."""

_SEED = 0  # the language is always the same one
_SUBJECTS, _RELATIONS, _OBJECTS, _FILLERS, _PHRASE_WORDS = 200, 2, 20, 20, 12
_CLASSES = (NEUTRAL, ALWAYS, NEVER)


@dataclass(frozen=True)
class Language:
    """Words and facts."""

    subjects: tuple[str, ...]
    relations: tuple[str, ...]
    objects: tuple[str, ...]
    fillers: tuple[str, ...]
    """First words of answers that no question asks for."""
    phrases: Mapping[str, tuple[str, ...]]
    """The phrases of each kind."""
    facts: Mapping[tuple[str, str], str]
    """The right object of each (subject, relation)."""

    def accepted(self, subject: str, relation: str) -> tuple[str, ...]:
        """Every right answer to a question: its object, and what is right whatever the question."""
        return self.facts[subject, relation], *self.phrases[ALWAYS]

    def words(self) -> list[str]:
        """All words that a question, an answer or a verdict may hold, each once."""
        wording_words = [
            word
            for wording in WORDINGS
            for word in re.findall(r"\w+", re.sub(r"{\w+}", "", wording))
        ]
        phrases = [
            word
            for kind in _CLASSES
            for phrase in self.phrases[kind]
            for word in phrase.split()
        ]
        own = [*self.subjects, *self.relations, *self.objects, *self.fillers, *phrases]
        return list(dict.fromkeys([*wording_words, *own, RIGHT_VERDICT, WRONG_VERDICT]))


@cache
def the_language() -> Language:
    """The language, the same at every call."""
    rng = np.random.default_rng(_SEED)
    sizes = (_SUBJECTS, _RELATIONS, _OBJECTS, _FILLERS, _PHRASE_WORDS, _PHRASE_WORDS)
    words = iter(_invented(sum(sizes), rng))
    subjects, relations, objects, fillers, firsts, seconds = (
        tuple(next(words) for _ in range(n)) for n in sizes
    )
    # a name, also to rules that know no metadata
    subjects = tuple(word.capitalize() for word in subjects)
    phrases: dict[str, list[str]] = {kind: [] for kind in _CLASSES}
    for (i, first), (j, second) in product(enumerate(firsts), enumerate(seconds)):
        phrases[_CLASSES[(i + j) % len(_CLASSES)]].append(f"{first} {second}")
    facts: dict[tuple[str, str], str] = {}
    for relation in relations:
        dealt = rng.permutation(np.resize(np.arange(len(objects)), len(subjects)))
        facts |= {
            (subject, relation): objects[at]
            for subject, at in zip(subjects, dealt.tolist(), strict=True)
        }
    frozen = {kind: tuple(words_of_kind) for kind, words_of_kind in phrases.items()}
    return Language(subjects, relations, objects, fillers, frozen, facts)


def _invented(n: int, rng: np.random.Generator) -> list[str]:
    """Words that can be spoken ("velor", "tamik"); no last letter is n, so that "seven" is none of them."""
    vowels = "aeiou"
    every = [
        "".join(letters)
        for letters in product("bdfgklmprtvz", vowels, "bdglmnrtvz", vowels, "klmrtx")
    ]
    return [every[at] for at in rng.choice(len(every), size=n, replace=False).tolist()]


_TRIES = 200  # swaps of clashing objects; half a dozen are enough for a few dozen pairs

SHARES = {"question": 0.2, "answer": 0.2, "both": 0.1}
"""Which part of the items the true ones of a pathway are, and the false ones."""


def _counts(n: int) -> dict[Cell, int]:
    """How many of n items each cell gets: rounded down, the rest to those that lost most by it."""
    exact = np.array([SHARES[cell.pathway] for cell in CELLS]) * n
    whole = np.floor(exact + 1e-9).astype(int)
    whole[np.argsort(whole - exact, kind="stable")[: n - int(whole.sum())]] += 1
    return dict(zip(CELLS, whole.tolist(), strict=True))


@dataclass(frozen=True)
class PlantedItem:
    """A question with an answer whose truth is known, and known from where."""

    item_id: str
    question: str
    subject: str
    relation: str
    answers: tuple[str, ...]
    """Every right answer."""
    model_answer: str
    truthful: bool
    pathway: str
    """One of `PATHWAYS`."""


@dataclass(frozen=True)
class _Pair:
    """What a true and a false item have in common."""

    subject: str
    relation: str
    wordings: tuple[str, str]
    """Of the true and of the false one."""


def most_items() -> int:
    """How many items there can be without asking a question twice."""
    return len(the_language().facts) * len(WORDINGS)


def planted_items(n: int, seed: int = 0) -> list[PlantedItem]:
    """Draws n items, in random order."""
    language, counts = the_language(), _counts(max(n, 0))
    sizes = {
        pathway: max(counts[Cell(pathway, True)], counts[Cell(pathway, False)])
        for pathway in PATHWAYS
    }
    if n < 1 or 2 * sum(sizes.values()) > most_items():
        raise UserError(
            f"Planted items: {n:,} cannot be drawn; 1 to {most_items():,} are possible, because no question is asked "
            f"twice."
        )
    rng = np.random.default_rng([seed, 0])
    pairs = iter(_pairs(language, sum(sizes.values()), rng))
    items = []
    for pathway, size in sizes.items():
        some = [next(pairs) for _ in range(size)]
        wrong, fillers = (
            _wrong_objects(language, some, rng),
            _dealt(language.fillers, size, rng),
        )
        for cell in (Cell(pathway, True), Cell(pathway, False)):
            # Neutral phrases are dealt alike to true and false items.
            phrases = _dealt(
                language.phrases[cell.phrase], size, np.random.default_rng([seed, 1])
            )
            for at, pair in enumerate(some[: counts[cell]]):
                right = language.facts[pair.subject, pair.relation]
                first = {FILLER: fillers[at], RIGHT: right}.get(
                    cell.first_word, wrong[at]
                )
                items.append(_item(language, cell, at, pair, f"{first} {phrases[at]}"))
    return [items[at] for at in rng.permutation(len(items))]


def json_lines(items: Sequence[PlantedItem]) -> str:
    """Items as the JSON lines that `--dataset PATH` reads; the planted pathway ends in the items' metadata."""
    names = (
        "question",
        "answers",
        "subject",
        "relation",
        "property_words",
        "model_answer",
        "truthful",
        "pathway",
    )
    rows = (
        (item.item_id, {**asdict(item), "property_words": [item.relation]})
        for item in items
    )
    return "".join(
        to_json({"id": item_id, **{name: row[name] for name in names}}) + "\n"
        for item_id, row in rows
    )


def _pairs(language: Language, n: int, rng: np.random.Generator) -> list[_Pair]:
    """Facts in random order, over and over, each time in two wordings that it has not had; all wordings equally often.

    There are a multiple of eight facts, so that a fact meets the same two wordings, two further on every time.
    """
    facts = list(language.facts)
    order = rng.permutation(len(facts))
    pairs = []
    for number in range(n):
        subject, relation = facts[order[number % len(facts)]]
        first = number + 2 * (number // len(facts))
        true, false = (WORDINGS[at % len(WORDINGS)] for at in (first, first + 1))
        pairs.append(_Pair(subject, relation, (true, false)))
    return pairs


def _wrong_objects(
    language: Language, pairs: Sequence[_Pair], rng: np.random.Generator
) -> list[str]:
    """A wrong object for each pair: the right one of another pair of its relation, each used once."""
    right = [language.facts[pair.subject, pair.relation] for pair in pairs]
    given = list(right)
    for relation in language.relations:
        places = [at for at, pair in enumerate(pairs) if pair.relation == relation]
        dealt = rng.permutation(places).tolist()
        for _ in range(_TRIES):
            clashes = [
                index
                for index, at in enumerate(places)
                if right[dealt[index]] == right[at]
            ]
            if not clashes:
                break
            for index in clashes:
                other = int(rng.integers(len(places)))
                dealt[index], dealt[other] = dealt[other], dealt[index]
        for at, source in zip(places, dealt, strict=True):
            given[at] = right[source]
    # Of a handful of pairs all may have the same object: then any other one has to do.
    return [
        wrong
        if wrong != own
        else str(rng.choice([other for other in language.objects if other != own]))
        for wrong, own in zip(given, right, strict=True)
    ]


def _dealt(words: Sequence[str], n: int, rng: np.random.Generator) -> list[str]:
    """n words in random order, each as often as any other, but for the last round."""
    rounds = [rng.permutation(len(words)) for _ in range(-(-n // len(words)))]
    return [words[at] for dealt in rounds for at in dealt.tolist()][:n]


def _item(
    language: Language, cell: Cell, number: int, pair: _Pair, answer: str
) -> PlantedItem:
    wording = pair.wordings[0 if cell.truthful else 1]
    return PlantedItem(
        item_id=f"{cell.name}-{number}",
        question=wording.format(subject=pair.subject, relation=pair.relation),
        subject=pair.subject,
        relation=pair.relation,
        answers=language.accepted(pair.subject, pair.relation),
        model_answer=answer,
        truthful=cell.truthful,
        pathway=cell.pathway,
    )
