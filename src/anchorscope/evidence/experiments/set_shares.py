"""The question share Λ of a set of answers, in some layers, and how well half-split probes tell its truth.

The same for the answers of the run and for answers that an experiment supplies, so that the two stand side by side: the
same number of principal directions, the same splits, the same draws within each set. `none` is the floor: nothing is
cut, and what is "lost" is what estimation loses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from anchorscope.evidence.areas import areas
from anchorscope.evidence.draws import Draws, ratio, resampling
from anchorscope.evidence.experiments.compare import estimate_of, of_truth
from anchorscope.evidence.experiments.experiment import Statistic
from anchorscope.probes.folds import truth_strata
from anchorscope.progress import Progress
from anchorscope.question_share.evidence import Lost, clean_evidence, lost_evidence
from anchorscope.question_share.halves import Halves, make_halves
from anchorscope.question_share.principal import principal_states
from anchorscope.stats.estimate import Estimate

FLOOR = "none"
"""Nothing cut: what estimation alone loses."""
_TRUTHS = ("all", "true", "false")


@dataclass(frozen=True)
class AnswerSet:
    """Answers with their states at one place, in some layers."""

    name: str
    """As in the column `variant`."""
    labels: Bool[ndarray, " item"]
    groups: Int[ndarray, " item"]
    relations: Sequence[str | None]
    item_ids: Sequence[str]
    clean: Float[Tensor, "layer item d_model"]
    cut: Mapping[str, Float[Tensor, "layer item d_model"]]
    """Under each cut, by its name."""
    draws: Draws
    """Of its own groups."""


@dataclass(frozen=True)
class SetShares:
    """What was measured of a set."""

    halves: Halves
    evidence: Float[ndarray, "layer split item"]
    """z: log-odds by the probe of the other half."""
    lost: Mapping[str, Lost]
    """By cut; `none` among them."""


def measure_shares(
    answers: AnswerSet, directions: int, seed: int, device: str, progress: Progress
) -> SetShares:
    """Half-split probes on the clean states, and what each cut takes from their evidence."""
    halves = make_halves(answers.groups, truth_strata(answers.labels, answers.relations), seed, answers.item_ids)
    clean = principal_states(answers.clean, directions, device)
    evidence = clean_evidence(clean, halves, answers.labels, device, progress)
    states = {name: principal_states(cut, directions, device) for name, cut in answers.cut.items()} | {FLOOR: clean}
    lost = {
        name: lost_evidence(evidence, one, halves, answers.labels, device, progress, f"{answers.name}: share, {name}")
        for name, one in states.items()
    }
    return SetShares(halves, evidence.numpy(), lost)


def share_samples(lost: Lost, layer: int, inside: Bool[ndarray, " item"], draws: Draws) -> Float[Tensor, " draw"]:
    """Λ over some items in every draw: evidence lost over evidence had."""
    sums = draws.sums(np.stack([lost.lost[layer], lost.had[layer]], axis=1) * inside[:, None])
    return ratio(sums[0], sums[1])


def auc_samples(answers: AnswerSet, shares: SetShares, layer: int) -> Float[Tensor, " draw"]:
    """AUC in every draw: of each split's scores within its halves, averaged over the splits."""
    found = [
        areas(scores[None].astype(np.float32), answers.labels, first.astype(np.int64), answers.draws)[0]
        for scores, first in zip(shares.evidence[layer], shares.halves.first, strict=True)
    ]
    return torch.stack(found).mean(dim=0)


def share_quantity(cut: str) -> str:
    """The name of a cut's share in the results."""
    return "question_share" if cut == "knockout" else f"question_share_{cut}"


def share_rows(answers: AnswerSet, shares: SetShares, layers: Sequence[int], reference: int) -> list[Statistic]:
    """AUC and Λ of every cut in every layer; within true and within false answers at the reference layer."""
    method = f"{shares.halves.n_splits} half splits, bootstrap over groups"
    rows = []
    with resampling(answers.draws.device):
        for place, layer in enumerate(layers):
            found = estimate_of(auc_samples(answers, shares, place), len(answers.labels), method)
            rows.append(Statistic("auc", found, answers.name, truth="all", probe_layer=layer))
            for cut, lost in shares.lost.items():
                for truth in _TRUTHS if layer == reference else _TRUTHS[:1]:
                    inside = of_truth(answers.labels, truth)
                    samples = share_samples(lost, place, inside, answers.draws)
                    estimate = estimate_of(samples, int(inside.sum()), method)
                    rows.append(Statistic(share_quantity(cut), estimate, answers.name, truth=truth, probe_layer=layer))
    return rows


def share_difference(
    first: tuple[AnswerSet, SetShares], second: tuple[AnswerSet, SetShares], place: int, layer: int
) -> Statistic:
    """Λ of one set less that of another; each is drawn from its own groups."""
    samples, n = [], 0
    for answers, shares in (first, second):
        everyone = np.ones(len(answers.labels), bool)
        samples.append(share_samples(shares.lost["knockout"], place, everyone, answers.draws).cpu())
        n += len(answers.labels)
    found: Estimate = estimate_of(samples[0] - samples[1], n, "difference of two bootstraps over groups, drawn apart")
    return Statistic(
        "question_share_difference", found, first[0].name, second[0].name, truth="all", probe_layer=layer
    )


def some_layers(n_layers: int, reference: int, most: int) -> list[int]:
    """The reference layer, and others spread evenly from the first to the last, at most so many in all."""
    spread = np.linspace(0, n_layers - 1, min(most - 1, n_layers)).round().astype(int).tolist()
    return sorted({reference, *spread})
