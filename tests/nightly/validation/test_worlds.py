"""The worlds: what is planted is there, truth is what the closed forms say, and marks can be missed."""

import numpy as np
import pytest

from anchorscope.evidence_parts.parts import PARTS
from anchorscope.report.validation_page import WORLDS_SCHEMA, worlds_section
from anchorscope.validation.world_marks import (
    mark_world,
    measure_replicas,
    run_worlds,
    worlds_sentences,
    worlds_summary,
    worlds_table,
)
from anchorscope.validation.worlds import WIDTH, WORLDS, Truth, draw_features, draw_states, find_truth

ENDLESS = 60_000
PLANTED = {
    "half": (0, 0.5, 0.5, 0),
    "half-auc-0.98": (0, 0.5, 0.5, 0),
    "true-10": (0, 0.5, 0.5, 0),
    "question": (0, 1, 0, 0),
    "answer": (0, 0, 1, 0),
    "redundant-0.5": (0, 0.25, 0.25, 0.5),
    "same": (0, 0, 0, 1),
    "match": (1, 0, 0, 0),
    "thirds": (1 / 3, 1 / 3, 1 / 3, 0),
}


@pytest.mark.parametrize("name", PLANTED)
def test_an_endless_sample_has_the_parts_that_were_planted(name):
    truth = find_truth(WORLDS[name], np.random.default_rng(0), ENDLESS)
    assert [truth.parts[part] for part in PARTS] == pytest.approx(PLANTED[name], abs=0.03)
    assert sum(truth.parts[part] for part in PARTS) == pytest.approx(1)


@pytest.mark.parametrize("name", WORLDS)
def test_labels_are_spread_over_groups_and_states_have_their_width(name):
    world = WORLDS[name]
    states = draw_states(world, 240, 2, np.random.default_rng(1))
    features = draw_features(world, 240, 2, np.random.default_rng(1))
    assert states.labels.mean() == pytest.approx(world.true_share, abs=0.05)
    assert states.clean.shape == (2, 240, WIDTH + features.clean.shape[-1])
    if world.n_groups:
        by_group = [states.labels[states.groups == group].mean() for group in range(world.n_groups)]
        assert (len(by_group), min(by_group)) == (world.n_groups, pytest.approx(world.true_share, abs=0.1))


@pytest.fixture(scope="module")
def results():
    return run_worlds(2, (160, 320), names=("half", "match", "noise-only"), endless=20_000)


def test_what_the_code_of_a_run_finds_is_near_the_truth(results):
    for mark in results.marks:
        if mark.n == 320 and mark.world != "noise-only":
            assert max(abs(mark.values["bias", part].value) for part in PARTS) < 0.2, mark.world
    at = {mark.world: mark for mark in results.marks if mark.n == 320}
    assert at["match"].values["claimed", "together"].value == 1
    assert abs(at["noise-only"].values["difference", "needs-question"].value) < 0.15


def truth_of(*parts):
    return Truth(dict(zip(PARTS, parts, strict=True)), 0.8)


@pytest.mark.parametrize(
    ("bias", "covered", "claimed", "passes"),
    [(0.01, 1.0, 0.0, True), (0.05, 1.0, 0.0, False), (0.01, 0.8, 0.0, False), (0.01, 1.0, 1.0, False)],
)
def test_each_mark_can_be_missed(bias, covered, claimed, passes):
    values = {("bias", part): [bias] * 10 for part in PARTS}
    values |= {("covered", part): [1.0] * round(10 * covered) + [0.0] * round(10 - 10 * covered) for part in PARTS}
    values |= {("claimed", "together"): [claimed] * 10, ("claimed", "difference"): [1.0] * 10}
    assert mark_world("half", 1000, truth_of(0, 0.5, 0.5, 0), values).passes is passes
    matched = mark_world("match", 1000, truth_of(1, 0, 0, 0), values)  # there a claim is none too many
    assert matched.passes is (passes or claimed == 1.0)


def test_replicas_too_wide_to_speak_of_do_not_count(results):
    states = draw_states(WORLDS["half-auc-0.62"], 120, 3, np.random.default_rng(0))
    measured = measure_replicas(states, find_truth(WORLDS["half-auc-0.62"], np.random.default_rng(0), 5_000))
    silent = measured["spoken", "all parts"] == 0
    assert silent.any()
    assert np.isnan(measured["bias", "together"][silent]).all()


def test_tables_sentences_and_section_tell_the_same(results):
    table, summary = worlds_table(results), worlds_summary(results)
    assert dict(table.schema) == {name: kind() for name, kind in WORLDS_SCHEMA.items()}
    assert set(summary) == {"half", "match", "noise-only"}
    assert summary["half"]["320"]["replicas"] == 2
    assert len(worlds_sentences(results)) == 2
    section = worlds_section(table, {"half": "half and half"})
    titles = dict(section.tables)
    assert len(titles["320 items"].rows) == 3
    assert "half and half" in titles["The worlds"].rows[0]


def test_the_same_seed_gives_the_same_worlds():
    first, again, other = (run_worlds(1, 120, names=("thirds",), endless=2_000, seed=seed).marks for seed in (0, 0, 1))
    assert repr(first) == repr(again) != repr(other)
