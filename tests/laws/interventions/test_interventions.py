"""Laws of every registered intervention: which tokens it may cut, and that its cut does to a run what it says."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import made_items
from anchorscope.engine.capture import AttentionMass
from anchorscope.engine.sequences import EDGES, Cut
from anchorscope.errors import InterventionNotApplied
from anchorscope.interventions.cuts import (
    EXACT,
    INTERVENTIONS,
    as_much_attention,
    random_candidates,
)
from anchorscope.interventions.intervention import Intervention
from anchorscope.items import Item
from anchorscope.spans.locate import QuestionParts
from made_items import make_mass

MASS = make_mass("item")
"""The attention that the tokens of any item here receive; only who is matched by it looks at it."""

CUTS = {name: one for name, one in INTERVENTIONS.items() if one.keys is not None}
every_cut = pytest.mark.parametrize("intervention", CUTS.values(), ids=CUTS.keys())


def make_item(
    prefix: int, question: tuple[int, ...], answer_start: int, length: int
) -> Item:
    half = (len(question) + 1) // 2
    parts = QuestionParts(
        subject=question[:half], property=question[half:], content=question
    )
    return made_items.make_item(
        tuple(range(length)), answer_start, question, prefix, parts
    )


@st.composite
def items(draw: st.DrawFn) -> Item:
    """An item with exact question tokens somewhere between the shared prefix and the answer."""
    prefix = draw(st.integers(0, 5))
    answer_start = prefix + draw(st.integers(2, 12))
    question = draw(st.sets(st.integers(prefix, answer_start - 1), min_size=1))
    return make_item(
        prefix,
        tuple(sorted(question)),
        answer_start,
        answer_start + draw(st.integers(1, 4)),
    )


def test_every_intervention_either_cuts_edges_or_writes_texts_anew() -> None:
    assert all(
        (one.keys is None) != (one.rewrite is None) for one in INTERVENTIONS.values()
    )


@every_cut
@given(item=items(), edges=st.sampled_from(EDGES), seed=st.integers(0, 99))
def test_keys_lie_between_the_shared_prefix_and_the_answer(
    intervention: Intervention, item: Item, edges: str, seed: int
) -> None:
    cut = intervention.cut(item, edges, np.random.default_rng(seed), MASS)
    assert list(cut.keys) == sorted(set(cut.keys))
    assert len(cut.keys) == len(set(cut.keys))
    assert cut.edges == (intervention.edges or edges)
    assert cut.how == intervention.how
    prefix, answer = item.located.prefix_length, item.located.answer_start
    first, stop = (1, prefix) if intervention.whole else (prefix, answer)
    assert all(first <= key < stop for key in cut.keys)
    # a NumPy integer would not be written to JSON
    assert all(type(key) is int for key in cut.keys)


@every_cut
def test_an_item_without_exact_tokens_is_refused_by_whatever_would_cut_them(
    intervention: Intervention,
) -> None:
    # An item that keeps all its edges would count as one that the question does not matter to.
    item, rng = (
        make_item(prefix=2, question=(), answer_start=6, length=8),
        np.random.default_rng(0),
    )
    if intervention.changes:
        with pytest.raises(
            InterventionNotApplied,
            match=f"{intervention.name}: .* no exact question tokens",
        ):
            intervention.cut(item, "all", rng, MASS)
    else:
        assert intervention.cut(item, "all", rng).keys == ()


@given(items(), st.integers(0, 99))
def test_the_random_control_cuts_as_many_other_tokens_as_there_are(
    item: Item, seed: int
) -> None:
    keys = INTERVENTIONS["random"].cut(item, "all", np.random.default_rng(seed)).keys
    others = [
        position
        for position in range(len(item.located.input_ids))
        if 0
        < position
        < item.located.answer_start  # the first token is the attention sink
        and position >= item.located.prefix_length
        and position not in item.located.question_tokens
    ]
    assert set(keys) <= set(others)
    assert len(keys) == min(len(item.located.question_tokens), len(others))
    assert random_candidates(item) == others


@given(items())
def test_every_choice_cuts_what_it_is_named_after(item: Item) -> None:
    assert (
        INTERVENTIONS["knockout"].cut(item, "all", np.random.default_rng(0)).keys
        == item.located.question_tokens
    )
    assert INTERVENTIONS["none"].cut(item, "all", np.random.default_rng(0)) == Cut(
        keys=(), edges="all"
    )
    for name in ("subject", "property", "content"):
        one = INTERVENTIONS[name]
        assert one.cut(item, "all", np.random.default_rng(0)).keys == getattr(
            item.located.parts, name
        )
        assert one.applies(item) == bool(getattr(item.located.parts, name))


@given(
    st.lists(st.floats(0.01, 10), min_size=4, max_size=9),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_no_other_set_of_tokens_is_nearer_unless_both_are_near(
    received: list[float], n: int, seed: int
) -> None:
    mass, exact = AttentionMass(3, tuple(received)), list(range(3, 3 + n))
    others = list(range(3 + n, 3 + len(received)))
    keys = as_much_attention(exact, others, mass, np.random.default_rng(seed))
    assert keys
    assert list(keys) == sorted(set(keys))
    assert set(keys) <= set(others)
    wanted = mass.of(exact)
    every = chain.from_iterable(
        combinations(others, size) for size in range(1, len(others) + 1)
    )
    off = {keys: abs(mass.of(keys) - wanted) for keys in every}
    least = min(off.values())
    assert off[keys] <= max(least, 0.01 * wanted) + 1e-9
    as_near = [
        len(other)
        for other, gap in off.items()
        if gap <= max(least, 0.01 * wanted) - 1e-9
    ]
    assert all(abs(len(keys) - n) <= abs(size - n) for size in as_near)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_many_candidates_are_matched_as_well_and_none_is_left_out_for_ever(
    share: float,
) -> None:
    rng = np.random.default_rng(3)
    received = rng.gamma(1.0, size=5 * EXACT)
    exact, others = [0], list(range(1, 5 * EXACT))
    received[0] = share * received[1:].sum()
    mass = AttentionMass(0, tuple(received.tolist()))
    drawn = [
        as_much_attention(exact, others, mass, np.random.default_rng(seed))
        for seed in range(150)
    ]
    ratios = np.array([mass.of(keys) / mass.of(exact) for keys in drawn])
    assert np.median(np.abs(ratios - 1)) < 0.01
    if share > 0.1:
        assert np.abs(ratios - 1).max() < 0.1
        assert set(chain.from_iterable(drawn)) == set(others)
