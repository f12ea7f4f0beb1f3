"""`auto`: probes and confidence, stacked; away from the training questions it is mostly confidence.

The stack is a logistic regression on the log-odds of every layer's probe and on the columns of confidence. On questions
like those of training it ranks answers better than confidence does; on other questions it may rank them worse. So its
share falls from 1 near the training questions to `SHARE_AWAY` far from them; confidence has the rest. A question's
distance is that of its state before the answer from the nearest training states; at the median distance of the training
questions from each other the share is half-way. A stack that isn't above confidence within the inner folds is not used.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorscope.detectors.data import DetectorFit, TrainingData, fit_stacked
from anchorscope.detectors.features import QUESTION_ONLY, StateKey
from anchorscope.detectors.fitted import (
    NEIGHBOURS,
    Fitted,
    TrainingRange,
    WeightedSum,
    WithFallback,
    mean_of_nearest,
)

# The rule and its three numbers were chosen on states of SmolLM2-135M and TinyLlama 1.1B over PopQA, TriviaQA,
# HotpotQA and NQ, for a gain over confidence on other data: what auto reaches there is in-sample. Gemma 3 270M had no
# part in the choice, and was asked the same four sets. How other values did was not kept.

SHARE_AWAY = 0.15
"""Of the stack, far from the training questions."""
BORDER = 0.5
"""The quantile of the training questions' own distances at which stack and confidence have equal parts of the rest."""
SOFTNESS = 0.1
"""The width over which confidence takes over, as a share of the border."""
DEPTH = 2 / 3
"""Of the model's layers, where the states of a range are read."""
DIRECTIONS = 32
"""Principal directions of a range at most."""
BEYOND = 0.05
"""The share of training states that lies beyond the limit of a range."""
MOST_STATES = 4000
"""Training states that a range remembers: evenly spread over all of them where there are more."""


def fit_auto(data: TrainingData, groups: Int[np.ndarray, " item"]) -> DetectorFit:
    """`auto`; without log-probabilities the single probe takes the place of confidence."""
    probes = [data.at_best(data.bank, [index]) for index in range(len(data.keys))]
    stack = fit_stacked(data, probes, data.confidence)
    confidence = fit_stacked(
        data, () if data.confidence else (data.probe,), data.confidence
    )
    helps = data.training.inner_auc(stack.scores) > data.training.inner_auc(
        confidence.scores
    )
    ranges = Ranges(data, groups, QUESTION_ONLY)
    distance = torch.stack(
        [ranges.distance(number) for number in range(data.training.n_sets)]
    )
    border = torch.stack(
        [ranges.among_members(*pair).quantile(BORDER) for pair in enumerate(distance)]
    )
    away = torch.sigmoid(
        (distance - border[:, None]) / (SOFTNESS * border[:, None].clamp(min=1e-12))
    )
    share = torch.where(helps[:, None], 1 - (1 - SHARE_AWAY) * away, 0.0)
    scores = share * stack.scores + (1 - share) * confidence.scores
    build_stack, build_confidence = stack.build, confidence.build
    assert build_stack is not None, "a stack can be used"
    assert build_confidence is not None, "and so can confidence"

    def build(number: int) -> Fitted:
        if not helps[number]:
            return build_confidence(number)
        both = build_stack(number), build_confidence(number)
        elsewhere = WeightedSum(both, (SHARE_AWAY, 1 - SHARE_AWAY), (), (), 0.0)
        return WithFallback(
            both[0], elsewhere, ranges.build(number, float(border[number]))
        )

    return DetectorFit(scores.float(), build)


@dataclass(frozen=True)
class Ranges:
    """How far every item's state lies from those of each training set's members.

    Directions and deviations are those of all items, labels unseen; neighbours are the set's own members of other
    groups.
    """

    data: TrainingData
    groups: Int[np.ndarray, " item"]
    run: str
    """Whose states: `clean` reads question and answer, `question-only` the question."""

    @cached_property
    def key(self) -> StateKey:
        return (
            self.run,
            self.data.site,
            self.data.layers[int(DEPTH * len(self.data.layers))],
        )

    @cached_property
    def projection(
        self,
    ) -> tuple[Float[Tensor, "direction d_model"], Float[Tensor, " direction"]]:
        """Weight and offset that turn a state into coordinates: along the leading directions, of deviation one."""
        states = self.data.project((self.key,))
        spread = (
            states.values[0, :, :DIRECTIONS].double().std(dim=0).clamp(min=1e-9).cpu()
        )
        weight, offset = (
            states.directions.weight[0, :DIRECTIONS],
            states.directions.offset[0, :DIRECTIONS],
        )
        return weight / spread[:, None], offset / spread

    @cached_property
    def coordinates(self) -> Float[Tensor, "item direction"]:
        weight, offset = (part.to(self.data.device) for part in self.projection)
        return (
            self.data.features.state(self.key).to(self.data.device).double() @ weight.T
            + offset
        )

    def remembered(self, number: int) -> Int[Tensor, " state"]:
        """The members of a set to which distances are measured."""
        members = np.flatnonzero(self.data.training.members[number])
        chosen = members[
            np.linspace(0, len(members) - 1, min(len(members), MOST_STATES))
            .round()
            .astype(int)
        ]
        return torch.from_numpy(chosen).to(self.data.device)

    def distance(self, number: int) -> Float[Tensor, " item"]:
        """Mean distance to the nearest members of a set that are of other groups."""
        groups, known = (
            torch.from_numpy(self.groups).to(self.data.device),
            self.remembered(number),
        )
        apart = torch.cdist(self.coordinates, self.coordinates[known])
        apart = apart.masked_fill(groups[:, None] == groups[known][None], torch.inf)
        return mean_of_nearest(apart, min(NEIGHBOURS, max(1, len(known) - 1)))

    def among_members(
        self, number: int, distance: Float[Tensor, " item"]
    ) -> Float[Tensor, " member"]:
        """Distances of a set's own members."""
        return distance[
            torch.from_numpy(self.data.training.members[number]).to(distance.device)
        ]

    def build(self, number: int, border: float | None = None) -> TrainingRange:
        """The range of one set, on raw states."""
        weight, offset = (part.float() for part in self.projection)
        return TrainingRange(
            self.key,
            weight,
            offset,
            self.coordinates[self.remembered(number)].float().cpu(),
            float(
                self.among_members(number, self.distance(number)).quantile(1 - BEYOND)
            ),
            border=border,
            softness=SOFTNESS,
        )
