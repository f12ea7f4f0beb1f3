"""All detectors by name, fitted on the same training data; what can't be fitted here says why.

What a detector reads is declared in its entry of the catalogue (`runs`, `columns`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Int

from anchorscope.catalogue import DETECTORS, KNOCKOUT, RANDOM, DetectorEntry
from anchorscope.detectors.auto import fit_auto
from anchorscope.detectors.data import TrainingData
from anchorscope.detectors.features import CLEAN
from anchorscope.detectors.pathway_detectors import CONSTANT_GATE, RANDOM_GATE, PathwayDetectors, fit_counterfactual
from anchorscope.detectors.probe_detectors import (
    DetectorFit,
    fit_columns,
    fit_ensemble,
    fit_entropy_probe,
    fit_other_run,
    fit_probe,
    fit_probe_confidence,
    fit_question_orthogonal,
    fit_relation,
    fit_saplma,
    fit_site,
    fit_words,
)
from anchorscope.detectors.training import INNER_FOLDS
from anchorscope.plugins import load


@dataclass(frozen=True)
class DetectorPlugin:
    """A detector of another package."""

    entry: DetectorEntry
    """Its name, words and needs, as the catalogue has them of our own."""
    fit: Callable[[TrainingData], DetectorFit]

    @property
    def name(self) -> str:
        """As in the column `detector`."""
        return self.entry.name


@dataclass(frozen=True)
class Texts:
    """What baselines read that need no model."""

    relations: Sequence[str | None]
    documents: Sequence[Sequence[str]]
    """The words of each item's question and answer."""
    groups: Int[np.ndarray, " item"]
    """Items of one group are not each other's neighbours."""
    datasets: Sequence[str] = ()
    """Where several were taken together, that of each item."""

    @property
    def domains(self) -> Sequence[str]:
        """Parts of the data that `auto` leaves out in turn: datasets, if there are enough of them; else relations."""
        if len(set(self.datasets)) >= INNER_FOLDS:
            return self.datasets
        datasets = self.datasets or [""] * len(self.relations)
        return [f"{dataset} {relation or ''}" for dataset, relation in zip(datasets, self.relations, strict=True)]


@dataclass(frozen=True)
class DetectorFits:
    """Detectors over one set of training data, each fitted when it is first asked for."""

    data: TrainingData
    texts: Texts
    choices: list[str] = field(default_factory=list)
    """What `auto` chose in every training set, once it is fitted."""
    _fits: dict[str, DetectorFit] = field(default_factory=dict)

    def fit(self, name: str) -> DetectorFit:
        """The detector of that name."""
        if name not in self._fits:
            self._fits[name] = self._fit(name)
        return self._fits[name]

    def _fit(self, name: str) -> DetectorFit:
        if name in DETECTORS.plugins:
            return load(DETECTORS.plugins[name]).fit(self.data)
        if name in _FITS:
            return _FITS[name](self)
        return fit_columns(self.data, DETECTORS[name].columns)

    def missing(self, name: str) -> str | None:
        """Why a detector can't be fitted here; None where it can."""
        entry = DETECTORS[name]
        for site in entry.sites:
            if not any(key[:2] == (CLEAN, site) for key in self.data.features.states):
                return f"clean states of the site {site!r} were not kept"
        for run in entry.runs:
            if not self.data.has(run):
                return f"states of the run {run!r} were not kept"
        for column in entry.columns:
            if column not in self.data.features.columns:
                return f"the column {column!r} was not kept"
        return None

    def available(self, names: Sequence[str]) -> list[str]:
        """Those of the names that can be fitted."""
        return [name for name in names if self.missing(name) is None]

    @cached_property
    def pathways(self) -> PathwayDetectors:
        """Mixture-of-Probes and Pathway Reweighting, which share their gate."""
        return PathwayDetectors(self.data)

    def fit_auto(self) -> DetectorFit:
        """The detector that is chosen among the others."""
        fit, self.choices[:] = fit_auto(self.data, self.texts.groups, self.texts.domains)
        return fit


_FITS: Mapping[str, Callable[[DetectorFits], DetectorFit]] = {
    "confidence": lambda fits: fit_columns(fits.data, fits.data.confidence),
    "probe": lambda fits: fit_probe(fits.data),
    "residual-probe": lambda fits: fit_site(fits.data, "residual"),
    "question-orthogonal": lambda fits: fit_question_orthogonal(fits.data),
    "semantic-entropy-probe": lambda fits: fit_entropy_probe(fits.data, "semantic_entropy_10"),
    "saplma": lambda fits: fit_saplma(fits.data),
    "ensemble": lambda fits: fit_ensemble(fits.data),
    "probe+confidence": lambda fits: fit_probe_confidence(fits.data),
    "mop": lambda fits: fits.pathways.fit_mixture(),
    "mop-random-gate": lambda fits: fits.pathways.fit_mixture(RANDOM_GATE),
    "mop-constant-gate": lambda fits: fits.pathways.fit_mixture(CONSTANT_GATE),
    "pr-attention": lambda fits: fits.pathways.fit_reweighting(),
    "pr-attention-random-gate": lambda fits: fits.pathways.fit_reweighting(RANDOM_GATE),
    "pr-attention-constant-gate": lambda fits: fits.pathways.fit_reweighting(CONSTANT_GATE),
    "counterfactual": lambda fits: fit_counterfactual(fits.data, KNOCKOUT),
    "counterfactual-random-cut": lambda fits: fit_counterfactual(fits.data, RANDOM),
    "auto": DetectorFits.fit_auto,
    "relation": lambda fits: fit_relation(fits.data, fits.texts.relations),
    "words": lambda fits: fit_words(fits.data, fits.texts.documents),
    "question-only": lambda fits: fit_other_run(fits.data, "question-only"),
    "random-weights": lambda fits: fit_other_run(fits.data, "random-weights"),
}
"""How each is fitted; an entry of the catalogue that isn't here is a logistic regression on its columns."""
