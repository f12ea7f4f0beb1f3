"""Baselines: what the relation alone and the words alone know, out of fold."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from anchorscope.datasets.text import words
from anchorscope.evidence.scores import relation_only, words_only


def test_the_relations_share_comes_from_the_other_folds_by_hand() -> None:
    relations = ["capital"] * 4 + ["author"] * 3 + [None, None]
    labels = np.array([True, True, False, True, False, False, True, True, False])
    folds = np.array([0, 1, 1, 1, 0, 1, 1, 1, 0])
    scores = relation_only(relations, labels, folds)
    one = lambda true, false: np.log((true + 1) / (false + 1))  # noqa: E731
    wanted = [
        one(2, 1),  # capital in fold 0, seen in fold 1: true, false, true
        *[one(1, 0)] * 3,  # capital in fold 1, seen in fold 0: true
        one(1, 1),  # author in fold 0, seen in fold 1: false, true
        *[one(0, 1)] * 2,
        one(0, 1),  # no relation in fold 1, seen in fold 0: false
        one(1, 0),
    ]
    assert scores == pytest.approx(wanted)


def test_an_items_own_fold_is_never_used() -> None:
    rng = np.random.default_rng(0)
    relations = rng.choice(["a", "b", "c"], 60).tolist()
    labels, folds = rng.random(60) < 0.5, rng.integers(0, 3, 60)
    questions, answers = [f"what {w}" for w in rng.choice(["x", "y"], 60)], [f"{w}" for w in rng.choice(["p", "q"], 60)]
    flipped = np.where(folds == 1, ~labels, labels)
    for first, second in (
        (relation_only(relations, labels, folds), relation_only(relations, flipped, folds)),
        (words_only(questions, answers, labels, folds), words_only(questions, answers, flipped, folds)),
    ):
        assert first[folds == 1] == pytest.approx(second[folds == 1])
        assert first[folds != 1] != pytest.approx(second[folds != 1])


def test_words_scores_are_those_of_scikit_learn_at_its_optimum() -> None:
    rng = np.random.default_rng(2)
    n, vocabulary = 240, np.array([f"word{index}" for index in range(300)])
    questions = [" ".join(rng.choice(vocabulary, 7)) for _ in range(n)]
    answers = [" ".join(rng.choice(vocabulary, 2)) for _ in range(n)]
    labels, folds = rng.random(n) < 0.5, rng.integers(0, 4, n)
    documents = [
        [f"q {word}" for word in words(question)] + [f"a {word}" for word in words(answer)]
        for question, answer in zip(questions, answers, strict=True)
    ]
    present = CountVectorizer(analyzer=list, binary=True).fit_transform(documents)
    wanted = np.empty(n)
    for fold in range(4):
        inside = folds == fold
        model = LogisticRegression(max_iter=10_000, tol=1e-9).fit(present[~inside], labels[~inside])
        wanted[inside] = model.decision_function(present[inside])
    assert words_only(questions, answers, labels, folds) == pytest.approx(wanted, abs=1e-4)
    assert np.abs(wanted).max() > 0.5
