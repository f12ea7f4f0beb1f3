"""Evidence that was there: z, the clean log-odds of an item by a probe that learned from the other half.

z has never seen a label of the half it is used in. Scores of ordinary cross-fitted probes would not do: whoever
explains them from states learns, through them, the labels that they were trained on.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorscope.probes.grid_search import grid_search
from anchorscope.progress import Progress
from anchorscope.question_share.halves import Halves


class CleanEvidence(NamedTuple):
    """The probes of the half splits and their log-odds of the clean states, in host memory."""

    principal: Float[Tensor, "problem item direction"]
    """The clean states that the probes read."""
    strength: Float[Tensor, "problem split side"]
    """The probes' C."""
    by_probe: Float[Tensor, "problem split side item"]
    """Log-odds of every item by both probes of a split."""

    def held_out(self, halves: Halves) -> Float[Tensor, "problem split item"]:
        """z: every item by the probe that learned from the half it is not in."""
        first = torch.as_tensor(halves.first, device=self.by_probe.device)
        return torch.where(first, self.by_probe[:, :, 1], self.by_probe[:, :, 0])

    def take(self, problems: slice) -> "CleanEvidence":
        """The same of some problems."""
        return CleanEvidence(*(part[problems] for part in self))

    def to(self, device: torch.device) -> "CleanEvidence":
        """The same on a device, in double precision."""
        return CleanEvidence(*(part.to(device).double() for part in self))


def clean_evidence(
    principal: Float[Tensor, "problem item direction"],
    halves: Halves,
    labels: Bool[np.ndarray, " item"],
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    title: str = "question share: probes",
) -> CleanEvidence:
    """Fits the probes of all splits and scores all items by them."""
    inner = halves.inner.reshape(-1, len(labels))
    (found,), _ = grid_search(
        principal[None], labels, halves.training, inner, torch.device(device), progress, title, rescale=False
    )
    scores = torch.baddbmm(found.bias[..., None], found.weight, principal.transpose(1, 2))
    sides = (halves.n_splits, 2)
    return CleanEvidence(principal, found.strength.unflatten(1, sides), scores.unflatten(1, sides))


def probe_response(
    evidence: CleanEvidence,
    halves: Halves,
    labels: Bool[Tensor, " item"],
    pull: Float[Tensor, "problem group split item"],
) -> Float[Tensor, "problem group item"]:
    """How much Σ pull·z, over all splits, moves per unit of weight that an item has in the probes' training.

    The jackknife of logistic regression by one step of Newton's method: H⁻¹ · gradient / (1 − leverage).
    """
    first = torch.as_tensor(halves.first, device=pull.device)
    states = torch.nn.functional.pad(evidence.principal, (0, 1), value=1.0)  # and the intercept
    probability = torch.sigmoid(evidence.by_probe)
    found = torch.zeros_like(pull[:, :, 0])
    penalised = torch.ones(states.shape[-1], dtype=states.dtype, device=states.device)
    penalised[-1] = 0
    for split in range(halves.n_splits):
        for side in range(2):
            learns = (first[split] == (side == 0)).to(states.dtype)
            strength, sure = evidence.strength[:, split, side], probability[:, split, side]
            curvature = strength[:, None] * learns * sure * (1 - sure)
            hessian = (states * curvature[..., None]).transpose(1, 2) @ states + torch.diag(penalised)
            towards = (pull[:, :, split] * (1 - learns)) @ states  # of the items that this probe scores
            factor = torch.linalg.cholesky(hessian)
            moved = torch.cholesky_solve(towards.transpose(1, 2), factor)
            whitened = torch.linalg.solve_triangular(factor, states.transpose(1, 2), upper=False)
            leverage = curvature * whitened.square().sum(1)
            step = strength[:, None] * learns * (labels.to(states.dtype) - sure) / (1 - leverage)
            found += (states @ moved).transpose(1, 2) * step[:, None]
    return found
