"""A linear probe at every layer, kept in a bundle beside its detector: what the key words of one question do, by layer.

They are the run's probes: fitted at the detector's site and position on the clean states of all training items, the
strength chosen by grouped inner folds. What is told of them comes from other fits, which leave a fold of the items out
and score it: the AUC, the mean log-odds of true and of false answers, and, where states under the knockout were kept,
what the cut does to the answers of training on average. A single answer is read against these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.special import expit
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.detectors.features import CLEAN, Features
from anchorscope.detectors.fitted import Stored
from anchorscope.detectors.training import Examples
from anchorscope.engine.sequences import SITES
from anchorscope.probes.crossfit import Scorer, fit_final_probes, fit_probes, make_splits, score_states
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.stats.auc import auc
from anchorscope.stats.streams import priorities

FOLDS = 5
"""Folds that are left out in turn, for what is told of the probes."""
_BY_LAYER = ("bias", "strength", "auc")
_BY_CLASS = ("means", "cut_means", "delta_p")

PerClass = Float[np.ndarray, "2 layer"]
"""A number of the false answers, then of the true ones, at every layer."""


@dataclass(frozen=True)
class LayerProbes:
    """Probes of one site at the detector's position."""

    site: str
    layers: tuple[int, ...]
    """The layers that have one, in order: all of them, unless a bundle had no room."""
    weight: Float[Tensor, "layer d_model"]
    bias: Float[np.ndarray, " layer"]
    strength: Float[np.ndarray, " layer"]
    """Chosen C."""
    auc: Float[np.ndarray, " layer"]
    """Out of fold, within folds."""
    means: PerClass
    """Mean log-odds, out of fold."""
    n_items: int
    """Answers that taught them."""
    n_true: int
    cut_means: PerClass | None = None
    """The same under the knockout; None where its states were not kept."""
    delta_p: PerClass | None = None
    """Mean change of the probability of "truthful" under the knockout, in percentage points."""

    @property
    def reference(self) -> int:
        """The place of the layer with the highest AUC."""
        return int(np.argmax(self.auc))

    def log_odds(self, states: Float[Tensor, "layer item d_model"]) -> Float[np.ndarray, "layer item"]:
        """Of states at the probes' layers; summed in float64, so that an item alone is scored as in a batch."""
        weight = self.weight.to(states.device, torch.double)
        return (states.double() @ weight[:, :, None])[..., 0].cpu().numpy() + self.bias[:, None]

    def thinned(self, step: int) -> "LayerProbes":
        """Every so-many-th layer, the last one among them."""
        places = list(range(len(self.layers) - 1, -1, -step))[::-1]
        own: dict[str, Any] = {name: getattr(self, name)[places] for name in _BY_LAYER}
        for name in _BY_CLASS:
            found = getattr(self, name)
            own[name] = None if found is None else found[:, places]
        return replace(self, layers=tuple(self.layers[at] for at in places), weight=self.weight[places], **own)

    def stored(self) -> Stored:
        """Its weights, and all else as plain values."""
        values: dict[str, Any] = {
            "site": self.site,
            "layers": list(self.layers),
            "n_items": self.n_items,
            "n_true": self.n_true,
        }
        for name in (*_BY_LAYER, *_BY_CLASS):
            found = getattr(self, name)
            values[name] = None if found is None else found.tolist()
        return {"weight": self.weight.float()}, values

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "LayerProbes":
        """The probes of what was stored; raises ValueError where parts do not fit each other."""
        layers, weight = tuple(int(layer) for layer in values["layers"]), tensors["weight"]
        own = {name: _array(values[name]) for name in (*_BY_LAYER, *_BY_CLASS)}
        n = len(layers)
        shapes = [own[name] is not None and own[name].shape == (n,) for name in _BY_LAYER]  # type: ignore[union-attr]
        shapes += [own[name] is None or own[name].shape == (2, n) for name in _BY_CLASS]  # type: ignore[union-attr]
        if not all(shapes) or own["means"] is None or weight.dim() != 2 or len(weight) != n or n == 0:
            raise ValueError("the probes of its layers do not fit each other")
        if str(values["site"]) not in SITES or list(layers) != sorted(set(layers)) or layers[0] < 0:
            raise ValueError("the probes of its layers read no layers of a model")
        known: Any = own
        return cls(
            site=str(values["site"]),
            layers=layers,
            weight=weight.float(),
            n_items=int(values["n_items"]),
            n_true=int(values["n_true"]),
            **known,
        )


def _array(values: Any) -> Float[np.ndarray, "..."] | None:
    found = None if values is None else np.asarray(values, dtype=np.float64)
    if found is not None and not np.isfinite(found).all():
        raise ValueError("a number of the probes of its layers is none")
    return found


def fit_layer_probes(
    features: Features, examples: Examples, site: str, seed: int = 0, device: str | torch.device = "cpu"
) -> LayerProbes:
    """Probes of every layer whose clean states are here; raises UserError where items are too few for the folds."""
    layers = tuple(sorted(layer for run, place, layer in features.states if run == CLEAN and place == site))
    strata = truth_strata(examples.labels, examples.relations)
    outer = grouped_folds(examples.groups, strata, FOLDS, priorities(seed, "layer probes folds", examples.item_ids))
    splits = make_splits(
        examples.labels, examples.groups, outer, seed, ("full",), examples.item_ids, examples.relations
    )
    clean = _stacked(features, CLEAN, site, layers)
    (crossed,) = fit_probes(clean, splits, [site], device)
    scorer = Scorer([[crossed]], outer, torch.device(device))
    before = score_states(scorer, clean[None])[:, 0, 0, 0].T.astype(np.float64)
    order = priorities(seed, "layer probes", examples.item_ids)
    (final,) = fit_final_probes(clean, strata, examples.groups, [site], order, device)
    found = LayerProbes(
        site=site,
        layers=layers,
        weight=final.weight.float(),
        bias=final.bias.double().numpy(),
        strength=np.asarray(final.strength, dtype=np.float64),
        auc=auc(before, examples.labels, outer),
        means=_per_class(before, examples.labels),
        n_items=examples.n_items,
        n_true=int(examples.labels.sum()),
    )
    if not all((KNOCKOUT, site, layer) in features.states for layer in layers):
        return found
    cut = score_states(scorer, _stacked(features, KNOCKOUT, site, layers)[None])[:, 0, 0, 0].T.astype(np.float64)
    moved = 100 * (expit(cut) - expit(before))
    return replace(found, cut_means=_per_class(cut, examples.labels), delta_p=_per_class(moved, examples.labels))


def _stacked(features: Features, run: str, site: str, layers: Sequence[int]) -> Float[Tensor, "1 layer item d_model"]:
    return torch.stack([features.states[run, site, layer] for layer in layers])[None]


def _per_class(values: Float[np.ndarray, "layer item"], labels: Bool[np.ndarray, " item"]) -> PerClass:
    return np.stack([values[:, ~labels].mean(axis=1), values[:, labels].mean(axis=1)])
