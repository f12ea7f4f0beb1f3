"""The harder worlds: what is planted is there, truth is what the closed forms say, rules are marked as they deserve."""

import numpy as np
import pytest

from anchorscope.question_share.posterior import beyond_zero
from anchorscope.report.worlds_section import TRUTH, smallest_sizes
from anchorscope.stats.auc import auc
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.streams import stream
from anchorscope.validation.world_marks import Found, Marks, mark, shown_size, worlds_table
from anchorscope.validation.world_rules import auc_by_truth
from anchorscope.validation.worlds import WIDTH, WORLDS, Truth, find_truth, make_states, plant

MANY = 40_000


def planted(name, twin=False, n=MANY):
    world = WORLDS[name].twin if twin else WORLDS[name]
    return world, plant(world, n, 1, stream(0, "test", name))


@pytest.mark.parametrize("name", WORLDS)
def test_the_cut_redraws_the_question_and_leaves_the_answer(name):
    world, found = planted(name)
    clean, cut = found.clean[0], found.cut[0]
    assert np.array_equal(clean[:, 1], cut[:, 1])
    kept = np.corrcoef(clean[:, 0], cut[:, 0])[0, 1]
    assert (0.2 < kept < 0.6) if world.missed else abs(kept) < 0.02
    assert cut[:, 0].mean() < -0.7  # all items move towards "false"
    assert found.labels.mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("name", WORLDS)
def test_a_twin_has_one_pathway_and_as_good_a_probe(name):
    world, found = planted(name, twin=True)
    assert set(np.unique(world.shares(found.kind))) == {0.5}
    sign = np.where(found.labels, 1.0, -1.0)
    question, answer = (np.mean(sign * found.clean[0, :, part]) for part in (0, 1))
    assert question == pytest.approx(answer, abs=0.03)
    ends = [find_truth(one, stream(1, "test", name), MANY).probe_auc for one in (WORLDS[name], world)]
    assert ends[0] == pytest.approx(ends[1], abs=0.02)


def test_a_hidden_kind_is_in_no_direction_and_in_a_product():
    _, found = planted("hidden")
    kind = found.kind[0] > 0.5
    for direction in range(2, found.cut.shape[-1]):
        assert auc(found.cut[0, :, direction], kind) == pytest.approx(0.5, abs=0.02)
    assert auc(found.cut[0, :, 2] * found.cut[0, :, 3], kind) > 0.9


def test_relations_are_tied_to_pathway_and_truth():
    _, found = planted("relation")
    even = found.relations % 2 == 0
    assert found.labels[even].mean() == pytest.approx(0.7, abs=0.01)
    assert found.labels[~even].mean() == pytest.approx(0.3, abs=0.01)
    assert found.kind[0, even].mean() == pytest.approx(0.85, abs=0.01)
    assert found.kind[0, ~even].mean() == pytest.approx(0.15, abs=0.01)


@pytest.mark.parametrize("name", WORLDS)
def test_states_are_the_parts_in_another_frame(name):
    made = make_states(WORLDS[name], 200, 2, stream(0, "states", name))
    assert made.clean.shape == made.cut.shape == made.random.shape == (2, 200, WIDTH)
    for replica in range(2):
        both = np.column_stack([made.clean[replica].numpy(), np.ones(200)])
        parts = made.planted.clean[replica]
        left = parts - both @ np.linalg.lstsq(both, parts, rcond=None)[0]
        assert np.abs(left).max() < 1e-3  # all that was planted can be read off linearly
        assert (made.clean[replica] - made.random[replica]).abs().max() > 0.1
        random = np.column_stack([made.random[replica].numpy(), np.ones(200)])
        assert np.abs(parts - random @ np.linalg.lstsq(random, parts, rcond=None)[0]).max() < 1e-3
    assert not np.allclose(made.clean[0], made.clean[1])
    few = made.take(1)
    assert len(few.clean) == len(few.planted.kind) == 1


def test_one_pathway_has_the_share_of_the_closed_form():
    found = find_truth(WORLDS["one-pathway"], stream(2, "truth"))
    part = 0.65**2 / 2
    assert found.share == pytest.approx(part / (1 + part) / 0.65**2, abs=0.01)
    assert np.isnan(found.ceiling[0])


def test_missed_tokens_hide_a_part_of_the_share():
    found = find_truth(WORLDS["missed"], stream(2, "truth"))
    assert found.whole_share == pytest.approx(0.5, abs=0.01)
    assert 0.03 < found.whole_share - found.share < 0.15


def test_ceilings_know_what_can_be_seen():
    hidden, graded = (find_truth(WORLDS[name], stream(3, "truth"), MANY) for name in ("hidden", "graded"))
    assert min(hidden.ceiling) > 0.95 > 0.8 > hidden.label_ceiling > 0.7
    assert max(graded.ceiling) < 0.8


def quantities(claims=0.0, bias=0.0, area=0.9):
    return {"auc_true": area, "auc_false": area, "share_bias": bias, "claims": claims}


TRUE = Truth(0.5, 0.5, 0.9, (0.97, 0.97))


@pytest.mark.parametrize(
    ("found", "in_twin", "passes"),
    [
        ([quantities(1.0)] * 20, [quantities()] * 20, True),
        ([quantities(1.0, bias=0.06)] * 20, [quantities()] * 20, False),
        ([quantities(1.0, bias=-0.06)] * 20, [quantities()] * 20, False),
        ([quantities(1.0, area=0.79)] * 20, [quantities()] * 20, False),
        ([quantities(1.0)] * 20, [quantities(1.0)] * 20, False),
        ([quantities(1.0)] * 20, [quantities()] * 19 + [quantities(1.0)], True),
        ([quantities(1.0)] * 20, [quantities()] * 18 + [quantities(1.0)] * 2, False),
        ([quantities(1.0)] * 200, [quantities()] * 180 + [quantities(1.0)] * 20, False),
    ],
)
def test_a_rule_passes_where_all_of_its_marks_are_kept(found, in_twin, passes):
    marks = mark("w", "r", 300, TRUE, found, in_twin)
    assert marks.passes is passes
    assert marks.value("false_alarms") == pytest.approx(np.mean([one["claims"] for one in in_twin]))
    assert marks.value("power") == 1
    assert marks.value("covered") is None


def test_what_cannot_be_reached_is_not_asked_for():
    found = [quantities(area=0.7)] * 5
    assert not mark("w", "r", 300, TRUE, found, found).passes
    assert mark("w", "r", 300, Truth(0.4, 0.4, 0.8, (0.77, 0.77)), found, found).passes


def test_sure_calls_have_to_be_right():
    sure = [quantities(1.0) | {"wrong_question_calls": 0.02, "wrong_answer_calls": 0.08}] * 5
    wrong = [quantities(1.0) | {"wrong_question_calls": 0.02, "wrong_answer_calls": 0.2}] * 5
    silent = [quantities(1.0) | {"wrong_question_calls": np.nan, "wrong_answer_calls": np.nan}] * 5
    passes = [mark("w", "r", 300, TRUE, one, [quantities()] * 5).passes for one in (sure, wrong, silent)]
    assert passes == [True, False, True]


def test_areas_are_within_folds_and_truths():
    kind, folds = np.tile([1.0, 0.0], 20), np.repeat([0, 1], 20)
    labels = np.tile([True, True, False, False], 10)
    score = kind + 10 * folds - np.where(labels, 0, 2 * kind)  # found among true answers, turned round among false ones
    everyone = np.ones(40, dtype=bool)
    assert auc_by_truth(score, kind, labels, everyone, folds) == {"auc_true": 1.0, "auc_false": 0.0}


def test_what_is_lost_is_tested_over_groups():
    rng = np.random.default_rng(0)
    lost = rng.normal(0.3, 1, 100)
    statistic, p_value = beyond_zero(lost, np.arange(100))
    assert statistic == pytest.approx(10 * lost.mean() / lost.std(ddof=1))
    assert 0 < p_value < 0.05
    # The same numbers ten times over are no more evidence where they are of the same groups.
    again, _ = beyond_zero(np.repeat(lost, 10), np.repeat(np.arange(100), 10))
    assert again == pytest.approx(statistic)
    assert beyond_zero(np.zeros(10), np.arange(10)) == (0.0, 0.5)


def marked(rule, n, passes):
    return Marks("w", rule, n, {"false_alarms": Estimate(0.0, 0.0, 0.1, 20, "share of replicas")}, passes)


def test_the_smallest_number_is_that_from_which_on_a_rule_passes():
    marks = (
        marked("a", 300, True),
        marked("a", 1000, False),
        marked("a", 3000, True),
        marked("b", 300, False),
        marked("b", 1000, True),
        marked("b", 3000, True),
        marked("c", 300, True),
        marked("c", 3000, False),
    )
    table = worlds_table(Found({"w": TRUE}, marks))
    assert smallest_sizes(table.filter(table["rule"] != TRUTH)) == {
        ("w", "a"): 3000,
        ("w", "b"): 1000,
        ("w", "c"): None,
    }
    assert shown_size(Found({}, marks)) == 1000
