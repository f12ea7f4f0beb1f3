"""Evidence that was lost, item by item, and how sure the shares of it are.

s = ±1 is the label, z the clean log-odds by a probe of the other half. What the cut state still explains of both, out
of fold, is taken away: (s − ŝ)(z − ẑ) is the evidence that needs what was cut, s·z is all of it. Both are averaged over
the splits; the share of a set of items is the ratio of their sums.

Three things that simulations asked for (docs/question-share.md):
Residuals that are out of fold carry the noise of their own estimation, the same in both: their product is divided by
1 + its share, which is exact for least squares with equal variances (the HC2 estimator does the same).
ẑ is penalised ten times less than predicts best: a product of two residuals is unbiased as soon as one of them is.
A share varies with the items that are measured, with those that taught the probes and with the splits: intervals count
all three.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorscope.models.process_settings import true_float32
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.progress import Progress, Silent
from anchorscope.question_share.clean_evidence import CleanEvidence, probe_response
from anchorscope.question_share.halves import Halves
from anchorscope.question_share.ridge import Cells, OutOfFold, choose_penalty, fold_cells, half_cells

GROUPS = ("all", "true", "false", "lower third", "middle third", "upper third")
"""Sets of items whose share is told: all, by truth, and thirds by predicted share."""
_UNDERSMOOTHED = 0.1  # of the penalty that predicts z best
_LEAST_EVIDENCE = 0.25  # of the mean: items of which less is predicted count as this much when shares are predicted
_WIDENING = 24  # numbers per item and direction that a problem takes at its peak, in units of a chunk's plan


class Lost(NamedTuple):
    """What a cut took from the evidence, over the splits, in host memory."""

    lost: Float[np.ndarray, "problem item"]
    """(s − ŝ)(z − ẑ): evidence that the cut state no longer explains."""
    had: Float[np.ndarray, "problem item"]
    """s·z: evidence that was there."""
    clean: Float[np.ndarray, "problem item"]
    """z: the clean log-odds."""
    explained: Float[np.ndarray, "problem item"]
    """ẑ: what the cut state explains of them."""
    predicted: Float[np.ndarray, "problem item"]
    """ℓ(x): the item's share as predicted from its cut state, out of fold."""
    members: Bool[np.ndarray, "problem group item"]
    """Who is in which of `GROUPS`."""
    influence: Float[np.ndarray, "problem group item"]
    """How a group's share moves per unit of weight that an item has in teaching the probes."""
    by_split: Float[np.ndarray, "problem group split"]
    """How far each split alone would take a group's share from the mean of all."""

    def shares(self) -> Float[np.ndarray, "problem group"]:
        """Λ of every group; NaN where it had no evidence at all."""
        had = (self.members * self.had[:, None]).sum(-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(had != 0, (self.members * self.lost[:, None]).sum(-1) / had, np.nan)


def lost_evidence(
    evidence: CleanEvidence,
    principal: Float[Tensor, "problem item direction"],
    halves: Halves,
    labels: Bool[np.ndarray, " item"],
    folds: Int[np.ndarray, " item"],
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    title: str = "question share",
) -> Lost:
    """What is lost of the evidence when the states become `principal` (those under a cut).

    `folds` are those by which shares are predicted.
    """
    device = torch.device(device)
    listener = progress or Silent()
    n_problems, n_items, n_directions = principal.shape
    listener.start(title, n_problems)
    work = _Explainer(halves, torch.as_tensor(labels, device=device), folds, device)
    places = torch.arange(n_problems)[:, None, None]
    plan = plan_chunks((n_problems, _WIDENING * n_items, n_directions), halves.n_splits, device)

    @torch.no_grad()
    def explain(chunk: Tensor, plan: ChunkPlan) -> list[Tensor]:
        here = slice(int(chunk[0]), int(chunk[-1]) + 1)
        found = work.explain(evidence.take(here).to(device), principal[here].to(device).double())
        return [part.cpu() for part in found]

    parts = []
    with true_float32():
        for one in in_chunks(places, plan, device, explain):
            parts.append(one)
            listener.advance(len(one[0]))
    listener.finish()
    return Lost(*(torch.cat(column).numpy() for column in zip(*parts, strict=True)))


class _Explainer:
    """Explains evidence from the states of a chunk of problems, on the device."""

    def __init__(
        self, halves: Halves, labels: Tensor, folds: Int[np.ndarray, " item"], device: torch.device
    ) -> None:
        self.halves, self.labels = halves, labels
        self.cells, self.fold_cells = half_cells(halves, device), fold_cells(folds, device)
        self.sign = torch.where(labels, 1.0, -1.0).double()

    def explain(self, evidence: CleanEvidence, states: Tensor) -> tuple[Tensor, ...]:
        """The parts of `Lost`."""
        z = evidence.held_out(self.halves)
        s = self.sign.expand_as(z)
        data = OutOfFold(states, self.cells)
        # A probe's scores are one function of the state for all items; those of two probes side by side are not.
        of_s = data.smoother(choose_penalty(states, s[:, :1]))
        of_z = data.smoother(_UNDERSMOOTHED * choose_penalty(states, evidence.by_probe.flatten(1, 2)))
        z_hat = of_z.predict(z)
        surprise = (s - of_s.predict(s)) / (1 + data.inflation(of_s, of_z))
        lost_by_split, had_by_split = surprise * (z - z_hat), s * z
        lost, had = lost_by_split.mean(1), had_by_split.mean(1)
        predicted = _predicted_share(states, lost, had, self.fold_cells)
        members = self._members(predicted)
        within = members[:, :, None].to(z.dtype)
        total = (members * had[:, None]).sum(-1)
        share = ((members * lost[:, None]).sum(-1) / total)[..., None, None]
        excess = lost_by_split[:, None] - share * had_by_split[:, None]
        by_split = (excess * within).sum(-1) / total[..., None]
        weighted = surprise[:, None] * within
        pull = weighted - of_z.adjoint(weighted) - share * s[:, None] * within
        moved = probe_response(evidence, self.halves, self.labels, pull)
        influence = moved / (self.halves.n_splits * total[..., None])
        return lost, had, z.mean(1), z_hat.mean(1), predicted, members, influence, by_split

    def _members(self, predicted: Tensor) -> Tensor:
        """Who is in which group, [problem, group, item].

        Thirds are taken within each fold: between folds, one that happens to have lost more is predicted to have lost
        less, by the mean of the others.
        """
        third = torch.empty_like(predicted)
        for items, real in zip(self.fold_cells.items, self.fold_cells.real, strict=True):
            inside = items[real > 0]
            rank = predicted[:, inside].argsort(dim=1, stable=True).argsort(dim=1)
            third[:, inside] = (3 * rank // len(inside)).to(third.dtype)
        everyone = torch.ones_like(third, dtype=torch.bool)
        thirds = [third == place for place in range(3)]
        return torch.stack([everyone, everyone & self.labels, everyone & ~self.labels, *thirds], dim=1)


def _predicted_share(states: Tensor, lost: Tensor, had: Tensor, cells: Cells) -> Tensor:
    """ℓ(x): lost and had, each explained from the states of other folds, and their ratio."""
    data = OutOfFold(states, cells)
    c_hat, d_hat = (
        data.smoother(choose_penalty(states, target[:, None])).predict(target[:, None])[:, 0] for target in (lost, had)
    )
    return c_hat / torch.maximum(d_hat, _LEAST_EVIDENCE * had.mean(1, keepdim=True).abs().clamp(min=1e-12))
