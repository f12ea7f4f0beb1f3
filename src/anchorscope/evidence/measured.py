"""The used items of one dataset at one site and position, as all analyses see them: arrays, no model.

Effects come intervention by intervention; here they are put together place by place. Probes trained on the states under
an intervention (`refit`) are scored here too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.sequences import SITES
from anchorscope.evidence.effects import Effect
from anchorscope.probes.crossfit import ProbeSet, Splits, fit_probes
from anchorscope.progress import Progress


@dataclass(frozen=True)
class Measured:
    """Log-odds before and after every intervention."""

    labels: NDArray[np.bool_]
    groups: NDArray[np.int64]
    folds: NDArray[np.int64]
    probes: tuple[str, ...]
    """Names along the probe axis."""
    before: NDArray[np.floating]
    """Clean log-odds, [probe, layer, item]."""
    after: Mapping[str, NDArray[np.floating]]
    """Log-odds per intervention, [probe, layer, item of `ran`]."""
    ran: Mapping[str, NDArray[np.int64]]
    """Which items each intervention was run on."""
    n_cut: Mapping[str, NDArray[np.int64]]
    """Number of keys cut per intervention and item of `ran`."""
    reference: NDArray[np.int64]
    """Reference layer per probe and fold."""
    refits: Mapping[str, NDArray[np.floating]] = field(default_factory=dict)
    """Out-of-fold log-odds [layer, item] of probes trained on the states under an intervention, where there are any."""

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return int(self.before.shape[1])

    def probe(self, name: str) -> int:
        """Index of a probe."""
        return self.probes.index(name)


def probability(log_odds: NDArray[np.floating]) -> NDArray[np.floating]:
    """Probability of "truthful"; log-odds of any size are allowed."""
    return 0.5 * (1 + np.tanh(0.5 * log_odds))


def true_label_probability(log_odds: NDArray[np.floating], labels: NDArray[np.bool_]) -> NDArray[np.floating]:
    """Probability that the probe gives to the item's true label; items along the last axis."""
    return probability(np.where(labels, log_odds, -log_odds))


def measured_places(
    splits: Splits,
    groups: NDArray[np.int64],
    positions: Sequence[str],
    probe_sets: Mapping[str, ProbeSet],
    clean: NDArray[np.float32],
    effects: Sequence[Effect],
    refits: Mapping[str, NDArray[np.floating]] | None = None,
    headline: tuple[str, str] | None = None,
) -> dict[tuple[str, str], Measured]:
    """Log-odds per (site, position); `clean` is [item, position, site, probe, layer], `refits` are the headline's."""
    places = {}
    for q, position in enumerate(positions):
        for s, site in enumerate(SITES):
            places[site, position] = Measured(
                labels=splits.labels,
                groups=groups,
                folds=splits.folds,
                probes=splits.probes,
                before=clean[:, q, s].transpose(1, 2, 0),
                after={one.intervention: one.logits[:, q, s].transpose(1, 2, 0) for one in effects},
                ran={one.intervention: one.items for one in effects},
                n_cut={one.intervention: one.n_cut for one in effects},
                reference=probe_sets[f"{site}/{position}"].reference,
                refits=refits or {} if (site, position) == headline else {},
            )
    return places


def refit_logits(
    intervention: str,
    states: Float[Tensor, "layer item d_model"],
    splits: Splits,
    progress: Progress,
    device: str | torch.device = "cpu",
) -> NDArray[np.floating]:
    """Out-of-fold log-odds [layer, item] of probes trained, on the device, on the states under an intervention."""
    only_full = Splits(splits.labels, splits.folds, splits.training[:1], splits.inner[:1], splits.probes[:1])
    (fitted,) = fit_probes(states[None], only_full, [f"refit {intervention}"], device, progress)
    scores = [
        layer.float() @ weight.T + bias  # [item, fold]
        for layer, weight, bias in zip(states, fitted.weight[0].movedim(1, 0), fitted.bias[0].T, strict=True)
    ]
    own = torch.as_tensor(splits.folds)[:, None].expand(len(scores), -1, 1)
    return torch.stack(scores).gather(2, own)[..., 0].numpy()
