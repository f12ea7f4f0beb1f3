"""Another share of true answers, against data that have it; the promise of a threshold, kept in simulated worlds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import beta

from anchorscope.stats.calibration import (
    Threshold,
    threshold_at_coverage,
    threshold_at_risk,
    without_dominated,
)

SPLITS = 200


def _tied(rng, n):
    said = rng.integers(0, 8, n) / 7
    return said, rng.random(n) < 0.2 + 0.78 * said


def _rare(rng, n):
    """Few answers are true; the detector knows most of them."""
    truthful = rng.random(n) < 0.15
    return expit(rng.normal(np.where(truthful, 2, -1.5), 1)), truthful


def _best_are_wrong(rng, n):
    said = rng.random(n)
    return said, rng.random(n) < np.where(said > 0.97, 0.75, 0.5 + said / 2)


WORLDS = {
    "best are wrong": (_best_are_wrong, 0.2),
    "tied": (_tied, 0.15),
    "rare": (_rare, 0.2),
}


def _true_risk(threshold: Threshold, said, truthful) -> float:
    accepted = said >= threshold.probability
    return float((~truthful[accepted]).mean()) if accepted.any() else 0.0


@pytest.mark.parametrize("world", WORLDS)
def test_the_promise_is_kept_and_is_not_idle(world):
    draw, risk = WORLDS[world]
    rng = np.random.default_rng(7)
    new = draw(rng, 100_000)
    found = [threshold_at_risk(*draw(rng, 400), risk) for _ in range(SPLITS)]
    kept = [one.probability is None or _true_risk(one, *new) <= risk for one in found]
    assert np.mean(kept) >= 0.9
    assert np.mean([one.coverage for one in found]) > 0.08
    for one in found[:20]:
        assert one.coverage == pytest.approx(
            (new[0] >= one.probability).mean() if one.probability is not None else 0.0,
            abs=0.08,
        )


@pytest.mark.parametrize("world", WORLDS)
def test_a_threshold_of_a_smaller_risk_keeps_the_larger_one_too(world):
    """Where it takes the place of the larger risk's own one, as it accepts more."""
    draw, _ = WORLDS[world]
    rng = np.random.default_rng(7)
    new, risks = draw(rng, 100_000), (0.05, 0.1, 0.2, 0.3)
    kept = {risk: [] for risk in risks}
    for _ in range(60):
        said, truthful = draw(rng, 150)
        own = [threshold_at_risk(said, truthful, risk) for risk in risks]
        stated = without_dominated([threshold_at_coverage(said, truthful, 0.3), *own])
        for risk in risks:
            within = [each for each in stated if each.risk <= risk]
            if within:
                used = max(within, key=lambda each: each.risk)
                kept[risk].append(
                    used.probability is None or _true_risk(used, *new) <= risk
                )
    assert all(np.mean(kept[risk]) >= 0.9 for risk in risks), kept


def test_a_risk_that_no_threshold_keeps_is_not_reachable():
    rng = np.random.default_rng(8)
    # Scores that say nothing.
    found = [
        threshold_at_risk(rng.random(400), rng.random(400) < 0.6, 0.2)
        for _ in range(SPLITS)
    ]
    assert np.mean([one.probability is None for one in found]) >= 0.9
    nothing = next(one for one in found if one.probability is None)
    assert (nothing.probability, nothing.coverage, nothing.n) == (None, 0.0, 400)
    # too few to prove anything
    assert threshold_at_risk(np.ones(5), np.ones(5, bool), 0.05).probability is None
    assert threshold_at_risk([], [], 0.05).probability is None


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=60
    ),
    risk=st.floats(0.05, 0.9),
)
def test_what_is_accepted_passes_the_bound_of_clopper_and_pearson(rows, risk):
    said, truthful = (
        np.array([row[0] for row in rows]) / 20,
        np.array([row[1] for row in rows]),
    )
    found = threshold_at_risk(said, truthful, risk)
    assert found.n == len(rows)
    if found.probability is None:
        return
    accepted = said >= found.probability
    errors, n = int((~truthful[accepted]).sum()), int(accepted.sum())
    assert found.coverage == pytest.approx(n / len(rows))
    assert errors < n
    assert beta.ppf(1 - found.delta, errors + 1, n - errors) <= risk + 1e-9


_SHARES, _APART = np.array([0.5, 0.2, 0.08]), np.array([2.0, 1.0, 0.3])


def _answers(n, rng):
    """Answers of three relations: the fewer are true, the harder they are told apart."""
    relation = rng.integers(3, size=n)
    truthful = rng.random(n) < _SHARES[relation]
    return (
        relation,
        truthful,
        expit(rng.normal(size=n) + _APART[relation] * np.where(truthful, 1, -1)),
    )


def _balanced(n, rng):
    """As many true as false answers of every relation, and how many of all each stands for."""
    relation, truthful, probability = _answers(n, rng)
    weights = np.zeros(n)
    for one in range(3):
        cells = [
            np.flatnonzero((relation == one) & (truthful == kind))
            for kind in (True, False)
        ]
        for cell in cells:
            number = min(map(len, cells))
            weights[rng.permutation(cell)[:number]] = len(cell) / number
    used = weights > 0
    return probability[used], truthful[used], weights[used]


def test_the_promise_holds_where_answers_stand_for_few_or_many_by_relation():
    """Under a mere prior shift of the plain counts it is kept in less than half of the splits."""
    _, truthful, probability = _answers(100_000, np.random.default_rng(0))
    kept, plain, reached = [], [], []
    for split in range(100):
        said, labels, weights = _balanced(2500, np.random.default_rng([1, split]))
        found = threshold_at_risk(said, labels, 0.3, weights=weights)
        shifted = np.where(labels, weights[labels].mean(), weights[~labels].mean())
        before = threshold_at_risk(said, labels, 0.3, shifted)
        for one, into in ((found, kept), (before, plain)):
            accepted = probability >= (
                2.0 if one.probability is None else one.probability
            )
            into.append(not accepted.any() or (~truthful[accepted]).mean() <= 0.3)
        reached.append(found.probability is not None)
    assert np.mean(kept) >= 0.9
    assert np.mean(plain) < 0.5
    assert np.mean(reached) > 0.5
