"""Probes for every layer, fold, site and position, each only ever scoring items whose group it never saw.

Three probes per fold: `full` learns from all other folds; the other folds' groups are also split in halves, from which
`a` and `b` learn, so that one can assign pathways while the other measures. Each chooses its own strength by the
log-loss of grouped inner folds, and its own reference layer by the inner folds' AUC: neither is chosen on the scores
it reports.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from anchorscope.errors import UserError
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.probes.grid_search import INNER_FOLDS as INNER_FOLDS
from anchorscope.probes.grid_search import STRENGTHS as STRENGTHS
from anchorscope.probes.grid_search import grid_search
from anchorscope.progress import Progress
from anchorscope.stats.streams import priorities

PROBES = ("full", "a", "b")
"""Names of the probes of a fold."""


@dataclass(frozen=True)
class Splits:
    """Who learns from what; the same for every layer, site and position of a dataset."""

    labels: Bool[np.ndarray, " item"]
    strata: Int[np.ndarray, " item"]
    """Relation and label of each item as one number: all splits spread each of these evenly (`folds.truth_strata`)."""
    folds: Int[np.ndarray, " item"]
    """Outer fold of each item."""
    training: Bool[np.ndarray, "probe fold item"]
    """Items that each probe of each fold learns from."""
    inner: Int[np.ndarray, "probe fold item"]
    """Inner fold of each training item; -1 elsewhere."""
    probes: tuple[str, ...]


@dataclass(frozen=True)
class ProbeSet:
    """Fitted probes of one site and position, acting on raw states."""

    weight: Float[Tensor, "probe fold layer d_model"]
    bias: Float[Tensor, "probe fold layer"]
    strength: Float[np.ndarray, "probe fold layer"]
    """Chosen C."""
    inner_auc: Float[np.ndarray, "probe fold layer"]
    """AUC on the inner folds at that strength."""
    unconverged: tuple[str, ...]
    """Names of probes whose solver did not reach its tolerance."""
    notes: tuple[str, ...] = ()
    """What a reader of the results should know: where memory ran out and chunks became smaller than planned."""

    @property
    def reference(self) -> Int[np.ndarray, "probe fold"]:
        """The reference layer l* of each probe and fold."""
        return np.argmax(self.inner_auc, axis=-1)


def make_splits(
    labels: Bool[np.ndarray, " item"],
    groups: Int[np.ndarray, " item"],
    folds: Int[np.ndarray, " item"],
    seed: int,
    probes: tuple[str, ...] = PROBES,
    item_ids: Sequence[str] | None = None,
    relations: Sequence[str | None] | None = None,
) -> Splits:
    """Halves and inner folds for given outer folds; items are drawn by their names, or by their places without any.

    Labels are spread evenly over every split, within each relation where relations are known.
    """
    ids = [str(place) for place in range(len(labels))] if item_ids is None else item_ids
    n_folds, n, strata = int(folds.max()) + 1, len(labels), truth_strata(labels, relations)
    training = np.zeros((len(probes), n_folds, n), dtype=bool)
    inner = np.full((len(probes), n_folds, n), -1, dtype=np.int64)
    for fold in range(n_folds):
        others = np.flatnonzero(folds != fold)
        half = grouped_folds(groups[others], strata[others], 2, priorities(seed, f"halves {fold}", ids)[others])
        for place, probe in enumerate(probes):
            learns = others if probe == "full" else others[half == (0 if probe == "a" else 1)]
            training[place, fold, learns] = True
            order = priorities(seed, f"inner {probe} {fold}", ids)[learns]
            inner[place, fold, learns] = grouped_folds(groups[learns], strata[learns], INNER_FOLDS, order)
    splits = Splits(labels=labels, strata=strata, folds=folds, training=training, inner=inner, probes=probes)
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


def fit_probes(
    states: Shaped[Tensor, "place layer item d_model"],
    splits: Splits,
    names: Sequence[str],
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    memory: int | None = None,
) -> list[ProbeSet]:
    """All probes on the states, one set per place; `names` tell the places apart in warnings.

    States may be in host memory and in any precision: they come to the device chunk by chunk. `memory` limits what one
    chunk takes there, in bytes.
    """
    assert len(names) == len(states), f"{len(names)} names for {len(states)} places"
    title = f"probes {names[0]}" if len(names) == 1 else "probes"
    shape = splits.training.shape[:2]
    training, inner = (part.reshape(-1, len(splits.labels)) for part in (splits.training, splits.inner))
    found, notes = grid_search(states, splits.labels, training, inner, torch.device(device), progress, title, memory)
    training_sets = [f"probe {probe} fold {fold}" for probe in splits.probes for fold in range(shape[1])]
    sets = []
    for name, one in zip(names, found, strict=True):
        weight, bias, strength, inner_auc = (
            part.movedim(0, 1).unflatten(0, shape).contiguous()
            for part in (one.weight, one.bias, one.strength, one.inner_auc)
        )
        unconverged = one.unconverged(name, training_sets)
        sets.append(ProbeSet(weight, bias, strength.numpy(), inner_auc.numpy(), unconverged, notes))
    return sets


def refit_logits(
    intervention: str,
    states: Float[Tensor, "layer item d_model"],
    splits: Splits,
    progress: Progress,
    device: str | torch.device = "cpu",
) -> Float[np.ndarray, "layer item"]:
    """Out-of-fold log-odds [layer, item] of probes trained, on the device, on the states under an intervention."""
    only_full = replace(splits, training=splits.training[:1], inner=splits.inner[:1], probes=splits.probes[:1])
    (fitted,) = fit_probes(states[None], only_full, [f"refit {intervention}"], device, progress)
    scores = [
        layer.float() @ weight.T + bias  # [item, fold]
        for layer, weight, bias in zip(states, fitted.weight[0].movedim(1, 0), fitted.bias[0].T, strict=True)
    ]
    own = torch.as_tensor(splits.folds)[:, None].expand(len(scores), -1, 1)
    return torch.stack(scores).gather(2, own)[..., 0].numpy()
