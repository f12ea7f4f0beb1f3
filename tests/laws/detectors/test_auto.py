"""`auto` is the best stack near its training data, and never worse than confidence on other data."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.detectors.auto import CLUSTERS, Ranges, compare, domain_codes
from anchorscope.detectors.evaluation import pooled
from anchorscope.detectors.features import CLEAN, CONFIDENCE, Features
from anchorscope.detectors.training import INNER_FOLDS, Dataset, whole_set
from anchorscope.stats.auc import auc
from made_detection import made_dataset, made_fits

DOMAINS, WIDTH = 6, 24
TRANSFERS, OWN_DIRECTION, FLIPPED = "transfers", "own direction", "flipped"


def made_world(kind: str, seed: int = 0, n: int = 480, new: bool = False, named: bool = True) -> Dataset:
    """Six relations, each in a region of its own; confidence is equally good everywhere. Truth lies along one direction
    in all of them, along another one in each, or along one direction whose sign differs between relations. A new
    world's relations are others: `transfers` has the same direction there, `own direction` none, `flipped` the opposite
    one of most training relations."""
    rng = np.random.default_rng([seed, new])
    made = made_dataset(n=n, seed=seed, name="new" if new else "made")
    relation = np.arange(n) // 2 % DOMAINS
    truth = np.where(made.labels, 1.0, -1.0)
    direction = np.zeros((n, WIDTH))
    if kind == OWN_DIRECTION:
        direction[np.arange(n), relation] = 0.0 if new else 2.0
    else:
        sign = np.where(relation < 2, -1.0, 1.0) if kind == FLIPPED else 1.0
        direction[:, 0] = 1.5 * (-1.0 if kind == FLIPPED and new else sign)
    region = np.zeros((n, WIDTH))
    region[np.arange(n), WIDTH // 2 + relation + DOMAINS * new] = 6.0
    states = {
        (CLEAN, site, layer): torch.from_numpy(
            (rng.normal(size=(n, WIDTH)) + truth[:, None] * direction + region).astype(np.float32)
        )
        for site in ("mlp", "residual")
        for layer in (3, 4)
    }
    columns = {name: rng.normal(size=n) + 0.35 * truth for name in CONFIDENCE}
    relations = [f"relation {number}" if named else None for number in relation]
    return replace(made, features=Features(n, states, columns), relations=relations)


def areas_of(fits, unseen: Dataset, names: tuple[str, ...]) -> tuple[list[float], list[float]]:
    """AUC of detectors on held-out answers of the training domains, and on a new world."""
    labels, outside = fits.data.training.labels[0], ~fits.data.training.members[0]
    own = [float(auc(fits.fit(name).scores[0].numpy()[outside], labels[outside])) for name in names]
    built = [fits.fit(name).build(2) for name in names]
    return own, [float(auc(fitted.log_odds(unseen.features), unseen.labels)) for fitted in built]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", [OWN_DIRECTION, FLIPPED])
@pytest.mark.parametrize("seed", range(2))
def test_where_the_probe_does_not_transfer_auto_keeps_confidence_there_and_the_stack_at_home(
    seed: int, kind: str, named: bool
) -> None:
    fits = made_fits(made_world(kind, seed, named=named))
    unseen = made_world(kind, seed + 50, new=True)
    own, new = areas_of(fits, unseen, ("auto", "confidence", "probe+confidence"))
    assert new[2] < new[1] - 0.02, "the probe misleads on other data"
    assert new[0] > new[1] - 0.01
    if kind == OWN_DIRECTION:
        assert own[0] > own[2] > own[1] + 0.02, "at home the probe helps"


def test_where_the_probe_transfers_auto_uses_it() -> None:
    fits = made_fits(made_world(TRANSFERS))
    own, new = areas_of(fits, made_world(TRANSFERS, seed=50, new=True), ("auto", "confidence"))
    assert min(own[0] - own[1], new[0] - new[1]) > 0.02


def test_data_without_domains_are_parted_into_clusters_of_alike_states() -> None:
    data = made_world(TRANSFERS, named=False)
    codes = domain_codes(made_fits(data).data, data.domains)
    assert INNER_FOLDS <= len(set(codes)) <= CLUSTERS
    region = np.arange(480) // 2 % DOMAINS
    assert np.mean([np.bincount(region[codes == code]).max() / (codes == code).sum() for code in set(codes)]) > 0.75


def test_inner_folds_leave_out_whole_domains_unless_there_are_too_few() -> None:
    data = made_world(TRANSFERS, n=120)
    training = whole_set(data, 0, "made")
    domains = np.arange(120) // 2 % DOMAINS
    left_out = training.leaving_out(domains)
    assert all(len(set(left_out.inner[0][domains == domain])) == 1 for domain in range(DOMAINS))
    assert set(left_out.inner[0]) == set(range(INNER_FOLDS))
    np.testing.assert_array_equal(training.leaving_out(domains % 2).inner, training.inner)


def test_domains_are_datasets_where_there_are_enough() -> None:
    three = pooled([made_dataset(n=20, seed=seed, name=f"set {seed}") for seed in range(3)], "all")
    assert set(three.domains) == {"set 0", "set 1", "set 2"}
    two = pooled([made_dataset(n=20, seed=seed, name=f"set {seed}") for seed in range(2)], "all")
    assert len(set(two.domains)) == 6


def test_domains_that_disagree_make_a_gain_uncertain() -> None:
    labels, domains = np.arange(400) % 2 == 0, np.arange(400) // 100
    even = np.full(400, 0.02) + 0.001 * np.sin(np.arange(400))
    uneven = 0.02 + np.array([0.2, -0.2, 0.2, -0.2])[domains]
    assert compare(even, labels, domains)[1] < 0.001
    assert compare(uneven, labels, domains)[1] == pytest.approx(np.std([0.2, -0.2, 0.2, -0.2], ddof=1) / 2)


def test_the_range_knows_its_own_and_tells_strangers() -> None:
    generator = torch.Generator().manual_seed(3)
    mixing = torch.randn(24, 24, generator=generator)
    own, more = (torch.randn(n, 24, generator=generator) @ mixing + 5 for n in (1000, 2000))
    made = replace(made_dataset(n=1000), groups=np.arange(1000), features=Features(1000, {(CLEAN, "mlp", 3): own}, {}))
    span = Ranges(made_fits(made).data, made.groups, made.groups).build(2)
    assert (span.distance_of(more) > span.limit).mean() == pytest.approx(0.05, abs=0.02)
    assert (span.distance_of(own) <= span.limit).mean() > 0.95
    assert (span.distance_of(more + 60 * mixing[0]) > span.limit).all()
    assert (span.distance_of(-more) > span.limit).mean() > 0.5
