"""Token patching: the exact words of the question replaced by another item's, the answer kept.

If the probe reads the question, it should notice that the answer no longer fits. Donors are of the same relation (the
question asks the same of another subject), or any other item; the item itself as its own donor must change nothing,
and as a control as many other words are replaced by other questions' other words.

Parts change places with parts: the donor's subject for the subject, its property for the property; a part that the
donor's question does not say stays. A donor to whose question the kept answer would be right is used only where none of
those looked at is another: some answers are right whatever the question.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from anchorscope.answers.grade import grade
from anchorscope.interventions.controls import NOISE_ITEMS
from anchorscope.interventions.rewriting import Rewriting, Rewritten, Spoken, Writer
from anchorscope.spans.char_spans import Span, is_clear, words_as_written
from anchorscope.spans.locate import on_one_line, question_tokens

DONORS = 3
"""Donors of each item."""
_TRIED = 24  # donors looked at before an item is left without one
EVIDENCE = "patching"

Indices = Sequence[int]
Donors = Callable[[int], Indices]


def exchanged(item: Spoken, donor: Spoken) -> str:
    """The item's question with the donor's exact words."""
    own, others = _Flat(item), _Flat(donor)
    changes: list[tuple[Span, str]] = []
    for mine, theirs in zip(own.parts, others.parts, strict=True):
        if theirs:
            changes += _paired(own.text, mine, [others.text[start:end] for start, end in theirs])
    return _replaced(own.text, changes)


class _Flat:
    """A question on one line, as it stands in the prompt, with the places of its exact words."""

    def __init__(self, item: Spoken) -> None:
        raw = item.question.question
        self.text = " ".join(raw.split())
        self.parts = [on_one_line(raw, spans) for spans in (item.words.subject, item.words.property_spans)]


def _paired(text: str, mine: Sequence[Span], theirs: Sequence[str]) -> Iterator[tuple[Span, str]]:
    """What stands in the place of each of the item's spans.

    One after the other; the last takes all that is left. A span that says the same as an earlier one is that name
    again and gets the same; one for which nothing is left goes.
    """
    given: dict[str, str] = {}
    distinct = list(dict.fromkeys(text[start:end] for start, end in mine))
    names = list(dict.fromkeys(theirs))
    for place, name in enumerate(distinct):
        rest = names[place:] if place == len(distinct) - 1 else names[place : place + 1]
        given[name] = " ".join(rest)
    for start, end in mine:
        yield (start, end), given[text[start:end]]


def _replaced(text: str, changes: Sequence[tuple[Span, str]]) -> str:
    for (start, end), new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return " ".join(text.split())


def _same_relation(items: Sequence[Spoken]) -> Donors:
    by_relation: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        if item.question.relation is not None:
            by_relation.setdefault(item.question.relation, []).append(index)
    return lambda index: by_relation.get(items[index].question.relation or "", ())


def _anyone(items: Sequence[Spoken]) -> Donors:
    everyone = range(len(items))
    return lambda index: everyone


def _patch(
    items: Sequence[Spoken], some: Indices, writer: Writer, rng: np.random.Generator, donors: Donors
) -> list[Rewritten]:
    """Every item with up to so many donors."""
    made: list[tuple[int, int, str]] = []
    for index in some:
        item = items[index]
        own = " ".join(item.question.question.split()).casefold()
        unfit: dict[str, str] = {}  # texts by how they read in small letters
        fitting: dict[str, str] = {}
        for donor in _tried(donors(index), index, rng):
            other = items[donor].question
            text = exchanged(item, items[donor])
            fits = grade(item.answer.text, other.answers, other.question)
            if text.casefold() != own:
                (fitting if fits else unfit).setdefault(text.casefold(), text)
            if len(unfit) == DONORS:
                break
        # A true answer that fits every question stays true; a false one must not become true.
        right = grade(item.answer.text, item.question.answers, item.question.question)
        chosen = list((unfit or (fitting if right else {})).values())[:DONORS]
        made += [(index, run, text) for run, text in enumerate(chosen)]
    return _written(items, made, writer, lambda index: len(items[index].tokens.question_tokens))


def _tried(candidates: Indices, index: int, rng: np.random.Generator) -> list[int]:
    """Some of the candidates in random order, without the item itself."""
    n = len(candidates)
    drawn = rng.choice(n, size=min(n, _TRIED), replace=False).tolist() if n else []
    return [candidates[place] for place in drawn if candidates[place] != index]


def _written(
    items: Sequence[Spoken], made: Sequence[tuple[int, int, str]], writer: Writer, changed: Callable[[int], int]
) -> list[Rewritten]:
    sequences = writer.sequences([items[index] for index, _, _ in made], [text for _, _, text in made])
    return [
        Rewritten(index, run, sequence, changed(index))
        for (index, run, _), sequence in zip(made, sequences, strict=True)
    ]


def _from_relation(
    items: Sequence[Spoken], some: Indices, writer: Writer, rng: np.random.Generator
) -> list[Rewritten]:
    return _patch(items, some, writer, rng, _same_relation(items))


def _from_anyone(items: Sequence[Spoken], some: Indices, writer: Writer, rng: np.random.Generator) -> list[Rewritten]:
    return _patch(items, some, writer, rng, _anyone(items))


def _from_itself(items: Sequence[Spoken], some: Indices, writer: Writer, rng: np.random.Generator) -> list[Rewritten]:
    made = [(index, 0, exchanged(items[index], items[index])) for index in some]
    return _written(items, made, writer, lambda index: 0)


def other_words(item: Spoken) -> list[Span]:
    """Words of a question, on one line, that are not among its exact words."""
    flat = _Flat(item)
    taken = [span for part in flat.parts for span in part]
    return [(start, end) for _, start, end in words_as_written(flat.text) if is_clear(start, end, taken)]


def _other_words_exchanged(
    items: Sequence[Spoken], some: Indices, writer: Writer, rng: np.random.Generator
) -> list[Rewritten]:
    """As many other tokens, at least, replaced by the other words of other questions."""
    made, changed = [], {}
    for index in some:
        item, text = items[index], _Flat(items[index]).text
        own = other_words(item)
        chosen: list[Span] = []
        for place in rng.permutation(len(own)):
            if len(question_tokens(item.question, chosen, item.prompt)) >= len(item.tokens.question_tokens):
                break
            chosen.append(own[int(place)])
        changes = []
        for start, end in chosen:
            offered = _other_word(items, index, text[start:end], rng)
            if offered is not None:
                changes.append(((start, end), offered))
        if changes:
            made.append((index, 0, _replaced(text, changes)))
            changed[index] = len(question_tokens(item.question, [span for span, _ in changes], item.prompt))
    return _written(items, made, writer, changed.__getitem__)


def _other_word(items: Sequence[Spoken], index: int, word: str, rng: np.random.Generator) -> str | None:
    """Another question's word that is none of its exact ones; None where all of those looked at are the same."""
    for donor in _tried(range(len(items)), index, rng):
        text = _Flat(items[donor]).text
        words = [text[start:end] for start, end in other_words(items[donor])]
        different = [other for other in words if other.casefold() != word.casefold()]
        if different:
            return different[int(rng.integers(len(different)))]
    return None


PATCH_SAME = Rewriting(
    "patch-same", "E_Q replaced by that of an item of the same relation", _from_relation, EVIDENCE, "donor",
    needs="their relation is not known, or no other item of it fits",
)  # fmt: skip
PATCH_RANDOM = Rewriting(
    "patch-random", "E_Q replaced by that of any other item", _from_anyone, EVIDENCE, "donor",
    needs="no other item fits",
)  # fmt: skip
PATCH_SELF = Rewriting(
    "patch-self", "E_Q replaced by itself: nothing may change", _from_itself, EVIDENCE, "self", changes=False,
    max_items=NOISE_ITEMS, control=True,
)  # fmt: skip
PATCH_CONTROL = Rewriting(
    "patch-control", "as many other tokens of the question replaced", _other_words_exchanged, EVIDENCE, "control",
    control=True, needs="the questions say nothing but their exact words",
)  # fmt: skip
