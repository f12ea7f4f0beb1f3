"""Passes of interventions: what runs together, what was drawn, and the same draws every time, without a model."""

import pickle
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from anchorscope.engine.sequences import CLEAN
from anchorscope.errors import InterventionNotApplied
from anchorscope.interventions.cuts import INTERVENTIONS, of_experiments, with_draws
from anchorscope.interventions.intervention import Intervention
from anchorscope.items import Item
from anchorscope.plan.interventions import passes_of, plan_cut, plan_experiment, some_items
from anchorscope.plan.passes import Planner
from anchorscope.spans.locate import QuestionParts
from made_items import make_item, make_setting

N, N_PREFIX = 30, 5
CUTS = {name: one for name, one in INTERVENTIONS.items() if one.keys is not None}
every_cut = pytest.mark.parametrize("intervention", CUTS.values(), ids=CUTS.keys())
SETTING = make_setting(("final", "answer_end"))  # whose writer refuses to be asked
PLANNER = Planner(n_layers=4, n_heads=4, windows=(None,) * 4, batch_tokens=100)


@pytest.fixture(scope="module")
def items() -> list[Item]:
    rng = np.random.default_rng(0)
    found = []
    for index in range(N):
        ids = (7, 8, 9, 10, 11, *rng.integers(0, 256, int(rng.integers(12, 20))).tolist())
        question = (6, 7, 8 + index % 3)
        parts = QuestionParts(question[:1], question[1:] if index % 2 else (), question)
        found.append(make_item(ids, len(ids) - 3, question, N_PREFIX, parts, name=f"item-{index}"))
    return found


def passes(items: list[Item], *names: str) -> list[tuple[list[str], tuple[int, ...]]]:
    """What runs together, and behind which prefix."""
    planned = [plan_cut(CUTS[name], items, SETTING) for name in names]
    found = passes_of(planned, items, SETTING, PLANNER)
    return [([one.intervention.name for one in together.planned], together.work.prefix) for together in found]


def test_cuts_run_together_unless_the_prefix_or_the_softmax_or_the_neighbours_differ(items: list[Item]) -> None:
    prefix = (7, 8, 9, 10, 11)
    first_chart_waits_for = (["knockout"], prefix)
    assert passes(items, "knockout", "random", "none") == [
        first_chart_waits_for,
        (["random"], prefix),
        (["none"], prefix),
    ]
    assert passes(items, "subject", "none", "random") == [(["subject", "random"], prefix), (["none"], prefix)]
    assert passes(items, "template", "knockout", "zeroing", "direct", "none") == [
        (["template"], prefix[:1]),
        (["knockout"], prefix),
        (["zeroing"], prefix),
        (["direct"], prefix),
        (["none"], prefix),
    ]


@every_cut
def test_a_pass_has_a_variant_for_each_intervention_with_the_cut_of_every_item(
    items: list[Item], intervention: Intervention
) -> None:
    planned = plan_cut(intervention, items, SETTING)
    (together,) = passes_of([planned], items, SETTING, PLANNER)
    (variant,) = together.work.variants
    assert together.planned == (planned,)
    assert variant != CLEAN
    assert variant.cuts == {run.item: run.cut for run in planned.runs}
    assert sorted(item for batch in together.work.batches for item in batch) == [run.item for run in planned.runs]
    assert together.work.sequences == tuple(item.sequence(SETTING.positions) for item in items)
    for run in planned.runs:
        assert intervention.applies(items[run.item])
        assert run.n_changed == run.cut.n_cut
        assert run.cut.how == intervention.how
    assert len(planned.runs) == sum(intervention.applies(item) for item in items)


@every_cut
def test_planning_twice_gives_the_same_passes_and_another_seed_other_draws(
    items: list[Item], intervention: Intervention
) -> None:
    first, again = (passes_of([plan_cut(intervention, items, SETTING)], items, SETTING, PLANNER) for _ in range(2))
    assert first == again
    assert pickle.loads(pickle.dumps(first[0].work)) == first[0].work
    other = plan_cut(intervention, items, replace(SETTING, seed=1))
    is_random = intervention.name in ("random", "template", "none")
    assert (other != first[0].planned[0]) == is_random


@every_cut
def test_an_items_cut_does_not_hang_on_who_else_is_there(items: list[Item], intervention: Intervention) -> None:
    whole = {items[run.item].item_id: run.cut for run in plan_cut(intervention, items, SETTING).runs}
    part = items[::-3]
    for run in plan_cut(intervention, part, SETTING).runs:
        assert run.cut == whole[part[run.item].item_id]


def test_every_draw_of_the_random_control_is_another_and_all_run_in_one_pass(items: list[Item]) -> None:
    interventions = with_draws(of_experiments(("knockout",)), 4)
    planned, missing = plan_experiment(interventions, items, SETTING, PLANNER.windows, needed=5)
    assert not missing
    cuts = {one.intervention.draw_name: [run.cut for run in one.runs] for one in planned}
    draws = [cuts[name] for name in ("random", "random 2", "random 3", "random 4")]
    assert all(first != second for first, second in combinations(draws, 2))
    assert cuts["random"] == [run.cut for run in plan_cut(CUTS["random"], items, SETTING).runs]
    knockout, together, alone = passes_of(planned, items, SETTING, PLANNER)
    assert knockout.work.title == "knockout"
    assert len(together.work.variants) == 4
    assert together.work.title == "random"
    assert [one.intervention.name for one in alone.planned] == ["none"]


def test_the_no_op_control_runs_in_another_order_and_nobody_else_does(items: list[Item]) -> None:
    orders = {name: plan_cut(one, items, SETTING).order for name, one in CUTS.items()}
    assert {name for name, order in orders.items() if order is not None} == {"none"}
    assert orders["none"] is not None
    assert sorted(orders["none"]) == list(range(N))
    assert orders["none"] != tuple(range(N))


def test_few_items_run_where_few_are_enough_or_where_many_passes_are_taken(items: list[Item]) -> None:
    few = plan_cut(replace(CUTS["none"], max_items=7), items, SETTING)
    assert len(few.runs) == 7
    setting = replace(SETTING, most_items=11)
    drawn = some_items(items, setting).tolist()
    assert len(set(drawn)) == 11
    assert drawn == sorted(drawn)
    assert [run.item for run in plan_cut(CUTS["template"], items, setting).runs] == drawn
    assert len(plan_cut(CUTS["knockout"], items, setting).runs) == N
    assert some_items(items, SETTING).tolist() == list(range(N))


def test_an_experiment_is_planned_without_a_model_or_a_tokenizer(items: list[Item]) -> None:
    planned, missing = plan_experiment(of_experiments(("exact-tokens",)), items, SETTING, PLANNER.windows, needed=16)
    assert [one.intervention.name for one in planned] == ["subject", "content"]
    assert "property (property cut): 15 of 30 questions say such words, 16 needed" in missing[0].reason


@pytest.mark.parametrize("window", [4, None])
def test_direct_edges_that_some_layers_window_hides_are_not_planned(items: list[Item], window: int | None) -> None:
    planned, missing = plan_experiment(of_experiments(("edges",)), items, SETTING, [None, window], needed=5)
    assert [one.intervention.name for one in planned] == ([] if window else ["direct"])
    assert ["sliding window" in one.reason for one in missing] == ([True] if window else [])


def test_a_rewriting_that_must_change_nothing_and_does_is_refused(items: list[Item]) -> None:
    def longer(some: list[Item], chosen: list[int], *_: object) -> list[object]:
        return [
            replace(run, cut=run.cut, sequence=replace(run.sequence, ids=(*run.sequence.ids, 1)))
            for run in plan_cut(CUTS["none"], some, SETTING).runs
            if run.item in chosen
        ]

    broken = replace(INTERVENTIONS["patch-self"], rewrite=longer)
    with pytest.raises(InterventionNotApplied, match="patch-self: 30 texts are not what they were"):
        plan_experiment([broken], items, SETTING, PLANNER.windows, needed=5)
