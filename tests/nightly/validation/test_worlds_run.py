"""Worlds as they are run: every rule in them, told to programs, in a table and on the page."""

import json

import pytest

from anchorscope.report.worlds_section import TRUTH, WORLDS_SCHEMA, worlds_section
from anchorscope.validation.world_marks import (
    Found,
    Marks,
    run_worlds,
    shown_size,
    worlds_sentences,
    worlds_summary,
    worlds_table,
)

RULES = {"plain", "cross-fitted", "corrected", "question share", "item posterior"}


@pytest.fixture(scope="module")
def found() -> Found:
    return run_worlds(2, (160, 320), names=("one-pathway", "two-pathway"), endless=20_000)


def at(found, world, rule, n=320) -> Marks:
    (one,) = [one for one in found.marks if (one.world, one.rule, one.n) == (world, rule, n)]
    return one


def test_sorting_rules_claim_two_groups_where_there_is_one_pathway(found):
    for rule in ("plain", "corrected"):
        assert at(found, "one-pathway", rule).value("false_alarms") == 1
        assert not at(found, "one-pathway", rule).passes
        assert at(found, "one-pathway", rule).value("auc_true") is None
    assert at(found, "one-pathway", "question share").value("false_alarms") <= 0.5


def test_the_question_share_sees_two_kinds_and_how_much_is_the_questions(found):
    share = at(found, "two-pathway", "question share")
    assert min(share.value("auc_true"), share.value("auc_false")) > 0.75
    assert abs(share.value("share_bias")) < 0.2
    assert abs(at(found, "two-pathway", "plain").value("share_bias")) > 0.1


def test_worlds_are_told_to_programs_with_null_where_nothing_is_defined(found):
    told = worlds_summary(found)
    assert set(told) == {"one-pathway", "two-pathway"}
    for rules in json.loads(json.dumps(told, allow_nan=False)).values():
        assert set(rules) == RULES
        for numbers in rules.values():
            assert {"auc_true", "auc_false", "share_bias", "false_alarms", "n", "passes"} <= set(numbers)
            assert numbers["n"] == 320
            assert isinstance(numbers["passes"], bool)
    assert told["one-pathway"]["plain"]["auc_true"] is None
    assert any("one pathway" in line for line in worlds_sentences(found))


def test_the_table_has_every_number_with_replicas_and_method(found):
    table = worlds_table(found)
    assert dict(table.schema) == {name: kind() for name, kind in WORLDS_SCHEMA.items()}
    rules = table.filter(table["rule"] != TRUTH)
    assert set(rules["rule"]) == RULES
    assert rules["replicas"].min() >= 1
    assert rules["value"].is_finite().all()
    inside = rules.drop_nulls(["ci_low", "ci_high"])
    assert ((inside["ci_low"] <= inside["value"]) & (inside["value"] <= inside["ci_high"])).all()
    assert table["method"].null_count() == 0


def test_the_same_seed_gives_the_same_worlds():
    first, again, other = (run_worlds(1, 120, names=("hidden",), endless=2_000, seed=seed).marks for seed in (0, 0, 1))
    assert [one.values for one in first] == [one.values for one in again]
    assert [one.values for one in first] != [one.values for one in other]


def test_the_section_says_who_may_be_believed_when(found):
    section = worlds_section(worlds_table(found), {"one-pathway": "every item half and half"}, shown_size(found))
    titles = dict(section.tables)
    smallest = titles["The smallest number of items from which on a rule passes"]
    assert smallest.head[0] == "world"
    assert set(smallest.head[1:]) == RULES
    assert [row[0] for row in smallest.rows] == ["one-pathway", "two-pathway"]
    assert all(cell == "no" or cell.startswith("from ") for row in smallest.rows for cell in row[1:])
    assert "every item half and half" in titles["The worlds"].rows[0]
