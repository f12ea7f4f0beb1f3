"""Whether an answer used its passage: the share of its probability that goes with it, and a calibrated probability.

A run whose items say what their answers went by (docs/sources.md) teaches the calibration: Platt scaling of the drop of
the answer's log-probability without the passage. What is reported of its quality comes from fits that never saw the
answer's group. The interval of a probability counts every group as one answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from anchorscope.items import Item

FOLLOWED = "followed"
"""An answer that gives what its source says; the column of items that say so."""
IGNORED = 0.1
"""An answer ignored its source where it has less than this share of its probability from it (`context_used`)."""
FEWEST = 20
"""Answers of each kind, and groups, below which nothing is calibrated."""
_FOLDS, _STEPS = 5, 30
_WIDTH = 1.96  # standard errors of an interval of 95 %
_LARGEST = 1 - 1e-9  # share of a probability that can still be told from all of it

Column = Float[np.ndarray, " item"]


def kinds_of(items: Sequence[Item]) -> NDArray[np.str_]:
    """The kind of every item's source, as its column `kind` says; empty where it says nothing."""
    return np.array(
        [
            str(item.question.metadata.get("kind", "")).replace("/", " ")
            for item in items
        ],
        dtype=str,
    )


def context_used(with_source: Column, without: Column) -> Column:
    """The share of an answer's probability, per token, that goes with the source: 0 where it is as likely without."""
    return 1.0 - np.exp(-np.maximum(with_source - without, 0.0))


@dataclass(frozen=True)
class UseCalibration:
    """How `context_used` becomes the probability that the answer follows the passage and not memory."""

    slope: float
    intercept: float
    variances: tuple[float, float, float]
    """Of the slope, of both together, of the intercept."""
    n: int
    """Answers that taught it."""
    followed: float
    """Share of them that followed their passage."""
    brier: float
    """Mean squared error of the probability, out of fold."""

    def probability(self, used: ArrayLike) -> NDArray[np.float64]:
        """Probability, lower and upper end of its interval, [3, item]."""
        drop = _drop(used)
        odds = self.slope * drop + self.intercept
        square, both, constant = self.variances
        width = _WIDTH * np.sqrt(square * drop**2 + 2 * both * drop + constant)
        return expit(np.stack([odds, odds - width, odds + width]))


def calibrate_use(
    used: Column, followed: Column, groups: Shaped[np.ndarray, " item"]
) -> UseCalibration | None:
    """The calibration from answers with a known truth (1, 0); None where there are too few of a kind or of groups."""
    names, numbers = np.unique(groups, return_inverse=True)
    if min(followed.sum(), (1 - followed).sum(), len(names)) < FEWEST:
        return None
    drop, folds = _drop(used), numbers % _FOLDS
    held_out = np.empty(len(drop))
    for fold in range(_FOLDS):
        inside = folds == fold
        slope, intercept = _fit_platt(drop[~inside], followed[~inside])[0]
        held_out[inside] = expit(slope * drop[inside] + intercept)
    (slope, intercept), covariance = _fit_platt(drop, followed)
    covariance = covariance * len(drop) / len(names)
    variances = (
        float(covariance[0, 0]),
        float(covariance[0, 1]),
        float(covariance[1, 1]),
    )
    brier = float(((held_out - followed) ** 2).mean())
    return UseCalibration(
        float(slope),
        float(intercept),
        variances,
        len(drop),
        float(followed.mean()),
        brier,
    )


def _drop(used: ArrayLike) -> NDArray[np.float64]:
    """How much the log-probability per token falls without the source."""
    return -np.log1p(-np.minimum(np.asarray(used, np.float64), _LARGEST))


def _fit_platt(
    drop: Column, followed: Column
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Slope and intercept by Newton's method, finite because of Platt's smoothed labels; and their covariance."""
    positive = followed.sum()
    labels = np.where(
        followed > 0.5,
        (positive + 1) / (positive + 2),
        1 / (len(followed) - positive + 2),
    )
    columns = np.column_stack([drop, np.ones(len(drop))])
    weights = np.array([0.0, logit(labels.mean())])
    for _ in range(_STEPS):
        likely = expit(columns @ weights)
        curvature = (
            columns * (likely * (1 - likely))[:, None]
        ).T @ columns + 1e-9 * np.eye(2)
        step = np.linalg.solve(curvature, columns.T @ (labels - likely))
        # steps of at most 1: no overshooting
        weights = weights + step / max(1.0, float(np.abs(step).max()))
    return weights, np.linalg.inv(curvature)


def use_record(
    used: float, passages: Sequence[float], calibration: UseCalibration | None
) -> dict[str, Any]:
    """What is said of one answer: the share, the probability with its interval, and the passage that it rests on.

    `passages` has the share that goes with each passage by itself, where there are several.
    """
    if np.isnan(used):
        return dict.fromkeys(USE_COLUMNS)
    probability = (
        [None] * 3
        if calibration is None
        else [round(float(end), 4) for end in calibration.probability(used)]
    )
    rests = (
        int(np.argmax(passages)) + 1 if len(passages) > 1 and used >= IGNORED else None
    )
    return dict(zip(USE_COLUMNS, (round(used, 4), *probability, rests), strict=True))


USE_COLUMNS = (
    "context_used",
    "context_probability",
    "context_low",
    "context_high",
    "passage",
)
"""Columns of scores where questions come with passages; the last counts from 1."""
