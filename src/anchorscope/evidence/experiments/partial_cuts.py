"""Cuts in some layers, in some heads, or of tokens that an experiment chooses: many in one pass, scored on the way.

Cuts that begin in the middle of the model join in there, with the clean stream, so that nothing below is run again. No
more than a few share a pass: an item takes one row of tokens for each, and rows are what memory is needed for. Of the
states only the log-odds at the headline site and position are kept, and where asked for those of one layer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.sequences import Cut, Variant
from anchorscope.evidence.experiments.experiment import ExperimentInputs
from anchorscope.evidence.measured import true_label_probability
from anchorscope.execute.run_passes import run_states
from anchorscope.interventions.cuts import KNOCKOUT
from anchorscope.interventions.intervention import Intervention

MOST_AT_ONCE = 16
"""Cuts that share a pass: with their own row each, an item takes at most so many times the tokens of a knockout."""

Indices = NDArray[np.int64]
ItemCuts = Mapping[int, Cut]
"""The cut of each used item that is run, by its index."""


def partial_knockout(variant: str, layers: range, heads: tuple[int, ...] | None = None) -> Intervention:
    """The knockout in some layers, or in some heads of them, only."""
    return KNOCKOUT.within(variant, layers, heads)


def first_layer(intervention: Intervention) -> int:
    """The first layer that is cut: a probe below it cannot see the cut."""
    return 0 if intervention.layers is None else intervention.layers.start


@dataclass(frozen=True)
class Outcome:
    """What one cut does to the items."""

    intervention: Intervention
    items: Indices
    """The used items that it was run on, in order."""
    logits: NDArray[np.floating]
    """Log-odds [layer, item] at the headline site and position; below the cut those of the clean run."""

    @property
    def first(self) -> int:
        """The first layer that is cut."""
        return first_layer(self.intervention)

    @property
    def variant(self) -> str:
        """As in the results' column `variant`."""
        return self.intervention.variant or ""


def window_width(inputs: ExperimentInputs) -> int:
    """Layers in a window: the recipe's choice, or a quarter of the depth, and at least two."""
    n_layers = inputs.measured.n_layers
    return min(n_layers, inputs.window or max(2, n_layers // 4))


def window_starts(n_layers: int, width: int) -> list[int]:
    """Where windows begin: every half width, and one that ends with the last layer."""
    last = n_layers - width
    starts = list(range(0, last + 1, max(1, width // 2)))
    return starts if starts[-1] == last else [*starts, last]


def run_partial_cuts(
    inputs: ExperimentInputs, interventions: Sequence[Intervention], title: str
) -> tuple[list[Outcome], list[str]]:
    """Runs partial knockouts on some items, and says which cuts or items could not be run."""
    rng = inputs.rng(title)
    cuts = {int(item): KNOCKOUT.cut(inputs.used_items[item], inputs.setting.edges, rng) for item in inputs.some_items()}
    planned, missing = _plan(inputs, interventions, cuts)
    outcomes = []
    n_passes = max(1, math.ceil(len(planned) / MOST_AT_ONCE))
    sequences = [item.sequence(inputs.setting.positions) for item in inputs.used_items]
    probes = inputs.scoring.probes(only=(*inputs.headline, inputs.measured.probe("full")))
    for number, together in enumerate(np.array_split(np.arange(len(planned)), n_passes)):
        if not len(together):
            break
        some = [planned[index] for index in together]
        work = inputs.planner.states(
            f"{title} {number + 1} of {n_passes}", sequences, inputs.prefix, [variant for _, variant in some]
        )
        found = run_states(inputs.executor, replace(work, probes=probes), inputs.progress)
        for (intervention, _), part in zip(some, found.variants, strict=True):
            assert part.logits is not None, "a pass with probes gives log-odds"
            outcomes.append(Outcome(intervention, part.items, part.logits[:, 0, 0, 0].T))
    return outcomes, missing


def _plan(
    inputs: ExperimentInputs, interventions: Sequence[Intervention], cuts: dict[int, Cut]
) -> tuple[list[tuple[Intervention, Variant]], list[str]]:
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
    for one in interventions:
        assert one.layers is not None, "a partial knockout names its layers"
        of_layer = [reached[windows[layer]] for layer in one.layers]
        if not all(of_layer):
            idle.append(f"{one.variant} from layer {first_layer(one)}")
            continue
        items = set.union(*of_layer)
        if len(items) < len(cuts):
            few.append(f"{one.variant} from layer {first_layer(one)} ({len(items)} of {len(cuts)})")
        variant = Variant({item: replace(cuts[item], heads=one.heads) for item in sorted(items)}, one.layers)
        planned.append((one, variant))
    missing = []
    if idle:
        missing.append(
            f"{', '.join(idle)}: the sliding window of a layer already hides the question from all later tokens that "
            f"the cut is about; choose --edges all"
        )
    if few:
        missing.append(f"{', '.join(few)}: the sliding window already hides the question of the other items")
    return planned, missing


@dataclass(frozen=True)
class Scored:
    """Log-odds of some of the used items after a change."""

    items: NDArray[np.int64]
    """Indices of the used items that were run, in order."""
    logits: NDArray[np.floating]
    """Log-odds [layer, item] at the headline site and position."""
    states: Float[Tensor, "item d_model"] | None = None
    """The states of one layer there, where they were asked for."""

    def delta_p(self, inputs: ExperimentInputs) -> NDArray[np.floating]:
        """ΔP in percentage points, [item, layer]."""
        place = inputs.measured
        before = place.before[place.probe("full")][:, self.items]
        labels = place.labels[self.items]
        return 100 * (true_label_probability(self.logits, labels) - true_label_probability(before, labels)).T

    def at_reference(self, inputs: ExperimentInputs) -> NDArray[np.floating]:
        """ΔP at each item's own reference layer, [item]."""
        return self.delta_p(inputs)[np.arange(len(self.items)), inputs.reference[self.items]]


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


def run_chosen_cuts(
    inputs: ExperimentInputs, cuts: Mapping[str, ItemCuts], title: str, layer: int | None = None
) -> dict[str, Scored]:
    """Every variant's items, cut in all layers; all variants together, as they share what no cut has changed.

    The states of one `layer` are kept where it is named.
    """
    sequences = [item.sequence(inputs.setting.positions) for item in inputs.used_items]
    variants = [Variant(dict(one)) for one in cuts.values()]
    work = inputs.planner.states(title, sequences, inputs.prefix, variants)
    probes = inputs.scoring.probes(only=(*inputs.headline, inputs.measured.probe("full")))
    keep = () if layer is None else ((inputs.headline,),) * len(variants)
    found = run_states(inputs.executor, replace(work, probes=probes, keep=keep), inputs.progress)
    scored = {}
    for name, part in zip(cuts, found.variants, strict=True):
        assert part.logits is not None, "a pass with probes gives log-odds"
        states = None if part.states is None or layer is None else part.states[0, layer].clone()
        scored[name] = Scored(part.items, part.logits[:, 0, 0, 0].T, states)
    return scored
