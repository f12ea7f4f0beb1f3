"""All detectors by name, fitted on the same training data; what cannot be fitted here says why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Int

from anchorscope.catalogue import BOOSTS, DETECTORS, SAMPLES
from anchorscope.detectors.anchor import Candidate, fit_anchor
from anchorscope.detectors.baselines import fit_relation, fit_words
from anchorscope.detectors.counterfactual import fit_counterfactual
from anchorscope.detectors.data import TrainingData
from anchorscope.detectors.mop import GATES, READINGS, MixtureOfProbes
from anchorscope.detectors.network import fit_network
from anchorscope.detectors.pathway import Pathway
from anchorscope.detectors.reweighting import boost_run, fit_activation, fit_attention, fit_delta
from anchorscope.detectors.single import (
    DetectorFit,
    fit_columns,
    fit_ensemble,
    fit_ensemble_two,
    fit_mass_mean,
    fit_other_run,
    fit_probe,
    fit_probe_confidence,
)
from anchorscope.plugins import load

KNOCKOUT, RANDOM = "knockout", "random"


@dataclass(frozen=True)
class Texts:
    """What baselines read that need no model."""

    relations: Sequence[str | None]
    documents: Sequence[Sequence[str]]
    """The words of each item's question and answer."""
    groups: Int[np.ndarray, " item"]
    """Items of one group are not each other's neighbours."""


@dataclass(frozen=True)
class DetectorFits:
    """Detectors over one set of training data, each fitted when it is first asked for."""

    data: TrainingData
    texts: Texts
    made: dict[str, DetectorFit] = field(default_factory=dict)
    choices: list[str] = field(default_factory=list)
    """What `anchor` chose in every training set, once it is fitted."""

    def fit(self, name: str) -> DetectorFit:
        """The detector of that name."""
        if name not in self.made:
            own = name not in DETECTORS.plugins
            self.made[name] = self._recipes[name]() if own else load(DETECTORS.plugins[name]).fit(self.data)
        return self.made[name]

    def missing(self, name: str) -> str | None:
        """Why a detector cannot be fitted here; None where it can."""
        runs, columns = _reads(name)
        for run in runs:
            if not self.data.has(run):
                return f"states of the run {run!r} were not kept"
        for column in columns:
            if column not in self.data.features.columns:
                return f"the column {column!r} was not kept"
        if name == "confidence" and not self.data.confidence:
            return "the answers' log-probabilities are not known"
        return None

    def available(self, names: Sequence[str]) -> list[str]:
        """Those of the names that can be fitted."""
        return [name for name in names if self.missing(name) is None]

    @cached_property
    def _mixtures(self) -> MixtureOfProbes:
        return MixtureOfProbes(self.data, KNOCKOUT)

    @cached_property
    def _pathway(self) -> Pathway:
        return self._mixtures.pathway

    @cached_property
    def _recipes(self) -> dict[str, Callable[[], DetectorFit]]:
        data = self.data
        recipes: dict[str, Callable[[], DetectorFit]] = {
            "confidence": lambda: fit_columns(data, data.confidence),
            "probe": lambda: fit_probe(data),
            "mass-mean": lambda: fit_mass_mean(data),
            "mlp": lambda: fit_network(data),
            "ensemble": lambda: fit_ensemble(data),
            "ensemble-two": lambda: fit_ensemble_two(data),
            "probe+confidence": lambda: fit_probe_confidence(data),
            "mop": lambda: self._mixtures.best(),
            "mop-random-cut": lambda: MixtureOfProbes(data, RANDOM).fit("hard", "predicted"),
            "pr-attention": lambda: fit_attention(data, self._pathway),
            "pr-activation": lambda: fit_activation(data, self._pathway),
            "pr-delta": lambda: fit_delta(data, self._pathway),
            "pr-delta-random-cut": lambda: fit_delta(data, Pathway(data, RANDOM)),
            "counterfactual": lambda: fit_counterfactual(data, KNOCKOUT),
            "counterfactual-random-cut": lambda: fit_counterfactual(data, RANDOM),
            "anchor": self._anchor,
            "relation": lambda: fit_relation(data, self.texts.relations),
            "words": lambda: fit_words(data, self.texts.documents),
            "question-only": lambda: fit_other_run(data, "question-only"),
            "random-weights": lambda: fit_other_run(data, "random-weights"),
        }
        for name, columns in _COLUMNS.items():
            recipes[name] = lambda columns=columns: fit_columns(data, columns)  # type: ignore[misc]
        for reading in READINGS:
            for gate in GATES:
                recipes[f"mop-{reading}-{gate}"] = (
                    lambda reading=reading, gate=gate: self._mixtures.fit(reading, gate)  # type: ignore[misc]
                )
        return recipes

    def _anchor(self) -> DetectorFit:
        names = self.available(["confidence", "probe", "probe+confidence", "counterfactual"])
        candidates = [Candidate(name, DETECTORS[name].passes, self.fit(name)) for name in names]
        if "confidence" in names:
            candidates.insert(
                -1 if "counterfactual" in names else len(names),
                Candidate("ensemble+confidence", 1, fit_ensemble(self.data, True)),
            )
        fallback = self.fit("confidence" if "confidence" in names else "probe")
        found, choices = fit_anchor(self.data, self.texts.groups, candidates, fallback)
        self.choices[:] = choices
        return found


_COLUMNS: dict[str, tuple[str, ...]] = {
    "length": ("answer_tokens",),
    "p-true": ("p_true",),
    **{f"self-consistency-{n}": (f"self_consistency_{n}",) for n in SAMPLES},
    **{f"semantic-entropy-{n}": (f"semantic_entropy_{n}",) for n in SAMPLES},
}
"""Baselines that are one plain number."""
_BOOSTED = tuple(boost_run(side, alpha) for side in ("question", "answer") for alpha in BOOSTS)


def _reads(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The runs (beyond the clean one) and columns without which a detector cannot be."""
    if name in DETECTORS.plugins:
        return (plugin := load(DETECTORS.plugins[name])).runs, plugin.columns
    if name in _COLUMNS:
        return (), _COLUMNS[name]
    if name in ("question-only", "random-weights"):
        return (name,), ()
    if name.endswith("-random-cut"):
        return (RANDOM,) if name.startswith("mop") else (KNOCKOUT, RANDOM), ()
    if name == "pr-attention":
        return (KNOCKOUT, *_BOOSTED), ()
    if name.startswith(("mop", "pr-")) or name == "counterfactual":
        return (KNOCKOUT,), ()
    return (), ()
