"""What cuts in some layers or heads do to the groups: sums, means and differences of ΔP, in every bootstrap draw.

ΔP is as in the chart. Under the corrected assignment the shift that a cut gives to every item is taken from log-odds
after it, cut by cut, and every draw estimates shift and groups anew; under the other rules the groups are those of the
sample. A probe below the first layer that is cut cannot see it: such a cell is undefined and does not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.corrected import (
    CellSums,
    Corrected,
    cell_sums,
    correct_shift,
    curve_samples,
    of_group,
    shifts,
)
from anchorscope.evidence.curves import TRUTHS
from anchorscope.evidence.draws import Draws, estimates, ratio
from anchorscope.evidence.experiments.compare import (
    FEW,
    METHOD,
    answers_of,
    cohens_d,
    group_means,
    known,
    mean_in_deviations,
    of_truth,
    p_values,
    q_values,
)
from anchorscope.evidence.experiments.experiment import ExperimentInputs, ItemValues, Statistic
from anchorscope.evidence.experiments.partial_cuts import Outcome, partial_knockout
from anchorscope.evidence.measured import true_label_probability
from anchorscope.evidence.pathways import A_ANCHORED, GROUPS, Q_ANCHORED
from anchorscope.stats.estimate import Estimate

CORRECTED = "corrected"
"""The assignment whose ΔP is corrected too."""
_CELLS = tuple((group, truth) for group in GROUPS for truth in TRUTHS)
_THIS = "this"  # the only intervention of a table that is made for one outcome

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]
QUANTITY = "delta_p_reference"
"""ΔP at each item's own reference layer, in percentage points."""


def summed_over(inputs: ExperimentInputs, outcomes: Sequence[Outcome], variant: str) -> ItemValues:
    """What several cuts add up to in every item, at its reference layer and without any correction.

    A cut above an item's reference layer adds nothing; an item that lies below all of them has no value.
    """
    items = inputs.some_items()
    total, seen = np.zeros(len(items)), np.zeros(len(items), dtype=bool)
    for outcome in outcomes:
        found = Effects(inputs, next(iter(inputs.calls)), outcome).at_reference
        places = np.searchsorted(items, outcome.items)
        total[places] += np.nan_to_num(found)
        seen[places] |= np.isfinite(found)
    return ItemValues("delta_p_reference_sum", items[seen], total[seen], variant)


@dataclass(frozen=True)
class Effects:
    """One outcome, in the groups of one assignment as they are."""

    inputs: ExperimentInputs
    assignment: str
    outcome: Outcome

    @property
    def first(self) -> int:
        """The first layer that is cut."""
        return self.outcome.first

    @property
    def variant(self) -> str:
        """As in the results' column `variant`."""
        return self.outcome.variant

    @property
    def items(self) -> Indices:
        """The items that were run."""
        return self.outcome.items

    @cached_property
    def values(self) -> Floats:
        """ΔP of the sample in percentage points, [item, probe layer from the first cut one on]."""
        labels = self.inputs.measured.labels[self.items]
        before, after = (true_label_probability(part, labels) for part in (self._before, self._after))
        return 100 * (after - before).T

    @cached_property
    def at_reference(self) -> Floats:
        """ΔP at each item's own reference layer, [item]; NaN where that is below the cut."""
        layers = self._reference - self.first
        found = self.values[np.arange(len(self.items)), np.maximum(layers, 0)]
        return np.where(layers >= 0, found, np.nan)

    @property
    def _before(self) -> Floats:
        place = self.inputs.measured
        return place.before[place.probe("full")][self.first :, self.items]

    @property
    def _after(self) -> Floats:
        return self.outcome.logits[self.first :]

    @property
    def _reference(self) -> Indices:
        return self.inputs.reference[self.items]

    def members(self, group: str, truth: str = "all") -> Bools:
        """Which of the items that were run are in a group, [item]."""
        inside = self.inputs.calls[self.assignment].members(group)[self.items]
        return inside & of_truth(self.inputs.measured.labels[self.items], truth)

    def reached(self, group: str, truth: str = "all") -> Bools:
        """Those of them whose reference layer can see the cut, [item]."""
        return self.members(group, truth) & (self._reference >= self.first)

    def curve(self, group: str) -> Tensor:
        """Mean ΔP of a group, [probe layer from the first cut one on, draw]."""
        return self._reduced.curves[group]

    def reference_sums(self, group: str, truth: str = "all") -> tuple[Tensor, Tensor]:
        """Sum of ΔP at the reference layer over those of a group that it reaches, and their number, [draw] each."""
        return self._reduced.reference[group, truth]

    def reference(self, group: str, truth: str = "all") -> Tensor:
        """Mean ΔP at the reference layer, [draw]."""
        return ratio(*self.reference_sums(group, truth))

    @property
    def _draws(self) -> Draws:
        return self.inputs.draws.take(self.items)

    @cached_property
    def _reduced(self) -> "_Reduced":
        draws = self._draws
        inside = np.stack([self.reached(*cell) for cell in _CELLS], axis=1)
        at_reference = np.where(inside, self.at_reference[:, None], 0.0)
        sums, numbers = draws.sums(np.concatenate([at_reference, inside], axis=1)).chunk(2)
        return _Reduced(
            {group: group_means(self.values, self.members(group), draws) for group in GROUPS},
            {cell: (sums[k], numbers[k]) for k, cell in enumerate(_CELLS)},
        )


class _Reduced(NamedTuple):
    """What is kept of an outcome's draws: tables with an axis for items or for folds are many times larger."""

    curves: dict[str, Tensor]
    reference: dict[tuple[str, str], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class CorrectedEffects(Effects):
    """The same with the common shift taken away; every draw has its own shift and its own groups."""

    corrected: Corrected

    @cached_property
    def values(self) -> Floats:
        """As in `Effects`, with the sample's shift taken away."""
        place, only_sample = self.inputs.measured, Draws(self._draws.counts[:, :1])
        folds, labels = place.folds[self.items], place.labels[self.items]
        moved = shifts(self._before, self._after, folds, place.reference.shape[1], only_sample)[..., 0].cpu().numpy()
        after = true_label_probability(self._after - moved[:, folds], labels)
        return 100 * (after - true_label_probability(self._before, labels)).T

    @cached_property
    def _reduced(self) -> _Reduced:
        place, first = self.inputs.measured, self.first
        whole = self._sums(np.arange(len(self.items)))
        # Folds have a shift of their own each, so that leaving some out changes no other.
        reached = np.flatnonzero(self._reference >= first)
        seen = whole if len(reached) == len(self.items) else self._sums(reached)
        layers = torch.from_numpy(place.reference[place.probe("full")] - first)
        folds = torch.arange(len(layers))[layers >= 0]
        at_reference = seen.delta_p[:, layers[folds], folds].sum(dim=1, dtype=torch.float64)
        return _Reduced(
            {group: curve_samples(whole, group, "all") for group in GROUPS},
            {cell: (of_group(at_reference.unbind(), *cell), of_group(seen.number.unbind(), *cell)) for cell in _CELLS},
        )

    def _sums(self, some: Indices) -> CellSums:
        place, first = self.inputs.measured, self.first
        measured = replace(
            place,
            probes=("full",),
            before=place.before[place.probe("full")][None, first:],
            after={_THIS: self._after[None][..., some]},
            ran={_THIS: self.items[some]},
        )
        return cell_sums(replace(self.corrected, measured=measured), _THIS)


def effects_of(inputs: ExperimentInputs, assignment: str, outcomes: Sequence[Outcome]) -> list[Effects]:
    """What each outcome does to the groups of an assignment."""
    if assignment != CORRECTED:
        return [Effects(inputs, assignment, outcome) for outcome in outcomes]
    corrected = correct_shift(inputs.measured, inputs.draws)
    return [CorrectedEffects(inputs, assignment, outcome, corrected) for outcome in outcomes]


def cumulative(inputs: ExperimentInputs, items: Indices) -> Outcome:
    """The knockout itself, in all layers, on some items, as an outcome to compare others with."""
    place = inputs.measured
    where = np.searchsorted(place.ran[KNOCKOUT], items)
    logits = place.after[KNOCKOUT][place.probe("full")][:, where]
    return Outcome(partial_knockout("cumulative", range(place.n_layers)), items, logits)


def reference_statistics(family: Sequence[Effects]) -> tuple[list[Statistic], list[str]]:
    """ΔP at each item's own reference layer, for all ways of one family under one assignment.

    Per group and truth label, and the difference Q − A. The false discovery rate is controlled over the family.
    """
    rows = []
    for truth in TRUTHS:
        for group in GROUPS:
            shown = [one for one in family if one.reached(group, truth).sum() >= FEW]
            if shown:
                rows += _means(shown, group, truth)
        both = [one for one in family if all(one.reached(group, truth).sum() >= FEW for group in GROUPS)]
        if both:
            rows += _differences(both, truth)
    return rows, [*_small_groups(family), *_few_reached(family)] if family else []


def _means(shown: Sequence[Effects], group: str, truth: str) -> list[Statistic]:
    samples = torch.stack([one.reference(group, truth) for one in shown])
    inside = [one.at_reference[one.reached(group, truth)] for one in shown]
    sizes = [mean_in_deviations(values) for values in inside]
    return _rows(shown, samples, [len(values) for values in inside], sizes, QUANTITY, group, truth)


def _differences(both: Sequence[Effects], truth: str) -> list[Statistic]:
    samples = torch.stack([one.reference(Q_ANCHORED, truth) - one.reference(A_ANCHORED, truth) for one in both])
    pairs = [[one.at_reference[one.reached(group, truth)] for group in GROUPS] for one in both]
    numbers = [len(first) + len(second) for first, second in pairs]
    sizes = [cohens_d(first, second) for first, second in pairs]
    return _rows(both, samples, numbers, sizes, f"{QUANTITY}_difference", None, truth)


def _rows(
    shown: Sequence[Effects],
    samples: Tensor,
    numbers: Sequence[int],
    sizes: Sequence[float | None],
    quantity: str,
    group: str | None,
    truth: str,
) -> list[Statistic]:
    value, low, high = estimates(samples)
    p = p_values(samples)
    q = q_values(p)
    return [
        Statistic(
            quantity=quantity,
            estimate=Estimate(float(value[k]), float(low[k]), float(high[k]), numbers[k], METHOD),
            variant=one.variant,
            assignment=one.assignment,
            group=group,
            truth=truth,
            layer=one.first,
            p_value=known(p[k]),
            q_value=known(q[k]),
            effect_size=sizes[k],
        )
        for k, one in enumerate(shown)
    ]


def _small_groups(family: Sequence[Effects]) -> list[str]:
    """One line for each group that is too small, or for each part of it where the whole is not."""
    lines = []
    for group in GROUPS:
        for truth in TRUTHS:
            most = max(int(one.members(group, truth).sum()) for one in family)
            if most < FEW:
                rule = family[0].assignment
                lines.append(f"only {most} {answers_of(truth)} are {group} under the {rule} rule, {FEW} needed")
                if truth == "all":
                    break
    return lines


def _few_reached(family: Sequence[Effects]) -> list[str]:
    """One line about groups that are large enough, but of which too few can see the cuts from some layer on."""
    parts = []
    for group in GROUPS:
        for truth in TRUTHS:
            if max(one.members(group, truth).sum() for one in family) >= FEW:
                few = [one.first for one in family if 0 < one.reached(group, truth).sum() < FEW]
                name = group if truth == "all" else f"{truth} {group}"
                parts += [f"{name} from layer {min(few)} on"] if few else []
    if not parts:
        return []
    names = list(dict.fromkeys(one.variant for one in family))
    what = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    return [
        f"{QUANTITY} of cuts so high that the reference layer of fewer than {FEW} items is not below them, under the "
        f"{family[0].assignment} rule ({what}): {', '.join(parts)}"
    ]
