"""Parts of a pass, merged by item, and the check that no cut passed in silence, over all of them together."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from anchorscope.engine.capture import EdgeCounts, refuse_idle_cuts
from anchorscope.execute.worker import StatesPart, VariantPart


def merge_states(parts: Sequence[StatesPart]) -> StatesPart:
    """The whole pass."""
    edges = EdgeCounts.sum([part.edges for part in parts])
    refuse_idle_cuts(edges)
    if len(parts) == 1:
        return parts[0]
    variants = [_merge([part.variants[index] for part in parts]) for index in range(len(parts[0].variants))]
    log_probs = {item: found for part in parts for item, found in part.log_probs.items()}
    return StatesPart(tuple(variants), edges, log_probs)


def _merge(parts: Sequence[VariantPart]) -> VariantPart:
    items: NDArray[np.int64] = np.concatenate([part.items for part in parts])
    order = np.argsort(items, kind="stable")
    logits = [part.logits for part in parts if part.logits is not None]
    states = [part.states for part in parts if part.states is not None]
    return VariantPart(
        items[order],
        np.concatenate(logits)[order] if logits else None,
        torch.cat(states, dim=2)[:, :, torch.from_numpy(order)] if states else None,
    )
