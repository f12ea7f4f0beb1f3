"""Log-odds of states under the out-of-fold probes, on the device that holds the states.

Every state meets the probes of all folds in one batched product, and each item keeps those of its own fold: the few
products too many cost less than sorting items by fold or fetching weights per item.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.models.process_settings import true_float32
from anchorscope.probes.crossfit import ProbeSet

_VALUES_AT_ONCE = 2**26  # states that are widened to float32 together


class Scorer:
    """The probes of all sites and positions of a dataset, ready to score batches."""

    def __init__(
        self, probe_sets: Sequence[Sequence[ProbeSet]], folds: NDArray[np.int64], device: torch.device
    ) -> None:
        """`probe_sets` is [position][site]; `folds` gives each item's own fold, whose probes never saw its group."""
        weight = torch.stack([torch.stack([one.weight for one in row]) for row in probe_sets])
        bias = torch.stack([torch.stack([one.bias for one in row]) for row in probe_sets])
        self._shape = bias.shape  # position, site, probe, fold, layer
        # [position · site · layer, probe · fold, d_model]: one problem per kind of state.
        self.weight = weight.movedim(4, 2).flatten(3, 4).flatten(0, 2).contiguous().to(device)
        self.bias = bias.movedim(4, 2).flatten(3, 4).flatten(0, 2).contiguous().to(device)
        self.folds = torch.as_tensor(folds, device=device)

    @torch.no_grad()
    def score(self, items: Sequence[int], states: Tensor) -> Tensor:
        """Log-odds [batch, position, site, probe, layer] of states [batch, position, site, layer, d_model]."""
        n_positions, n_sites, n_probes, n_folds, n_layers = self._shape
        flat = states.flatten(1, 3).transpose(0, 1)  # [position · site · layer, batch, d_model]
        at_once = max(1, _VALUES_AT_ONCE // flat[0].numel())
        with true_float32():
            parts = [
                torch.baddbmm(bias[:, None], part.float(), weight.transpose(1, 2))
                for part, weight, bias in zip(
                    flat.split(at_once), self.weight.split(at_once), self.bias.split(at_once), strict=True
                )
            ]
        scores = torch.cat(parts).view(n_positions, n_sites, n_layers, len(items), n_probes, n_folds)
        own = self.folds[torch.as_tensor(list(items)).to(states.device, non_blocking=True)]
        index = own[:, None, None].expand(*scores.shape[:-1], 1)
        return scores.gather(-1, index)[..., 0].permute(3, 0, 1, 4, 2).contiguous()
