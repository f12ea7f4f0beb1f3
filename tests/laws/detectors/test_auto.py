"""`auto` is never worse than confidence: where a probe does not carry over to other domains, it is confidence."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.detectors.auto import compare
from anchorscope.detectors.evaluation import Dataset, pooled
from anchorscope.detectors.features import CLEAN, CONFIDENCE, Features
from anchorscope.detectors.training import INNER_FOLDS, whole_set
from anchorscope.stats.auc import auc
from made_detection import made_dataset, made_fits

DOMAINS, WIDTH = 6, 12


def made_world(transfers: bool, seed: int = 0, n: int = 360, new: bool = False) -> Dataset:
    """Six relations. Truth lies along one direction in all of them, or along another one in each; in a new world's
    relations it then lies along none. Confidence is equally good everywhere."""
    rng = np.random.default_rng(seed)
    made = made_dataset(n=n, seed=seed, name="new" if new else "made")
    relation = np.arange(n) // 2 % DOMAINS
    truth = np.where(made.examples.labels, 1.0, -1.0)
    direction = np.zeros((n, WIDTH))
    if transfers:
        direction[:, 0] = 1.5
    elif not new:
        direction[np.arange(n), relation] = 4.0
    states = {
        (CLEAN, site, layer): torch.from_numpy(
            (rng.normal(size=(n, WIDTH)) + truth[:, None] * direction).astype(np.float32)
        )
        for site in ("mlp", "residual")
        for layer in (3, 4)
    }
    columns = {name: rng.normal(size=n) + 0.35 * truth for name in CONFIDENCE}
    relations = [f"relation {number}" for number in relation]
    return replace(
        made,
        features=Features(n, states, columns),
        examples=replace(made.examples, relations=relations),
        texts=replace(made.texts, relations=relations),
    )


@pytest.mark.parametrize("seed", range(3))
def test_where_the_probe_does_not_transfer_auto_is_confidence(seed: int) -> None:
    fits = made_fits(made_world(transfers=False, seed=seed))
    auto, confidence = (fits.fit(name).build(2) for name in ("auto", "confidence"))
    assert set(fits.choices) == {"confidence"}
    assert auto.needs == confidence.needs
    unseen = made_world(transfers=False, seed=seed + 50, new=True)
    areas = {
        name: float(auc(fits.fit(name).build(2).log_odds(unseen.features), unseen.examples.labels))
        for name in ("auto", "confidence", "probe+confidence")
    }
    assert areas["auto"] == pytest.approx(areas["confidence"], abs=0.005)
    assert areas["probe+confidence"] < areas["confidence"] - 0.05, "what in-domain folds would have chosen"
    scores = {name: fits.fit(name).scores[0].numpy() for name in ("confidence", "probe+confidence")}
    outside = ~fits.data.training.members[0]
    labels = fits.data.training.labels[0][outside]
    own, other = (float(auc(scores[name][outside], labels)) for name in ("probe+confidence", "confidence"))
    assert own > other + 0.02, "in-domain the probe helps"


def test_where_the_probe_transfers_auto_uses_it() -> None:
    fits = made_fits(made_world(transfers=True))
    assert "confidence" not in (fits.fit("auto") and fits.choices)
    unseen = made_world(transfers=True, seed=50, new=True)
    auto, confidence = (
        float(auc(fits.fit(name).build(2).log_odds(unseen.features), unseen.examples.labels))
        for name in ("auto", "confidence")
    )
    assert auto > confidence + 0.02


def test_inner_folds_leave_out_whole_domains_unless_there_are_too_few() -> None:
    data = made_world(transfers=True, n=120)
    training = whole_set(data.examples, 0, "made")
    domains = np.arange(120) // 2 % DOMAINS
    left_out = training.leaving_out(domains)
    assert all(len(set(left_out.inner[0][domains == domain])) == 1 for domain in range(DOMAINS))
    assert set(left_out.inner[0]) == set(range(INNER_FOLDS))
    np.testing.assert_array_equal(training.leaving_out(domains % 2).inner, training.inner)


def test_domains_are_datasets_where_there_are_enough() -> None:
    three = pooled([made_dataset(n=20, seed=seed, name=f"set {seed}") for seed in range(3)], "all")
    assert set(three.texts.domains) == {"set 0", "set 1", "set 2"}
    two = pooled([made_dataset(n=20, seed=seed, name=f"set {seed}") for seed in range(2)], "all")
    assert len(set(two.texts.domains)) == 6


def test_domains_that_disagree_make_a_gain_uncertain() -> None:
    labels, domains = np.arange(400) % 2 == 0, np.arange(400) // 100
    even = np.full(400, 0.02) + 0.001 * np.sin(np.arange(400))
    uneven = 0.02 + np.array([0.2, -0.2, 0.2, -0.2])[domains]
    assert compare(even, labels, domains)[1] < 0.001
    assert compare(uneven, labels, domains)[1] == pytest.approx(np.std([0.2, -0.2, 0.2, -0.2], ddof=1) / 2)
