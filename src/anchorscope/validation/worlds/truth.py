"""What an endless sample of a world would tell: the share of the evidence that is the question's, and how well anybody
could tell the items' kinds.

The share is Λ by its definition, with the best linear probe and the best linear explanation from the cut state, over
items so many that nothing is left to estimation. Of Gaussian evidence in both parts it is
[μ_q²/(1 + μ_a²)] / (μ_q² + μ_a²): evidence that both parts have counts as the answer's.

The ceiling is the AUC, within true and within false answers, of whoever knows the world's every number and computes
the likelihood of both kinds. What is not reached by him is not asked of a rule.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit, logsumexp
from scipy.stats import norm

from anchorscope.stats.auc import auc
from anchorscope.validation.worlds.states import Planted, plant, question_share_of
from anchorscope.validation.worlds.world import World

N_ENDLESS = 300_000
"""Items that stand for endlessly many: a share is then off by about 0.003."""
_FOR_CEILING = 40_000  # of them, from which the ceiling is computed
_NEWTON_STEPS = 7
_GRADES = 21  # shares that the ceiling of graded worlds is summed over

Columns = Float[np.ndarray, "item direction"]


@dataclass(frozen=True)
class Truth:
    """What is so in a world."""

    share: float
    """Λ of the cut that is made."""
    whole_share: float
    """Λ of a cut that misses nothing."""
    probe_auc: float
    """AUC of the best linear probe."""
    ceiling: tuple[float, float]
    """AUC for the kind that can be reached, within true and within false answers; NaN where there are no kinds."""

    @property
    def label_ceiling(self) -> float:
        """What can be reached of Gaussian evidence by whoever knows nothing but the label to refer to."""
        return float(norm.cdf(norm.ppf(self.probe_auc) / 2))


def find_truth(world: World, rng: np.random.Generator, n_items: int = N_ENDLESS) -> Truth:
    """Shares and ceiling, from one large draw."""
    planted = plant(world, n_items, 1, rng)
    log_odds = best_probe(planted.clean[0], planted.labels)
    share = linear_share(log_odds, planted.cut[0], planted.labels)
    whole = share
    if world.missed:
        complete = plant(replace(world, missed=0.0), n_items, 1, rng)
        whole = linear_share(best_probe(complete.clean[0], complete.labels), complete.cut[0], complete.labels)
    return Truth(share, whole, float(auc(log_odds, planted.labels)), _ceiling(world, planted))


def best_probe(states: Columns, labels: Bool[np.ndarray, " item"]) -> Float[np.ndarray, " item"]:
    """Log-odds by logistic regression without a penalty (Newton's method)."""
    columns = np.column_stack([states, np.ones(len(states))])
    weight = np.zeros(columns.shape[1])
    for _ in range(_NEWTON_STEPS):
        sure = expit(columns @ weight)
        curvature = (columns * (sure * (1 - sure))[:, None]).T @ columns
        weight += np.linalg.lstsq(curvature, columns.T @ (labels - sure), rcond=None)[0]
    return columns @ weight


def linear_share(log_odds: Float[np.ndarray, " item"], cut: Columns, labels: Bool[np.ndarray, " item"]) -> float:
    """Σ (s − ŝ)(z − ẑ) / Σ s·z, both explained from the cut states by least squares."""
    sign = np.where(labels, 1.0, -1.0)
    targets = np.column_stack([sign, log_odds])
    columns = np.column_stack([cut, np.ones(len(cut))])
    left = targets - columns @ np.linalg.lstsq(columns, targets, rcond=None)[0]
    return float(left[:, 0] @ left[:, 1] / (sign @ log_odds))


def _ceiling(world: World, planted: Planted) -> tuple[float, float]:
    if not world.has_kinds:
        return float("nan"), float("nan")
    few = slice(_FOR_CEILING)
    planted = Planted(
        planted.labels[few], planted.relations[few], planted.kind[:, few], planted.clean[:, few], planted.cut[:, few]
    )
    belief, kind, true = _posterior_share(world, planted), planted.kind[0] > 0.5, planted.labels
    return float(auc(belief[true], kind[true])), float(auc(belief[~true], kind[~true]))


def _posterior_share(world: World, planted: Planted) -> Float[np.ndarray, " item"]:
    """The expected kind of each item, given its label and all of its directions."""
    graded = world.division == "graded"
    kinds = (np.arange(_GRADES) + 0.5) / _GRADES if graded else np.array([0.0, 1.0])
    likely = question_share_of(world, planted.labels, planted.relations)
    log_p = np.zeros((len(kinds), len(likely)))
    question, answer, *leaning = np.moveaxis(planted.clean[0], -1, 0)
    sign = np.where(planted.labels, 1.0, -1.0)
    for place, kind in enumerate(kinds):
        if not graded:
            log_p[place] += np.log(likely if kind else 1 - likely)
        log_p[place] += _log_evidence(world, kind, sign, question, answer)
        if world.visible:
            log_p[place] += norm.logpdf(leaning[0], world.visible * (2 * kind - 1))
        if world.hidden:
            wanted = 1.0 if kind > 0.5 else -1.0
            ways = [
                norm.logpdf(leaning[0], world.hidden * one) + norm.logpdf(leaning[1], world.hidden * one * wanted)
                for one in (1.0, -1.0)
            ]
            log_p[place] += logsumexp(ways, axis=0)
    posterior = np.exp(log_p - logsumexp(log_p, axis=0))
    return kinds @ posterior


def _log_evidence(
    world: World, kind: float, sign: np.ndarray, question: np.ndarray, answer: np.ndarray
) -> Float[np.ndarray, " item"]:
    """How likely both parts are, given the kind and a label that may be wrong."""
    ways = []
    for turned, often in ((1.0, 1 - world.label_noise), (-1.0, world.label_noise)):
        if often:
            mean = turned * world.strength * sign
            of_parts = norm.logpdf(question, np.sqrt(kind) * mean) + norm.logpdf(answer, np.sqrt(1 - kind) * mean)
            ways.append(np.log(often) + of_parts)
    return logsumexp(ways, axis=0)
