"""The question share Λ of a set of answers, in some layers, and how well half-split probes tell its truth.

The same for the answers of the run and for answers that an experiment supplies, so that the two stand side by side: the
same number of principal directions, the same splits, the same draws within each set. `none` is the floor: nothing is
cut, and what is "lost" is what estimation loses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from anchorscope.evidence.areas import areas
from anchorscope.evidence.draws import Draws, resampling
from anchorscope.evidence.experiments.compare import estimate_of
from anchorscope.evidence.experiments.experiment import Statistic
from anchorscope.probes.folds import truth_strata
from anchorscope.progress import Progress
from anchorscope.question_share.clean_evidence import clean_evidence
from anchorscope.question_share.evidence import GROUPS, Lost, lost_evidence
from anchorscope.question_share.halves import Halves, make_halves
from anchorscope.question_share.intervals import ShareDraws
from anchorscope.question_share.principal import principal_states
from anchorscope.stats.streams import stream

FLOOR = "none"
"""Nothing cut: what estimation alone loses."""
TRUTHS = ("all", "true", "false")
"""Which answers a share is told of."""


@dataclass(frozen=True)
class AnswerSet:
    """Answers with their states at one place, in some layers."""

    name: str
    """As in the column `variant`."""
    labels: Bool[ndarray, " item"]
    """Which answers are true."""
    groups: Int[ndarray, " item"]
    """What never stands on both sides of a split."""
    relations: Sequence[str | None]
    """Within these, true and false answers are even in every half."""
    item_ids: Sequence[str]
    """Names that splits are drawn by."""
    folds: Int[ndarray, " item"]
    """Groups whole: by these an item's share is predicted from other items."""
    clean: Float[Tensor, "layer item d_model"]
    """Nothing cut."""
    cut: Mapping[str, Float[Tensor, "layer item d_model"]]
    """Under each cut, by its name."""
    weights: Float[ndarray, "resample item"]
    """Bootstrap weights over its own groups."""


@dataclass(frozen=True)
class SetShares:
    """What was measured of a set."""

    answers: AnswerSet
    """The set."""
    halves: Halves
    """Who learned from whom."""
    evidence: Float[ndarray, "layer split item"]
    """z: log-odds by the probe of the other half."""
    lost: Mapping[str, Lost]
    """By cut; `none` among them."""
    seed: int
    """Of the draws."""
    device: str
    """Where AUCs are computed."""

    @cached_property
    def draws(self) -> ShareDraws:
        """The draws of the shares."""
        rng = stream(self.seed, "experiment", self.answers.name, "splits")
        return ShareDraws(self.answers.weights, self.halves.n_splits, rng)

    def share(self, cut: str, place: int, group: str = "all") -> Float[Tensor, " draw"]:
        """Λ of a group of items under a cut, in one of the layers, in every draw."""
        found = Lost(*(part[place : place + 1] for part in self.lost[cut]))
        return torch.from_numpy(self.draws.shares(found, GROUPS.index(group))[0])

    def has_evidence(self, place: int) -> bool:
        """Whether the probes of a layer have evidence that a share could be of."""
        had = next(iter(self.lost.values())).had[place : place + 1]
        return bool(self.draws.has_evidence(had)[0])

    def auc(self, place: int) -> Float[Tensor, " draw"]:
        """AUC in every draw: of each split's scores within its halves, averaged over the splits."""
        draws, labels = Draws.of(self.answers.weights, self.device), self.answers.labels
        found = [
            areas(scores[None].astype(np.float32), labels, first.astype(np.int64), draws)[0]
            for scores, first in zip(self.evidence[place], self.halves.first, strict=True)
        ]
        return torch.stack(found).mean(dim=0)


def measure_shares(answers: AnswerSet, directions: int, seed: int, device: str, progress: Progress) -> SetShares:
    """Half-split probes on the clean states, and what each cut takes from their evidence."""
    labels, title = answers.labels, f"{answers.name} answers"
    halves = make_halves(answers.groups, truth_strata(labels, answers.relations), seed, answers.item_ids)
    clean = principal_states(answers.clean, directions, device)
    evidence = clean_evidence(clean, halves, labels, device, progress, f"{title}: probes")
    states = {name: principal_states(cut, directions, device) for name, cut in answers.cut.items()} | {FLOOR: clean}
    lost = {
        name: lost_evidence(
            evidence, one, halves, labels, answers.folds, device, progress, f"{title}: question share, {name}"
        )
        for name, one in states.items()
    }
    return SetShares(answers, halves, evidence.held_out(halves).numpy(), lost, seed, device)


def share_quantity(cut: str) -> str:
    """The name of a cut's share in the results."""
    return "question_share" if cut == "knockout" else f"question_share_{cut}"


def share_rows(measured: SetShares, layers: Sequence[int], reference: int) -> tuple[list[Statistic], list[str]]:
    """AUC and Λ of every cut in every layer, within true and false answers at the reference layer; and what is missing.

    A layer whose probes have no evidence has an AUC and no share.
    """
    answers, labels = measured.answers.name, measured.answers.labels
    method = f"{measured.halves.n_splits} half splits, bootstrap over groups"
    numbers = {"all": len(labels), "true": int(labels.sum()), "false": int((~labels).sum())}
    rows, idle = [], []
    with resampling(torch.device(measured.device)):
        for place, layer in enumerate(layers):
            found = estimate_of(measured.auc(place), len(labels), method)
            rows.append(Statistic("auc", found, answers, truth="all", probe_layer=layer))
            if not measured.has_evidence(place):
                idle.append(str(layer))
                continue
            for cut in measured.lost:
                for truth in TRUTHS if layer == reference else TRUTHS[:1]:
                    found = estimate_of(measured.share(cut, place, truth), numbers[truth], method)
                    rows.append(Statistic(share_quantity(cut), found, answers, truth=truth, probe_layer=layer))
    missing = [f"question_share of {answers} answers in layers {', '.join(idle)}: the probe has no evidence there"]
    return rows, missing if idle else []


def share_difference(first: SetShares, second: SetShares, place: int, layer: int) -> Statistic:
    """Λ of one set less that of another; each is drawn from its own groups."""
    samples = first.share("knockout", place) - second.share("knockout", place)
    n = len(first.answers.labels) + len(second.answers.labels)
    found = estimate_of(samples, n, "difference of two bootstraps over groups, drawn apart")
    names = (first.answers.name, second.answers.name)
    return Statistic("question_share_difference", found, *names, truth="all", probe_layer=layer)


def some_layers(n_layers: int, reference: int, most: int) -> list[int]:
    """The reference layer, and others spread evenly from the first to the last, at most so many in all."""
    spread = np.linspace(0, n_layers - 1, min(most - 1, n_layers)).round().astype(int).tolist()
    return sorted({reference, *spread})
