"""The worlds: what is planted in the states of items, and what makes it hard to find.

Every item's state holds evidence for its label in a question part and an answer part, each with noise of its own; the
cut redraws the question part. Worlds differ in how the evidence is divided between the parts, in what else of the state
tells how it is divided, and in what goes wrong. A world's *twin* looks the same and has one pathway: all that is tied
to the pathways is there, but every item has half of its evidence in each part. Who finds two groups in a twin is wrong.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float

HALF = 0.5
"""Share of the evidence in the question part where there is one pathway."""
N_RELATIONS = 8
"""Relations of the world that has some."""

Division = Literal["half", "two", "graded"]
"""Every item half and half; all of it in one part; a share of its own for every item."""


@dataclass(frozen=True)
class World:
    """What is planted."""

    name: str
    about: str
    """One line: what makes it hard."""
    division: Division = "two"
    """How an item's evidence is divided between question and answer."""
    strength: float = 1.28
    """Size of an item's whole evidence, in standard deviations of the noise of a part."""
    visible: float = 1.0
    """How far the state leans, in one direction that no cut touches, with the item's kind; 0 where it does not."""
    hidden: float = 0.0
    """How far it leans in two directions whose *signs together* tell the kind, and neither alone."""
    question_true: float = 0.5
    """Share of question items among true answers; among false ones it is 1 less this."""
    label_noise: float = 0.0
    """Share of labels that say the opposite of the evidence."""
    by_relation: bool = False
    """Whether relations decide how likely an item is true, and how likely it is a question item."""
    missed: float = 0.0
    """Share of the key tokens that the cut misses."""

    @property
    def has_kinds(self) -> bool:
        """Whether items differ in their pathway."""
        return self.division != "half"

    @property
    def twin(self) -> "World":
        """The same with one pathway: the evidence as strong for the probe, and divided evenly in every item."""
        # A probe weighs both parts alike; an item with all of its evidence in one of them has noise from the other.
        strength = self.strength / np.sqrt(2) if self.division == "two" else self.strength
        return replace(self, division="half", strength=float(strength))

    def shares(self, kind: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Share of an item's evidence that is in the question part, by its kind (1: question, 0: answer)."""
        return np.full_like(kind, HALF) if self.division == "half" else kind

    def log_odds_shares(self, kind: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Share of an item's log-odds that the question part contributes, to a probe that weighs both parts alike."""
        question = np.sqrt(self.shares(kind))
        return question / (question + np.sqrt(1 - self.shares(kind)))


_ALL = (
    World(
        "one-pathway",
        "every item takes half of its evidence from the question and half from the answer",
        "half",
        0.65,
        visible=0.0,
    ),
    World("two-pathway", "two kinds of items, and a direction that tells them apart in 92 of 100 pairs"),
    World(
        "80/20", "the same; four of five question items are true, four of five answer items false", question_true=0.8
    ),
    World(
        "weak", "the same; a tenth of the labels are wrong and the probe's AUC is 0.8", strength=1.13, label_noise=0.1
    ),
    World("hidden", "two kinds that only a combination of two directions tells apart", visible=0.0, hidden=2.0),
    World("graded", "every item has a share of its own, drawn from a Beta distribution", "graded", 0.9),
    World(
        "relation",
        "relations are tied to pathway and truth; question and answer tell the relation",
        visible=0.0,
        by_relation=True,
    ),
    World("missed", "names of several tokens, of which the cut misses a fifth", missed=0.2),
)
WORLDS: dict[str, World] = {one.name: one for one in _ALL}
"""All worlds by name."""
