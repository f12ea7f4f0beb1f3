"""From a detector's log-odds to a calibrated probability (Platt scaling), and to a threshold with a guarantee.

**From which probability on may answers be accepted**, if at most a given share may be false? Candidates are tried from
the strictest to the laxest (learn then test, fixed sequence). Each passes if so few false answers would be seen with a
probability of at most delta, were the error rate above the risk (exact binomial test); the first failure ends it. For
answers drawn like the calibration answers, none of which fitted anything, the error rate among accepted ones is then at
most `risk` with probability 1 − delta. Under a prior shift the odds that an accepted answer is false change by a known
factor: the same test is made at the risk that corresponds to the wanted one.

**Weights within a class**, as of answers balanced within relations, are no prior shift. There each candidate is tested
by a bet: with y = weight · (false − risk) of an accepted answer and 0 of any other, the product of 1 − λy has a mean of
at most 1 if the weighted error rate is above the risk, for any λ between 0 and 1 / largest y; so has the mean over
several λ. It exceeds 1 / delta with a probability of at most delta (Ville, Markov).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

Floats = NDArray[np.float64]

DELTA = 0.1
"""How often the promise may fail."""
_CANDIDATES = 200  # the more, the closer the threshold comes to the best one; each is a step of the sequence
_FIRST_ERRORS = 2
"""The first candidate accepts so many answers that it passes with two false ones. With fewer, one false answer among
the very best ends the search at once; with more, a detector that is sure of few answers may accept none."""
_BETS = 100  # stakes λ, evenly spread over what is allowed


@dataclass(frozen=True)
class Calibration:
    """How log-odds become a probability."""

    slope: float
    intercept: float
    prevalence: float
    """Share of true answers where it was fitted."""

    def probability(self, log_odds: ArrayLike) -> Floats:
        return expit(self.slope * np.asarray(log_odds, np.float64) + self.intercept)


@dataclass(frozen=True)
class Threshold:
    """From which probability on an answer is accepted."""

    risk: float
    """Largest share of false answers among the accepted ones."""
    delta: float
    """How often the promise may fail."""
    probability: float | None
    """Accept where the probability is at least this; None: not reachable with these answers."""
    coverage: float
    """Share of all answers that are accepted; 0 where the risk is not reachable."""
    n: int
    """Calibration answers."""
    prevalence: float | None = None
    """Share of true answers that the promise is for; None: that of the calibration answers."""

    @property
    def lowest(self) -> float:
        """The least probability that is accepted; infinity where the risk could not be reached."""
        return np.inf if self.probability is None else self.probability


def threshold_at_risk(
    probability: ArrayLike,
    truthful: ArrayLike,
    risk: float,
    weights: ArrayLike | None = None,
) -> Threshold:
    """The laxest threshold on these probabilities [item] that keeps the risk.

    With `weights` [item], the promise is for the data that the weighted answers stand for.
    """
    from scipy.stats import binom  # only here: it takes a second, and no score needs it

    ranked = _Ranked.of(probability, truthful, weights)
    n, labels, mass = len(ranked.probability), ranked.truthful, ranked.mass
    sizes, passes = np.arange(n + 1), ranked.passes(risk)
    if ranked.bets:
        first = sizes[_capital_at(sizes, labels, mass, risk) >= 1 / DELTA]
    else:
        first = sizes[
            binom.cdf(_FIRST_ERRORS, sizes, ranked.tested_risk(risk)) <= DELTA
        ]
    places = (
        np.unique(np.linspace(first[0], n, _CANDIDATES).astype(int))
        if len(first)
        else np.zeros(0, int)
    )
    # Accepted are those above the answer at a place; behind the last place, all.
    accepted = ranked.accepted_above(places)
    best: tuple[float, int] | None = None
    for place, number in zip(places, accepted, strict=True):
        if number < first[0]:
            continue  # so many are equal that the first candidates accept too few
        if not passes[number]:
            break
        best = (ranked.above(place), int(number))
    if best is None:
        return Threshold(risk, DELTA, None, 0.0, n, ranked.prevalence)
    return Threshold(
        risk, DELTA, best[0], ranked.coverage(best[1]), n, ranked.prevalence
    )


def threshold_at_coverage(
    probability: ArrayLike,
    truthful: ArrayLike,
    coverage: float,
    weights: ArrayLike | None = None,
) -> Threshold:
    """Accepts this share of the answers, the most probable ones; its risk is the lowest, in whole per cent up to 50 %,
    that the test of `threshold_at_risk` allows. As the number of answers is fixed beforehand, one test is enough."""
    ranked = _Ranked.of(probability, truthful, weights)
    n = len(ranked.probability)
    last = np.array([min(n, int(np.ceil(coverage * n)))])
    number = int(ranked.accepted_above(last)[0])
    for risk in np.arange(1, 51) / 100:
        if ranked.passes(float(risk))[number]:
            least = ranked.above(int(last[0]))
            return Threshold(
                float(risk), DELTA, least, ranked.coverage(number), n, ranked.prevalence
            )
    return Threshold(0.5, DELTA, None, 0.0, n, ranked.prevalence)


def without_dominated(thresholds: Sequence[Threshold]) -> tuple[Threshold, ...]:
    """The thresholds that accept more answers than each one for a smaller risk: what keeps 27 % keeps 30 %, too.

    The order stays. Where a threshold is left out, the one that accepts at least as much at a smaller risk takes its
    place.
    """
    taken_by: dict[Threshold, Threshold] = {}
    laxest: Threshold | None = None
    for threshold in sorted(thresholds, key=lambda each: (each.risk, each.lowest)):
        if (
            laxest is None
            or laxest.lowest == np.inf
            or threshold.lowest < laxest.lowest
        ):
            laxest = threshold
        taken_by[threshold] = laxest
    return tuple(dict.fromkeys(taken_by[threshold] for threshold in thresholds))


@dataclass(frozen=True)
class _Ranked:
    """Calibration answers, the most probable first."""

    probability: Floats
    truthful: NDArray[np.bool_]
    mass: Floats
    prevalence: float | None
    """Share of true answers by weight; None where no weights are given."""

    @classmethod
    def of(
        cls, probability: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None
    ) -> "_Ranked":
        claimed, labels = (
            np.asarray(probability, np.float64),
            np.asarray(truthful, bool),
        )
        mass = (
            np.ones(len(claimed))
            if weights is None
            else np.asarray(weights, np.float64)
        )
        order = np.argsort(-claimed, kind="stable")
        prevalence = None if weights is None else float(mass[labels].sum() / mass.sum())
        return cls(claimed[order], labels[order], mass[order], prevalence)

    @property
    def bets(self) -> bool:
        """Whether answers of one class have different weights."""
        kinds = [self.mass[self.truthful == kind] for kind in (False, True)]
        return any(
            len(kind) and np.ptp(kind) > 1e-9 * self.mass.max() for kind in kinds
        )

    def tested_risk(self, risk: float) -> float:
        """The risk that is tested on plain counts: the given one, if as many of all answers were true as there."""
        if self.prevalence is None:
            return risk
        share_true = float(self.truthful.mean())
        if not 0 < share_true < 1:
            raise ValueError(
                "another prevalence needs calibration answers of both kinds, true and false"
            )
        return float(
            expit(logit(risk) + logit(1 - share_true) - logit(1 - self.prevalence))
        )

    def passes(self, risk: float) -> NDArray[np.bool_]:
        """Whether the first 0 … n answers pass the test of a risk."""
        from scipy.stats import binom

        if self.bets:
            return np.asarray(_capital(self.truthful, self.mass, risk) >= 1 / DELTA)
        errors = np.append(0, np.cumsum(~self.truthful))
        return np.asarray(
            binom.cdf(errors, np.arange(len(errors)), self.tested_risk(risk)) <= DELTA
        )

    def accepted_above(self, places: NDArray[Any]) -> NDArray[np.int64]:
        """How many answers are more probable than those at some places; all behind the last."""
        n = len(self.probability)
        limits = -self.probability[np.minimum(places, n - 1)]
        return np.where(
            places == n, n, np.searchsorted(-self.probability, limits, side="left")
        )

    def above(self, place: int) -> float:
        """The probability that accepts what is more probable than the answer at a place."""
        return (
            0.0
            if place == len(self.probability)
            else float(np.nextafter(self.probability[place], 2.0))
        )

    def coverage(self, number: int) -> float:
        """Share of all answers, by weight, that the first ones are."""
        return float(self.mass[:number].sum() / self.mass.sum())


def _capital(ranked_truthful: np.ndarray, mass: np.ndarray, risk: float) -> np.ndarray:
    """What a bet against "the weighted error rate is above the risk" has won, where the first 0 … n are accepted."""
    lost = mass * (~ranked_truthful - risk)
    won = np.cumsum(np.log1p(-_stakes(lost.max())[:, None] * lost), axis=1)
    return np.append(1.0, np.exp(won).mean(axis=0))


def _capital_at(
    sizes: np.ndarray, truthful: np.ndarray, mass: np.ndarray, risk: float
) -> np.ndarray:
    """What it would have won on so many answers of usual weight, with so few errors as the first candidate may have."""
    stakes = _stakes((1 - risk) * mass[~truthful].max())[:, None]
    by_true, by_false = (
        np.log1p(stakes * risk * mass[truthful].mean()),
        np.log1p(-stakes * (1 - risk) * mass[~truthful].mean()),
    )
    errors = np.minimum(_FIRST_ERRORS, sizes)
    return np.exp(by_true * (sizes - errors) + by_false * errors).mean(axis=0)


def _stakes(largest: float) -> np.ndarray:
    """Stakes λ under which no bet loses more than there is."""
    return (np.arange(_BETS) + 0.5) / _BETS / largest
