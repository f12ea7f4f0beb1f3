"""Items with a planted pathway: questions with answers whose truth, and where it can be known from, are given.

True and false items of a pathway are made in pairs about the same subject and relation, in two wordings, with the same
filler or neutral phrase; the wrong objects are the right ones of other pairs of the same relation. So within a pathway
true and false items share their questions and (`question`, `both`) their objects word by word: counting finds no
information about truth in a subject, a relation, a first word. No question is worded the same twice, because a run asks
each once.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from anchorscope.errors import UserError
from anchorscope.planted.language import CELLS, FILLER, PATHWAYS, RIGHT, WORDINGS, Cell, Language, the_language

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
    sizes = {pathway: max(counts[Cell(pathway, True)], counts[Cell(pathway, False)]) for pathway in PATHWAYS}
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
        wrong, fillers = _wrong_objects(language, some, rng), _dealt(language.fillers, size, rng)
        for cell in (Cell(pathway, True), Cell(pathway, False)):
            # Neutral phrases are dealt alike to true and false items.
            phrases = _dealt(language.phrases[cell.phrase], size, np.random.default_rng([seed, 1]))
            for at, pair in enumerate(some[: counts[cell]]):
                right = language.facts[pair.subject, pair.relation]
                first = {FILLER: fillers[at], RIGHT: right}.get(cell.first_word, wrong[at])
                items.append(_item(language, cell, at, pair, f"{first} {phrases[at]}"))
    return [items[at] for at in rng.permutation(len(items))]


def json_lines(items: Sequence[PlantedItem]) -> str:
    """Items as the JSON lines that `--dataset PATH` reads; the planted pathway ends in the items' metadata."""
    names = ("question", "answers", "subject", "relation", "property_words", "model_answer", "truthful", "pathway")
    rows = ((item.item_id, {**asdict(item), "property_words": [item.relation]}) for item in items)
    return "".join(json.dumps({"id": item_id, **{name: row[name] for name in names}}) + "\n" for item_id, row in rows)


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


def _wrong_objects(language: Language, pairs: Sequence[_Pair], rng: np.random.Generator) -> list[str]:
    """A wrong object for each pair: the right one of another pair of its relation, each used once."""
    right = [language.facts[pair.subject, pair.relation] for pair in pairs]
    given = list(right)
    for relation in language.relations:
        places = [at for at, pair in enumerate(pairs) if pair.relation == relation]
        dealt = rng.permutation(places).tolist()
        for _ in range(_TRIES):
            clashes = [index for index, at in enumerate(places) if right[dealt[index]] == right[at]]
            if not clashes:
                break
            for index in clashes:
                other = int(rng.integers(len(places)))
                dealt[index], dealt[other] = dealt[other], dealt[index]
        for at, source in zip(places, dealt, strict=True):
            given[at] = right[source]
    # Of a handful of pairs all may have the same object: then any other one has to do.
    return [
        wrong if wrong != own else str(rng.choice([other for other in language.objects if other != own]))
        for wrong, own in zip(given, right, strict=True)
    ]


def _dealt(words: Sequence[str], n: int, rng: np.random.Generator) -> list[str]:
    """n words in random order, each as often as any other, but for the last round."""
    rounds = [rng.permutation(len(words)) for _ in range(-(-n // len(words)))]
    return [words[at] for dealt in rounds for at in dealt.tolist()][:n]


def _item(language: Language, cell: Cell, number: int, pair: _Pair, answer: str) -> PlantedItem:
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
