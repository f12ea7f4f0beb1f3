"""The used items of one dataset at one site and position, as all analyses see them: arrays, no model and no torch."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
