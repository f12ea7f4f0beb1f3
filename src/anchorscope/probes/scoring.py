"""Log-odds of states under fitted probes, on the device that holds the states.

`Scorer` is for items with a fold: every state meets the probes of all folds in one batched product, and each item keeps
those of its own fold (the few products too many cost less than sorting items by fold or fetching weights per item).
`FinalScorer` is for items that are in no fold, by the probes that learned from all items.
"""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorscope.models.devices import to_device
from anchorscope.models.process_settings import true_float32
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.probes.final_probe import FinalProbe
from anchorscope.progress import Progress

_SCORED_AT_ONCE = 64  # items whose clean states are on the device together
_VALUES_AT_ONCE = 2**26  # states that are widened to float32 together


class Scorer:
    """The cross-fitted probes of all sites and positions of a dataset, ready to score batches out of fold."""

    def __init__(
        self, probe_sets: Sequence[Sequence[ProbeSet]], folds: Int[np.ndarray, " item"], device: torch.device
    ) -> None:
        """`probe_sets` is [position][site]; `folds` gives each item's own fold, whose probes never saw its group."""
        weight = torch.stack([torch.stack([one.weight for one in row]) for row in probe_sets])
        bias = torch.stack([torch.stack([one.bias for one in row]) for row in probe_sets])
        self._shape = bias.shape  # position, site, probe, fold, layer
        # [position · site · layer, probe · fold, d_model]: one problem per kind of state.
        self.weight = weight.movedim(4, 2).flatten(3, 4).flatten(0, 2).contiguous().to(device)
        self.bias = bias.movedim(4, 2).flatten(3, 4).flatten(0, 2).contiguous().to(device)
        self.folds = torch.as_tensor(folds, device=device)

    def for_folds(self, folds: Int[np.ndarray, " item"]) -> "Scorer":
        """The same probes for other items."""
        other = copy.copy(self)
        other.folds = to_device(torch.as_tensor(folds), self.weight.device)
        return other

    @torch.no_grad()
    def score(
        self, items: Sequence[int], states: Float[Tensor, "batch position site layer d_model"]
    ) -> Float[Tensor, "batch position site probe layer"]:
        """Log-odds of states, each item's by the probes of its own fold."""
        n_positions, n_sites, n_probes, n_folds, n_layers = self._shape
        found = _log_odds(states, self.weight, self.bias)
        scores = found.view(n_positions, n_sites, n_layers, len(items), n_probes, n_folds)
        own = self.folds[to_device(torch.as_tensor(list(items)), states.device)]
        index = own[:, None, None].expand(*scores.shape[:-1], 1)
        return scores.gather(-1, index)[..., 0].permute(3, 0, 1, 4, 2).contiguous()


def score_states(
    scorer: Scorer, states: Float[Tensor, "position site layer item d_model"]
) -> Float[np.ndarray, "item position site probe layer"]:
    """Log-odds of clean states."""
    device = scorer.weight.device
    found = []
    for start in range(0, states.shape[-2], _SCORED_AT_ONCE):
        part = states[..., start : start + _SCORED_AT_ONCE, :].to(device).permute(3, 0, 1, 2, 4)
        found.append(scorer.score(range(start, start + len(part)), part))
    return torch.cat(found).cpu().numpy()


def score_clean(
    states: Float[Tensor, "position site layer item d_model"],
    probe_sets: Sequence[Sequence[ProbeSet]],
    folds: Int[np.ndarray, " item"],
    device: str | torch.device,
    progress: Progress,
) -> Float[np.ndarray, "item position site probe layer"]:
    """The same by probe sets [position][site] that are not on the device yet."""
    progress.start("score clean states", 1)
    found = score_states(Scorer(probe_sets, folds, torch.device(device)), states)
    progress.advance(1)
    progress.finish()
    return found


class FinalScorer:
    """The probes of all sites and positions that learned from all items, ready to score batches of new ones."""

    def __init__(self, probes: Sequence[Sequence[FinalProbe]], device: torch.device) -> None:
        """`probes` is [position][site]."""
        weight = torch.stack([torch.stack([one.weight for one in row]) for row in probes])
        bias = torch.stack([torch.stack([one.bias for one in row]) for row in probes])
        self._shape = bias.shape  # position, site, layer
        self.weight = weight.flatten(0, 2)[:, None].to(device)  # [position · site · layer, 1, d_model]
        self.bias = bias.flatten()[:, None].to(device)

    @torch.no_grad()
    def score(
        self, states: Float[Tensor, "batch position site layer d_model"]
    ) -> Float[Tensor, "batch position site layer"]:
        """Log-odds of states of items that no probe learned from."""
        return _log_odds(states, self.weight, self.bias)[..., 0].T.reshape(-1, *self._shape).contiguous()


def _log_odds(
    states: Float[Tensor, "batch position site layer d_model"],
    weight: Float[Tensor, "kind column d_model"],
    bias: Float[Tensor, "kind column"],
) -> Float[Tensor, "kind batch column"]:
    """Every state by every column of its kind (position · site · layer), in true float32."""
    flat = states.flatten(1, 3).transpose(0, 1)
    at_once = max(1, _VALUES_AT_ONCE // flat[0].numel())
    with true_float32():
        parts = [
            torch.baddbmm(some_bias[:, None], part.float(), some_weight.transpose(1, 2))
            for part, some_weight, some_bias in zip(
                flat.split(at_once), weight.split(at_once), bias.split(at_once), strict=True
            )
        ]
    return torch.cat(parts)
