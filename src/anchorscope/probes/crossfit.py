"""Probes for every layer and fold at one site and position, each only ever scoring items whose group it never saw.

Three probes per fold: `full` learns from all other folds; the other folds' groups are also split in halves, from which
`a` and `b` learn, so that one can assign pathways while the other measures. Each chooses its own strength by the
log-loss of grouped inner folds, and its own reference layer by the inner folds' AUC: neither is chosen on the scores
it reports.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.errors import UserError
from anchorscope.probes.folds import grouped_folds
from anchorscope.probes.logistic import TrainingSets, fit_layer
from anchorscope.progress import Progress, Silent
from anchorscope.stats.auc import auc

PROBES = ("full", "a", "b")
"""Names of the probes of a fold."""
STRENGTHS = tuple(float(c) for c in np.logspace(-6, -1, 8))
"""Inverse regularisation strengths (scikit-learn's C) to choose from: states are wide and items few, so that weak
ones overfit (on the embedded model's states, at seven layers of every site, none above 0.04 was ever chosen)."""
INNER_FOLDS = 3
"""Inner folds that choose strength and reference layer."""
MIN_PER_CLASS = 30
"""True and false answers needed: below that an inner training half holds fewer than ten of each."""


@dataclass(frozen=True)
class Splits:
    """Who learns from what; the same for every layer, site and position of a dataset."""

    labels: NDArray[np.bool_]
    folds: NDArray[np.int64]
    """Outer fold of each item."""
    training: NDArray[np.bool_]
    """Items that each probe of each fold learns from, [probe, fold, item]."""
    inner: NDArray[np.int64]
    """Inner fold of each training item, [probe, fold, item]; -1 elsewhere."""
    probes: tuple[str, ...]


@dataclass(frozen=True)
class ProbeSet:
    """Fitted probes of one site and position, acting on raw states."""

    weight: Tensor
    """[probe, fold, layer, d_model]."""
    bias: Tensor
    """[probe, fold, layer]."""
    strength: NDArray[np.float64]
    """Chosen C, [probe, fold, layer]."""
    inner_auc: NDArray[np.float64]
    """AUC on the inner folds at that strength, [probe, fold, layer]."""
    unconverged: tuple[str, ...]
    """Names of probes whose solver did not reach its tolerance."""

    @property
    def reference(self) -> NDArray[np.int64]:
        """The reference layer l* of each probe and fold, [probe, fold]."""
        return np.argmax(self.inner_auc, axis=-1)


def make_splits(
    labels: NDArray[np.bool_],
    groups: NDArray[np.integer],
    folds: NDArray[np.int64],
    seed: int,
    probes: tuple[str, ...] = PROBES,
) -> Splits:
    """Halves and inner folds for given outer folds."""
    n_folds, n = int(folds.max()) + 1, len(labels)
    training = np.zeros((len(probes), n_folds, n), dtype=bool)
    inner = np.full((len(probes), n_folds, n), -1, dtype=np.int64)
    for fold in range(n_folds):
        rng = np.random.default_rng([seed, fold])
        others = np.flatnonzero(folds != fold)
        half = grouped_folds(groups[others], labels[others], 2, rng)
        for place, probe in enumerate(probes):
            learns = others if probe == "full" else others[half == (0 if probe == "a" else 1)]
            training[place, fold, learns] = True
            inner[place, fold, learns] = grouped_folds(groups[learns], labels[learns], INNER_FOLDS, rng)
    splits = Splits(labels=labels, folds=folds, training=training, inner=inner, probes=probes)
    _refuse_one_sided(splits, len(np.unique(groups)))
    return splits


def _refuse_one_sided(splits: Splits, n_groups: int) -> None:
    """Every set that is learned from or scored needs true and false answers; too few groups cannot give them."""
    held_out = splits.inner[:, :, None, :] == np.arange(INNER_FOLDS)[:, None]
    learned = splits.training[:, :, None, :] & ~held_out
    folds = splits.folds == np.arange(splits.training.shape[1])[:, None]
    sets = np.concatenate([part.reshape(-1, len(splits.labels)) for part in (held_out, learned, folds)])
    if not ((sets & splits.labels).any(axis=1) & (sets & ~splits.labels).any(axis=1)).all():
        raise UserError(
            f"The {len(splits.labels)} used items fall into {n_groups} groups, too few for {len(folds)} folds with "
            f"true and false answers on every side; ask more questions (--limit), or use another --group-by."
        )


def fit_probes(states: Tensor, splits: Splits, name: str, progress: Progress | None = None) -> ProbeSet:
    """All probes on states [layer, item, d_model]; `name` tells them apart in warnings."""
    listener = progress or Silent()
    listener.start(f"probes {name}", len(states))
    shape = splits.training.shape[:2]
    weight = torch.empty(*shape, len(states), states.shape[-1])
    bias = torch.empty(*shape, len(states))
    strength, inner_auc = np.empty((*shape, len(states))), np.empty((*shape, len(states)))
    unconverged: list[str] = []
    for layer, layer_states in enumerate(states):
        chosen, inner_auc[..., layer] = _choose(layer_states, splits)
        strength[..., layer] = np.array(STRENGTHS)[chosen]
        sets = _columns(
            splits, splits.training.reshape(-1, len(splits.labels)), strength[..., layer].reshape(-1), states
        )
        fit = fit_layer(layer_states, sets)
        weight[:, :, layer] = fit.weight.T.reshape(*shape, -1).cpu()
        bias[:, :, layer] = fit.bias.reshape(shape).cpu()
        for column in (~fit.converged).nonzero()[:, 0].tolist():
            probe, fold = divmod(column, shape[1])
            unconverged.append(f"{name} layer {layer} probe {splits.probes[probe]} fold {fold}")
        listener.advance(1)
    listener.finish()
    return ProbeSet(weight, bias, strength, inner_auc, tuple(unconverged))


def _columns(splits: Splits, members: NDArray[np.bool_], strengths: NDArray[np.float64], like: Tensor) -> TrainingSets:
    """Training sets whose scaling is that of their probe and fold; `members` is [column, item], grouped by scaling."""
    scaled_on = splits.training.reshape(-1, len(splits.labels))
    return TrainingSets(
        labels=torch.as_tensor(splits.labels, device=like.device),
        members=torch.as_tensor(members.T.copy(), device=like.device),
        scaled_on=torch.as_tensor(scaled_on.T.copy(), device=like.device),
        scaling=torch.arange(len(scaled_on), device=like.device).repeat_interleave(len(members) // len(scaled_on)),
        strengths=torch.as_tensor(strengths, device=like.device),
    )


def _choose(states: Tensor, splits: Splits) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Index of the best strength and its inner AUC, per probe and fold."""
    n_probes, n_folds, n = splits.training.shape
    inner = np.arange(INNER_FOLDS)
    held_out = splits.inner[:, :, None, :] == inner[:, None]  # [probe, fold, inner, item]
    learned = splits.training[:, :, None, :] & ~held_out
    members = np.repeat(learned.reshape(-1, n), len(STRENGTHS), axis=0)
    strengths = np.tile(STRENGTHS, len(members) // len(STRENGTHS))
    logits = fit_layer(states, _columns(splits, members, strengths, states)).logits.T.cpu().numpy()
    logits = logits.reshape(n_probes, n_folds, INNER_FOLDS, len(STRENGTHS), n)
    loss = np.logaddexp(0, np.where(splits.labels, -logits, logits))
    held_loss = np.einsum("pfisn,pfin->pfs", loss, held_out.astype(loss.dtype))
    chosen = held_loss.argmin(axis=-1)
    scores = np.empty((n_probes, n_folds))
    for probe in range(n_probes):
        for fold in range(n_folds):
            rows = splits.training[probe, fold]
            places = splits.inner[probe, fold, rows]
            row_logits = logits[probe, fold, :, chosen[probe, fold]][:, rows]
            scores[probe, fold] = auc(row_logits[places, np.arange(len(places))], splits.labels[rows], places)
    return chosen, scores
