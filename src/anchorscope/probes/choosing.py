"""What the inner folds say: the log-loss that chooses a strength, and the AUC at that strength, on the device.

Each inner fold's held-out items, true and false ones apart, are tables of item numbers. Gathering them from the
log-odds leaves a fraction to look at, and sorting the false ones counts the pairs that the true ones win.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus


@dataclass(frozen=True)
class HeldOut:
    """Items that are held out by each inner fold, [training set, inner fold, place]; tables are padded."""

    true_items: Tensor
    is_true: Tensor
    """1 where a place of `true_items` is an item, 0 where it is padding."""
    false_items: Tensor
    is_false: Tensor


def held_out_tables(inner: NDArray[np.int64], labels: NDArray[np.bool_], n_inner: int, device: torch.device) -> HeldOut:
    """Tables for inner folds [training set, item], -1 where an item is not in the training set."""
    held = inner[:, None, :] == np.arange(n_inner)[:, None]

    def table(chosen: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
        most = int(chosen.sum(-1).max())
        items = np.argsort(~chosen, axis=-1, kind="stable")[..., :most]
        real = np.take_along_axis(chosen, items, axis=-1)
        return torch.as_tensor(items, device=device), torch.as_tensor(real.astype(np.float32), device=device)

    return HeldOut(*table(held & labels), *table(held & ~labels))


def choose(logits: Tensor, tables: HeldOut) -> tuple[Tensor, Tensor]:
    """Index of the best strength, and its AUC within the inner folds, per problem and training set.

    `logits` is [problem, training set, inner fold, strength, item], each from a probe that learned without that fold.
    """
    true = logits.take_along_dim(tables.true_items[None, :, :, None], dim=-1)
    false = logits.take_along_dim(tables.false_items[None, :, :, None], dim=-1)
    loss = (softplus(-true).double() * tables.is_true[:, :, None]).sum(-1)
    loss += (softplus(false).double() * tables.is_false[:, :, None]).sum(-1)
    chosen = loss.sum(2).argmin(-1)  # [problem, training set]
    at = chosen[:, :, None, None, None]
    true, false = (part.take_along_dim(at, dim=3)[:, :, :, 0] for part in (true, false))
    ranked = torch.where(tables.is_false > 0, false, torch.inf).sort(-1).values
    true = true.contiguous()
    below, not_above = (torch.searchsorted(ranked, true, right=right) for right in (False, True))
    won = ((below + not_above).double() / 2 * tables.is_true).sum((-1, -2))
    pairs = (tables.is_true.double().sum(-1) * tables.is_false.double().sum(-1)).sum(-1)
    return chosen, won / pairs
