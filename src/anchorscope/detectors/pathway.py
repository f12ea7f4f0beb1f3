"""Which items take their evidence from the question, as a detector may know it: without labels, and out of fold.

The plain rule of pathways needs the label: under it Q-Anchored items are almost all true, so that a gate that predicts
the pathway predicts the label. Here an item counts as question-sided where the cut moves a probe's log-odds more than
it moves those of half of the training items, whichever way it moves them.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorscope.detectors.data import BestLayerFits, TrainingData
from anchorscope.detectors.fitted import Fitted
from anchorscope.detectors.fitted_parts import MeasuredGate


@dataclass(frozen=True)
class Pathway:
    """How strongly each item hangs on the question's key words, for every training set."""

    data: TrainingData
    run: str
    """The cut that measures it: the knockout, or as a control a random one."""
    seen: bool = False
    """Whether the label is looked at, as the plain rule does: a diagnosis, never a detector."""

    @cached_property
    def after(self) -> Float[Tensor, "set item"]:
        """The single probe's log-odds under the cut."""
        data = self.data
        return data.at_best(data.bank, data.changed(self.run), data.best)

    @cached_property
    def change(self) -> Float[Tensor, "set item"]:
        """|z − z′|; with the label, how much the cut takes from the evidence for it."""
        lost = self.data.log_odds - self.after
        return lost * (2 * self.data.training.targets(lost.device) - 1) if self.seen else lost.abs()

    @cached_property
    def middle(self) -> Float[Tensor, " set"]:
        """The median change among each set's members."""
        return self._among_members.nanmedian(-1).values

    @cached_property
    def scale(self) -> Float[Tensor, " set"]:
        """The changes' deviation among them."""
        inside = self._among_members
        spread = (inside - inside.nanmean(-1, keepdim=True)).square().nanmean(-1).sqrt()
        return spread.clamp(min=1e-6)

    @property
    def _among_members(self) -> Tensor:
        members = torch.from_numpy(self.data.training.members).to(self.change.device)
        return torch.where(members, self.change, torch.nan)

    @cached_property
    def measured(self) -> Float[Tensor, "set item"]:
        """Log-odds of "question-sided"."""
        return (self.change - self.middle[:, None]) / self.scale[:, None]

    @property
    def question_sided(self) -> Bool[Tensor, "set item"]:
        """Whether an item is."""
        return self.measured > 0

    @cached_property
    def gate(self) -> BestLayerFits:
        """A probe that reads the same from the clean state."""
        return self.data.fit_at_best(labels=self.question_sided.float())[0]

    @cached_property
    def predicted(self) -> Float[Tensor, "set item"]:
        """Its log-odds."""
        return self.data.scores(self.gate)

    def predicted_gate(self, number: int) -> Fitted:
        """One training set's gate: one pass."""
        return self.data.raw_probe(self.gate, number)

    def measured_gate(self, number: int) -> Fitted:
        """One training set's measured gate: two passes."""
        probes = (self.data.best_probe(number), self.data.best_probe(number, self.run))
        return MeasuredGate(*probes, float(self.middle[number]), float(self.scale[number]))
