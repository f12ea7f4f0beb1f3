"""Log-odds of states under the out-of-fold probes, on the device that holds the states."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.probes.crossfit import ProbeSet


class Scorer:
    """The probes of all sites and positions of a dataset, ready to score batches."""

    def __init__(
        self, probe_sets: Sequence[Sequence[ProbeSet]], folds: NDArray[np.int64], device: torch.device
    ) -> None:
        """`probe_sets` is [position][site]; `folds` gives each item's own fold, whose probes never saw its group."""
        self.weight = torch.stack([torch.stack([one.weight for one in row]) for row in probe_sets]).to(device)
        self.bias = torch.stack([torch.stack([one.bias for one in row]) for row in probe_sets]).to(device)
        self.folds = folds

    @torch.no_grad()
    def score(self, items: Sequence[int], states: Tensor) -> Tensor:
        """Log-odds [batch, position, site, probe, layer] of states [batch, position, site, layer, d_model]."""
        folds = torch.as_tensor(self.folds[list(items)], device=states.device)
        n_probes = self.weight.shape[2]
        scores = torch.empty(*states.shape[:3], n_probes, states.shape[3], device=states.device)
        for fold in folds.unique().tolist():
            rows = folds == fold
            weight = self.weight[:, :, :, fold]  # [position, site, probe, layer, d_model]
            found = torch.einsum("bqsld,qspld->bqspl", states[rows].float(), weight)
            scores[rows] = found + self.bias[:, :, :, fold]
        return scores
