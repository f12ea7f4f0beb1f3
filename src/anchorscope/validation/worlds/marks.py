"""From replicas to marks: means with intervals, and whether a rule passes in a world.

A rule passes where all that is defined for it is within its mark: the AUC within true and within false answers, where
that can be reached at all; the bias of the share; how often it claims two groups in the world's twin; and how many of
the items that it is sure of it calls wrong. Marks are compared with the means as they are: of ten replicas one false
alarm is too many, and more replicas tell whether that was chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from anchorscope.stats.estimate import LEVEL, Estimate
from anchorscope.validation.worlds.quantities import Quantities
from anchorscope.validation.worlds.truth import Truth

LEAST_AUC = 0.8
"""For the pathway, within true and within false answers, where so much can be reached."""
MOST_BIAS = 0.05
"""Of the share, either way."""
MOST_ALARMS = 0.05
"""Share of the replicas with one pathway in which two groups are claimed."""
MOST_WRONG = 0.1
"""Share of wrong ones among the calls of either kind: the items that are called have a probability above 0.9."""
RATES = ("false_alarms", "power", "covered")
"""Quantities that are yes or no in a replica."""
_WRONG_CALLS = ("wrong_question_calls", "wrong_answer_calls")


@dataclass(frozen=True)
class Marks:
    """A rule in a world, over all replicas of one number of items."""

    world: str
    rule: str
    n: int
    """Items of a replica."""
    values: dict[str, Estimate]
    """By quantity; n of each is the number of replicas that it rests on."""
    passes: bool

    def value(self, quantity: str) -> float | None:
        """The mean of a quantity; None where it is not defined."""
        return self.values[quantity].value if quantity in self.values else None


def mark(
    world: str, rule: str, n: int, truth: Truth, found: Sequence[Quantities], in_twin: Sequence[Quantities]
) -> Marks:
    """Means over replicas; `in_twin` are those of the world's twin, the same ones where a world has one pathway."""
    values: dict[str, Estimate] = {}
    for quantity in dict.fromkeys(name for one in found for name in one):
        name = "power" if quantity == "claims" else quantity
        values[name] = _mean([one.get(quantity, np.nan) for one in found], name in RATES)
    values["false_alarms"] = _mean([one["claims"] for one in in_twin], True)
    if np.isnan(truth.ceiling[0]):
        values.pop("power", None)  # with one pathway a claim is a false alarm
    values = {name: one for name, one in values.items() if np.isfinite(one.value)}
    return Marks(world, rule, n, values, _passes(values, truth))


def _passes(values: dict[str, Estimate], truth: Truth) -> bool:
    reachable = dict(zip(("auc_true", "auc_false"), truth.ceiling, strict=True))
    aucs = [values[name].value >= LEAST_AUC for name in reachable if name in values and reachable[name] >= LEAST_AUC]
    bias = [abs(values["share_bias"].value) <= MOST_BIAS] if "share_bias" in values else []
    wrong = [values[name].value <= MOST_WRONG for name in _WRONG_CALLS if name in values]
    return all([*aucs, *bias, *wrong, values["false_alarms"].value <= MOST_ALARMS])


def _mean(values: Sequence[float], is_rate: bool) -> Estimate:
    """The mean over replicas; Wilson's interval of a rate, Student's of anything else."""
    known = np.array([one for one in values if np.isfinite(one)])
    n = len(known)
    if not n:
        return Estimate(np.nan, np.nan, np.nan, 0, "mean over replicas")
    value = float(known.mean())
    if is_rate:
        return Estimate(value, *wilson(value, n), n, "share of replicas, Wilson's interval")
    if n == 1:
        return Estimate(value, np.nan, np.nan, 1, "one replica")
    half = float(student.ppf((1 + LEVEL) / 2, n - 1) * known.std(ddof=1) / np.sqrt(n))
    return Estimate(value, value - half, value + half, n, "mean over replicas, Student's interval")


def wilson(rate: float, n: int) -> tuple[float, float]:
    """The interval of a rate out of n."""
    z = 1.96
    middle = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
    return max(0.0, min(rate, float(middle - half))), min(1.0, max(rate, float(middle + half)))
