"""What the further experiments stand on: the used items of one dataset, their probes, and what was measured so far."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.answers.conversation import Conversation
from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label
from anchorscope.datasets.question import Question
from anchorscope.engine.batching import Budget
from anchorscope.evidence.corrected import correct_shift
from anchorscope.evidence.draws import Draws
from anchorscope.evidence.effects import Effect
from anchorscope.evidence.experiments.found import Found
from anchorscope.evidence.items import Measured
from anchorscope.evidence.pathways import Calls, plain_calls, retained_calls
from anchorscope.evidence.subset import some_items
from anchorscope.interventions.intervention import ItemTokens
from anchorscope.models.language_model import LanguageModel
from anchorscope.probes.crossfit import ProbeSet, Splits
from anchorscope.probes.scoring import Scorer
from anchorscope.progress import Progress


@dataclass(frozen=True)
class Asked:
    """One question that was asked, used or not."""

    question: Question
    answer: Answer
    label: Label


@dataclass(frozen=True)
class Settings:
    """The recipe's choices that experiments need."""

    seed: int
    edges: str
    most_items: int | None
    """Items in experiments that take many passes; None for all."""
    window: int | None
    """Layers in a window; None for a quarter of the depth."""
    max_new_tokens: int


@dataclass(frozen=True)
class Ground:
    """One dataset, measured at the headline site and position."""

    dataset: str
    model: Callable[[], LanguageModel]
    """Gives the model; called only by experiments that need it."""
    talk: Conversation
    """The prompts of all questions that were asked, and the keys and values they share."""
    everyone: Sequence[Asked]
    """All questions, in the order of `talk.questions`."""
    used: NDArray[np.int64]
    """Which of them are used items; all other arrays run over these."""
    tokens: Sequence[ItemTokens]
    states: Tensor
    """Clean states at the headline site and position, [layer, item, d_model], in host memory."""
    probes: ProbeSet
    """At the headline site and position."""
    scorer: Callable[[], Scorer]
    """Scores states of all positions and sites."""
    splits: Splits
    place: Measured
    """Log-odds at the headline site and position, before and after every intervention."""
    refits: Mapping[str, NDArray[np.floating]]
    """Out-of-fold log-odds [layer, item] of probes trained under an intervention (`knockout`, `random`)."""
    effects: Mapping[str, Effect]
    headline: tuple[int, int]
    """(position, site) as indices into what the scorer gives."""
    weights: NDArray[np.floating]
    """Bootstrap weights over groups, [resample, item]."""
    settings: Settings
    budget: Budget
    device: str
    """Where probes are fitted and draws are computed."""
    progress: Progress
    further: Mapping[str, Found] = field(default_factory=dict)
    """What the experiments before this one found, by name."""

    @property
    def n(self) -> int:
        """Number of used items."""
        return len(self.used)

    @property
    def items(self) -> list[Asked]:
        """The used items."""
        return [self.everyone[index] for index in self.used]

    @property
    def reference(self) -> NDArray[np.int64]:
        """The reference layer of each item's own fold."""
        return self.place.reference[self.place.probe("full")][self.place.folds]

    @cached_property
    def draws(self) -> Draws:
        """The bootstrap's draws."""
        return Draws.of(self.weights, torch.device(self.device))

    @cached_property
    def calls(self) -> Mapping[str, Calls]:
        """Who is in which pathway, by assignment."""
        found = {"plain": plain_calls(self.place), "corrected": correct_shift(self.place, self.draws).sample()}
        return found | ({"retained": retained_calls(self.place)} if self.place.refits else {})

    def rng(self, name: str) -> np.random.Generator:
        """Random numbers of one experiment: the same in every run with this seed."""
        return np.random.default_rng([self.settings.seed, 5, *name.encode()])

    def some_items(self) -> NDArray[np.int64]:
        """The items of an experiment that takes many passes: all, or so many drawn at random, in order."""
        return some_items(self.n, self.settings.most_items, self.settings.seed)
