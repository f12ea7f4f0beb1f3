"""Differences of AUCs in the same draws: what the probe tells beyond simpler things, and beyond chance.

Two scores of the same items rise and fall together from draw to draw; the interval of their difference is far narrower
than their own two would suggest, and "better than every baseline" is judged by it. The harder question is what the
probe *adds*: `auc_beyond_confidence` is the AUC of the probe and the model's confidence together, less that of
confidence alone. What the words of question and answer add stands beside it.
"""

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.evidence.areas import areas
from anchorscope.evidence.draws import estimates
from anchorscope.evidence.probe_scores import Scored
from anchorscope.evidence.summary import Row
from anchorscope.stats.estimate import Estimate, percentile_interval
from anchorscope.stats.sparse_logistic import fit_sparse_logistic

Floats = NDArray[np.floating]

CONFIDENCE = "confidence-mean"
"""The baseline that the probe is joined with."""
PROBE_AND_CONFIDENCE = "nested+confidence"
"""Kind of the score that joins the two."""
_METHOD = "paired bootstrap over groups"
_JOINED = f"{_METHOD}; joined by logistic regression on the other folds' out-of-fold scores"


def beyond_baselines(
    nested: Floats, simpler: Mapping[str, Floats], scored: Scored
) -> tuple[dict[str, Floats], list[Row]]:
    """Scores that join probe or words with confidence, by kind; and rows of the summary.

    `auc_difference`: the nested probe less each simpler score. `auc_beyond_confidence`: what probe (group `nested`) and
    words add to confidence, where that is known.
    """
    joined: dict[str, Floats] = {}
    for kind, scores in (("nested", nested), ("words", simpler.get("words"))):
        if scores is not None and CONFIDENCE in simpler:
            joined[f"{kind}+confidence"] = join(scores, simpler[CONFIDENCE], scored.labels, scored.strata)
    every = {"nested": nested, **simpler, **joined}
    found = areas(np.stack(list(every.values())), scored.labels, scored.strata, scored.draws)
    samples = dict(zip(every, found, strict=True))
    n = len(scored.labels)
    rows = []
    for kind in simpler:
        difference = _estimate(samples["nested"] - samples[kind], n, _METHOD)
        rows.append(Row("auc_difference", difference, intervention="clean", group=kind))
    for kind in joined:
        gain = _estimate(samples[kind] - samples[CONFIDENCE], n, _JOINED)
        rows.append(Row("auc_beyond_confidence", gain, intervention="clean", group=kind.removesuffix("+confidence")))
    return joined, rows


def join(first: Floats, second: Floats, labels: NDArray[np.bool_], folds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Log-odds of "true" from two scores of every item, by logistic regression on the items of the other folds."""
    both = np.stack([first, second], axis=1).astype(np.float64)
    found = np.empty(len(labels))
    for fold in np.unique(folds):
        inside = folds == fold
        spread = both[~inside].std(axis=0)
        scaled = (both - both[~inside].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        weight, intercept = fit_sparse_logistic(sp.csr_array(scaled[~inside]), labels[~inside])
        found[inside] = scaled[inside] @ weight + intercept
    return found


def beyond_permuted(intervention: str, refit: Floats, null: Floats, scored: Scored) -> list[Row]:
    """The AUC that permuted labels give, and how far that of a probe trained under the intervention lies above it.

    `refit` are its log-odds [item] at the reference layers, `null` the AUCs [permutation] of permuted labels there.
    The second interval is zero or above where fewer than one in forty permutations reach the real AUC.
    """
    value = float(areas(refit[None], scored.labels, scored.strata, scored.draws)[0, 0])
    low, high = (float(end) for end in percentile_interval(null))
    n, mean = len(scored.labels), float(null.mean())
    ways = f"over {len(null)} permutations of labels within folds and relations, probes fitted anew"
    return [
        Row("auc_permuted", Estimate(mean, low, high, n, f"mean and 95 % range {ways}"), None, intervention, "refit"),
        Row(
            "auc_beyond_permuted",
            Estimate(value - mean, value - high, value - low, n, f"less mean and 95 % range {ways}"),
            None,
            intervention,
            "refit",
        ),
    ]


def _estimate(samples: Tensor, n: int, method: str) -> Estimate:
    value, low, high = (float(number) for number in estimates(samples))
    return Estimate(value, low, high, n, method)
