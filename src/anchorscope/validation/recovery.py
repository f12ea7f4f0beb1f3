"""How well each experiment finds what was planted: areas under curves, recalls, and where the label gets in the way.

Items of both pathways are left out of areas and recalls, as they have no right answer; the confusion table shows where
they go. Only items that the probe calls right count, as the pathways are defined for no others. Every number is given
over all items and within true and within false answers: a rule that sorts by the label looks fair over all of them.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from anchorscope.evidence.areas import areas
from anchorscope.evidence.draws import Draws, estimates, ratio
from anchorscope.report.experiments.confusion import CONFUSION_SCHEMA
from anchorscope.report.experiments.recovery import RECOVERY_SCHEMA
from anchorscope.stats.estimate import group_weights
from anchorscope.stats.streams import stream
from anchorscope.validation.scores import Items, Score

Bools = NDArray[np.bool_]
TRUTHS = ("all", "true", "false")
METHOD = "bootstrap over groups"


def recovery_table(items: Items, scores: Sequence[Score], resamples: int, seed: int) -> pl.DataFrame:
    """One row per experiment, way of doing it, truth and quantity."""
    draws = Draws.of(group_weights(items.groups, resamples, stream(seed, "validation")))
    rows = []
    for score in scores:
        for quantity, truth, samples, n in (*_areas(items, score, draws), *_recalls(items, score, draws)):
            value, low, high = (None if not np.isfinite(one) else float(one) for one in estimates(samples))
            if value is not None:
                rows.append((score.experiment, score.variant, truth, quantity, value, low, high, n, METHOD))
    return pl.DataFrame(rows, schema=RECOVERY_SCHEMA, orient="row")


def _planted(items: Items, score: Score, truth: str) -> NDArray[np.int64]:
    """Items of one of the two pathways, of a truth, that the experiment was run on."""
    inside = items.correct & (items.pathway != "both") & np.isfinite(score.values)
    if truth != "all":
        inside &= items.truthful == (truth == "true")
    return np.flatnonzero(inside)


def _areas(items: Items, score: Score, draws: Draws) -> Iterator[tuple[str, str, torch.Tensor, int]]:
    """How often a question item scores above an answer item; folds have probes of their own and stay apart."""
    for truth in TRUTHS:
        inside = _planted(items, score, truth)
        question = items.pathway[inside] == "question"
        if question.any() and not question.all():
            found = areas(score.values[None, inside], question, items.folds[inside], draws.take(inside))[0]
            yield "auc", truth, found, len(inside)


def _recalls(items: Items, score: Score, draws: Draws) -> Iterator[tuple[str, str, torch.Tensor, int]]:
    """Shares of question items called Q-Anchored and of answer items called A-Anchored, and how truth moves them."""
    if score.called is None:
        return
    found: dict[tuple[str, str], torch.Tensor] = {}
    sizes: dict[str, int] = {}
    for truth in TRUTHS:
        for pathway, wanted in (("question", 1.0), ("answer", 0.0)):
            inside = _planted(items, score, truth)
            inside = inside[np.isfinite(score.called[inside]) & (items.pathway[inside] == pathway)]
            if len(inside):
                drawn = draws.take(inside)
                hits = (score.called[inside] == wanted)[:, None]
                found[pathway, truth] = ratio(drawn.sums(hits)[0], drawn.numbers())
                sizes.setdefault(pathway, len(inside))  # all answers come first
                yield f"recall_{pathway}", truth, found[pathway, truth], len(inside)
        if ("question", truth) in found and ("answer", truth) in found:
            both = (found["question", truth] + found["answer", truth]) / 2
            yield "balanced_accuracy", truth, both, len(_planted(items, score, truth))
    for pathway in ("question", "answer"):
        if (pathway, "true") in found and (pathway, "false") in found:
            bias = found[pathway, "true"] - found[pathway, "false"]
            yield f"label_bias_{pathway}", "all", bias, sizes[pathway]


def confusion_table(items: Items, scores: Sequence[Score]) -> pl.DataFrame:
    """How many items of each planted pathway and truth each rule calls what; misclassified ones among them."""
    rows = []
    for score in scores:
        if score.called is None:
            continue
        # A rule speaks of no item that the probe calls wrong; an intervention was run on those too, or not.
        ran = np.isfinite(score.values) | (~items.correct & (score.experiment == "rules"))
        calls = np.where(~items.correct, "misclassified", np.where(score.called == 1, "Q-Anchored", "A-Anchored"))
        for truth in (True, False):
            for pathway in ("question", "answer", "both"):
                inside = ran & (items.truthful == truth) & (items.pathway == pathway)
                for name in ("Q-Anchored", "A-Anchored", "misclassified"):
                    n = int((calls[inside] == name).sum())
                    rows.append((score.name, "true" if truth else "false", pathway, name, n))
    return pl.DataFrame(rows, schema=CONFUSION_SCHEMA, orient="row")
