"""Laws of every registered intervention: which tokens it may cut, and that its cut does to a run what it says."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from anchorscope.evidence.experiments.registry import EXPERIMENTS
from anchorscope.evidence.measuring import Missing, available
from anchorscope.interventions.controls import random_candidates
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from anchorscope.catalogue import EVIDENCE
from anchorscope.engine.capture import Work, capture
from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.keys_values import Prefix
from anchorscope.engine.sequences import CLEAN, EDGES, Cut, TokenSequence, Variant
from anchorscope.errors import InterventionNotApplied
from anchorscope.interventions.intervention import Intervention, ItemTokens, item_tokens
from anchorscope.interventions.registry import INTERVENTIONS, REWRITINGS, chosen, chosen_rewritings
from anchorscope.models.language_model import LanguageModel
from anchorscope.spans.locate import Located, QuestionParts

every_intervention = pytest.mark.parametrize("intervention", INTERVENTIONS.values(), ids=INTERVENTIONS.keys())


def make_item(prefix: int, question: tuple[int, ...], answer_start: int, length: int) -> ItemTokens:
    sequence = TokenSequence(ids=tuple(range(length)), answer_start=answer_start, read_at=(length - 1,))
    half = (len(question) + 1) // 2
    parts = QuestionParts(subject=question[:half], property=question[half:], content=question)
    return ItemTokens(sequence=sequence, question_tokens=question, prefix_length=prefix, parts=parts)


@st.composite
def items(draw: st.DrawFn) -> ItemTokens:
    """An item with exact question tokens somewhere between the shared prefix and the answer."""
    prefix = draw(st.integers(0, 5))
    answer_start = prefix + draw(st.integers(2, 12))
    question = draw(st.sets(st.integers(prefix, answer_start - 1), min_size=1))
    return make_item(prefix, tuple(sorted(question)), answer_start, answer_start + draw(st.integers(1, 4)))


def test_interventions_are_registered_under_their_own_names() -> None:
    assert {name: one.name for name, one in INTERVENTIONS.items()} == {name: name for name in INTERVENTIONS}
    assert {"knockout", "random", "none"} <= set(INTERVENTIONS)
    assert all(one.about and "\n" not in one.about for one in INTERVENTIONS.values())


@every_intervention
@given(item=items(), edges=st.sampled_from(EDGES), seed=st.integers(0, 99))
def test_keys_lie_between_the_shared_prefix_and_the_answer(
    intervention: Intervention, item: ItemTokens, edges: str, seed: int
) -> None:
    cut = intervention.cut(item, edges, np.random.default_rng(seed))
    assert list(cut.keys) == sorted(set(cut.keys))
    assert cut.n_cut == len(set(cut.keys))
    assert cut.edges == (intervention.edges or edges)
    assert cut.how == intervention.how
    first, stop = (1, item.prefix_length) if intervention.whole else (item.prefix_length, item.sequence.answer_start)
    assert all(first <= key < stop for key in cut.keys)
    assert all(type(key) is int for key in cut.keys)  # a NumPy integer would not be written to JSON


@every_intervention
@given(item=items(), seed=st.integers(0, 99))
def test_the_same_seed_gives_the_same_cut(intervention: Intervention, item: ItemTokens, seed: int) -> None:
    first, second = (intervention.cut(item, "all", np.random.default_rng(seed)) for _ in range(2))
    assert first == second


@every_intervention
def test_an_item_without_exact_tokens_is_refused_by_whatever_would_cut_them(intervention: Intervention) -> None:
    # An item that keeps all its edges would count as one that the question does not matter to.
    item, rng = make_item(prefix=2, question=(), answer_start=6, length=8), np.random.default_rng(0)
    if intervention.changes:
        with pytest.raises(InterventionNotApplied, match=f"{intervention.name}: .* no exact question tokens"):
            intervention.cut(item, "all", rng)
    else:
        assert intervention.cut(item, "all", rng).n_cut == 0


@given(items())
def test_the_knockout_cuts_the_exact_question_tokens(item: ItemTokens) -> None:
    cut = INTERVENTIONS["knockout"].cut(item, "all", np.random.default_rng(0))
    assert cut.keys == item.question_tokens


@given(items(), st.integers(0, 99))
def test_the_random_control_cuts_as_many_other_tokens_as_there_are(item: ItemTokens, seed: int) -> None:
    keys = INTERVENTIONS["random"].cut(item, "all", np.random.default_rng(seed)).keys
    others = [
        position
        for position in range(len(item.sequence.ids))
        if 0 < position < item.sequence.answer_start  # the first token is the attention sink
        and position >= item.prefix_length
        and position not in item.question_tokens
    ]
    assert set(keys) <= set(others)
    assert len(keys) == min(len(item.question_tokens), len(others))
    assert random_candidates(item) == others


def test_the_random_control_never_takes_the_first_token_even_if_it_must_take_all() -> None:
    item = make_item(prefix=0, question=(1, 3, 4, 5), answer_start=6, length=8)
    assert INTERVENTIONS["random"].cut(item, "all", np.random.default_rng(0)).keys == (2,)


def test_the_random_control_draws_every_candidate_and_another_set_with_another_seed() -> None:
    item = make_item(prefix=2, question=(4, 5), answer_start=12, length=14)
    drawn = [INTERVENTIONS["random"].cut(item, "all", np.random.default_rng(seed)).keys for seed in range(200)]
    counts = {key: sum(key in keys for keys in drawn) for key in random_candidates(item)}
    assert set(counts) == {2, 3, 6, 7, 8, 9, 10, 11}
    # Two of eight: a candidate is expected 50 times in 200 draws, with a standard deviation of 6.
    assert all(25 <= count <= 75 for count in counts.values())


@given(items())
def test_the_no_op_control_cuts_nothing(item: ItemTokens) -> None:
    none = INTERVENTIONS["none"]
    assert none.cut(item, "all", np.random.default_rng(0)) == Cut(keys=(), edges="all")
    assert not none.changes


@given(items())
def test_other_choices_cut_the_part_that_they_are_named_after(item: ItemTokens) -> None:
    for name in ("subject", "property", "content"):
        one = INTERVENTIONS[name]
        assert one.cut(item, "all", np.random.default_rng(0)).keys == getattr(item.parts, name)
        assert one.applies(item) == bool(getattr(item.parts, name))


def test_experiments_are_chosen_by_name_and_the_knockout_is_always_made() -> None:
    assert [one.name for one in chosen(("knockout",))] == ["knockout", "random", "none"]
    assert [one.name for one in chosen(("zeroing",))] == ["knockout", "random", "none", "zeroing"]
    assert [one.name for one in chosen(EVIDENCE)] == list(INTERVENTIONS)
    assert chosen_rewritings(("knockout",)) == []
    assert [one.name for one in chosen_rewritings(EVIDENCE)] == list(REWRITINGS)
    every = {one.evidence for one in (*INTERVENTIONS.values(), *REWRITINGS.values())} | set(EXPERIMENTS)
    assert every == set(EVIDENCE)


def test_what_would_only_repeat_the_knockout_is_left_out() -> None:
    assert "direct" in [one.name for one in chosen(EVIDENCE, "all")]
    assert "direct" not in [one.name for one in chosen(EVIDENCE, "direct")]


def test_what_too_few_questions_say_is_not_available_and_the_reason_is_told() -> None:
    parts = [QuestionParts((4,), (5,) if index < 7 else (), (4, 5)) for index in range(10)]
    some = [replace(make_item(3, (4, 5), 8, 9), parts=one) for one in parts]
    kept, missing = available(chosen(("exact-tokens",)), some, needed=8)
    assert [one.name for one in kept] == ["knockout", "random", "none", "subject", "content"]
    reason = "property (the property alone is cut): 7 of 10 questions say such words, 8 needed"
    assert missing == [Missing("exact-tokens", reason)]


def test_without_a_shared_prefix_there_is_no_template_to_cut() -> None:
    kept, (missing,) = available(chosen(("template",)), [make_item(1, (4, 5), 8, 9)] * 10, needed=8)
    assert "template" not in [one.name for one in kept]
    assert missing.experiment == "template"
    assert "0 of 10 questions have template tokens" in missing.reason


def test_only_the_no_op_control_says_that_it_changes_nothing() -> None:
    assert [name for name, one in INTERVENTIONS.items() if not one.changes] == ["none"]


def test_an_item_is_read_at_the_named_positions_in_their_order() -> None:
    located = Located(
        input_ids=tuple(range(20)), answer_start=15, question_tokens=(8, 9), answer_tokens=(16, 17),
        positions=(18, 17, 15), rule="rules", parts=QuestionParts((8,), (9,), (8, 9)),
    )  # fmt: skip
    item = item_tokens(located, ("answer_before", "final"), prefix_length=6)
    assert item.sequence == TokenSequence(ids=tuple(range(20)), answer_start=15, read_at=(15, 18))
    assert item.question_tokens == (8, 9)
    assert item.prefix_length == 6


@pytest.fixture(scope="module")
def tokens() -> list[ItemTokens]:
    """Items to run; whatever may be cut is near enough to the end for the sliding window."""
    generator = torch.Generator().manual_seed(3)
    made = []
    for length in (17, 24, 20):
        ids = (256, 5, 6, 7, *torch.randint(0, 256, (length - 4,), generator=generator).tolist())
        sequence = TokenSequence(ids, answer_start=length - 2, read_at=tuple(range(length - 10, length)))
        question = (length - 7, length - 5, length - 4)
        parts = QuestionParts(subject=question[1:], property=question[:1], content=question)
        made.append(ItemTokens(sequence, question, prefix_length=length - 8, parts=parts))
    return made


def run(lm: LanguageModel, tokens: list[ItemTokens], prefix: Prefix, cuts: list[Cut] | None) -> Tensor:
    """States [item, position, site, layer, d_model], all items in one batch."""
    found: list[Tensor] = []
    variant = CLEAN if cuts is None else Variant(dict(enumerate(cuts)))
    work = Work([item.sequence for item in tokens], prefix, [variant], batches=[range(len(tokens))])
    capture(lm, work, lambda _, batch, states: found.append(states), "test")
    return found[0]


@pytest.mark.parametrize("edges", EDGES)
@every_intervention
def test_a_run_changes_after_the_first_cut_key_and_only_there(
    tiny: LanguageModel, tokens: list[ItemTokens], intervention: Intervention, edges: str
) -> None:
    rng = np.random.default_rng(0)
    cuts = [intervention.cut(item, edges, rng) for item in tokens]
    prefix = compute_prefix(tiny, tokens[0].sequence.ids[:4]).first(1 if intervention.whole else 4)
    clean, after = run(tiny, tokens, prefix, None), run(tiny, tokens, prefix, cuts)
    for index, (item, cut) in enumerate(zip(tokens, cuts, strict=True)):
        first = min(cut.keys, default=len(item.sequence.ids))
        kept = [place for place, position in enumerate(item.sequence.read_at) if position <= first]
        if intervention.how == "mask":
            assert torch.equal(after[index, kept], clean[index, kept])
        else:  # weights that are zeroed are written out, those of the clean run are not
            assert torch.allclose(after[index, kept], clean[index, kept], atol=1e-5)
        changed = (after[index, -1] - clean[index, -1]).abs().amax(-1) > 1e-4
        # Where an item is cut, its last token feels it at every site from the second layer on at the latest; the
        # template may lie beyond the sliding window, and then only what comes after it can carry the change.
        if not intervention.changes:
            assert not bool(changed.any())
        elif not intervention.whole:
            assert bool(changed[:, 1:].all())
        elif edges != "direct":
            assert bool((after[index] != clean[index]).any())
