"""The further experiments, by name, in the order in which they run."""

from collections.abc import Sequence

from anchorscope.evidence.experiments import (
    agreement,
    boundary,
    heads,
    layers,
    saliency,
    self_awareness,
    sensitivity,
)
from anchorscope.evidence.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    one.EXPERIMENT.name: one.EXPERIMENT
    for one in (layers, heads, saliency, boundary, self_awareness, sensitivity, agreement)
}
"""Agreement compares the others, so it comes last."""


def chosen_experiments(evidence: Sequence[str]) -> list[Experiment]:
    """Those asked for."""
    return [one for one in EXPERIMENTS.values() if one.name in evidence]
