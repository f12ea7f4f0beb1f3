"""Scores on which our metrics and those of lm-polygraph are compared; without ties, which it leaves to chance."""

from collections.abc import Callable

import numpy as np

from anchorscope.stats import detection_metrics as ours
from anchorscope.stats.auc import auc
from anchorscope.stats.detection_metrics import reliability_bins

TOLERANCE = 1e-9


def worlds() -> dict[str, tuple[list[float], list[bool]]]:
    found = {}
    for name, n, share, strength in (
        ("balanced", 200, 0.5, 1.5),
        ("rare", 300, 0.08, 1.0),
        ("useless", 61, 0.6, 0.0),
        ("few", 5, 0.5, 3.0),
    ):
        rng = np.random.default_rng(len(name))
        truthful = rng.random(n) < share
        truthful[:2] = True, False
        log_odds = rng.normal(np.where(truthful, strength, -strength), 1.5)
        found[name] = ((1 / (1 + np.exp(-log_odds))).tolist(), truthful.tolist())
    return found


def our_values(probability: list[float], truthful: list[bool]) -> dict[str, float]:
    """Our numbers under lm-polygraph's names."""
    given = (np.array(probability), np.array(truthful))
    found = ours.all_metrics(*given)
    return {
        "roc-auc": float(auc(*given)),
        "pr-auc": float(found["auprc"]),
        "ece": float(reliability_bins(*given, bins=20, equal_width=True).error),
        "prr_normalized": float(found["prr"]),
    }


def its_values(probability: list[float], truthful: list[bool]) -> dict[str, float]:
    """lm-polygraph's numbers; uncertainty is minus the probability.

    A random order's prediction–rejection area is a mean of shuffles there; here it is what they tend to, the accuracy.
    """
    from lm_polygraph import ue_metrics
    from lm_polygraph.ue_metrics.ue_metric import normalize_metric

    uncertainty, target = -np.array(probability), np.array(truthful, float)
    found = {
        # of the false answers, which uncertainty flags
        "roc-auc": ue_metrics.ROCAUC()(uncertainty, 1 - target),
        "pr-auc": ue_metrics.PRAUC()(uncertainty, 1 - target),
        "ece": ue_metrics.ECE()(uncertainty, target),
    }
    area: Callable[..., float] = ue_metrics.PredictionRejectionArea()
    value, oracle = area(uncertainty, target), area(-target, target)
    found["prr_normalized"] = normalize_metric(value, oracle, target.mean())
    return {name: float(value) for name, value in found.items()}
