"""A made-up language: its words, the facts that are true in it, and how a question can be worded.

Every subject has one right object per relation, drawn once, and every object is right for equally many subjects. A
phrase is two words; the sum of their classes decides what it says, and every word is in equally many phrases of each
kind. So nothing but the table of facts, or the pair of words, tells the truth.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

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
        return NEUTRAL if self.pathway == "question" else ALWAYS if self.truthful else NEVER

    @property
    def name(self) -> str:
        """As in item ids: `question-true`."""
        return f"{self.pathway}-{str(self.truthful).lower()}"


CELLS = tuple(Cell(pathway, truthful) for pathway in PATHWAYS for truthful in (True, False))
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
        wording_words = [word for wording in WORDINGS for word in re.findall(r"\w+", re.sub(r"{\w+}", "", wording))]
        phrases = [word for kind in _CLASSES for phrase in self.phrases[kind] for word in phrase.split()]
        own = [*self.subjects, *self.relations, *self.objects, *self.fillers, *phrases]
        return list(dict.fromkeys([*wording_words, *own, RIGHT_VERDICT, WRONG_VERDICT]))


@cache
def the_language() -> Language:
    """The language, the same at every call."""
    rng = np.random.default_rng(_SEED)
    sizes = (_SUBJECTS, _RELATIONS, _OBJECTS, _FILLERS, _PHRASE_WORDS, _PHRASE_WORDS)
    words = iter(_invented(sum(sizes), rng))
    subjects, relations, objects, fillers, firsts, seconds = (tuple(next(words) for _ in range(n)) for n in sizes)
    subjects = tuple(word.capitalize() for word in subjects)  # a name, also to rules that know no metadata
    phrases: dict[str, list[str]] = {kind: [] for kind in _CLASSES}
    for (i, first), (j, second) in product(enumerate(firsts), enumerate(seconds)):
        phrases[_CLASSES[(i + j) % len(_CLASSES)]].append(f"{first} {second}")
    facts: dict[tuple[str, str], str] = {}
    for relation in relations:
        dealt = rng.permutation(np.resize(np.arange(len(objects)), len(subjects)))
        facts |= {(subject, relation): objects[at] for subject, at in zip(subjects, dealt.tolist(), strict=True)}
    frozen = {kind: tuple(words_of_kind) for kind, words_of_kind in phrases.items()}
    return Language(subjects, relations, objects, fillers, frozen, facts)


def _invented(n: int, rng: np.random.Generator) -> list[str]:
    """Words that can be spoken ("velor", "tamik"); no last letter is n, so that "seven" is none of them."""
    vowels = "aeiou"
    every = ["".join(letters) for letters in product("bdfgklmprtvz", vowels, "bdglmnrtvz", vowels, "klmrtx")]
    return [every[at] for at in rng.choice(len(every), size=n, replace=False).tolist()]
