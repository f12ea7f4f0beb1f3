"""Single items: they average to the curves, agree with the rule that sorted them, and fit into a page."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from anchorscope.artefacts.schema import EVIDENCE_ITEM_SCHEMA
from anchorscope.report.findings import band_numbers
from anchorscope.report.items import item_table, record
from report_items_synthetic import curves_of, make_items, with_texts
from report_shares import with_shares

LAYERS = 12


@pytest.fixture(scope="module")
def run() -> Any:
    return make_items(layers=LAYERS)


@pytest.fixture(scope="module")
def found(run: Any) -> list[Any]:
    return [
        item_of(run[0], *key)
        for key in run[0].items.select("dataset", "item_id").iter_rows()
    ]


def item_of(findings: Any, *key: str) -> Any:
    """The record of an item, its fields as attributes."""
    made = record(findings, *key)
    return SimpleNamespace(
        **made | {"effects": [SimpleNamespace(**one) for one in made["effects"]]}
    )


def effect(item: Any, name: str) -> Any:
    return next((one for one in item.effects if one.intervention == name), None)


@pytest.mark.parametrize("name", ["knockout", "random", "none", "patch-same"])
def test_the_mean_over_a_group_is_the_curve(run, found, name):
    for dataset, measured in run[1].items():
        for group, curve in curves_of(measured, name).items():
            members = [
                one for one in found if one.dataset == dataset and one.pathway == group
            ]
            effects = [
                one
                for one in (effect(member, name) for member in members)
                if one is not None
            ]
            assert len(effects) == curve.n > 0
            mean = np.average(
                [one.delta_p for one in effects],
                axis=0,
                weights=[one.runs for one in effects],
            )
            np.testing.assert_allclose(mean, curve.delta_p, atol=1e-3)


def test_a_flip_by_the_knockout_is_what_the_plain_rule_calls_q_anchored(found):
    used = [one for one in found if one.status == "used"]
    for item in used:
        right = (item.probability_before > 0.5) == item.truthful
        expected = (
            "misclassified"
            if not right
            else "Q-Anchored"
            if effect(item, "knockout").flips
            else "A-Anchored"
        )
        assert item.pathway == expected
    assert {one.pathway for one in used} == {
        "misclassified",
        "Q-Anchored",
        "A-Anchored",
    }


def test_the_numbers_at_the_reference_layer(run, found):
    item = found[4]
    measured, layer = run[1]["popqa"], 6  # fold 4 is even: layer 12 // 2
    assert (item.fold, item.reference_layer) == (4, layer)
    for one in item.effects:
        assert one.delta_p_reference == one.delta_p[layer]
        np.testing.assert_allclose(
            one.log_odds_before, measured.before[:, 4], rtol=1e-5
        )
    donors = measured.after["patch-same"][:, measured.ran["patch-same"] == 4]
    patched = effect(item, "patch-same")
    assert (patched.runs, patched.variant) == (donors.shape[1], "donor")
    assert (
        patched.flips == ((donors[layer] > 0) != (measured.before[layer, 4] > 0)).sum()
    )
    np.testing.assert_allclose(patched.log_odds_after, donors.mean(1), rtol=1e-5)


def test_cutting_nothing_flips_nothing_even_at_the_threshold(run):
    findings, _ = run
    # An item whose clean score is as good as zero changes its sign by noise alone: that is no flip.
    still = (pl.col("intervention") == "none") & (pl.col("item_id") == "popqa-0")
    lists = {"logit_clean": [-1e-6] * LAYERS, "logit_after": [1e-6] * LAYERS}
    close = findings.effects.with_columns(
        pl.when(still)
        .then(pl.lit(values, dtype=pl.List(pl.Float32)))
        .otherwise(name)
        .alias(name)
        for name, values in lists.items()
    )
    assert (
        effect(
            item_of(replace(findings, effects=close), "popqa", "popqa-0"), "none"
        ).flips
        == 0
    )


def test_an_item_that_is_not_there(run):
    assert record(run[0], "popqa", "nobody") is None
    assert record(run[0], "nq", "popqa-0") is None


def test_an_item_that_is_not_used_has_nothing_measured(found):
    unused = [one for one in found if one.status != "used"]
    assert len(unused) == 4
    for one in unused:
        assert (
            one.effects,
            one.pathway,
            one.reference_layer,
            one.probability_before,
        ) == ([], None, None, None)


def test_the_page_carries_the_same_numbers(run, found):
    data = item_table(run[0])
    by_key = {(one.dataset, one.item_id): one for one in found}
    page = [by_key[key] for key in zip(data["dataset"], data["id"], strict=True)]
    assert len(page) == len(found) == data["total"]
    assert [one.status == "used" for one in page] == [True] * 80 + [False] * 4
    for one, score in zip(page, data["score"], strict=True):
        assert (one.probability_before is None) == (score is None)
        assert score is None or score == pytest.approx(
            100 * one.probability_before, abs=0.051
        )
    for shown in data["effects"]:
        for item, delta, flips in zip(
            page, shown["delta"], shown["flips"], strict=True
        ):
            expected = effect(item, shown["name"])
            assert flips == (None if expected is None else expected.flips)
            assert delta == (
                None
                if expected is None
                else pytest.approx(expected.delta_p_reference, abs=0.051)
            )


def test_lost_and_had_are_means_over_the_band(run):
    findings = with_shares(run[0])
    band = band_numbers(findings, "popqa")
    lost = np.linspace(0.0, 1.0, 30)
    row = {
        "dataset": "popqa",
        "item_id": "popqa-0",
        "intervention": "knockout",
        "view": "cut",
    }
    row |= {"site": findings.site, "position": findings.position}
    lists = {"lost": lost, "label_left": lost, "had": 2 * lost, "label": lost}
    terms = pl.DataFrame(
        [row | {name: values.tolist() for name, values in lists.items()}],
        schema=EVIDENCE_ITEM_SCHEMA,
    )
    data = item_table(replace(findings, evidence_items=terms))
    place = data["id"].index("popqa-0")
    assert data["lost"][place] == pytest.approx(lost[band].mean(), abs=1e-3)
    assert data["had"][place] == pytest.approx(2 * lost[band].mean(), abs=1e-3)
    assert [value for at, value in enumerate(data["lost"]) if at != place] == [None] * (
        len(data["id"]) - 1
    )


def test_marks_count_as_the_browser_counts(run):
    question = "Who, 🦊, wrote 🐍 Emma?"
    words = [
        [question.index("wrote"), question.index("wrote") + 5],
        [question.index("🐍"), question.index("?")],
    ]
    data = item_table(with_texts(run[0], 0, question=question, question_words=words))
    units, marks = data["question"][0].encode("utf-16-le"), data["marks"][0]
    cut = [
        units[2 * a : 2 * b].decode("utf-16-le")
        for a, b in zip(marks[::2], marks[1::2], strict=True)
    ]
    assert cut == ["wrote", "🐍 Emma"]


def test_used_items_come_first_where_not_all_fit(run):
    data = item_table(run[0], most=10)
    assert data["status"] == ["used"] * 10
    assert data["total"] == 84
