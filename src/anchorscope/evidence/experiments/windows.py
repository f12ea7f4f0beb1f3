"""Cuts in some layers, or in some heads, only: many ways to cut the same items in one pass, scored on the way.

Ways that begin in the middle of the model join in there, with the clean stream, so that nothing below is run again. No
more than a few ways share a pass: an item takes one row of tokens for each, and rows are what memory is needed for. Of
the states only the log-odds at the headline site and position are kept.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.capture import Work, capture
from anchorscope.engine.sequences import Cut, Variant
from anchorscope.evidence.experiments.ground import Ground
from anchorscope.interventions.knockout import KNOCKOUT
from anchorscope.models.language_model import LanguageModel

MOST_AT_ONCE = 16
"""Ways that share a pass: with their own row each, an item takes at most so many times the tokens of a knockout."""

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Way:
    """One way to cut: where the question's exact tokens are hidden."""

    variant: str
    """As in the results' column `variant`."""
    layers: range
    """The layers that lose the edges."""
    heads: tuple[int, ...] | None = None
    """The query heads that lose them; None for all."""

    @property
    def first(self) -> int:
        """The first layer that is cut: a probe below it cannot see the cut."""
        return self.layers.start


@dataclass(frozen=True)
class Outcome:
    """What one way of cutting does to the items."""

    way: Way
    items: Indices
    """The used items that it was run on, in order."""
    logits: NDArray[np.floating]
    """Log-odds [layer, item] at the headline site and position; below the cut those of the clean run."""


def window_width(ground: Ground) -> int:
    """Layers in a window: the recipe's choice, or a quarter of the depth, and at least two."""
    n_layers = ground.place.n_layers
    return min(n_layers, ground.settings.window or max(2, n_layers // 4))


def window_starts(n_layers: int, width: int) -> list[int]:
    """Where windows begin: every half width, and one that ends with the last layer."""
    last = n_layers - width
    starts = list(range(0, last + 1, max(1, width // 2)))
    return starts if starts[-1] == last else [*starts, last]


def run_ways(ground: Ground, ways: Sequence[Way], title: str) -> tuple[list[Outcome], list[str]]:
    """Runs the knockout in every way on some items, and says which ways or items could not be run."""
    lm, rng = ground.model(), ground.rng(title)
    some = ground.some_items()
    cuts = {int(item): KNOCKOUT.cut(ground.tokens[item], ground.settings.edges, rng) for item in some}
    planned, missing = _plan(lm, ground, ways, cuts)
    logits = _score(lm, ground, planned, title)
    outcomes = []
    for (way, variant), scores in zip(planned, logits, strict=True):
        items = np.array(sorted(variant.cuts or ()), dtype=np.int64)
        outcomes.append(Outcome(way, items, scores[items].T))
    return outcomes, missing


def _plan(
    lm: LanguageModel, ground: Ground, ways: Sequence[Way], cuts: dict[int, Cut]
) -> tuple[list[tuple[Way, Variant]], list[str]]:
    """Every way with the items that it takes edges from.

    The engine refuses a cut that takes nothing, from an item or in a layer. Only a sliding window can be the reason,
    and it is known before.
    """
    sequences = [one.sequence for one in ground.tokens]
    windows = [lm.sliding_window(layer) for layer in range(lm.n_layers)]
    reached = {window: {item for item, cut in cuts.items() if cut.takes_edges(sequences[item], window)}
               for window in set(windows)}  # fmt: skip
    planned, idle, few = [], [], []
    for way in ways:
        of_layer = [reached[windows[layer]] for layer in way.layers]
        if not all(of_layer):
            idle.append(f"{way.variant} from layer {way.first}")
            continue
        items = set.union(*of_layer)
        if len(items) < len(cuts):
            few.append(f"{way.variant} from layer {way.first} ({len(items)} of {len(cuts)})")
        variant = Variant({item: replace(cuts[item], heads=way.heads) for item in sorted(items)}, way.layers)
        planned.append((way, variant))
    missing = []
    if idle:
        missing.append(
            f"{', '.join(idle)}: the sliding window of a layer already hides the question from all later tokens that "
            f"the cut is about; choose --edges all"
        )
    if few:
        missing.append(f"{', '.join(few)}: the sliding window already hides the question of the other items")
    return planned, missing


def _score(
    lm: LanguageModel, ground: Ground, planned: Sequence[tuple[Way, Variant]], title: str
) -> NDArray[np.float32]:
    """Log-odds of the full probe at the headline site and position, [way, item, layer]; NaN where nothing was run."""
    scorer, (position, site) = ground.scorer(), ground.headline
    probe = ground.place.probe("full")
    kept = torch.full((len(planned), ground.n, lm.n_layers), math.nan, device=lm.device)
    n_passes = math.ceil(len(planned) / MOST_AT_ONCE)
    for number, together in enumerate(np.array_split(np.arange(len(planned)), max(1, n_passes))):
        if not len(together):
            break
        into = kept[int(together[0]) : int(together[-1]) + 1]

        def receive(variant: int, batch: list[int], states: Tensor, into: Tensor = into) -> None:
            scores = scorer.score(batch, states)[:, position, site, probe]
            into[variant, torch.as_tensor(batch).to(into.device, non_blocking=True)] = scores.to(into.dtype)

        variants = [planned[index][1] for index in together]
        work = Work([one.sequence for one in ground.tokens], ground.talk.prefix, variants, ground.budget)
        capture(lm, work, receive, f"{title} {number + 1} of {n_passes}", ground.progress)
    return kept.cpu().numpy()
