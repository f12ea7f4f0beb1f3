"""What every intervention is: a rule that turns an item into the attention edges to cut.

An intervention knows tokens, not probes. Registered ones all pass the same laws: cutting nothing equals the clean run,
a real cut changes something, states below the first cut key stay as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from anchorscope.engine.sequences import Cut, TokenSequence
from anchorscope.errors import InterventionNotApplied
from anchorscope.spans.locate import Located, QuestionParts
from anchorscope.spans.positions import POSITIONS

NO_PARTS = QuestionParts((), (), ())
"""Of an item of which only E_Q is known."""


@dataclass(frozen=True)
class ItemTokens:
    """What an intervention may know of an item."""

    sequence: TokenSequence
    question_tokens: tuple[int, ...]
    """Exact question tokens E_Q, indices into the sequence."""
    prefix_length: int
    """Leading tokens shared by all items; they are not run again and cannot be cut."""
    parts: QuestionParts = NO_PARTS
    """The question's tokens by what they say."""


def item_tokens(located: Located, positions: Sequence[str], prefix_length: int) -> ItemTokens:
    """An item whose tokens were found, to be read at the named positions."""
    read_at = tuple(located.positions[POSITIONS.index(position)] for position in positions)
    sequence = TokenSequence(located.input_ids, located.answer_start, read_at)
    return ItemTokens(sequence, located.question_tokens, prefix_length, located.parts)


@dataclass(frozen=True)
class Intervention:
    """A registered intervention."""

    name: str
    """As in the results' column `intervention`."""
    about: str
    """One line for help and report."""
    keys: Callable[[ItemTokens, np.random.Generator], tuple[int, ...]]
    """Which positions later ones may no longer attend to."""
    changes: bool = True
    """False for the no-op control: nothing is cut, and the batches are made in another order."""
    max_items: int | None = None
    """How many items are enough; None for all."""
    keeps_states: bool = False
    """Whether the states at the headline site are kept, to fit probes on them anew (`refit`)."""
    needs: str | None = None
    """The part of the question without which an item cannot be run; None where every item can."""
    evidence: str = "knockout"
    """The experiment that it belongs to; those of the knockout are always run."""
    edges: str | None = None
    """Which later tokens lose the edges, where that is the point of it; None for the recipe's choice."""
    how: str = "mask"
    """How edges are cut: masked before the softmax, or set to zero after it."""
    whole: bool = False
    """Whether it cuts tokens of the shared prefix, so that the whole sequence has to be run."""
    control: bool = False
    """Whether it should do little: what it does after all is a measure of how far to trust the rest."""
    many_passes: bool = False
    """Whether it costs much more than the knockout, so that some of the items have to do on a small machine."""

    def applies(self, item: ItemTokens) -> bool:
        """Whether an item can be run."""
        if self.whole and item.prefix_length < 2:  # the first token is never cut
            return False
        return self.needs is None or bool(getattr(item.parts, self.needs))

    def cut(self, item: ItemTokens, edges: str, rng: np.random.Generator) -> Cut:
        """The cut for one item."""
        if self.changes and not item.question_tokens:
            # Nothing would be cut, nothing would change, and the item would pass for A-Anchored.
            raise InterventionNotApplied(f"{self.name}: an item has no exact question tokens")
        return Cut(keys=self.keys(item, rng), edges=self.edges or edges, how=self.how)
