"""Effects of rewritings: the answers read again after another question, or after none, scored by the same probes.

Each run is a fresh pass over its own text; only the leading tokens that all texts share are not run again. An item may
be run several times (with several donors): its rows then stand one after the other.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from anchorscope.engine.batching import Budget
from anchorscope.engine.capture import Work, capture
from anchorscope.engine.keys_values import Prefix
from anchorscope.engine.sequences import TokenSequence, shared_prefix_length
from anchorscope.errors import InterventionNotApplied
from anchorscope.evidence.effects import Effect, name_rng
from anchorscope.evidence.subset import some_items
from anchorscope.interventions.rewriting import Rewriting, Rewritten, Spoken, Writer
from anchorscope.models.language_model import LanguageModel
from anchorscope.probes.scoring import Scorer
from anchorscope.progress import Progress


def rewrite(
    rewriting: Rewriting, items: Sequence[Spoken], writer: Writer, seed: int, most_items: int | None
) -> list[Rewritten]:
    """The runs of one rewriting, in the order of the items."""
    rng = name_rng(seed, rewriting.name)
    some = some_items(len(items), most_items, seed)
    if rewriting.max_items is not None and len(some) > rewriting.max_items:
        some = np.sort(rng.choice(some, size=rewriting.max_items, replace=False))
    runs = rewriting.rewrite(items, some.tolist(), writer, rng)
    if not rewriting.changes:
        other = sum(one.sequence.ids != items[one.item].tokens.sequence.ids for one in runs)
        if other:
            raise InterventionNotApplied(f"{rewriting.name}: {other} texts are not what they were, and must be")
    return sorted(runs, key=lambda one: (one.item, one.run))


def measure_rewritten(
    lm: LanguageModel,
    rewriting: Rewriting,
    runs: Sequence[Rewritten],
    prefix: Prefix,
    scorer: Scorer,
    budget: Budget,
    progress: Progress | None = None,
) -> Effect:
    """Log-odds of every run; `prefix` are the tokens that the items' own prompts share."""
    sequences = [one.sequence for one in runs]
    logits: dict[int, Tensor] = {}

    def receive(_: int, batch: list[int], states: Tensor) -> None:
        scores = scorer.score([runs[index].item for index in batch], states)
        logits.update(zip(batch, scores, strict=True))

    work = Work(sequences, prefix.first(_shared(prefix, sequences)), budget=budget)
    capture(lm, work, receive, rewriting.name, progress)
    return Effect(
        intervention=rewriting.name,
        variant=rewriting.variant,
        items=np.array([one.item for one in runs], dtype=np.int64),
        n_cut=np.array([one.n_changed for one in runs], dtype=np.int64),
        logits=torch.stack([logits[index] for index in range(len(runs))]).cpu().numpy(),
        states=None,
        run=np.array([one.run for one in runs], dtype=np.int64),
    )


def _shared(prefix: Prefix, sequences: Sequence[TokenSequence]) -> int:
    """How many of the prefix's tokens all of these begin with, none of which is read."""
    ids = [(*prefix.ids, -1), *(one.ids for one in sequences)]  # of the prefix itself all tokens may be shared
    limits = [prefix.length, *(min(one.answer_start, *one.read_at) for one in sequences)]
    return shared_prefix_length(ids, limits)
