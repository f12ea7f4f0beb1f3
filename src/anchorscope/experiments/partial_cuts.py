"""Cuts in some layers, in some heads, or of chosen tokens: many in one pass, scored on the way.

Cuts that begin in the middle of the model join there, with the clean stream. A probe below the first cut layer can't
see it and doesn't count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from anchorscope.engine.sequences import Cut, Variant
from anchorscope.evidence.delta_p import GROUPS, delta_p
from anchorscope.experiments.experiment import ExperimentInputs, ItemValues, Statistic
from anchorscope.experiments.statistics import (
    FEW,
    Bools,
    Floats,
    Indices,
    family_rows,
    too_few,
)

if TYPE_CHECKING:
    from torch import Tensor

MOST_AT_ONCE = 16
"""Cuts that share a pass: each takes a row of an item's tokens in memory."""
QUANTITY = "delta_p_reference"
"""ΔP at each item's own reference layer, in percentage points."""


@dataclass(frozen=True)
class Scored:
    """Log-odds of some of the used items after a change."""

    items: Indices
    """The used items that were run, in order."""
    logits: Floats
    """Log-odds [layer, item] at the headline site and position; below a cut those of the clean run."""

    def at_reference(self, inputs: ExperimentInputs) -> Floats:
        """ΔP in percentage points at each item's own reference layer, [item]."""
        measured, labels = inputs.measured, inputs.measured.labels[self.items]
        layers, column = inputs.reference[self.items], np.arange(len(self.items))
        before = measured.before[layers, self.items]
        after = self.logits[layers, column]
        return delta_p(before, after, labels)


def run_variants(
    inputs: ExperimentInputs, variants: Sequence[Variant], title: str
) -> list[Scored]:
    """Runs variants of the used items, a few in each pass, and gives the log-odds of each."""
    from anchorscope.execute.run_passes import run_states

    sequences = [item.sequence(inputs.setting.positions) for item in inputs.used_items]
    probes = inputs.scoring.probes(only=inputs.headline)
    n_passes = math.ceil(len(variants) / MOST_AT_ONCE)
    scored: dict[int, Scored] = {}
    for number in range(n_passes):
        # each pass has early and late layers, which cost more and less
        some = range(number, len(variants), n_passes)
        name = title if n_passes == 1 else f"{title} {number + 1} of {n_passes}"
        work = inputs.planner.states(
            name, sequences, inputs.prefix, [variants[index] for index in some]
        )
        parts = run_states(
            inputs.executor, replace(work, probes=probes), inputs.progress
        ).variants
        for index, part in zip(some, parts, strict=True):
            assert part.logits is not None, "a pass with probes gives log-odds"
            scored[index] = Scored(part.items, part.logits[:, 0, 0].T)
    return [scored[index] for index in range(len(variants))]


def visible_cuts(
    inputs: ExperimentInputs, cuts: Mapping[int, Cut], layers: range
) -> dict[int, Cut]:
    """The cuts, by used item, that take edges in these layers; none where a sliding window hides all keys.

    The engine refuses a cut that removes nothing, from an item or in a layer.
    """
    seen: set[int] = set()
    for window in {inputs.planner.windows[layer] for layer in layers}:
        visible = {
            item
            for item, cut in cuts.items()
            if cut.takes_edges(
                inputs.used_items[item].sequence(inputs.setting.positions), window
            )
        }
        if not visible:
            return {}
        seen |= visible
    return {item: cuts[item] for item in sorted(seen)}


@dataclass(frozen=True)
class PartialCut:
    """The knockout in some layers, or in some query heads of them, only."""

    variant: str
    layers: range
    heads: tuple[int, ...] | None = None

    @property
    def first(self) -> int:
        return self.layers.start


def run_partial_cuts(
    inputs: ExperimentInputs, partial: Sequence[PartialCut], title: str
) -> tuple[list[CutEffects], list[str]]:
    """Runs partial knockouts on some items, and reports which cuts or items couldn't be run."""
    from anchorscope.interventions.cuts import KNOCKOUT

    rng = inputs.rng(title)
    cuts = {
        int(item): KNOCKOUT.cut(inputs.used_items[item], inputs.setting.edges, rng)
        for item in inputs.some_items()
    }
    visible = {part: visible_cuts(inputs, cuts, part.layers) for part in partial}
    planned = [part for part, item_cuts in visible.items() if item_cuts]
    variants = [
        Variant(
            {
                item: replace(cut, heads=part.heads)
                for item, cut in visible[part].items()
            },
            part.layers,
        )
        for part in planned
    ]
    ran = run_variants(inputs, variants, title)
    hidden = ", ".join(
        f"{part.variant} from layer {part.first} ({len(item_cuts)} of {len(cuts)} items)"
        for part, item_cuts in visible.items()
        if len(item_cuts) < len(cuts)
    )
    why = "a sliding window already hides the question from all later tokens that the cut is about; choose --edges all"
    missing = [f"{hidden}: {why}"] if hidden else []
    return [
        CutEffects(inputs, part, scored)
        for part, scored in zip(planned, ran, strict=True)
    ], missing


@dataclass(frozen=True)
class CutEffects:
    """The effect of one partial cut on the pathways."""

    inputs: ExperimentInputs
    cut: PartialCut
    scored: Scored

    @property
    def items(self) -> Indices:
        return self.scored.items

    def members(self, group: str) -> Bools:
        """Which of the items that were run are in a group, [item]."""
        return self.inputs.calls.members(group)[self.items]

    def reached(self, group: str) -> Bools:
        """Those whose reference layer can see the cut, [item]."""
        return self.members(group) & (
            self.inputs.reference[self.items] >= self.cut.first
        )

    @cached_property
    def reference_sums(self) -> dict[str, tuple[Tensor, Tensor]]:
        """By group, the sum of ΔP at the reference layer over those that it reaches, and their number, [draw] each."""
        change = self.scored.at_reference(self.inputs)
        sums = {}
        for group in GROUPS:
            inside = self.reached(group)
            draws = self.inputs.draws.take(self.items[inside])
            sums[group] = draws.sums(change[inside, None])[0], draws.numbers()
        return sums

    def reference(self, group: str) -> Tensor:
        from anchorscope.evidence.draws import ratio

        return ratio(*self.reference_sums[group])


def summed_over(
    inputs: ExperimentInputs, effects: Sequence[CutEffects], variant: str
) -> ItemValues:
    """The sum of several cuts in every item, at its reference layer.

    A cut above an item's reference layer adds nothing; an item below all of them has no value.
    """
    items = inputs.some_items()
    total, seen = np.zeros(len(items)), np.zeros(len(items), dtype=bool)
    for effect in effects:
        reached = inputs.reference[effect.items] >= effect.cut.first
        places = np.searchsorted(items, effect.items)
        total[places] += np.where(reached, effect.scored.at_reference(inputs), 0.0)
        seen[places] |= reached
    return ItemValues("delta_p_reference_sum", items[seen], total[seen], variant)


def reference_statistics(
    family: Sequence[CutEffects],
) -> tuple[list[Statistic], list[str]]:
    """Mean ΔP of each group at the items' own reference layers; false discoveries are controlled over the family."""
    rows, missing = [], []
    for group in GROUPS if family else ():
        reached = [int(effect.reached(group).sum()) for effect in family]
        rows += family_rows(
            QUANTITY,
            [
                (
                    effect.reference(group),
                    n,
                    {
                        "variant": effect.cut.variant,
                        "group": group,
                        "layer": effect.cut.first,
                    },
                )
                for effect, n in zip(family, reached, strict=True)
                if n >= FEW
            ],
        )
        most = max(int(effect.members(group).sum()) for effect in family)
        few = [
            effect.cut.first
            for effect, n in zip(family, reached, strict=True)
            if 0 < n < FEW
        ]
        if most < FEW:
            missing.append(too_few(most, group))
        elif few:
            missing.append(
                f"{QUANTITY} of {group} items from layer {min(few)} on: fewer than {FEW} have a reference layer there"
            )
    return rows, missing
