"""From a detector's log-odds to a probability that can be taken at its word, and to a threshold with a promise.

Platt scaling is a logistic regression with one feature, the log-odds: slope · log-odds + intercept. It holds for data
in which as many answers are true as where it was fitted. Where another share is true, and the true answers among
themselves and the false ones among themselves look the same (prior shift), Bayes' rule adds a constant to the log-odds.

**From which probability on may answers be accepted**, if at most a given share of the accepted ones may be false?
Candidates are tried from the strictest to the laxest (learn then test, with a fixed sequence): each accepts some of
the calibration answers, and passes if, were the error rate above the risk, so few false ones among so many would be
seen with a probability of at most delta (exact binomial test; the upper bound of Clopper and Pearson). The first
candidate that fails ends the search; the last that passed is the threshold. As the search stops at the first failure,
nothing has to be paid for the number of candidates.

**What is promised.** For answers drawn as the calibration answers were (independent, and none of them used to fit
detector or calibration), the error rate among accepted answers is at most `risk`, with probability 1 − delta over the
draw of the calibration answers. Candidates are order statistics of the calibration probabilities: given the k-th
largest, those above it are independent draws from what a threshold there accepts, so each single test is exact; so is
the sequence if the error rate rises above `risk` once and stays there as the threshold falls, which is what it does
with a useful score. Nothing is promised on other data. Several answers of one question are no independent draws: give
one per question.

**Another prevalence.** Calibration answers are often balanced, half true, while of the answers to come 5 % are.
Weighted counts with an effective sample size would not do: where no false answer was accepted, nothing would tell how
heavy one would have been, and the bound comes out far too low. But under a prior shift the
odds of an accepted answer to be false change by a known factor. So the same exact test is done on the same counts, at
the risk that corresponds to the wanted one.

**Weights within a class.** Answers that were balanced within relations stand for few or for many others, by relation:
that is no prior shift. If false answers of hard relations stand for many, the exact test on plain counts breaks its
promise. There each candidate is tested by a bet instead: with y = weight · (false − risk) of an accepted answer and 0
of any other, the product of 1 − λy over all answers is 1 at most in the mean if the weighted error rate is above the
risk, whatever λ between 0 and 1 / largest y; so is the mean over several λ. It exceeds 1 / delta with a probability of
at most delta (Ville, Markov). It takes more answers than the exact test.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """How log-odds become a probability."""

    slope: float
    intercept: float
    prevalence: float
    """Share of true answers where it was fitted."""

    def probability(self, log_odds: ArrayLike, prevalence: float | None = None) -> Floats:
        """Probability of "truthful", for data with so large a share of true answers (none: as where it was fitted)."""
        scaled = self.slope * np.asarray(log_odds, np.float64) + self.intercept
        return expit(scaled if prevalence is None else at_prevalence(scaled, self.prevalence, prevalence))


def at_prevalence(log_odds: ArrayLike, trained_at: float, wanted: float) -> Floats:
    """Calibrated log-odds where another share of the answers is true (prior shift)."""
    for share in (trained_at, wanted):
        if not 0 < share < 1:
            raise ValueError(f"a prevalence lies between 0 and 1, both excluded; found {share:.4g}")
    return np.asarray(log_odds, np.float64) + (logit(wanted) - logit(trained_at))


DELTA = 0.1
"""How often the promise may fail."""
_CANDIDATES = 200  # the more, the closer the threshold comes to the best one; each is a step of the sequence
_FIRST_ERRORS = 2
"""The first candidate accepts so many answers that it passes with two false ones. With fewer, one false answer among
the very best ends the search at once; with more, a detector that is sure of few answers may accept none."""


_BETS = 100  # stakes λ, evenly spread over what is allowed


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
    def reachable(self) -> bool:
        """Whether any answer may be accepted."""
        return self.probability is not None

    def to_dict(self) -> dict[str, Any]:
        """As plain values, to store."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Threshold":
        """Of stored values."""

        def known(name: str) -> float | None:
            return None if values.get(name) is None else float(values[name])

        risk, delta, coverage = (float(values[name]) for name in ("risk", "delta", "coverage"))
        return cls(risk, delta, known("probability"), coverage, int(values["n"]), known("prevalence"))


def threshold_at_risk(
    probability: ArrayLike,
    truthful: ArrayLike,
    risk: float,
    delta: float = DELTA,
    prevalence: float | None = None,
    weights: ArrayLike | None = None,
) -> Threshold:
    """The laxest threshold on these probabilities [item] that keeps the risk.

    With a `prevalence`, the promise is for data with so large a share of true answers, under a prior shift; with
    `weights` [item], for the data that the weighted answers stand for, and the prevalence is theirs.
    """
    from scipy.stats import binom  # only here: it takes a second, and no score needs it

    if not 0 < risk < 1 or not 0 < delta < 1:
        raise ValueError(f"risk and delta lie between 0 and 1; found {risk:.4g} and {delta:.4g}")
    said, labels = np.asarray(probability, np.float64), np.asarray(truthful, bool)
    if len(said) and not (said.min() >= 0 and said.max() <= 1):
        raise ValueError(f"a probability lies between 0 and 1; found {said.min():.4g} to {said.max():.4g}")
    n = len(said)
    mass = None if weights is None else np.asarray(weights, np.float64)
    if mass is not None:
        prevalence = float(mass[labels].sum() / mass.sum())
    order = np.argsort(-said, kind="stable")
    ranked, errors = said[order], np.append(0, np.cumsum(~labels[order]))
    tested = risk if prevalence is None else _risk_here(risk, float(labels.mean()), prevalence)
    bets = mass is not None and any(np.ptp(mass[labels == kind]) > 1e-9 * mass.max() for kind in (False, True))
    sizes = np.arange(n + 1)
    first = sizes[
        _capital_at(sizes, labels, mass, risk) >= 1 / delta
        if mass is not None and bets
        else binom.cdf(_FIRST_ERRORS, sizes, tested) <= delta
    ]
    places = np.unique(np.linspace(first[0], n, _CANDIDATES).astype(int)) if len(first) else np.zeros(0, int)
    # Accepted are those above the answer at a place; behind the last place, all.
    accepted = np.where(places == n, n, np.searchsorted(-ranked, -ranked[np.minimum(places, n - 1)], side="left"))
    if mass is not None and bets:
        passed = _capital(labels[order], mass[order], risk)[accepted] >= 1 / delta
    else:
        passed = binom.cdf(errors[accepted], accepted, tested) <= delta
    best: tuple[float, int] | None = None
    for place, number, fine in zip(places, accepted, passed, strict=True):
        if number < first[0]:
            continue  # so many are equal that the first candidates accept too few
        if not fine:
            break
        best = (0.0 if place == n else float(np.nextafter(ranked[place], 2.0)), int(number))
    if best is None:
        return Threshold(risk, delta, None, 0.0, n, prevalence)
    told = (
        _coverage(labels[order], best[1], prevalence)
        if mass is None
        else float(mass[order][: best[1]].sum() / mass.sum())
    )
    return Threshold(risk, delta, best[0], told, n, prevalence)


def _capital(ranked_truthful: np.ndarray, mass: np.ndarray, risk: float) -> np.ndarray:
    """What a bet against "the weighted error rate is above the risk" has won, where the first 0 … n are accepted."""
    lost = mass * (~ranked_truthful - risk)
    won = np.cumsum(np.log1p(-_stakes(lost.max())[:, None] * lost), axis=1)
    return np.append(1.0, np.exp(won).mean(axis=0))


def _capital_at(sizes: np.ndarray, truthful: np.ndarray, mass: np.ndarray, risk: float) -> np.ndarray:
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


def _risk_here(risk: float, share_true: float, prevalence: float) -> float:
    """The risk among calibration answers that is the given one where another share of all answers is true."""
    if not 0 < share_true < 1:
        raise ValueError("another prevalence needs calibration answers of both kinds, true and false")
    return float(expit(at_prevalence(logit(risk), 1 - prevalence, 1 - share_true)))


def _coverage(ranked_truthful: np.ndarray, accepted: int, prevalence: float | None) -> float:
    """Share of answers accepted, true and false ones in the wanted proportion."""
    if prevalence is None:
        return accepted / len(ranked_truthful)
    true, false = ranked_truthful[:accepted].sum(), (~ranked_truthful[:accepted]).sum()
    all_true = ranked_truthful.sum()
    return float(prevalence * true / all_true + (1 - prevalence) * false / (len(ranked_truthful) - all_true))
