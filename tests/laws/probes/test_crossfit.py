"""Cross-fitting: who learns from whom, what is chosen by inner folds, and that no fold's probe depends on that fold."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import StandardScaler

from anchorscope.errors import UserError
from anchorscope.probes.crossfit import ProbeSet, Splits, fit_probes, make_splits
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.probes.grid_search import INNER_FOLDS, STRENGTHS, weighted_auc
from anchorscope.stats.streams import unnamed

N_FOLDS, N_LAYERS = 4, 3
SIGNAL = (0.0, 1.2, 0.5)
"""How strongly each layer of the example tells true from false."""


@dataclass(frozen=True)
class Example:
    states: torch.Tensor
    groups: np.ndarray
    splits: Splits


@pytest.fixture(scope="module")
def example() -> Example:
    rng = np.random.default_rng(2)
    n, d = 150, 10
    labels, groups = rng.random(n) < 0.5, rng.integers(0, 70, size=n)
    directions = rng.normal(size=(N_LAYERS, 1, d)) * np.array(SIGNAL)[:, None, None]
    states = rng.normal(size=(N_LAYERS, n, d)) + labels[None, :, None] * directions
    folds = grouped_folds(
        groups, truth_strata(labels), N_FOLDS, unnamed(1, "test", len(labels))
    )
    return Example(
        torch.tensor(states, dtype=torch.float32),
        groups,
        make_splits(labels, groups, folds, seed=3),
    )


@pytest.fixture(scope="module")
def fitted(example: Example) -> ProbeSet:
    return fit_one(example.states, example.splits)


def fit_one(states: torch.Tensor, splits: Splits) -> ProbeSet:
    """The probes of one place, from [layer, item, d_model]."""
    (found,) = fit_probes(states[None], splits, ["mlp/final"])
    return found


@st.composite
def labelled_groups(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    n = draw(st.integers(120, 200))
    seed = draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    return (
        rng.random(n) < draw(st.floats(0.4, 0.6)),
        rng.integers(0, draw(st.integers(60, 300)), size=n),
        seed,
    )


@given(labelled_groups())
def test_every_probe_learns_from_all_other_folds_and_shares_no_group_with_its_own(
    drawn: tuple[np.ndarray, np.ndarray, int],
) -> None:
    labels, groups, seed = drawn
    folds = grouped_folds(
        groups, truth_strata(labels), N_FOLDS, unnamed(seed, "test", len(labels))
    )
    splits = make_splits(labels, groups, folds, seed)
    assert len(splits.training) == N_FOLDS
    for fold, learns in enumerate(splits.training):
        assert (learns == (folds != fold)).all()
        assert not set(groups[learns]) & set(groups[folds == fold])


@given(labelled_groups())
def test_inner_folds_cover_the_training_items_and_keep_groups_whole(
    drawn: tuple[np.ndarray, np.ndarray, int],
) -> None:
    labels, groups, seed = drawn
    folds = grouped_folds(
        groups, truth_strata(labels), N_FOLDS, unnamed(seed, "test", len(labels))
    )
    splits = make_splits(labels, groups, folds, seed)
    assert ((splits.inner >= 0) == splits.training).all()
    for training, inner in zip(splits.training, splits.inner, strict=True):
        assert set(inner[training]) == set(range(INNER_FOLDS))
        for group in set(groups[training]):
            assert len(set(inner[training & (groups == group)])) == 1


@pytest.mark.parametrize(
    "groups",
    [
        np.zeros(80, dtype=int),
        np.arange(80) % 3,
        np.where(np.arange(80) < 40, 0, 100 + np.arange(80)),
        np.where(np.arange(80) < 40, np.arange(80) % 2, 100 + np.arange(80)),
    ],
    ids=["one group", "three groups", "one true group", "two true groups"],
)
def test_too_few_groups_for_true_and_false_on_every_side_are_refused(
    groups: np.ndarray,
) -> None:
    labels = np.arange(80) < 40
    folds = grouped_folds(
        groups, truth_strata(labels), N_FOLDS, unnamed(0, "test", len(labels))
    )
    with pytest.raises(UserError) as caught:
        make_splits(labels, groups, folds, seed=0)
    text = str(caught.value)
    assert f"80 used items fall into {len(set(groups))} group" in text
    assert "--group-by" in text


def test_a_folds_splits_do_not_depend_on_its_own_labels(example: Example) -> None:
    splits = example.splits
    for fold in range(N_FOLDS):
        labels = np.where(splits.folds == fold, ~splits.labels, splits.labels)
        other = make_splits(labels, example.groups, splits.folds, seed=3)
        assert (other.training[fold] == splits.training[fold]).all()
        assert (other.inner[fold] == splits.inner[fold]).all()


@pytest.mark.parametrize("what", ["labels", "states"])
@pytest.mark.parametrize("fold", [0, 2])
def test_the_probes_of_a_fold_do_not_depend_on_the_items_of_that_fold(
    example: Example, fitted: ProbeSet, fold: int, what: str
) -> None:
    splits, states, own = (
        example.splits,
        example.states.clone(),
        example.splits.folds == fold,
    )
    if what == "labels":
        splits = replace(splits, labels=np.where(own, ~splits.labels, splits.labels))
    else:
        states[:, own] = 3 * states[:, own].flip(1) + 1
    other = fit_one(states, splits)
    change = (other.weight - fitted.weight).abs().amax(-1) / fitted.weight.abs().amax(
        -1
    )  # [fold, layer]
    # All columns share coordinates and stopping rule, so equal means: up to the solver's tolerance.
    assert (change[fold] < (1e-5 if what == "labels" else 5e-3)).all()
    assert (other.bias - fitted.bias)[fold].abs().max() < 5e-3
    assert (other.strength[fold] == fitted.strength[fold]).all()
    assert other.inner_auc[fold] == pytest.approx(fitted.inner_auc[fold], abs=2e-3)
    assert other.reference[fold] == fitted.reference[fold]
    others = [index for index in range(N_FOLDS) if index != fold]
    # the probes that did learn from these items notice
    assert (change[others] > 0.02).all()


def test_choices_and_probes_are_those_of_scikit_learn(
    example: Example, fitted: ProbeSet
) -> None:
    splits = example.splits
    chosen = set()
    for layer, fold in ((1, 0), (2, 3), (2, 1), (0, 2)):
        x = example.states[layer].double().numpy()
        rows = np.flatnonzero(splits.training[fold])
        # on the whole training set, also for the inner folds
        scaled = StandardScaler().fit(x[rows]).transform(x)
        labels, inner = splits.labels, splits.inner[fold]
        losses, held_out = [], np.zeros((len(STRENGTHS), len(labels)))
        for place, strength in enumerate(STRENGTHS):
            model = LogisticRegression(C=strength, tol=1e-8, max_iter=20_000)
            for k in range(INNER_FOLDS):
                learned, held = rows[inner[rows] != k], rows[inner[rows] == k]
                held_out[place, held] = model.fit(
                    scaled[learned], labels[learned]
                ).decision_function(scaled[held])
            chance = 1 / (1 + np.exp(-held_out[place, rows]))
            losses.append(log_loss(labels[rows], chance, normalize=False))
        best = int(np.argmin(losses))
        chosen.add(best)
        assert fitted.strength[fold, layer] == STRENGTHS[best]

        won = close = pairs = 0.0
        for k in range(INNER_FOLDS):
            held = rows[inner[rows] == k]
            scores, weight = (
                held_out[best, held],
                labels[held].sum() * (~labels[held]).sum(),
            )
            won, pairs = (
                won + weight * roc_auc_score(labels[held], scores),
                pairs + weight,
            )
            # At the strongest penalty float32 cannot tell some pairs apart, and so few pairs do not hide that.
            gaps = np.abs(scores[labels[held], None] - scores[~labels[held]])
            close += (gaps < 1e-3 * scores.std()).sum()
        assert close <= 3
        assert fitted.inner_auc[fold, layer] == pytest.approx(
            won / pairs, abs=1e-6 + close / pairs
        )

        wanted = LogisticRegression(C=STRENGTHS[best], tol=1e-8, max_iter=20_000).fit(
            scaled[rows], labels[rows]
        )
        found = x @ fitted.weight[fold, layer].double().numpy() + float(
            fitted.bias[fold, layer]
        )
        assert np.abs(found - wanted.decision_function(scaled)).max() < 0.02
    assert len(chosen) > 1  # or a constant choice would pass


@given(st.integers(0, 10_000))
def test_a_weighted_auc_counts_ties_half_whatever_the_order_of_the_items(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 5, 40).astype(np.float32)  # most items tie with others
    weights = rng.integers(0, 4, (2, 40)).astype(np.float32) / 2
    targets = (np.arange(40) % 2).astype(np.float32)
    weights[:, :4] = 1
    wanted = [roc_auc_score(targets, scores, sample_weight=row) for row in weights]
    shuffled = rng.permutation(40)
    for order in (slice(None), shuffled):
        given = (
            torch.tensor(one[..., order])
            for one in (scores[None, None], weights[:, None], targets[None, None])
        )
        np.testing.assert_allclose(weighted_auc(*given).numpy(), wanted, atol=1e-9)
