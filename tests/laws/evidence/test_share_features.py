"""Features that split the items, and what is taken out of the evidence; neither looks at labels."""

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.answers.generate import Answer
from anchorscope.evidence.share_tables import FEWEST, answer_type, features_of, taken_out
from anchorscope.question_share.shares import ShareItems, permuted_labels
from made_items import make_item


def items(n: int, relations: int = 2):
    """Items with popularity, relations and answers of several kinds."""
    made = []
    for number in range(n):
        item = make_item((1, 2, 3, 4, 5, 6), 4, (1, 2), 1, name=f"thing{number % 7} {number}")
        question = replace(item.question, relation=f"r{number % relations}", metadata={"s_pop": 10 ** (number % 5)})
        text = ("Lima", "1901", "a hat")[number % 3]
        answer = Answer(text, tuple(range(1 + number % 3)), None, "answered")
        made.append(replace(item, question=question, answer=answer))
    return made


@pytest.mark.parametrize(("text", "kind"), [("Lima", "name"), ("in 1901", "number"), ("a hat", "words")])
def test_answer_types(text, kind):
    item = items(1)[0]
    assert answer_type(replace(item, answer=Answer(text, (1,), None, "answered"))) == kind


def test_features_split_in_two_and_nobody_is_on_both_sides():
    found = features_of(items(120), np.linspace(-3, 0, 120))
    names = [one.name for one in found]
    assert {"subject popularity", "answer length", "confidence", "answer type: name", "relation: r0"} <= set(names)
    assert "key tokens" not in names  # all items have as many: there is nothing to split
    for one in found:
        assert not (one.high & one.low).any()
        assert min(one.high.sum(), one.low.sum()) >= FEWEST
    confidence = next(one for one in found if one.name == "confidence")
    assert confidence.high.sum() == confidence.low.sum() == 60


def test_a_feature_that_few_items_have_is_left_out():
    assert not [one for one in features_of(items(2 * FEWEST - 2), np.full(38, np.nan)) if "relation" in one.name]


def test_what_is_taken_out_is_standardised_and_named():
    some = items(100)
    name, table = taken_out(some, np.linspace(-3, 0, 100))
    assert name == "words, confidence, relation"
    np.testing.assert_allclose(table.mean(axis=0), 0, atol=1e-9)
    deviation = table.std(axis=0)
    np.testing.assert_allclose(deviation[deviation > 0], 1, atol=1e-9)
    without, _ = taken_out(some, np.full(100, np.nan))
    assert without == "words, relation"


def test_labels_are_permuted_within_their_relation():
    rng = np.random.default_rng(0)
    relations = [f"r{number % 4}" for number in range(200)]
    labels = rng.random(200) < np.array([0.1, 0.4, 0.6, 0.9])[np.arange(200) % 4]
    made = ShareItems(labels, np.arange(200), np.arange(200) % 5, relations, [str(one) for one in range(200)], 0)
    permuted = permuted_labels(made)
    assert (permuted != labels).any()
    for relation in range(4):
        inside = np.arange(200) % 4 == relation
        assert permuted[inside].sum() == labels[inside].sum()
