"""Laws that every registered detector obeys."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.catalogue import DETECTORS
from anchorscope.detectors.features import (
    TEXT_BUCKETS,
    TEXT_STATE,
    Features,
    hash_texts,
    refuse_unknown,
    text_columns,
)
from anchorscope.detectors.fits import DetectorFits, missing_feature
from anchorscope.detectors.fitted import load_detector, store
from anchorscope.errors import UserError
from anchorscope.stats.auc import auc
from made_detection import made_dataset, made_fits, made_trained

_NAMES = tuple(DETECTORS)
_KEPT_IN = (
    "-gate",
    "relation",
    "pr-attention",
)  # baselines and controls that nobody uses
_USED = tuple(name for name in _NAMES if not name.endswith(_KEPT_IN))


@pytest.fixture(scope="module")
def fits():
    return made_fits()


def test_every_entry_can_be_fitted_where_all_is_kept(fits):
    assert not any(missing_feature(name, fits.data.features, "mlp") for name in _NAMES)


@pytest.mark.parametrize("name", _NAMES)
def test_log_odds_are_numbers_for_every_item_and_set(fits, name):
    scores = fits.fit(name).scores
    assert scores.shape == (3, 120)
    assert torch.isfinite(scores).all()


@pytest.mark.parametrize("name", _NAMES)
def test_the_catalogue_says_who_can_be_saved(fits, name):
    build = fits.fit(name).build
    try:
        refuse_unknown(build(2).needs, n_layers=5)
        usable = True
    except (
        TypeError,
        UserError,
    ):  # there is nothing to build, or it reads what no new answer has
        usable = False
    assert DETECTORS[name].saved == usable


@pytest.mark.parametrize("name", _USED)
def test_the_detector_that_is_used_is_the_one_that_was_judged(fits, name):
    fit, data = fits.fit(name), fits.data
    outside = ~data.training.members[0]
    assert fit.build is not None
    used = fit.build(0).log_odds(data.features)[outside]
    np.testing.assert_allclose(used, fit.scores[0].numpy()[outside], atol=2e-4)


@pytest.mark.parametrize("name", _USED)
def test_saved_and_loaded_is_the_same_to_the_last_bit(fits, name):
    fitted = fits.fit(name).build(2)
    tensors: dict[str, torch.Tensor] = {}
    values = store(fitted, "part", tensors)
    again = load_detector(tensors, {"kind": fitted.kind, "values": values}, "part")
    features = fits.data.features
    assert again.needs == fitted.needs
    np.testing.assert_array_equal(again.log_odds(features), fitted.log_odds(features))


@pytest.mark.parametrize("name", _USED)
def test_alone_is_as_in_a_batch(fits, name):
    fitted, features = fits.fit(name).build(2), fits.data.features
    together = fitted.log_odds(features)
    alone = [fitted.log_odds(features.take([item]))[0] for item in (0, 7, 119)]
    np.testing.assert_allclose(alone, together[[0, 7, 119]], atol=1e-6)


@pytest.mark.parametrize("name", _USED)
def test_it_reads_what_it_says_and_nothing_else(fits, name):
    fitted, features = fits.fit(name).build(2), fits.data.features
    needs = fitted.needs
    few = type(features)(
        features.n_items,
        {key: features.states[key] for key in needs.states},
        {column: features.columns[column] for column in needs.columns},
    )
    np.testing.assert_array_equal(fitted.log_odds(few), fitted.log_odds(features))


def test_labels_of_items_that_are_held_out_change_nothing():
    """The strongest leak test there is: turn every held-out label round, and each score stays as it was."""
    dataset = made_dataset(n=80)
    every = made_fits(dataset)
    training = every.data.training.take(slice(0, 1))
    outside = ~training.members[0]
    labels = training.labels.copy()
    labels[0, outside] = ~labels[0, outside]
    turned = type(training)(labels, training.members, training.inner, training.weights)
    before, after = (
        DetectorFits(
            type(every.data)(dataset.features, one, "mlp", every.data.device), dataset
        )
        for one in (training, turned)
    )
    for name in (*_USED, "relation"):
        np.testing.assert_allclose(
            after.fit(name).scores[0].numpy(),
            before.fit(name).scores[0].numpy(),
            atol=1e-5,
            err_msg=name,
        )


def test_what_other_training_sets_learn_changes_nothing():
    """Other sets have learned from the items that judge this one: were a layer or a rate theirs, labels would leak."""
    dataset = made_dataset(n=60, seed=2, signal=0.5)
    together = made_fits(dataset, seeds=3)
    assert len(set(together.data.probe.best.tolist())) > 1, (
        "the sets prefer different layers"
    )
    own = together.data.training.take(slice(0, 1))
    alone = DetectorFits(
        type(together.data)(dataset.features, own, "mlp", together.data.device), dataset
    )
    least = {"saplma": 0.02}  # Adam makes rounding errors large
    for name in ("probe", "saplma", "residual-probe", "mop", "pr-attention"):
        wanted = alone.fit(name).scores[0].numpy()
        far = np.abs(together.fit(name).scores[0].numpy() - wanted).max() / max(
            1.0, wanted.std()
        )
        assert far < least.get(name, 1e-3), (name, far)


def test_where_labels_are_tossed_nobody_finds_anything():
    trained = made_trained(made_dataset(n=120), tosses=12, seeds=1)
    for name in ("probe", "probe+confidence", "mop", "pr-attention", "auto", "text"):
        areas = trained.tossed_areas(name)
        error = areas.std(ddof=1) / len(areas) ** 0.5
        assert abs(areas.mean() - 0.5) < 0.01 + 3 * error, (name, areas.mean(), error)
        assert abs(areas.mean() - 0.5) < 0.05, (name, areas.mean())


def test_what_is_there_is_found_and_what_is_not_is_not():
    trained = made_trained(made_dataset(n=200), seeds=1)
    labels = trained.dataset.labels

    def area(name):
        scored = trained.in_domain(name)
        return float(auc(scored.log_odds[0], labels, scored.strata[0]))

    assert area("probe") > 0.65
    assert area("probe+confidence") > area("probe") + 0.03
    assert abs(area("random-weights") - 0.5) < 0.13


def test_the_text_baseline_reads_options_too():
    a, b = hash_texts(["?", "?"], ["A", "B"])
    assert not a.equal(b)


_LINES = st.lists(st.text(alphabet="ab \n", max_size=8), min_size=1, max_size=4)


@given(_LINES, _LINES)
def test_every_line_of_a_question_and_of_an_answer_stays_on_its_side(
    questions, answers
):
    n = min(len(questions), len(answers))
    columns = text_columns(questions[:n], answers[:n])
    state = Features(n, {}, columns).state(TEXT_STATE)
    nothing = [""] * n
    of_questions = hash_texts(questions[:n], nothing)
    of_answers = hash_texts(nothing, answers[:n])
    assert state.equal(of_questions + of_answers)
    assert not of_questions[:, TEXT_BUCKETS // 2 :].any()
    assert not of_answers[:, : TEXT_BUCKETS // 2].any()
