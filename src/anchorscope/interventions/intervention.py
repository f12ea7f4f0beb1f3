"""What every intervention is: a rule that says how the runs of the items differ from their clean runs.

A run differs in its attention edges (some are cut), in its text (the question is rewritten), or in both. Registered
ones all pass the same laws: changing nothing equals the clean run, a real change changes something, states below the
first cut key stay as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchorscope.answers.template import Template
from anchorscope.catalogue import InterventionEntry
from anchorscope.engine.capture import AttentionMass
from anchorscope.engine.sequences import NO_CUT, Cut, TokenSequence
from anchorscope.errors import InterventionNotApplied
from anchorscope.items import Item

NOISE_ITEMS = 180
"""Items in a no-op control: if two thirds are classified right and none of these flips, under 3 % flip."""


@dataclass(frozen=True)
class ItemRun:
    """One item, run once in a changed way."""

    item: int
    sequence: TokenSequence
    cut: Cut = NO_CUT
    run: int = 0
    n_changed: int = 0
    n_candidates: int | None = None
    """How many tokens there were to draw from."""
    attention_ratio: float | None = None
    """Attention received by the cut tokens in the clean run, over that of E_Q; None if not measured."""


@dataclass(frozen=True)
class Writer:
    """How a question becomes the model's prompt."""

    tokenizer: Any
    template: Template

    def sequences(
        self, items: Sequence[Item], questions: Sequence[str], positions: Sequence[str]
    ) -> list[TokenSequence]:
        """Each item's answer after the prompt of another question, with its own passages; an empty one has none."""
        texts = []
        for item, question in zip(items, questions, strict=True):
            own = (item.question.context, item.question.thinking) if question else ()
            texts.append(self.template.write(question, *own)[0])
        encoded = self.template.encode(self.tokenizer, texts)
        return [
            answered(ids + item.answer.before, item, positions)
            for item, (ids, _) in zip(items, encoded, strict=True)
        ]


def answered(
    before: tuple[int, ...], item: Item, positions: Sequence[str]
) -> TokenSequence:
    """An item's answer after other tokens, read at the same positions of the answer."""
    old = item.sequence(positions)
    moved = len(before) - old.answer_start
    return TokenSequence(
        before + item.answer.ids,
        len(before),
        tuple(position + moved for position in old.read_at),
    )


@dataclass(frozen=True)
class Setting:
    positions: tuple[str, ...]
    edges: str
    """Which later tokens lose the cut edges, unless an intervention has a choice of its own."""
    seed: int
    writer: Callable[[], Writer]
    """Gives the tokenizer and the template; called only by rewrites."""
    most_items: int | None = None
    """Items of an intervention that takes many passes; None for all."""
    context: int | None = None
    """Context length of the model; longer rewritten texts aren't run."""
    masses: Callable[[], Mapping[str, AttentionMass]] = dict
    """Gives the attention that each item's tokens receive, by the item's name; empty if not measured."""


Keys = Callable[[Item, np.random.Generator, AttentionMass | None], tuple[int, ...]]
Rewrite = Callable[[Sequence[Item], Sequence[int], Setting], list[ItemRun]]
"""The runs of some of the items with another text, from all items and the indices of those to run."""


@dataclass(frozen=True)
class Intervention:
    entry: InterventionEntry
    keys: Keys | None = None
    rewrite: Rewrite | None = None
    changes: bool = True
    """False for a no-op control, which only changes the order of the batches."""
    max_items: int | None = None
    keeps_states: bool = False
    """Whether states under it are kept: the parts need them, and probes are fitted on them (`refit`)."""
    candidates: Callable[[Item], Sequence[int]] | None = None
    """The positions that keys are drawn from."""
    repeats: bool = False
    draw: int = 0
    """Which of its draws this is; all results but states are those of the first."""
    by_attention: bool = False
    """Whether its keys are chosen by how much attention they receive."""
    part: str | None = None
    """The part of the question without which an item cannot be run; None where every item can."""
    why_few: str = "no item can be run so"
    edges: str | None = None
    """Which later tokens lose the edges; None for the recipe's choice."""
    how: str = "mask"
    whole: bool = False
    """Whether it cuts tokens of the shared prefix, so that the whole sequence has to be run."""
    many_passes: bool = False
    """Whether it costs much more than the knockout, so that a small machine uses fewer items."""
    variant: str | None = None
    """What its rows are called in the results; None for the edges that are cut."""

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def draw_name(self) -> str:
        """The name that the states of one draw are kept and drawn under: `random`, `random 2` …"""
        return self.name if self.draw == 0 else f"{self.name} {self.draw + 1}"

    def applies(self, item: Item) -> bool:
        # the first token is never cut
        if self.whole and item.located.prefix_length < 2:
            return False
        return self.part is None or bool(getattr(item.located.parts, self.part))

    def cut(
        self,
        item: Item,
        edges: str,
        rng: np.random.Generator,
        mass: AttentionMass | None = None,
    ) -> Cut:
        """The cut for one item; `mass` is the attention that its tokens receive."""
        assert self.keys is not None, f"{self.name} cuts nothing"
        if self.changes and not item.located.question_tokens:
            # Nothing would be cut, nothing would change, and the item would pass for A-Anchored.
            raise InterventionNotApplied(
                f"{self.name}: an item has no exact question tokens"
            )
        return Cut(
            keys=self.keys(item, rng, mass), edges=self.edges or edges, how=self.how
        )
