"""Probes for every layer, fold, site and position, each only scoring items whose group it never saw.

A fold's probe learns from all other folds. It chooses its strength by the log-loss of grouped inner folds, and its
reference layer by their AUC.

The null (`permuted_areas`): labels are permuted within strata, such as folds and relations, so that what a probe gains
from telling strata apart it also gains under the null. Every probe is fitted again, at the strength that the real
labels chose.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.errors import TooFewAnswers, counted
from anchorscope.models.devices import to_device
from anchorscope.models.process_settings import true_float32
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.probes.grid_search import INNER_FOLDS, grid_search
from anchorscope.probes.logistic import TrainingSets, fit_layers
from anchorscope.progress import Progress
from anchorscope.stats.auc import auc
from anchorscope.stats.streams import priorities


@dataclass(frozen=True)
class Splits:
    """Which items each probe learns from; the same for every layer, site and position of a dataset."""

    labels: Bool[np.ndarray, " item"]
    strata: Int[np.ndarray, " item"]
    """Relation and label of each item as one number: all splits spread each of these evenly (`folds.truth_strata`)."""
    folds: Int[np.ndarray, " item"]
    training: Bool[np.ndarray, "fold item"]
    """Items that each fold's probe learns from."""
    inner: Int[np.ndarray, "fold item"]
    """Inner fold of each training item; -1 elsewhere."""


@dataclass(frozen=True)
class ProbeSet:
    """Fitted probes of one site and position, acting on raw states."""

    weight: Float[Tensor, "fold layer d_model"]
    bias: Float[Tensor, "fold layer"]
    strength: Float[np.ndarray, "fold layer"]
    inner_auc: Float[np.ndarray, "fold layer"]
    unconverged: tuple[str, ...]
    """Names of probes whose solver didn't converge."""
    notes: tuple[str, ...] = ()
    """For readers of the results: where memory ran out and chunks became smaller than planned."""

    @property
    def reference(self) -> Int[np.ndarray, " fold"]:
        """The reference layer l* of each fold."""
        return np.argmax(self.inner_auc, axis=-1)


def make_splits(
    labels: Bool[np.ndarray, " item"],
    groups: Int[np.ndarray, " item"],
    folds: Int[np.ndarray, " item"],
    seed: int,
    item_ids: Sequence[str] | None = None,
    relations: Sequence[str | None] | None = None,
) -> Splits:
    """Inner folds for given outer folds; labels are spread evenly over each, within relations if known."""
    ids = [str(index) for index in range(len(labels))] if item_ids is None else item_ids
    strata = truth_strata(labels, relations)
    training = folds != np.arange(folds.max() + 1)[:, None]
    inner = np.full(training.shape, -1, dtype=np.int64)
    for fold, learns in enumerate(training):
        order = priorities(seed, f"inner full {fold}", ids)[learns]
        inner[fold, learns] = grouped_folds(
            groups[learns], strata[learns], INNER_FOLDS, order
        )
    splits = Splits(
        labels=labels, strata=strata, folds=folds, training=training, inner=inner
    )
    _refuse_one_sided(splits, len(np.unique(groups)))
    return splits


def _refuse_one_sided(splits: Splits, n_groups: int) -> None:
    """Every set that is learned from or scored needs true and false answers."""
    held_out = splits.inner[:, None] == np.arange(INNER_FOLDS)[:, None]
    learned = splits.training[:, None] & ~held_out
    folds = splits.folds == np.arange(len(splits.training))[:, None]
    sets = np.concatenate(
        [part.reshape(-1, len(splits.labels)) for part in (held_out, learned, folds)]
    )
    if not (
        (sets & splits.labels).any(axis=1) & (sets & ~splits.labels).any(axis=1)
    ).all():
        raise TooFewAnswers(
            f"The {len(splits.labels)} used items fall into {counted(n_groups, 'group')}, too few for folds "
            f"with true and false answers on every side; ask more questions (--limit), or use another --group-by."
        )


def fit_probes(
    states: Shaped[Tensor, "place layer item d_model"],
    splits: Splits,
    names: Sequence[str],
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> list[ProbeSet]:
    """All probes on the states, one set per site and position; `names` tell these apart in warnings.

    States may be in host memory and in any precision.
    """
    assert len(names) == len(states), f"{len(names)} names for {len(states)} places"
    title = f"probes {names[0]}" if len(names) == 1 else "probes"
    searched, notes = grid_search(
        states,
        splits.labels,
        splits.training,
        splits.inner,
        torch.device(device),
        progress,
        title,
    )
    training_sets = [f"fold {fold}" for fold in range(len(splits.training))]
    sets = []
    for name, search in zip(names, searched, strict=True):
        weight, bias, strength, inner_auc = (
            part.movedim(0, 1).contiguous()
            for part in (search.weight, search.bias, search.strength, search.inner_auc)
        )
        unconverged = search.unconverged(name, training_sets)
        sets.append(
            ProbeSet(
                weight, bias, strength.numpy(), inner_auc.numpy(), unconverged, notes
            )
        )
    return sets


def refit_logits(
    intervention: str,
    states: Float[Tensor, "layer item d_model"],
    splits: Splits,
    progress: Progress,
    device: str | torch.device = "cpu",
) -> Float[np.ndarray, "layer item"]:
    """Out-of-fold log-odds [layer, item] of probes trained, on the device, on the states under an intervention."""
    (fitted,) = fit_probes(
        states[None], splits, [f"refit {intervention}"], device, progress
    )
    scores = [
        layer.float() @ weight.T + bias  # [item, fold]
        for layer, weight, bias in zip(
            states, fitted.weight.movedim(1, 0), fitted.bias.T, strict=True
        )
    ]
    own = torch.as_tensor(splits.folds)[:, None].expand(len(scores), -1, 1)
    return torch.stack(scores).gather(2, own)[..., 0].numpy()


_SCORED_AT_ONCE = 64  # items whose clean states are on the device together
_VALUES_AT_ONCE = 2**26  # states that are widened to float32 together


class Scorer:
    """The cross-fitted probes of all sites and positions of a dataset, ready to score batches out of fold.

    Every state meets the probes of all folds in one batched product, and each item keeps those of its own fold: cheaper
    than sorting items by fold or fetching weights per item.
    """

    def __init__(
        self,
        probe_sets: Sequence[Sequence[ProbeSet]],
        folds: Int[np.ndarray, " item"],
        device: torch.device,
    ) -> None:
        """`probe_sets` is [position][site]; `folds` gives each item's own fold, whose probes never saw its group."""
        weight = torch.stack(
            [torch.stack([probes.weight for probes in row]) for row in probe_sets]
        )
        bias = torch.stack(
            [torch.stack([probes.bias for probes in row]) for row in probe_sets]
        )
        self._shape = bias.shape  # position, site, fold, layer
        # [position · site · layer, fold, d_model]: one problem per kind of state.
        self.weight = weight.movedim(3, 2).flatten(0, 2).contiguous().to(device)
        self.bias = bias.movedim(3, 2).flatten(0, 2).contiguous().to(device)
        self.folds = torch.as_tensor(folds, device=device)

    def for_folds(self, folds: Int[np.ndarray, " item"]) -> "Scorer":
        other = copy.copy(self)
        other.folds = to_device(torch.as_tensor(folds), self.weight.device)
        return other

    @torch.no_grad()
    def score(
        self,
        items: Sequence[int],
        states: Float[Tensor, "batch position site layer d_model"],
    ) -> Float[Tensor, "batch position site layer"]:
        """Log-odds of states, each item's by the probes of its own fold."""
        n_positions, n_sites, n_folds, n_layers = self._shape
        flat = states.flatten(1, 3).transpose(0, 1)
        at_once = max(1, _VALUES_AT_ONCE // flat[0].numel())
        parts = zip(
            flat.split(at_once),
            self.weight.split(at_once),
            self.bias.split(at_once),
            strict=True,
        )
        with true_float32():
            log_odds = [
                torch.baddbmm(bias[:, None], part.float(), weight.transpose(1, 2))
                for part, weight, bias in parts
            ]
        scores = torch.cat(log_odds).view(
            n_positions, n_sites, n_layers, len(items), n_folds
        )
        own = self.folds[to_device(torch.as_tensor(list(items)), states.device)]
        index = own[:, None].expand(*scores.shape[:-1], 1)
        return scores.gather(-1, index)[..., 0].permute(3, 0, 1, 2).contiguous()


def score_states(
    scorer: Scorer, states: Float[Tensor, "position site layer item d_model"]
) -> Float[np.ndarray, "item position site layer"]:
    device = scorer.weight.device
    scores = []
    for start in range(0, states.shape[-2], _SCORED_AT_ONCE):
        part = (
            states[..., start : start + _SCORED_AT_ONCE, :]
            .to(device)
            .permute(3, 0, 1, 2, 4)
        )
        scores.append(scorer.score(range(start, start + len(part)), part))
    return torch.cat(scores).cpu().numpy()


def score_clean(
    states: Float[Tensor, "position site layer item d_model"],
    probe_sets: Sequence[Sequence[ProbeSet]],
    folds: Int[np.ndarray, " item"],
    device: str | torch.device,
    progress: Progress,
) -> Float[np.ndarray, "item position site layer"]:
    """The same by probe sets [position][site] that are not on the device yet."""
    progress.start("score clean states", 1)
    scores = score_states(Scorer(probe_sets, folds, torch.device(device)), states)
    progress.advance(1)
    progress.finish()
    return scores


Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

PERMUTATIONS = 199
"""Of truth labels: the 95 % range then leaves out five on either side."""


def permute_within_strata(
    labels: Bools,
    strata: NDArray[np.integer],
    permutations: int,
    rng: np.random.Generator,
) -> Bools:
    """The labels, permuted among the items of each stratum, [permutation, item]."""
    permuted = np.repeat(labels[None], permutations, axis=0)
    for stratum in np.unique(strata):
        inside = np.flatnonzero(strata == stratum)
        permuted[:, inside] = rng.permuted(permuted[:, inside], axis=1)
    return permuted


def null_scores(
    states: Tensor,
    splits: Splits,
    strength: Floats,
    labels: Bools,
    device: torch.device,
    progress: Progress,
) -> Floats:
    """Out-of-fold log-odds [permutation, layer, item] of probes that learn permuted labels [permutation, item].

    `states` are [layer, item, d_model]; `strength` [layer, fold].
    """
    # The solver knows one label per item. So each item stands there twice, once with each label, and every permutation
    # learns from the one that it means: all of them are then columns of one problem.
    training = splits.training
    n_folds, n = training.shape
    learned = np.concatenate(
        [training & labels[:, None], training & ~labels[:, None]], axis=-1
    )
    scores = []
    for layer, chosen in zip(states, strength, strict=True):
        sets = TrainingSets(
            labels=torch.arange(2 * n) < n,
            members=torch.as_tensor(learned.reshape(-1, 2 * n)),
            scaled_on=torch.as_tensor(
                np.concatenate([training, np.zeros_like(training)], axis=-1)
            ),
            scaling=torch.arange(n_folds).repeat(len(labels)),
            strengths=torch.as_tensor(chosen).repeat(len(labels)),
        )
        fitted = fit_layers(torch.cat([layer, layer])[None], sets, device)
        logits = fitted.logits[0, :, :n].unflatten(0, (len(labels), n_folds))
        scores.append(logits[:, torch.as_tensor(splits.folds), torch.arange(n)])
        progress.advance(len(labels))
    return torch.stack(scores, dim=1).numpy()


def permuted_truth(splits: Splits, rng: np.random.Generator) -> Bools:
    """Truth labels permuted among the items of a fold and relation."""
    return permute_within_strata(splits.labels, _comparable(splits), PERMUTATIONS, rng)


def permuted_areas(
    states: Tensor,
    splits: Splits,
    reference: NDArray[np.int64],
    labels: Bools,
    device: str | torch.device,
    progress: Progress,
) -> Floats:
    """AUC [permutation] of probes that learn permuted labels, each fold read at its own reference layer."""
    device = torch.device(device)
    scores = np.empty(labels.shape)
    layers = np.unique(reference)
    progress.start("permuted labels", len(labels) * len(layers))
    for layer in layers:
        own = np.flatnonzero(reference == layer)
        # of no meaning for items of other folds
        fold_index = np.searchsorted(own, splits.folds).clip(max=len(own) - 1)
        fold_splits = replace(
            splits,
            folds=fold_index,
            training=splits.training[own],
            inner=splits.inner[own],
        )
        (chosen,) = fit_probes(
            states[[layer]][None],
            fold_splits,
            [f"permuted labels layer {layer}"],
            device,
        )
        null = null_scores(
            states[[layer]], fold_splits, chosen.strength.T, labels, device, progress
        )
        inside = np.isin(splits.folds, own)
        scores[:, inside] = null[:, 0, inside]
    progress.finish()
    return auc(scores, labels, splits.folds)


def _comparable(splits: Splits) -> NDArray[np.int64]:
    """Fold and relation of every item; relations with only one label in a fold are merged there."""
    relation = splits.strata // 2
    cell = splits.folds * (relation.max() + 2) + relation + 1
    _, cell_index = np.unique(cell, return_inverse=True)
    true, items = (
        np.bincount(cell_index, weights=splits.labels),
        np.bincount(cell_index),
    )
    return np.where(
        ((true > 0) & (true < items))[cell_index],
        cell,
        splits.folds * (relation.max() + 2),
    )


def share_at_least(value: float, null: Floats) -> float | None:
    """One-sided p-value: the share of permutations that reach the value, the real one included.

    Undefined permutations don't count; None if nothing remains to compare.
    """
    defined = null[np.isfinite(null)]
    if not len(defined) or not np.isfinite(value):
        return None
    return float((1 + (defined >= value).sum()) / (1 + len(defined)))
