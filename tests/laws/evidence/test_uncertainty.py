"""Self-consistency and semantic entropy by their definitions, whatever the order of the samples."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.evidence.further_runs import clusters, same_answer, self_consistency, semantic_entropy

ANSWERS = st.sampled_from(
    "Paris|paris.|The Paris|It is Paris|Lyon|lyon|Paris, France|42|forty-two||?|not Paris".split("|")  # noqa: SIM905
)
SAMPLES = st.lists(ANSWERS, min_size=1, max_size=10)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Paris", "It is Paris", True),
        ("Paris", "PARIS", True),
        ("Paris, France", "Paris", True),
        ("Paris", "not Paris", False),
        ("Paris", "Lyon", False),
        ("", "Paris", False),
        ("", "", True),
        ("1999", "1998", False),
        ("A", "A fine day", False),
    ],
)
def test_two_answers_say_the_same_where_the_grader_would_accept_either(one: str, other: str, same: bool) -> None:
    assert same_answer(one, other) == same_answer(other, one) == same


def test_entropy_is_that_of_the_clusters() -> None:
    samples = ["Paris", "It is Paris", "Lyon", "Rome", "paris"]
    assert clusters(samples) == [0, 0, 1, 2, 0]
    assert semantic_entropy(samples) == pytest.approx(-(0.6 * math.log(0.6) + 0.4 * math.log(0.2)))


@given(samples=SAMPLES, seed=st.integers(0, 99))
def test_neither_hangs_on_the_order_of_the_samples(samples: list[str], seed: int) -> None:
    mixed = random.Random(seed).sample(samples, len(samples))
    assert semantic_entropy(mixed) == pytest.approx(semantic_entropy(samples))
    assert self_consistency(samples[0], mixed) == self_consistency(samples[0], samples)


@given(samples=SAMPLES)
def test_both_stay_in_their_range_and_agree_where_all_samples_do(samples: list[str]) -> None:
    entropy, share = semantic_entropy(samples), self_consistency(samples[0], samples)
    assert 0 <= entropy <= math.log(len(samples)) + 1e-12
    assert 1 / len(samples) <= share <= 1
    sizes = Counter(clusters(samples))
    assert share <= sizes[0] / len(samples)  # who is written alike is in one cluster
    assert (entropy == 0) == (len(sizes) == 1)
    doubled = semantic_entropy([*samples, *samples])
    assert doubled == pytest.approx(entropy)
