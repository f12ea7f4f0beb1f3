"""What a way to assign pathways amounts to: how many are Q-Anchored, how true the groups are, agreement with another.

Shares are counted in every draw of the bootstrap. A way that estimates something from the sample, as the corrected rule
does, may call an item differently in different draws.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.evidence.curves import TRUTHS
from anchorscope.evidence.draws import Draws, ratio, total
from anchorscope.evidence.experiments.compare import (
    FEW,
    METHOD,
    cohens_d,
    estimate_of,
    group_means,
    kappa_samples,
    of_truth,
    p_value,
)
from anchorscope.evidence.experiments.experiment import Statistic
from anchorscope.evidence.pathways import A_ANCHORED, GROUPS, Q_ANCHORED

DIFFERENCE = f"{Q_ANCHORED} − {A_ANCHORED}"
_SHOWN = 4  # ways that a note names; there may be as many as a model has layers

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Assigned:
    """One way to assign pathways to the items."""

    variant: str
    correct: Bools
    """Who is called right before the cut, and so has a pathway, [item]."""
    flipped: Tensor
    """Who is Q-Anchored of them, [item, draw], or [item, 1] where it is the same in every draw."""
    assignment: str | None = None
    layer: int | None = None

    def members(self, group: str) -> Bools:
        """Who belongs to a group in the sample itself."""
        flipped = self.flipped[:, 0].cpu().numpy()
        return self.correct & (flipped if group == Q_ANCHORED else ~flipped)

    def row(self, quantity: str, samples: Tensor, n: int, **more: Any) -> Statistic:
        """A statistic of this way; `more` are further columns."""
        return Statistic(
            quantity,
            estimate_of(samples, n, METHOD),
            variant=self.variant,
            assignment=self.assignment,
            layer=self.layer,
            **more,
        )


class Few(NamedTuple):
    """Why a row is not there."""

    what: str
    variant: str
    number: int


def notes(few: Iterable[Few]) -> list[str]:
    """One line for each thing that could not be said, whatever the number of ways."""
    by_what: dict[str, list[Few]] = {}
    for one in few:
        by_what.setdefault(one.what, []).append(one)
    lines = []
    for what, some in by_what.items():
        numbers = sorted({one.number for one in some})
        said = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        variants = list(dict.fromkeys(one.variant for one in some))
        named = ", ".join(variants[:_SHOWN]) + (f" and {len(variants) - _SHOWN} more" if len(variants) > _SHOWN else "")
        lines.append(f"only {said} items {what} under {named}, {FEW} needed")
    return lines


def share_rows(assigned: Assigned, labels: Bools, draws: Draws) -> tuple[list[Statistic], list[Few]]:
    """The share of Q-Anchored items, of true and false answers apart, and the share of true answers in both groups."""
    rows, few = [], []
    numbers = _numbers(assigned, labels, draws)  # [group, truth, draw]
    places = {"all": slice(None), "true": slice(1), "false": slice(1, None)}
    shares = {}
    for truth in TRUTHS:
        n = int((assigned.correct & of_truth(labels, truth)).sum())
        if n < FEW:
            few.append(Few(f"are called right{'' if truth == 'all' else f' and {truth}'}", assigned.variant, n))
            continue
        inside = numbers[:, places[truth]].sum(dim=1)
        shares[truth] = ratio(inside[0], inside.sum(dim=0))
        rows.append(assigned.row("q_share", shares[truth], n, truth=truth))
    flipped = assigned.members(Q_ANCHORED)
    if "true" in shares and "false" in shares and 0 < flipped.sum() < assigned.correct.sum():
        apart = [flipped[assigned.correct & (labels == kind)].astype(float) for kind in (True, False)]
        bias = shares["true"] - shares["false"]
        rows.append(
            assigned.row(
                "label_bias",
                bias,
                sum(map(len, apart)),
                against="true − false",
                p_value=p_value(bias),
                effect_size=cohens_d(*apart),
            )
        )
    of_group = ratio(numbers[:, 0], numbers.sum(dim=1))
    found, more = group_rows(assigned, "true_share", of_group, labels.astype(float), assigned.correct, "all")
    return rows + found, few + more


def _numbers(assigned: Assigned, labels: Bools, draws: Draws) -> Tensor:
    """How many items are of each group and label, in every draw, [group, truth, draw]."""
    found = []
    for kind in (True, False):
        where = draws.put(np.flatnonzero(assigned.correct & (labels == kind)))
        counts = draws.counts[where]
        asking = total(counts * assigned.flipped[where])
        found.append(torch.stack([asking, total(counts) - asking]))
    return torch.stack(found, dim=1)


def mean_rows(
    assigned: Assigned, quantity: str, values: Floats, labels: Bools, draws: Draws
) -> tuple[list[Statistic], list[Few]]:
    """Means of a number per item over both groups, by truth label, and their differences; for ways fixed in advance."""
    rows, few = [], []
    for truth in TRUTHS:
        inside = assigned.correct & of_truth(labels, truth) & np.isfinite(values)
        samples = torch.cat([group_means(values[:, None], inside & assigned.members(group), draws) for group in GROUPS])
        found, more = group_rows(assigned, quantity, samples, values, inside, truth)
        rows += found
        few += more
    return rows, few


def group_rows(
    assigned: Assigned, quantity: str, samples: Tensor, values: Floats, inside: Bools, truth: str
) -> tuple[list[Statistic], list[Few]]:
    """Rows of a mean of both groups, [group, draw], and of its difference, whose effect size comes from the values."""
    rows, few, of_groups = [], [], []
    for place, group in enumerate(GROUPS):
        own = values[inside & assigned.members(group)]
        of_groups.append(own)
        if len(own) < FEW:
            few.append(Few(f"are {group}{'' if truth == 'all' else f' and {truth}'}", assigned.variant, len(own)))
        else:
            rows.append(assigned.row(quantity, samples[place], len(own), group=group, truth=truth))
    if not few:
        difference = samples[0] - samples[1]
        rows.append(
            assigned.row(
                f"{quantity}_difference",
                difference,
                sum(map(len, of_groups)),
                truth=truth,
                against=DIFFERENCE,
                p_value=p_value(difference),
                effect_size=cohens_d(*of_groups),
            )
        )
    return rows, few


def kappa_row(assigned: Assigned, other: Assigned, name: str, draws: Draws) -> tuple[list[Statistic], list[Few]]:
    """Cohen's kappa of the pathways that two ways give, among the items that are called right both ways."""
    both = np.flatnonzero(assigned.correct & other.correct)
    if len(both) < FEW:
        return [], [Few(f"are called right both so and by {name}", assigned.variant, len(both))]
    where = draws.put(both)
    counts, first, second = draws.counts[where], assigned.flipped[where], other.flipped[where]
    table = [total(counts * (first == one) * (second == two)) for one in (True, False) for two in (True, False)]
    samples, rarest = kappa_samples(torch.stack(table))
    if rarest < FEW:
        return [], [Few(f"are of the rarer pathway, for kappa with {name},", assigned.variant, rarest)]
    return [assigned.row("kappa", samples, len(both), against=name)], []
