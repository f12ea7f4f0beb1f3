"""Token patching: the exact words of the question replaced by another item's, the answer kept.

Donors are of the same relation, or any other item; the item as its own donor must change nothing; as a control, as many
other words are replaced. Subject replaces subject, property replaces property; a part that the donor lacks stays. A
donor whose question the kept answer would answer is used only as a last resort.

Answer only: the question is dropped, once with the template kept and an empty line in its place, and once bare, with
the sequence's first token (the attention sink).
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from anchorscope.answers.grade import grade
from anchorscope.answers.template import build_prompts
from anchorscope.catalogue import INTERVENTIONS as ENTRIES
from anchorscope.datasets.text import Span, merged
from anchorscope.interventions.intervention import (
    NOISE_ITEMS,
    Intervention,
    ItemRun,
    Setting,
    answered,
)
from anchorscope.items import Item
from anchorscope.spans.locate import question_tokens
from anchorscope.spans.words import is_clear, words_as_written
from anchorscope.stats.streams import mixed, priorities, stream

DONORS = 3
_TRIED = 24  # donors tried before an item is left without one

Indices = Sequence[int]


def exchanged(item: Item, donor: Item) -> str:
    """The item's question with the donor's exact words."""
    text, changes = item.question.question, list[tuple[Span, str]]()
    for mine, theirs in zip(_exact_words(item), _exact_words(donor), strict=True):
        if theirs:
            changes += _pair_spans(
                text,
                mine,
                [donor.question.question[start:end] for start, end in theirs],
            )
    return _replaced(text, changes)


def _exact_words(item: Item) -> tuple[Sequence[Span], Sequence[Span]]:
    """Subject and property, as characters of the question."""
    return item.words.subject, item.words.property_spans


def _pair_spans(
    text: str, mine: Sequence[Span], theirs: Sequence[str]
) -> Iterator[tuple[Span, str]]:
    """What replaces each of the item's spans, one after the other; the last takes all that is left.

    A span that repeats an earlier one gets the same; one for which nothing is left is dropped.
    """
    given: dict[str, str] = {}
    distinct = list(dict.fromkeys(text[start:end] for start, end in mine))
    names = list(dict.fromkeys(theirs))
    for index, name in enumerate(distinct):
        rest = names[index:] if index == len(distinct) - 1 else names[index : index + 1]
        given[name] = " ".join(rest)
    for start, end in mine:
        yield (start, end), given[text[start:end]]


def _replaced(text: str, changes: Sequence[tuple[Span, str]]) -> str:
    for (start, end), new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return " ".join(text.split())


class Donors:
    """Possible donors of an item in random order, which depends on the two items' names alone."""

    def __init__(
        self,
        items: Sequence[Item],
        setting: Setting,
        purpose: str,
        same_relation: bool = False,
    ) -> None:
        self.items, self.same_relation = items, same_relation
        self.numbers = priorities(
            setting.seed, purpose, [item.item_id for item in items]
        )
        self.everyone = np.arange(len(items))
        by_relation: dict[str, list[int]] = {}
        for index, item in enumerate(items):
            by_relation.setdefault(item.question.relation or "", []).append(index)
        self.by_relation = {
            name: np.array(members) for name, members in by_relation.items()
        }

    def of(self, index: int) -> list[int]:
        """The first donors, without the item itself."""
        candidates, relation = self.everyone, self.items[index].question.relation
        if self.same_relation:
            candidates = (
                self.by_relation[relation]
                if relation is not None
                else self.everyone[:0]
            )
        candidates = candidates[candidates != index]
        order = np.argsort(
            mixed(self.numbers[index], self.numbers[candidates]), kind="stable"
        )
        return candidates[order[:_TRIED]].tolist()


def _patch(
    items: Sequence[Item], some: Indices, setting: Setting, donors: Donors
) -> list[ItemRun]:
    made: list[tuple[int, int, str]] = []
    for index in some:
        item = items[index]
        own = " ".join(item.question.question.split()).casefold()
        unfit: dict[str, str] = {}  # texts by how they read in small letters
        fitting: dict[str, str] = {}
        for donor in donors.of(index):
            other = items[donor]
            text = exchanged(item, other)
            fits = grade(item.answer.text, other.accepted, other.question.question)
            if text.casefold() != own:
                (fitting if fits else unfit).setdefault(text.casefold(), text)
            if len(unfit) == DONORS:
                break
        # A true answer that fits every question stays true; a false one must not become true.
        right = grade(item.answer.text, item.accepted, item.question.question)
        chosen = list((unfit or (fitting if right else {})).values())[:DONORS]
        made += [(index, run, text) for run, text in enumerate(chosen)]
    return _written(
        items, made, setting, lambda index: len(items[index].located.question_tokens)
    )


def _written(
    items: Sequence[Item],
    made: Sequence[tuple[int, int, str]],
    setting: Setting,
    changed: Callable[[int], int],
) -> list[ItemRun]:
    owners, texts = (
        [items[index] for index, _, _ in made],
        [text for _, _, text in made],
    )
    sequences = setting.writer().sequences(owners, texts, setting.positions)
    return [
        ItemRun(index, sequence, run=run, n_changed=changed(index))
        for (index, run, _), sequence in zip(made, sequences, strict=True)
    ]


def _from_itself(
    items: Sequence[Item], some: Indices, setting: Setting
) -> list[ItemRun]:
    made = [(index, 0, exchanged(items[index], items[index])) for index in some]
    return _written(items, made, setting, lambda index: 0)


def other_words(item: Item) -> list[Span]:
    """Words of a question, on one line, that are not among its exact words."""
    taken = merged(span for part in _exact_words(item) for span in part)
    return [
        (start, end)
        for _, start, end in words_as_written(item.question.question)
        if is_clear(start, end, taken)
    ]


def _other_words_exchanged(
    items: Sequence[Item], some: Indices, setting: Setting
) -> list[ItemRun]:
    """As many other tokens, at least, replaced by the other words of other questions."""
    made, changed = [], {}
    donors = Donors(items, setting, "patch-control")
    writer = setting.writer()
    prompts = build_prompts(
        writer.tokenizer, [items[index].question for index in some], writer.template
    )
    for index, prompt in zip(some, prompts, strict=True):
        item, text = items[index], items[index].question.question
        rng = stream(setting.seed, "patch-control", item.item_id)
        own = other_words(item)
        chosen: list[Span] = []
        for word_index in rng.permutation(len(own)):
            if len(question_tokens(chosen, prompt)) >= len(
                item.located.question_tokens
            ):
                break
            chosen.append(own[int(word_index)])
        changes = []
        for start, end in chosen:
            offered = _other_word(
                [items[donor] for donor in donors.of(index)], text[start:end], rng
            )
            if offered is not None:
                changes.append(((start, end), offered))
        if changes:
            made.append((index, 0, _replaced(text, changes)))
            changed[index] = len(question_tokens([span for span, _ in changes], prompt))
    return _written(items, made, setting, changed.__getitem__)


def _other_word(
    donors: Sequence[Item], word: str, rng: np.random.Generator
) -> str | None:
    """Another question's word that isn't exact; None if all those tried are the same."""
    for index in rng.permutation(len(donors)):
        donor = donors[int(index)]
        words = [
            donor.question.question[start:end] for start, end in other_words(donor)
        ]
        different = [other for other in words if other.casefold() != word.casefold()]
        if different:
            return different[int(rng.integers(len(different)))]
    return None


def _template_kept(
    items: Sequence[Item], some: Sequence[int], setting: Setting
) -> list[ItemRun]:
    sequences = setting.writer().sequences(
        [items[index] for index in some], [""] * len(some), setting.positions
    )
    return [
        _dropped(items, index, sequence.ids[: sequence.answer_start], setting)
        for index, sequence in zip(some, sequences, strict=True)
    ]


def _bare(
    items: Sequence[Item], some: Sequence[int], setting: Setting
) -> list[ItemRun]:
    return [
        _dropped(items, index, items[index].located.input_ids[:1], setting)
        for index in some
    ]


def _dropped(
    items: Sequence[Item], index: int, before: tuple[int, ...], setting: Setting
) -> ItemRun:
    sequence = answered(before, items[index], setting.positions)
    return ItemRun(
        index,
        sequence,
        n_changed=len(items[index].located.input_ids) - len(sequence.ids),
    )


REWRITES = (
    Intervention(
        ENTRIES["patch-same"],
        rewrite=lambda items, some, setting: _patch(
            items, some, setting, Donors(items, setting, "patch-same", True)
        ),
        variant="donor",
        why_few="their relation is not known, or no other item of it fits",
    ),
    Intervention(
        ENTRIES["patch-random"],
        rewrite=lambda items, some, setting: _patch(
            items, some, setting, Donors(items, setting, "patch-random")
        ),
        variant="donor",
        why_few="no other item fits",
    ),
    Intervention(
        ENTRIES["patch-self"],
        rewrite=_from_itself,
        variant="self",
        changes=False,
        max_items=NOISE_ITEMS,
    ),
    Intervention(
        ENTRIES["patch-control"],
        rewrite=_other_words_exchanged,
        variant="control",
        why_few="the questions say nothing but their exact words",
    ),
    Intervention(
        ENTRIES["answer-template"], rewrite=_template_kept, variant="no question"
    ),
    Intervention(ENTRIES["answer-bare"], rewrite=_bare, variant="bare"),
)
