"""Cuts whose tokens an experiment chooses itself, item by item: several in one pass, scored on the way.

Of the states only the log-odds at the headline site and position are kept, and where asked for those of one layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.sequences import Cut, Variant
from anchorscope.evidence.experiments.experiment import ExperimentInputs
from anchorscope.evidence.measured import true_label_probability
from anchorscope.execute.run_passes import run_states

ItemCuts = Mapping[int, Cut]
"""The cut of each used item that is run, by its index."""


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
