"""How detectors are judged, against the definitions: slow loops, scikit-learn, and who learned from whom."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import norm
from sklearn.metrics import average_precision_score, roc_auc_score

from anchorscope.detectors.evaluation import (
    Evaluation,
    Judge,
    Scored,
    TrainedOn,
    balanced_weights,
    pooled,
    row_of,
)
from anchorscope.detectors.training import (
    INNER_FOLDS,
    Dataset,
    Training,
    calibrated,
    tossed,
)
from anchorscope.progress import Silent
from anchorscope.stats.detection_metrics import reliability_bins
from made_detection import made_dataset, made_trained

N, SEEDS, RESAMPLES = 90, 3, 60


@pytest.fixture(scope="module")
def judge() -> Judge:
    """Items of unequal weight in groups of one to three."""
    rng = np.random.default_rng(1)
    made = replace(
        made_dataset(N), labels=rng.random(N) < 0.4, groups=rng.integers(0, 45, N)
    )
    return Judge(made, rng.uniform(0.2, 3, N), RESAMPLES, 0)


def scored(judge: Judge, seed: int, signal: float = 1.0) -> Scored:
    """Log-odds with ties, by three fold seeds of three folds each."""
    rng = np.random.default_rng(seed)
    return Scored(
        np.round(rng.normal(size=(SEEDS, N)) + signal * judge.dataset.labels, 1),
        rng.integers(0, 3, (SEEDS, N)),
    )


def area(
    labels: np.ndarray, scores: np.ndarray, weights: np.ndarray, strata: np.ndarray
) -> float:
    """scikit-learn's AUC within each stratum, weighted by the pairs there."""
    won = pairs = 0.0
    for one in set(strata.tolist()):
        inside = (strata == one) & (weights > 0)
        mass = weights[inside & labels].sum() * weights[inside & ~labels].sum()
        if mass > 0:
            won += mass * roc_auc_score(
                labels[inside], scores[inside], sample_weight=weights[inside]
            )
            pairs += mass
    return won / pairs


def test_values_are_means_over_the_fold_seeds_of_what_scikit_learn_says(
    judge: Judge,
) -> None:
    one = scored(judge, 5)
    found = judge.metrics(one)
    labels, weights, probability = (
        judge.dataset.labels,
        judge.weights,
        1 / (1 + np.exp(-one.log_odds)),
    )
    areas = [
        area(labels, scores, weights, strata)
        for scores, strata in zip(one.log_odds, one.strata, strict=True)
    ]
    assert found["auroc"][0] == pytest.approx(np.mean(areas), abs=1e-9)
    assert found["auroc-spread"][0] == pytest.approx(np.std(areas, ddof=1), abs=1e-9)
    precise = [
        average_precision_score(~labels, -scores, sample_weight=weights)
        for scores in one.log_odds
    ]
    assert found["auprc"][0] == pytest.approx(np.mean(precise), abs=1e-9)
    squares = [
        np.average((scores - labels) ** 2, weights=weights) for scores in probability
    ]
    assert found["brier"][0] == pytest.approx(np.mean(squares), abs=1e-9)
    assert judge.metrics(one, only_auroc=True)["auroc"][0] == found["auroc"][0]


def test_a_resample_draws_groups_and_a_fold_seed(judge: Judge) -> None:
    times = judge.drawn / judge.weights
    np.testing.assert_allclose(times, np.round(times), atol=1e-4)  # float32
    for group in np.unique(judge.dataset.groups):
        inside = times[:, judge.dataset.groups == group]
        np.testing.assert_allclose(
            inside, inside[:, :1].repeat(inside.shape[1], 1), atol=1e-4
        )
    firsts = np.unique(judge.dataset.groups, return_index=True)[1]
    np.testing.assert_allclose(times[:, firsts].sum(1), len(firsts), atol=1e-3)
    one = scored(judge, 5)
    found = judge.metrics(one)
    slow = [
        area(
            judge.dataset.labels,
            one.log_odds[row % SEEDS],
            judge.drawn[row].astype(float),
            one.strata[row % SEEDS],
        )
        for row in range(RESAMPLES)
    ]
    np.testing.assert_allclose(found["auroc"][1:], slow, atol=1e-6)
    brier = [
        np.average(
            (1 / (1 + np.exp(-one.log_odds[row % SEEDS])) - judge.dataset.labels) ** 2,
            weights=judge.drawn[row],
        )
        for row in range(RESAMPLES)
    ]
    np.testing.assert_allclose(found["brier"][1:], brier, atol=1e-6)
    row = row_of("value", found["brier"])
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(
        tuple(np.percentile(brier, [2.5, 97.5])), abs=1e-6
    )


@pytest.mark.parametrize(("n", "width", "apart"), [(150, 40, 1.5), (300, 10, 1.0)])
def test_intervals_of_the_auroc_cover_what_other_samples_give(
    n: int, width: int, apart: float
) -> None:
    """The AUROC that fits on other samples reach on average; a coverage of 95 % gives 93 or more of 100 with those."""
    rng, replicas, folds, seeds = np.random.default_rng(0), 160, 5, 3
    labels, groups, true, rows, bare = (
        np.arange(n) % 2 == 0,
        np.arange(n) // 2,
        [],
        [],
        [],
    )
    for _ in range(replicas):
        states = rng.normal(size=(n, width))
        states[:, 0] += apart * labels
        outer = np.array(
            [(rng.permutation(n // 2) % folds)[groups] for _ in range(seeds)]
        )
        scores = np.empty((seeds, n))
        for seed, fold in np.ndindex(seeds, folds):
            learns = outer[seed] != fold
            middle = states[learns].mean(0)
            spread = np.cov(states[learns].T) + 0.1 * np.eye(width)
            weight = np.linalg.solve(
                spread, (states[learns] - middle).T @ (labels[learns] - 0.5)
            )
            scores[seed, ~learns] = states[~learns] @ weight
            true.append(norm.cdf(apart * weight[0] / np.linalg.norm(weight) / 2**0.5))
        judge = Judge(made_dataset(n), np.ones(n), 120, 0)
        measured = judge.metrics(Scored(scores, outer), only_auroc=True)
        rows.append(
            row_of("value", measured["auroc"], float(measured["auroc-spread"][0]))
        )
        bare.append(np.percentile(measured["auroc"][1:], [2.5, 97.5]))
    target = np.mean(true)
    covered = np.mean([row["ci_low"] <= target <= row["ci_high"] for row in rows])
    assert 0.92 <= covered <= 0.99
    assert covered >= np.mean([low <= target <= high for low, high in bare])


def test_differences_are_paired(judge: Judge) -> None:
    one = scored(judge, 5, signal=1.5)
    noisy = replace(
        one,
        log_odds=one.log_odds + 0.6 * np.random.default_rng(3).normal(size=(SEEDS, N)),
    )
    first, second = judge.metrics(one), judge.metrics(noisy)
    row = row_of("difference", first["auroc"] - second["auroc"])
    shuffled = first["auroc"][1:] - np.roll(second["auroc"][1:], 1)
    assert row["ci_high"] - row["ci_low"] < np.ptp(np.percentile(shuffled, [2.5, 97.5]))
    assert row_of("difference", first["auroc"] - first["auroc"]) == {
        "difference": 0,
        "ci_low": 0,
        "ci_high": 0,
    }


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from(["a", "b", "c", None])),
        min_size=1,
        max_size=40,
    )
)
def test_balanced_weights_make_every_relation_even(
    items: list[tuple[bool, str | None]],
) -> None:
    labels, relations = (
        np.array([label for label, _ in items]),
        [relation for _, relation in items],
    )
    made = replace(
        made_dataset(n=2),
        labels=labels,
        relations=relations,
        groups=1 * labels,
        natural=1.0 * labels,
    )
    weights = balanced_weights(made)
    for relation in set(relations):
        inside = np.array([one == relation for one in relations])
        n_true, n_false = int((inside & labels).sum()), int((inside & ~labels).sum())
        assert weights[inside & labels].sum() == pytest.approx(min(n_true, n_false))
        assert weights[inside & ~labels].sum() == pytest.approx(min(n_true, n_false))
        assert len(set(weights[inside & labels])) <= 1
    assert ((weights >= 0) & (weights <= 1)).all()


def test_both_prevalences_weigh_as_they_say() -> None:
    data = made_dataset(n=40)
    evaluation = Evaluation(made_trained(data).plan, 100, ("probe",), Silent())
    np.testing.assert_array_equal(
        evaluation.judge(data, natural=True).weights, data.natural
    )
    even = evaluation.judge(data, natural=False)
    np.testing.assert_array_equal(even.weights, balanced_weights(data))
    assert even.weights[data.labels].sum() == even.weights[~data.labels].sum()


@pytest.fixture(scope="module")
def trained() -> TrainedOn:
    return made_trained(made_dataset(n=72), seeds=2)


@pytest.mark.parametrize("natural", [False, True])
def test_in_domain_every_item_is_scored_by_the_set_that_left_its_group_out(
    trained: TrainedOn, natural: bool
) -> None:
    found = trained.in_domain("probe", natural)
    members, groups = trained.fits.data.training.members, trained.dataset.groups
    scores = trained.calibration("probe", natural).scores.numpy()
    for seed in range(2):
        block = range(seed * 2, seed * 2 + 2)
        for item in range(72):
            (left_out,) = (number for number in block if not members[number, item])
            assert groups[item] not in groups[members[left_out]]
            assert found.log_odds[seed, item] == scores[left_out, item]
            assert found.strata[seed, item] == left_out - seed * 2
    assert members[trained.whole].all()
    # the folds of another seed are others
    assert not np.array_equal(found.log_odds[0], found.log_odds[1])


def test_calibration_learns_from_members_only_and_by_the_weights_given(
    trained: TrainedOn,
) -> None:
    training = trained.fits.data.training.take(slice(0, 1))
    scores = trained.fits.fit("probe").scores[:1]
    turned = training.labels ^ ~training.members
    before, after = (
        calibrated(
            scores, Training(labels, training.members, training.inner, training.weights)
        )
        for labels in (training.labels, turned)
    )
    assert (turned != training.labels).any()
    torch.testing.assert_close(after.scores, before.scores)
    even, natural = (
        trained.in_domain("probe", natural).log_odds for natural in (False, True)
    )
    assert (natural < even).mean() > 0.95  # false answers weigh three times as much


@pytest.mark.parametrize("natural", [False, True])
def test_elsewhere_an_item_is_scored_by_all_or_by_a_set_without_its_group(
    trained: TrainedOn, natural: bool
) -> None:
    other = made_dataset(n=40, seed=9, name="other", shift=0.3)
    # the set that left an item out
    outer = trained.fits.data.training.members[:2].argmin(0)
    shared = {
        3: int(np.flatnonzero(outer == 0)[5]),
        4: int(np.flatnonzero(outer == 1)[5]),
        20: 71,
    }
    keys = [
        trained.dataset.group_keys[shared[item]] | {"subject x"}
        if item in shared
        else one
        for item, one in enumerate(other.group_keys)
    ]
    other = replace(other, group_keys=keys)
    found = trained.elsewhere("probe+confidence", other)[
        "natural" if natural else "balanced"
    ]
    scale, build = (
        trained.calibration("probe+confidence", natural),
        trained.fits.fit("probe+confidence").build,
    )
    assert build is not None
    members, groups = trained.fits.data.training.members, trained.dataset.groups
    used = set()
    for item in range(40):
        number = trained.whole
        if item in shared:
            (number,) = (one for one in range(2) if not members[one, shared[item]])
            assert groups[shared[item]] not in groups[members[number]]
            used.add(number)
        slope, bias = (
            float(scale.weight[number, INNER_FOLDS, 0]),
            float(scale.bias[number, INNER_FOLDS]),
        )
        log_odds = build(number).log_odds(other.features.take([item]))[0]
        assert found.log_odds[0, item] == pytest.approx(
            slope * log_odds + bias, abs=1e-5
        )
    assert used == {
        0,
        1,
    }  # items of different fits are not compared: each has its own stratum
    expected = [trained.whole if item not in shared else None for item in range(40)]
    assert all(
        one is None or one == stratum
        for one, stratum in zip(expected, found.strata[0], strict=True)
    )


def test_tables_hold_every_detector_with_both_prevalences_and_pairs(
    trained: TrainedOn,
) -> None:
    names = ("confidence", "probe", "probe+confidence", "mop", "mop-random-gate")
    evaluation = Evaluation(trained.plan, 100, names, Silent())
    evaluation.in_domain(trained)
    tables = evaluation.tables
    rows = {
        (row["detector"], row["prevalence"], row["metric"]): row
        for row in tables["detectors"]
    }
    assert len(rows) == len(tables["detectors"])
    judge = evaluation.judge(trained.dataset, natural=True)
    wanted = row_of(
        "value", judge.metrics(trained.in_domain("mop", natural=True))["brier"]
    )
    assert (wanted | {"n": 72}).items() <= rows["mop", "natural", "brier"].items()
    assert not any(
        row[:2] == ("mop-random-gate", "natural") for row in rows
    )  # balanced AUROC only
    pairs = {(row["detector"], row["against"]) for row in tables["differences"]}
    expected = {
        (name, other)
        for name in names
        for other in ("confidence", "probe", "probe+confidence")
    }
    assert pairs == {(name, other) for name, other in expected if name != other} | {
        ("mop-random-gate", "mop")
    }
    curve = [row for row in tables["detector_curves"] if row["detector"] == "probe"]
    assert [row["coverage"] for row in curve] == pytest.approx(np.arange(1, 101) / 100)
    natural = trained.dataset.natural
    assert curve[-1]["risk"] == pytest.approx(
        natural[~trained.dataset.labels].sum() / natural.sum()
    )


def test_datasets_taken_together_keep_items_in_order_and_tie_groups() -> None:
    first, second = made_dataset(n=12, name="a"), made_dataset(n=8, seed=1, name="b")
    second = replace(second, group_keys=[first.group_keys[4], *second.group_keys[1:]])
    few = {
        name: values
        for name, values in second.features.columns.items()
        if name != "p_true"
    }
    second = replace(second, features=replace(second.features, columns=few))
    both = pooled([first, second], "both")
    key = ("knockout", "mlp", 4)
    assert torch.equal(
        both.features.states[key],
        torch.cat([one.features.states[key] for one in (first, second)]),
    )
    assert "p_true" not in both.features.columns
    np.testing.assert_array_equal(
        both.features.columns["log_prob_min"],
        np.concatenate(
            [one.features.columns["log_prob_min"] for one in (first, second)]
        ),
    )
    assert both.features.n_items == len(both.labels) == 20
    assert len(set(both.item_ids)) == 20
    assert set(both.relations[:12]).isdisjoint(both.relations[12:])
    groups = both.groups
    assert groups[4] == groups[5] == groups[12]  # the same question in both
    assert groups[13] != groups[12]  # its old neighbour has a question of its own
    assert len(set(groups.tolist())) == 6 + 4
    np.testing.assert_array_equal(
        both.natural, np.concatenate([first.natural, second.natural])
    )


def test_tossed_labels_keep_the_numbers_of_every_relation() -> None:
    whole = made_dataset(n=90)
    uneven = replace(
        whole, labels=np.arange(90) % 5 == 0, relations=[None, *whole.relations[1:]]
    )
    lots = [tossed(uneven, 0, toss).labels for toss in range(3)]
    for labels in lots:
        for relation in set(uneven.relations):
            inside = np.array([one == relation for one in uneven.relations])
            assert labels[inside].sum() == uneven.labels[inside].sum()
    assert not np.array_equal(lots[0], lots[1])
    np.testing.assert_array_equal(tossed(uneven, 0, 1).labels, lots[1])
    assert not np.array_equal(tossed(uneven, 1, 1).labels, lots[1])
    agreement = np.mean(
        [(tossed(uneven, 0, toss).labels == uneven.labels).mean() for toss in range(40)]
    )
    # what chance gives, were they not drawn from the labels' places
    assert abs(agreement - (0.2**2 + 0.8**2)) < 0.05


def test_balanced_probabilities_of_a_run_that_was_not_balanced():
    """Without balancing one answer in five is true; judged as balanced, one in two."""
    whole = made_dataset(n=500, signal=1.0)
    kept = [place for place in range(500) if place % 2 or place % 8 == 0]
    dataset = Dataset(
        "made",
        whole.features.take(kept),
        whole.labels[kept],
        whole.groups[kept],
        *(
            [values[place] for place in kept]
            for values in (whole.relations, whole.item_ids)
        ),
        natural=np.ones(len(kept)),
        group_keys=[whole.group_keys[place] for place in kept],
    )
    trained = made_trained(dataset, seeds=1)
    said = {
        natural: expit(trained.in_domain("confidence", natural).log_odds[0])
        for natural in (False, True)
    }
    labels, weights = dataset.labels, balanced_weights(dataset)
    assert reliability_bins(said[False], labels, weights).error < 0.1
    assert reliability_bins(said[True], labels).error < 0.1
    # those of the natural prevalence would not do
    assert reliability_bins(said[True], labels, weights).error > 0.1
