"""Shares in every draw of the bootstrap.

Three things vary: which items are measured (groups are drawn with replacement), which items taught the probes (the same
draw, through the jackknife's influence), and how the groups were halved (normal numbers, one per split). All shares of
a dataset use the same numbers, so that differences between them are paired.

A fourth thing varies and is not drawn: the strength that inner folds chose for the probes, and, where items are sorted,
who is in which third. In simulated worlds shares therefore spread a little more than the draws do; so draws are widened
by what was found there (docs/question-share.md).
"""

import numpy as np
from jaxtyping import Bool, Float

from anchorscope.question_share.evidence import GROUPS, Lost

WIDER, THIRDS_WIDER = 1.1, 1.2
"""How much wider than the draws shares spread in simulated worlds: those of fixed sets of items, those of thirds."""
_THIRDS = range(GROUPS.index("lower third"), GROUPS.index("upper third") + 1)


class ShareDraws:
    """The draws: first the sample itself, then every resample."""

    def __init__(self, weights: Float[np.ndarray, "resample item"], n_splits: int, rng: np.random.Generator) -> None:
        self.counts = np.concatenate([np.ones((1, weights.shape[1])), weights]).astype(np.float32)
        noise = rng.standard_normal((len(weights), n_splits)) / np.sqrt(n_splits * max(1, n_splits - 1))
        self.noise = np.concatenate([np.zeros((1, n_splits)), noise]).astype(np.float32)

    def sums(self, values: Float[np.ndarray, "*batch item"]) -> Float[np.ndarray, "*batch draw"]:
        """Sums over the items of every draw."""
        return values.astype(np.float32) @ self.counts.T

    def shares(self, found: Lost, group: int) -> Float[np.ndarray, "problem draw"]:
        """A group's share; NaN in draws without evidence."""
        inside = found.members[:, group]
        drawn = self.ratio(found.lost * inside, found.had * inside) + self.spread(found, group)
        return drawn[:, :1] + (THIRDS_WIDER if group in _THIRDS else WIDER) * (drawn - drawn[:, :1])

    def ratio(
        self, lost: Float[np.ndarray, "problem item"], had: Float[np.ndarray, "problem item"]
    ) -> Float[np.ndarray, "problem draw"]:
        """Σ lost / Σ had."""
        lost_sums, had_sums = self.sums(lost), self.sums(had)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(had_sums != 0, lost_sums / had_sums, np.nan)

    def spread(self, found: Lost, group: int) -> Float[np.ndarray, "problem draw"]:
        """What a group's share varies by because of the probes' items and the splits."""
        influence = found.influence[:, group]
        taught = self.sums(influence) - influence.sum(-1, keepdims=True)
        return taught + found.by_split[:, group].astype(np.float32) @ self.noise.T

    def has_evidence(self, had: Float[np.ndarray, "problem item"]) -> Bool[np.ndarray, " problem"]:
        """Whether there is evidence that a share could be of: its sum is above zero in 97.5 % of the draws."""
        return np.percentile(self.sums(had)[:, 1:], 2.5, axis=-1) > 0
