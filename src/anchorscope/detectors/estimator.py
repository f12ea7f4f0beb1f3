"""Every detector as a scikit-learn estimator: `fit`, `decision_function`, `predict_proba` on plain arrays.

The columns of `X` are states and numbers, side by side. `columns` says which are what: names of runs (`clean`,
`knockout`, `answer-only` …) and of plain numbers (`log_prob_mean` …), each with its columns; without it all columns are
clean states. What a detector reads and is not there is left out where it can be, as `auto` and `counterfactual` do.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from anchorscope.detectors.data import TrainingData
from anchorscope.detectors.features import CLEAN, CONFIDENCE, Features
from anchorscope.detectors.fits import DetectorFits, Texts
from anchorscope.detectors.training import INNER_FOLDS, Examples, calibrated, whole_set

_SITE, _LAYER = "mlp", 0  # one state of every run: scikit-learn's arrays know no layers


class DetectorClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A detector that learns from arrays; `classes_[1]` is "truthful"."""

    def __init__(
        self,
        detector: str = "probe",
        columns: Mapping[str, Sequence[int]] | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.detector = detector
        self.columns = columns
        self.seed = seed
        self.device = device

    def fit(
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> "DetectorClassifier":
        """Learns from all rows; grouped inner folds choose strengths and calibrate. Rows of one group stay together."""
        values, targets = validate_data(self, X, y)
        check_classification_targets(targets)
        self.classes_ = np.unique(targets)
        if len(self.classes_) != 2:
            kinds = "only 1 class" if len(self.classes_) == 1 else f"{len(self.classes_)} classes"
            raise ValueError(
                f"A detector tells two classes apart, and y has {kinds}; Only binary classification is "
                f"supported. The type of the target is {_kind(self.classes_)}."
            )
        labels = targets == self.classes_[1]
        n = len(values)
        weights = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if weights.shape != (n,) or (weights < 0).any():
            raise ValueError(f"sample_weight has shape {weights.shape} for {n} rows, or holds a negative weight.")
        if not weights.any():
            raise ValueError("Sample weights must contain at least one non-zero number.")
        own = np.arange(n) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
        names = [str(place) for place in range(n)]
        examples = Examples(labels, own.astype(np.int64), [None] * n, names, weights)
        training = whole_set(examples, self.seed, "estimator")
        data = TrainingData(self._features(values), training, _SITE, torch.device(self.device))
        fits = DetectorFits(data, Texts(examples.relations, [[] for _ in names], examples.groups))
        missing = fits.missing(self.detector)
        if missing is not None:
            raise ValueError(f"The detector {self.detector!r} cannot be fitted here: {missing}; name its columns.")
        found = fits.fit(self.detector)
        if found.build is None:
            raise ValueError(f"The detector {self.detector!r} is a control that can be compared, but not used.")
        scale = calibrated(found.scores, training)
        self.fitted_ = found.build(0)
        self.slope_, self.intercept_ = float(scale.weight[0, INNER_FOLDS, 0]), float(scale.bias[0, INNER_FOLDS])
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Calibrated log-odds of `classes_[1]`."""
        check_is_fitted(self)
        values = validate_data(self, X, reset=False)
        return self.slope_ * self.fitted_.log_odds(self._features(values)) + self.intercept_

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of both classes."""
        positive = 1 / (1 + np.exp(-self.decision_function(X)))
        return np.stack([1 - positive, positive], axis=1)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likelier class."""
        above = self.decision_function(X) > 0
        return self.classes_[above.astype(int)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _features(self, values: NDArray[np.float64]) -> Features:
        """The array's columns under the names of runs and numbers."""
        given = {CLEAN: range(values.shape[1])} if self.columns is None else self.columns
        states, plain = {}, {}
        for name, places in given.items():
            chosen = np.ascontiguousarray(values[:, list(places)])
            if name in CONFIDENCE or "_" in name:
                plain[name] = chosen[:, 0]
            else:
                states[name, _SITE, _LAYER] = torch.from_numpy(chosen).float()
        return Features(len(values), states, plain)


def _kind(classes: NDArray[Any]) -> str:
    return "multiclass" if len(classes) > 2 else "unary"
