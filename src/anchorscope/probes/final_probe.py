"""Probes fitted on all items, for use on new ones.

The cross-fitted probes of `crossfit` measure: each scores only items whose group it never saw. To score an item that is
in no fold, such as a new question, one probe per place and layer learns from all items. Its strength is chosen by
grouped inner folds and it goes through the same grid search as they do. The inner folds' AUC chooses the reference
layer and is no measure of the probe: that is what the cross-fitted ones are for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from anchorscope.errors import UserError
from anchorscope.probes.folds import grouped_folds
from anchorscope.probes.grid_search import INNER_FOLDS, grid_search
from anchorscope.progress import Progress
from anchorscope.stats.streams import Priorities


@dataclass(frozen=True)
class FinalProbe:
    """The probes of one site and position that learned from all items, acting on raw states."""

    weight: Float[Tensor, "layer d_model"]
    bias: Float[Tensor, " layer"]
    strength: Float[np.ndarray, " layer"]
    """Chosen C."""
    inner_auc: Float[np.ndarray, " layer"]
    """AUC on the inner folds at that strength."""
    unconverged: tuple[str, ...]
    """Names of probes whose solver did not reach its tolerance."""
    notes: tuple[str, ...] = ()
    """Where memory ran out and chunks became smaller than planned."""

    @property
    def reference(self) -> int:
        """The reference layer l*, where the inner folds' AUC is highest."""
        return int(np.argmax(self.inner_auc))


def final_inner_folds(
    strata: Int[np.ndarray, " item"], groups: Int[np.ndarray, " item"], order: Priorities
) -> Int[np.ndarray, " item"]:
    """Inner fold of every item; groups stay whole, and every fold has true and false items.

    `strata` are those of `folds.truth_strata`.
    """
    inner = grouped_folds(groups, strata, INNER_FOLDS, order)
    present = {(int(fold), bool(stratum % 2)) for fold, stratum in zip(inner, strata, strict=True)}
    if len(present) < 2 * INNER_FOLDS:
        raise UserError(
            f"The {len(strata)} items fall into {len(np.unique(groups))} groups, too few for {INNER_FOLDS} inner folds "
            f"with true and false answers in each; ask more questions (--limit), or use another --group-by."
        )
    return inner


def fit_final_probes(
    states: Shaped[Tensor, "place layer item d_model"],
    strata: Int[np.ndarray, " item"],
    groups: Int[np.ndarray, " item"],
    names: Sequence[str],
    order: Priorities,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    memory: int | None = None,
) -> list[FinalProbe]:
    """One probe per place and layer that learns from all items; `names` tell the places apart in warnings.

    `strata` are the items' relations and labels (`folds.truth_strata`), `order` random numbers of the items, by which
    groups are dealt out to the inner folds.
    `memory` limits what one chunk takes on the device, in bytes.
    """
    assert len(names) == len(states), f"{len(names)} names for {len(states)} places"
    inner = final_inner_folds(strata, groups, order)[None]
    everyone = np.ones_like(inner, dtype=bool)
    found, notes = grid_search(
        states, strata % 2 == 1, everyone, inner, torch.device(device), progress, "final probes", memory
    )
    return [
        FinalProbe(
            weight=one.weight[:, 0].contiguous(),
            bias=one.bias[:, 0].contiguous(),
            strength=one.strength[:, 0].numpy(),
            inner_auc=one.inner_auc[:, 0].numpy(),
            unconverged=one.unconverged(name, ["probe on all items"]),
            notes=notes,
        )
        for name, one in zip(names, found, strict=True)
    ]
