"""What is measured of a rule in one replica of a world: named numbers, without those that make no sense there."""

import numpy as np
from jaxtyping import Bool, Float, Int

from anchorscope.stats.auc import auc

Quantities = dict[str, float]
"""By the names of `MEANINGS`."""
MEANINGS = {
    "auc_true": "how often a question item scores above an answer item, both with true answers, in the same fold",
    "auc_false": "the same with false answers",
    "share": "Q-Anchored items among those sorted, or the share of the evidence",
    "share_bias": "that share less the planted one",
    "claims": "whether two groups are claimed",
    "covered": "whether the interval of the share holds the true one",
    "items_covered": "items whose own interval holds their share",
    "called_items": "items that are called at all",
    "wrong_question_calls": "answer items among those called question",
    "wrong_answer_calls": "question items among those called answer",
    "sorted_items": "items that the rule speaks of",
}
"""Every quantity in words."""


def auc_by_truth(
    score: Float[np.ndarray, " item"],
    kind: Float[np.ndarray, " item"],
    labels: Bool[np.ndarray, " item"],
    sorted_items: Bool[np.ndarray, " item"],
    folds: Int[np.ndarray, " item"],
) -> Quantities:
    """AUC for the kind within true and within false answers; pairs of one fold, as each has probes of its own."""
    found = {}
    for name, truth in (("auc_true", True), ("auc_false", False)):
        inside = sorted_items & (labels == truth)
        found[name] = float(auc(score[inside], kind[inside] > 0.5, folds[inside]))
    return found
