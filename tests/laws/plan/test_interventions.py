"""Passes of interventions: what runs together, what was drawn, and the same draws every time, without a model."""

import pickle
from dataclasses import replace
from itertools import combinations

import pytest

from anchorscope.interventions.cuts import INTERVENTIONS, of_experiments, with_draws
from anchorscope.interventions.intervention import Intervention
from anchorscope.items import Item
from anchorscope.plan.interventions import passes_of, plan_cut, plan_experiment
from anchorscope.plan.passes import Planner
from made_items import make_setting, random_items

N = 30
CUTS = {name: one for name, one in INTERVENTIONS.items() if one.keys is not None}
every_cut = pytest.mark.parametrize("intervention", CUTS.values(), ids=CUTS.keys())
SETTING = make_setting(("final", "answer_end"))  # whose writer refuses to be asked
PLANNER = Planner(n_layers=4, n_heads=4, windows=(None,) * 4, batch_tokens=100)


@pytest.fixture(scope="module")
def items() -> list[Item]:
    return random_items(N)


def passes(items: list[Item], *names: str) -> list[tuple[list[str], tuple[int, ...]]]:
    """What runs together, and behind which prefix."""
    planned = [plan_cut(CUTS[name], items, SETTING) for name in names]
    found = passes_of(planned, items, SETTING, PLANNER)
    return [
        ([one.intervention.name for one in together.planned], together.work.prefix)
        for together in found
    ]


def test_cuts_run_together_unless_the_prefix_or_the_softmax_or_the_neighbours_differ(
    items: list[Item],
) -> None:
    prefix = (7, 8, 9, 10, 11)
    first_chart_waits_for = (["knockout"], prefix)
    assert passes(items, "knockout", "random", "none") == [
        first_chart_waits_for,
        (["random"], prefix),
        (["none"], prefix),
    ]
    assert passes(items, "subject", "none", "random") == [
        (["subject", "random"], prefix),
        (["none"], prefix),
    ]
    assert passes(items, "template", "knockout", "zeroing", "direct", "none") == [
        (["template"], prefix[:1]),
        (["knockout"], prefix),
        (["zeroing"], prefix),
        (["direct"], prefix),
        (["none"], prefix),
    ]


@every_cut
def test_a_seed_gives_the_same_passes_and_another_other_draws(
    items: list[Item], intervention: Intervention
) -> None:
    first, again = (
        passes_of([plan_cut(intervention, items, SETTING)], items, SETTING, PLANNER)
        for _ in range(2)
    )
    assert first == again
    assert pickle.loads(pickle.dumps(first[0].work)) == first[0].work
    other = plan_cut(intervention, items, replace(SETTING, seed=1))
    is_random = intervention.name in ("random", "template", "none")
    assert (other != first[0].planned[0]) == is_random


@every_cut
def test_an_items_cut_does_not_hang_on_who_else_is_there(
    items: list[Item], intervention: Intervention
) -> None:
    whole = {
        items[run.item].item_id: run.cut
        for run in plan_cut(intervention, items, SETTING).runs
    }
    part = items[::-3]
    for run in plan_cut(intervention, part, SETTING).runs:
        assert run.cut == whole[part[run.item].item_id]


def test_every_draw_of_the_random_control_is_another_and_all_run_in_one_pass(
    items: list[Item],
) -> None:
    interventions = with_draws(of_experiments(("knockout",)), 4)
    planned, missing = plan_experiment(
        interventions, items, SETTING, PLANNER.windows, needed=5
    )
    assert not missing
    cuts = {
        one.intervention.draw_name: [run.cut for run in one.runs] for one in planned
    }
    draws = [cuts[name] for name in ("random", "random 2", "random 3", "random 4")]
    assert all(first != second for first, second in combinations(draws, 2))
    assert cuts["random"] == [
        run.cut for run in plan_cut(CUTS["random"], items, SETTING).runs
    ]
    knockout, together, alone = passes_of(planned, items, SETTING, PLANNER)
    assert knockout.work.title == "knockout"
    assert len(together.work.variants) == 4
    assert together.work.title == "random"
    assert [one.intervention.name for one in alone.planned] == ["none"]


def test_the_no_op_control_runs_in_another_order_and_nobody_else_does(
    items: list[Item],
) -> None:
    orders = {name: plan_cut(one, items, SETTING).order for name, one in CUTS.items()}
    assert {name for name, order in orders.items() if order is not None} == {"none"}
    assert orders["none"] is not None
    assert sorted(orders["none"]) == list(range(N))
    assert orders["none"] != tuple(range(N))
