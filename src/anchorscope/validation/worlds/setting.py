"""What all replicas of a world share: labels, folds, halves, and the bootstrap's draws. Every item is a group."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from anchorscope.probes.crossfit import Splits, make_splits
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.question_share.halves import Halves, make_halves
from anchorscope.stats.estimate import group_weights
from anchorscope.stats.streams import stream, unnamed
from anchorscope.validation.worlds.states import Made

N_FOLDS = 5
RESAMPLES = 1000
"""Behind the intervals of shares within a replica."""


@dataclass(frozen=True)
class Setting:
    """Who learns from whom."""

    labels: Bool[np.ndarray, " item"]
    relations: Int[np.ndarray, " item"]
    seed: int
    device: torch.device

    @classmethod
    def of(cls, made: Made, seed: int, device: str | torch.device) -> "Setting":
        """The setting of a world's replicas."""
        return cls(made.planted.labels, made.planted.relations, seed, torch.device(device))

    @cached_property
    def groups(self) -> Int[np.ndarray, " item"]:
        """Each item its own."""
        return np.arange(len(self.labels))

    @cached_property
    def ids(self) -> list[str]:
        """Names by which splits are drawn."""
        return [str(place) for place in self.groups]

    @cached_property
    def strata(self) -> Int[np.ndarray, " item"]:
        """Relation × truth."""
        return truth_strata(self.labels, [str(one) for one in self.relations])

    @cached_property
    def folds(self) -> Int[np.ndarray, " item"]:
        """Outer folds."""
        return grouped_folds(self.groups, self.strata, N_FOLDS, unnamed(self.seed, "worlds folds", len(self.labels)))

    @cached_property
    def splits(self) -> Splits:
        """Of the probes behind the sorting rules."""
        relations = [str(one) for one in self.relations]
        return make_splits(self.labels, self.groups, self.folds, self.seed, item_ids=self.ids, relations=relations)

    @cached_property
    def halves(self) -> Halves:
        """Of the question share."""
        return make_halves(self.groups, self.strata, self.seed, self.ids)

    @cached_property
    def weights(self) -> Float[np.ndarray, "resample item"]:
        """The bootstrap's."""
        return group_weights(self.groups, RESAMPLES, stream(self.seed, "worlds bootstrap"))
