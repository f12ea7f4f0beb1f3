"""Probes for every layer, fold, site and position, each only ever scoring items whose group it never saw.

Three probes per fold: `full` learns from all other folds; the other folds' groups are also split in halves, from which
`a` and `b` learn, so that one can assign pathways while the other measures. Each chooses its own strength by the
log-loss of grouped inner folds, and its own reference layer by the inner folds' AUC: neither is chosen on the scores
it reports.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.errors import UserError
from anchorscope.models.process_settings import true_float32
from anchorscope.probes.choosing import choose, held_out_tables
from anchorscope.probes.coordinates import prepare
from anchorscope.probes.folds import grouped_folds
from anchorscope.probes.logistic import TrainingSets, solve
from anchorscope.probes.room import find_room, in_chunks
from anchorscope.progress import Progress, Silent

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


def fit_probes(
    states: Tensor,
    splits: Splits,
    names: Sequence[str],
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    memory: int | None = None,
) -> list[ProbeSet]:
    """All probes on states [place, layer, item, d_model], one set per place; `names` tell the places apart in warnings.

    States may be in host memory and in any precision: they come to the device chunk by chunk. `memory` limits what is
    used there, in bytes.
    """
    listener = progress or Silent()
    n_places, n_layers = states.shape[:2]
    assert len(names) == n_places, f"{len(names)} names for {n_places} places"
    listener.start(f"probes {names[0]}" if n_places == 1 else "probes", n_places * n_layers)
    fitter = _Fitter(states.flatten(0, 1), splits, torch.device(device), memory)
    found = []
    with true_float32():
        for _, chunk in in_chunks(fitter.states, fitter.room, fitter.device, fitter.fit):
            found.append(chunk)
            listener.advance(len(chunk.bias))
    listener.finish()
    whole = _Fitted(*(torch.cat(parts).unflatten(0, (n_places, n_layers)) for parts in zip(*found, strict=True)))
    return [_probe_set(_Fitted(*(part[place] for part in whole)), splits, name) for place, name in enumerate(names)]


class _Fitted(NamedTuple):
    """Probes of some problems in host memory, [problem, training set, …]."""

    weight: Tensor
    bias: Tensor
    strength: Tensor
    inner_auc: Tensor
    converged: Tensor
    inner_converged: Tensor
    """Whether all fits of the inner folds were."""


class _Fitter:
    """Both stages for a chunk of problems: inner folds choose the strengths, then all training items teach."""

    def __init__(self, states: Tensor, splits: Splits, device: torch.device, memory: int | None) -> None:
        n_items = len(splits.labels)
        scaled_on = splits.training.reshape(-1, n_items)
        inner = splits.inner.reshape(-1, n_items)
        learned = scaled_on[:, None, :] & (inner[:, None, :] != np.arange(INNER_FOLDS)[:, None])
        members = np.repeat(learned.reshape(-1, n_items), len(STRENGTHS), axis=0)
        self.states, self.device = states, device
        self.choices = torch.tensor(STRENGTHS, dtype=torch.double, device=device)
        final = TrainingSets(
            labels=torch.as_tensor(splits.labels),
            members=torch.as_tensor(scaled_on),
            scaled_on=torch.as_tensor(scaled_on),
            scaling=torch.arange(len(scaled_on)),
            strengths=torch.empty(0),  # what the first stage chooses
        )
        first = replace(
            final,
            members=torch.as_tensor(members),
            scaling=torch.arange(len(scaled_on)).repeat_interleave(INNER_FOLDS * len(STRENGTHS)),
            strengths=torch.tensor(STRENGTHS).repeat(len(members) // len(STRENGTHS)),
        )
        self.final, self.first = final.to(device), first.to(device)
        self.held_out = held_out_tables(inner, splits.labels, INNER_FOLDS, device)
        self.room = find_room(states, len(members), device, memory)

    @torch.no_grad()
    def fit(self, states: Tensor) -> _Fitted:
        known = prepare(states, self.final.scaled_on, self.room.items)
        first = solve(known, self.first, self.room.columns)
        chosen, inner_auc = choose(first.logits.unflatten(1, (-1, INNER_FOLDS, len(STRENGTHS))), self.held_out)
        inner_converged = first.converged.unflatten(1, (-1, INNER_FOLDS * len(STRENGTHS))).all(-1)
        del first
        strength = self.choices[chosen]
        found = solve(known, replace(self.final, strengths=strength), self.room.columns)
        weight, bias = known.to_raw(found.weight, found.intercept, self.final.scaling)
        return _Fitted(
            *(part.cpu() for part in (weight, bias, strength, inner_auc, found.converged, inner_converged))
        )


def _probe_set(fitted: _Fitted, splits: Splits, name: str) -> ProbeSet:
    """The probes of one place, from [layer, training set, …]."""
    shape = splits.training.shape[:2]
    weight, bias, strength, inner_auc = (
        part.movedim(0, 1).unflatten(0, shape).contiguous() for part in fitted[:4]
    )  # fmt: skip
    unconverged = []
    for what, converged in (("", fitted.converged), (" (inner folds)", fitted.inner_converged)):
        for layer, place in (~converged).nonzero().tolist():
            probe, fold = divmod(place, shape[1])
            unconverged.append(f"{name} layer {layer} probe {splits.probes[probe]} fold {fold}{what}")
    return ProbeSet(weight, bias, strength.numpy(), inner_auc.numpy(), tuple(unconverged))
