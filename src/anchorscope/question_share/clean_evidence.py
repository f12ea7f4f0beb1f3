"""Evidence that was there: z, the clean log-odds of an item by a probe that learned from the other half.

z has never seen a label of the half it is used in. Scores of ordinary cross-fitted probes would not do: whoever
explains them from states learns, through them, the labels that they were trained on.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorscope.models.process_settings import true_float32
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
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
    factor: Float[Tensor, "problem split side feature feature"]
    """Cholesky factor of each probe's Hessian, over the directions and the intercept."""
    step: Float[Tensor, "problem split side item"]
    """What an item adds to a probe's gradient, per unit of weight, over 1 − leverage; 0 where it does not teach it."""

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

    def response(
        self, halves: Halves, pull: Float[Tensor, "problem group split item"]
    ) -> Float[Tensor, "problem group item"]:
        """How much Σ pull·z, over all splits, moves per unit of weight that an item has in the probes' training.

        The jackknife of logistic regression by one step of Newton's method: H⁻¹ · gradient / (1 − leverage).
        """
        states = _with_intercept(self.principal)
        first = torch.as_tensor(halves.first, device=pull.device)
        found = torch.zeros_like(pull[:, :, 0])
        for split in range(halves.n_splits):
            for side in range(2):
                scored = first[split] != (side == 0)  # by this probe: the half that it did not learn from
                towards = (pull[:, :, split] * scored) @ states
                moved = torch.cholesky_solve(towards.transpose(1, 2), self.factor[:, split, side])
                found += (states @ moved).transpose(1, 2) * self.step[:, split, side][:, None]
        return found


def clean_evidence(
    principal: Float[Tensor, "problem item direction"],
    halves: Halves,
    labels: Bool[np.ndarray, " item"],
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    title: str = "question share: probes",
) -> CleanEvidence:
    """Fits the probes of all splits and scores all items by them."""
    device = torch.device(device)
    inner = halves.inner.reshape(-1, len(labels))
    (found,), _ = grid_search(principal[None], labels, halves.training, inner, device, progress, title, rescale=False)
    scores = torch.baddbmm(found.bias[..., None], found.weight, principal.transpose(1, 2))
    training, truth = torch.as_tensor(halves.training, device=device), torch.as_tensor(labels, device=device)
    places = torch.arange(len(principal))[:, None, None]
    plan = plan_chunks((len(principal), 2 * len(labels), principal.shape[-1]), 2 * len(training), device)

    @torch.no_grad()
    def curvature(chunk: Tensor, plan: ChunkPlan) -> tuple[Tensor, Tensor]:
        here = slice(int(chunk[0]), int(chunk[-1]) + 1)
        states, scored, strength = (part[here].to(device).double() for part in (principal, scores, found.strength))
        made = _newton_parts(states, scored, strength, training, truth)
        return made[0].float().cpu(), made[1].float().cpu()

    with true_float32():
        factors, steps = zip(*in_chunks(places, plan, device, curvature), strict=True)
    sides = (halves.n_splits, 2)
    return CleanEvidence(
        principal,
        *(part.unflatten(1, sides) for part in (found.strength, scores, torch.cat(factors), torch.cat(steps))),
    )


def _with_intercept(states: Tensor) -> Tensor:
    return torch.nn.functional.pad(states, (0, 1), value=1.0)


def _newton_parts(
    principal: Tensor, scores: Tensor, strength: Tensor, training: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Factor of each probe's Hessian [problem, training set, …], and every item's step."""
    states, sure = _with_intercept(principal), torch.sigmoid(scores)
    penalised = torch.ones(states.shape[-1], dtype=states.dtype, device=states.device)
    penalised[-1] = 0  # the intercept is free
    weight = strength[..., None] * training
    curvature = weight * sure * (1 - sure)
    factors, steps = [], []
    for one in range(len(training)):  # one at a time: all together would hold every item of every probe once more
        hessian = (states * curvature[:, one, :, None]).transpose(1, 2) @ states + torch.diag(penalised)
        factor = torch.linalg.cholesky(hessian)
        whitened = torch.linalg.solve_triangular(factor, states.transpose(1, 2), upper=False)
        leverage = curvature[:, one] * whitened.square().sum(1)
        factors.append(factor)
        steps.append(weight[:, one] * (labels.to(states.dtype) - sure[:, one]) / (1 - leverage))
    return torch.stack(factors, dim=1), torch.stack(steps, dim=1)
