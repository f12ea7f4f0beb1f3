"""All detectors by name, fitted on the same training data; what can't be fitted here says why.

What a detector reads is declared in its entry of the catalogue (`runs`, `sites`, `columns`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from anchorscope.catalogue import DETECTORS, DetectorEntry
from anchorscope.detectors import methods
from anchorscope.detectors.auto import fit_auto
from anchorscope.detectors.data import TrainingData
from anchorscope.detectors.features import CLEAN, QUESTION_ONLY, QUESTION_ORTHOGONAL, Features
from anchorscope.detectors.methods import CONSTANT_GATE, RANDOM_GATE, DetectorFit, PathwayDetectors
from anchorscope.detectors.training import Dataset
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


def missing_feature(name: str, features: Features, site: str) -> str | None:
    """Why a detector can't be fitted on these features; None where it can."""
    entry = DETECTORS[name]
    layers = [key[2] for key in features.states if key[:2] == (CLEAN, site)]
    for other in entry.sites:
        if not any(key[:2] == (CLEAN, other) for key in features.states):
            return f"clean states of the site {other!r} were not kept"
    for run in entry.runs:
        if any((run, site, layer) not in features.states for layer in layers):
            return f"states of the run {run!r} were not kept"
    for column in entry.columns:
        if column not in features.columns:
            return f"the column {column!r} was not kept"
    return None


@dataclass(frozen=True)
class DetectorFits:
    """Detectors over one set of training data, each fitted when it is first asked for."""

    data: TrainingData
    dataset: Dataset
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
        return methods.fit_columns(self.data, DETECTORS[name].columns)

    @cached_property
    def pathways(self) -> PathwayDetectors:
        """Mixture-of-Probes and Pathway Reweighting, which share their gate."""
        return PathwayDetectors(self.data)


_FITS: Mapping[str, Callable[[DetectorFits], DetectorFit]] = {
    "confidence": lambda fits: methods.fit_columns(fits.data, fits.data.confidence),
    "probe": lambda fits: methods.as_detector(fits.data.probe),
    "residual-probe": lambda fits: methods.fit_residual(fits.data),
    "question-orthogonal": lambda fits: methods.fit_on(fits.data, fits.data.headline(QUESTION_ORTHOGONAL)),
    "semantic-entropy-probe": lambda fits: methods.fit_entropy_probe(fits.data, "semantic_entropy_10"),
    "saplma": lambda fits: methods.fit_saplma(fits.data),
    "probe+confidence": lambda fits: methods.fit_stacked(fits.data, (fits.data.probe,), fits.data.confidence),
    "mop": lambda fits: fits.pathways.fit_mixture(),
    "mop-random-gate": lambda fits: fits.pathways.fit_mixture(RANDOM_GATE),
    "mop-constant-gate": lambda fits: fits.pathways.fit_mixture(CONSTANT_GATE),
    "pr-attention": lambda fits: fits.pathways.fit_reweighting(),
    "pr-attention-random-gate": lambda fits: fits.pathways.fit_reweighting(RANDOM_GATE),
    "pr-attention-constant-gate": lambda fits: fits.pathways.fit_reweighting(CONSTANT_GATE),
    "auto": lambda fits: fit_auto(fits.data, fits.dataset),
    "relation": lambda fits: methods.fit_relation(fits.data, fits.dataset.relations),
    "text": lambda fits: methods.fit_text(fits.data),
    "words": lambda fits: methods.fit_words(fits.data, fits.dataset.documents),
    "question-only": lambda fits: methods.fit_on(fits.data, fits.data.headline(QUESTION_ONLY)),
    "random-weights": lambda fits: methods.fit_on(fits.data, fits.data.headline("random-weights")),
}
"""How each is fitted; an entry of the catalogue that isn't here is a logistic regression on its columns."""
