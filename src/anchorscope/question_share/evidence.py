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

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.models.process_settings import true_float32
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.progress import Progress, Silent
from anchorscope.question_share.clean_evidence import CleanEvidence
from anchorscope.question_share.halves import Halves
from anchorscope.question_share.ridge import Cells, OutOfFold, Smoother, Spectrum, fold_cells, half_cells

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

    def stored(self) -> dict[str, NDArray[Any]]:
        """The parts by name, numbers in single precision: as they are kept."""
        return {
            name: array.astype(np.float32) if array.dtype == np.float64 else array
            for name, array in self._asdict().items()
        }

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
    sets: Bool[np.ndarray, "set item"] | None = None,
    given: Float[np.ndarray, "item feature"] | None = None,
) -> Lost:
    """What is lost of the evidence when the states become `principal` (those under a cut).

    `folds` are those by which shares are predicted. Shares of further `sets` of items follow those of `GROUPS`. What is
    `given` (standardised features) explains as the cut state does, and what it explains does not count as evidence.
    """
    device = torch.device(device)
    listener = progress or Silent()
    n_problems, n_items, n_directions = principal.shape
    listener.start(title, n_problems)
    work = _Explainer(halves, labels, folds, device, sets, given)
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
        self,
        halves: Halves,
        labels: Bool[np.ndarray, " item"],
        folds: Int[np.ndarray, " item"],
        device: torch.device,
        sets: Bool[np.ndarray, "set item"] | None,
        given: Float[np.ndarray, "item feature"] | None,
    ) -> None:
        self.halves, self.labels = halves, torch.as_tensor(labels, device=device)
        self.cells, self.fold_cells = half_cells(halves, device), fold_cells(folds, device)
        self.sign = torch.where(self.labels, 1.0, -1.0).double()
        self.sets = None if sets is None else torch.as_tensor(sets, device=device)
        self.given = None if given is None else torch.as_tensor(given, device=device).double()

    def explain(self, evidence: CleanEvidence, states: Tensor) -> tuple[Tensor, ...]:
        """The parts of `Lost`."""
        z = evidence.held_out(self.halves)
        s = self.sign.expand_as(z)
        before: _Residuals = _Residuals(s, z, torch.zeros_like(z), None)
        if self.given is not None:
            features = self.given.expand(len(states), -1, -1)
            # As large as the first direction, so that the penalty hardly holds them back.
            features = features * states.std(1).amax(-1)[:, None, None]
            before = self._residuals(features, Spectrum(features), s, z, evidence)
            states = torch.cat([states, features], dim=2)
        spectrum = Spectrum(states)
        after = self._residuals(states, spectrum, s, z, evidence)
        lost_by_split, had_by_split = after.surprise * after.unexplained, before.surprise * before.unexplained
        lost, had = lost_by_split.mean(1), had_by_split.mean(1)
        predicted = _predicted_share(states, spectrum, lost, had, self.fold_cells)
        members = self._members(predicted)
        within = members[:, :, None].to(z.dtype)
        total = (members * had[:, None]).sum(-1)
        share = ((members * lost[:, None]).sum(-1) / total)[..., None, None]
        by_split = ((lost_by_split[:, None] - share * had_by_split[:, None]) * within).sum(-1) / total[..., None]
        moved = evidence.response(self.halves, after.pull(within) - share * before.pull(within))
        influence = moved / (self.halves.n_splits * total[..., None])
        return lost, had, z.mean(1), after.explained.mean(1), predicted, members, influence, by_split

    def _residuals(
        self, states: Tensor, spectrum: Spectrum, s: Tensor, z: Tensor, evidence: CleanEvidence
    ) -> "_Residuals":
        data = OutOfFold(states, self.cells)
        # A probe's scores are one function of the state for all items; those of two probes side by side are not.
        of_s = data.smoother(spectrum.penalty(s[:, :1]))
        of_z = data.smoother(_UNDERSMOOTHED * spectrum.penalty(evidence.by_probe.flatten(1, 2)))
        explained = of_z.predict(z)
        surprise = (s - of_s.predict(s)) / (1 + data.inflation(of_s, of_z))
        return _Residuals(surprise, z - explained, explained, of_z)

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
        found = torch.stack([everyone, everyone & self.labels, everyone & ~self.labels, *thirds], dim=1)
        if self.sets is None:
            return found
        return torch.cat([found, self.sets.expand(len(found), -1, -1)], dim=1)


class _Residuals(NamedTuple):
    """What states leave unexplained of label and evidence, [problem, split, item]."""

    surprise: Tensor
    """s − ŝ, less what estimation adds to its product with z − ẑ."""
    unexplained: Tensor
    """z − ẑ."""
    explained: Tensor
    """ẑ."""
    of_z: Smoother | None
    """The map from z to ẑ; None where nothing explains."""

    def pull(self, within: Tensor) -> Tensor:
        """How much each item's z counts in the sum of products over the items within, [problem, group, split, item]."""
        weighted = self.surprise[:, None] * within
        return weighted if self.of_z is None else weighted - self.of_z.adjoint(weighted)


def _predicted_share(states: Tensor, spectrum: Spectrum, lost: Tensor, had: Tensor, cells: Cells) -> Tensor:
    """ℓ(x): lost and had, each explained from the states of other folds, and their ratio."""
    data = OutOfFold(states, cells)
    c_hat, d_hat = (
        data.smoother(spectrum.penalty(target[:, None])).predict(target[:, None])[:, 0] for target in (lost, had)
    )
    return c_hat / torch.maximum(d_hat, _LEAST_EVIDENCE * had.mean(1, keepdim=True).abs().clamp(min=1e-12))
