"""Cuts in some layers, in some heads, or of tokens that an experiment chooses: many in one pass, scored on the way.

Cuts that begin in the middle of the model join in there, with the clean stream, so that nothing below is run again. No
more than a few share a pass: an item takes one row of tokens for each, and rows are what memory is needed for. Of the
states only the log-odds at the headline site and position are kept, and where asked for those of one layer.

What cuts in some layers or heads do to the groups is given in every bootstrap draw. Under the corrected assignment the
shift that a cut gives to every item is taken from log-odds after it, cut by cut, and every draw estimates shift and
groups again; under the other rules the groups are those of the sample. A probe below the first layer that is cut cannot
see it: such a cell is undefined and does not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from anchorscope.catalogue import KNOCKOUT as KNOCKOUT_NAME
from anchorscope.engine.sequences import Cut, Variant
from anchorscope.evidence.measured import A_ANCHORED, GROUPS, Q_ANCHORED, true_label_probability
from anchorscope.experiments.experiment import ExperimentInputs, ItemValues, Statistic
from anchorscope.experiments.statistics import (
    FEW,
    METHOD,
    TRUTHS,
    cohens_d,
    group_means,
    known,
    mean_in_deviations,
    of_truth,
    p_values,
    q_values,
    too_few,
)
from anchorscope.stats.estimate import Estimate

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.delta_p import CellSums, Corrected
    from anchorscope.evidence.draws import Draws

MOST_AT_ONCE = 16
"""Cuts that share a pass: with their own row each, an item takes at most so many times the tokens of a knockout."""

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]
ItemCuts = Mapping[int, Cut]
"""The cut of each used item that is run, by its index."""


@dataclass(frozen=True)
class PartialCut:
    """The knockout in some layers, or in some query heads of them, only."""

    variant: str
    """As in the results' column `variant`."""
    layers: range
    heads: tuple[int, ...] | None = None

    @property
    def first(self) -> int:
        """The first layer that is cut: a probe below it cannot see the cut."""
        return self.layers.start


@dataclass(frozen=True)
class Outcome:
    """What one cut does to the items."""

    cut: PartialCut
    items: Indices
    """The used items that it was run on, in order."""
    logits: Floats
    """Log-odds [layer, item] at the headline site and position; below the cut those of the clean run."""


def window_width(inputs: ExperimentInputs) -> int:
    """Layers in a window: the recipe's choice, or a quarter of the depth, and at least two."""
    n_layers = inputs.measured.n_layers
    return min(n_layers, inputs.window or max(2, n_layers // 4))


def window_starts(n_layers: int, width: int) -> list[int]:
    """Where windows begin: every half width, and one that ends with the last layer."""
    last = n_layers - width
    starts = list(range(0, last + 1, max(1, width // 2)))
    return starts if starts[-1] == last else [*starts, last]


@dataclass(frozen=True)
class Scored:
    """Log-odds of some of the used items after a change."""

    items: Indices
    """Indices of the used items that were run, in order."""
    logits: Floats
    """Log-odds [layer, item] at the headline site and position."""
    states: Float[Tensor, "item d_model"] | None = None
    """The states of one layer there, where they were asked for."""

    def delta_p(self, inputs: ExperimentInputs) -> Floats:
        """ΔP in percentage points, [item, layer]."""
        place = inputs.measured
        before = place.before[place.probe("full")][:, self.items]
        labels = place.labels[self.items]
        return 100 * (true_label_probability(self.logits, labels) - true_label_probability(before, labels)).T

    def at_reference(self, inputs: ExperimentInputs) -> Floats:
        """ΔP at each item's own reference layer, [item]."""
        return self.delta_p(inputs)[np.arange(len(self.items)), inputs.reference[self.items]]


def run_variants(
    inputs: ExperimentInputs, variants: Sequence[Variant], title: str, layer: int | None = None
) -> list[Scored]:
    """One pass over the used items for all variants; the states of one `layer` are kept where it is named."""
    from anchorscope.execute.run_passes import run_states

    sequences = [item.sequence(inputs.setting.positions) for item in inputs.used_items]
    work = inputs.planner.states(title, sequences, inputs.prefix, variants)
    probes = inputs.scoring.probes(only=(*inputs.headline, inputs.measured.probe("full")))
    keep = () if layer is None else ((inputs.headline,),) * len(variants)
    scored = []
    for part in run_states(inputs.executor, replace(work, probes=probes, keep=keep), inputs.progress).variants:
        assert part.logits is not None, "a pass with probes gives log-odds"
        states = None if part.states is None or layer is None else part.states[0, layer].clone()
        scored.append(Scored(part.items, part.logits[:, 0, 0, 0].T, states))
    return scored


def run_partial_cuts(
    inputs: ExperimentInputs, partial: Sequence[PartialCut], title: str
) -> tuple[list[Outcome], list[str]]:
    """Runs partial knockouts on some items, and says which cuts or items could not be run."""
    from anchorscope.interventions.cuts import KNOCKOUT

    rng = inputs.rng(title)
    cuts = {int(item): KNOCKOUT.cut(inputs.used_items[item], inputs.setting.edges, rng) for item in inputs.some_items()}
    planned, missing = _plan(inputs, partial, cuts)
    outcomes: list[Outcome] = []
    n_passes = math.ceil(len(planned) / MOST_AT_ONCE)
    for number in range(n_passes):
        together = np.array_split(np.arange(len(planned)), n_passes)[number]
        some = [planned[index] for index in together]
        ran = run_variants(inputs, [variant for _, variant in some], f"{title} {number + 1} of {n_passes}")
        outcomes += [Outcome(cut, after.items, after.logits) for (cut, _), after in zip(some, ran, strict=True)]
    return outcomes, missing


def _plan(
    inputs: ExperimentInputs, partial: Sequence[PartialCut], cuts: dict[int, Cut]
) -> tuple[list[tuple[PartialCut, Variant]], list[str]]:
    """Every cut with the items that it takes edges from.

    The engine refuses a cut that takes nothing, from an item or in a layer. Only a sliding window can be the reason,
    and it is known before.
    """
    sequences = {item: inputs.used_items[item].sequence(inputs.setting.positions) for item in cuts}
    windows = inputs.planner.windows
    reached = {
        window: {item for item, cut in cuts.items() if cut.takes_edges(sequences[item], window)}
        for window in set(windows)
    }
    planned, idle, few = [], [], []
    for part in partial:
        of_layer = [reached[windows[layer]] for layer in part.layers]
        if not all(of_layer):
            idle.append(f"{part.variant} from layer {part.first}")
            continue
        items = set.union(*of_layer)
        if len(items) < len(cuts):
            few.append(f"{part.variant} from layer {part.first} ({len(items)} of {len(cuts)})")
        variant = Variant({item: replace(cuts[item], heads=part.heads) for item in sorted(items)}, part.layers)
        planned.append((part, variant))
    missing = []
    if idle:
        missing.append(
            f"{', '.join(idle)}: the sliding window of a layer already hides the question from all later tokens that "
            f"the cut is about; choose --edges all"
        )
    if few:
        missing.append(f"{', '.join(few)}: the sliding window already hides the question of the other items")
    return planned, missing


def reached(inputs: ExperimentInputs, cuts: ItemCuts) -> dict[int, Cut]:
    """The cuts that take edges somewhere; none where a layer's sliding window hides the keys of all items."""
    sequences = {item: inputs.used_items[item].sequence(inputs.setting.positions) for item in cuts}
    found: set[int] = set()
    for window in set(inputs.planner.windows):
        here = {item for item, cut in cuts.items() if cut.keys and cut.takes_edges(sequences[item], window)}
        if not here:
            return {}
        found |= here
    return {item: cut for item, cut in cuts.items() if item in found}


CORRECTED = "corrected"
"""The assignment whose ΔP is corrected too."""
_CELLS = tuple((group, truth) for group in GROUPS for truth in TRUTHS)
_THIS = "this"  # the only intervention of a table that is made for one outcome

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
        return self.outcome.cut.first

    @property
    def variant(self) -> str:
        """As in the results' column `variant`."""
        return self.outcome.cut.variant

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
        from anchorscope.evidence.draws import ratio

        return ratio(*self.reference_sums(group, truth))

    @property
    def _draws(self) -> Draws:
        return self.inputs.draws.take(self.items)

    @cached_property
    def _reduced(self) -> _Reduced:
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
        from anchorscope.evidence.delta_p import shifts
        from anchorscope.evidence.draws import Draws

        place, only_sample = self.inputs.measured, Draws(self._draws.counts[:, :1])
        folds, labels = place.folds[self.items], place.labels[self.items]
        moved = shifts(self._before, self._after, folds, place.reference.shape[1], only_sample)[..., 0].cpu().numpy()
        after = true_label_probability(self._after - moved[:, folds], labels)
        return 100 * (after - true_label_probability(self._before, labels)).T

    @cached_property
    def _reduced(self) -> _Reduced:
        import torch

        from anchorscope.evidence.delta_p import curve_samples, of_group

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
        from anchorscope.evidence.delta_p import cell_sums

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
    from anchorscope.evidence.delta_p import correct_shift

    if assignment != CORRECTED:
        return [Effects(inputs, assignment, outcome) for outcome in outcomes]
    corrected = correct_shift(inputs.measured, inputs.draws)
    return [CorrectedEffects(inputs, assignment, outcome, corrected) for outcome in outcomes]


def cumulative(inputs: ExperimentInputs, items: Indices) -> Outcome:
    """The knockout itself, in all layers, on some items, as an outcome to compare others with."""
    place = inputs.measured
    where = np.searchsorted(place.ran[KNOCKOUT_NAME], items)
    logits = place.after[KNOCKOUT_NAME][place.probe("full")][:, where]
    return Outcome(PartialCut("cumulative", range(place.n_layers)), items, logits)


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
    import torch

    samples = torch.stack([one.reference(group, truth) for one in shown])
    inside = [one.at_reference[one.reached(group, truth)] for one in shown]
    sizes = [mean_in_deviations(values) for values in inside]
    return _rows(shown, samples, [len(values) for values in inside], sizes, QUANTITY, group, truth)


def _differences(both: Sequence[Effects], truth: str) -> list[Statistic]:
    import torch

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
    from anchorscope.evidence.draws import estimates

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
                lines.append(too_few(most, group, family[0].assignment, truth))
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
