"""Single items: they average to the curves, agree with the rule that sorted them, and fit into a page."""

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from anchorscope.report.items.explorer_data import item_data
from anchorscope.report.items.item_records import ItemRecord, record, records
from anchorscope.report.page_writer import embedded_json
from report_items_synthetic import curves_of, make_items, with_texts

LAYERS = 12


@pytest.fixture(scope="module")
def run() -> Any:
    return make_items(layers=LAYERS)


@pytest.fixture(scope="module")
def found(run: Any) -> list[ItemRecord]:
    return list(records(run[0]))


def effect(item: ItemRecord, name: str) -> Any:
    return next((one for one in item.effects if one.intervention == name), None)


@pytest.mark.parametrize("name", ["knockout", "random", "none", "patch-same"])
def test_the_mean_over_a_group_is_the_curve(run, found, name):
    for dataset, measured in run[1].items():
        for group, curve in curves_of(measured, name).items():
            members = [one for one in found if one.dataset == dataset and one.pathways.get("plain") == group]
            effects = [one for one in (effect(member, name) for member in members) if one is not None]
            assert len(effects) == curve.n > 0
            mean = np.average([one.delta_p for one in effects], axis=0, weights=[one.runs for one in effects])
            np.testing.assert_allclose(mean, curve.delta_p, atol=1e-3)


def test_a_flip_by_the_knockout_is_what_the_plain_rule_calls_q_anchored(found):
    used = [one for one in found if one.status == "used"]
    for item in used:
        right = (item.probability_before > 0.5) == item.truthful
        expected = "misclassified" if not right else "Q-Anchored" if effect(item, "knockout").flips else "A-Anchored"
        assert item.pathways["plain"] == expected
    assert {one.pathways["plain"] for one in used} == {"misclassified", "Q-Anchored", "A-Anchored"}


def test_the_numbers_at_the_reference_layer(run, found):
    item = found[4]
    measured, layer = run[1]["popqa"], 6  # fold 4 is even: layer 12 // 2
    assert (item.fold, item.reference_layer) == (4, layer)
    for one in item.effects:
        assert one.delta_p_reference == one.delta_p[layer]
        np.testing.assert_allclose(one.log_odds_before, measured.before[0, :, 4], rtol=1e-5)
    donors = measured.after["patch-same"][0][:, measured.ran["patch-same"] == 4]
    patched = effect(item, "patch-same")
    assert (patched.runs, patched.variant) == (donors.shape[1], "donor")
    assert patched.flips == ((donors[layer] > 0) != (measured.before[0, layer, 4] > 0)).sum()
    np.testing.assert_allclose(patched.log_odds_after, donors.mean(1), rtol=1e-5)


def test_cutting_nothing_flips_nothing_even_at_the_threshold(run):
    findings, _ = run
    # An item whose clean score is as good as zero changes its sign by noise alone: that is no flip.
    still = (pl.col("intervention") == "none") & (pl.col("item_id") == "popqa-0")
    lists = {"logit_clean": [-1e-6] * LAYERS, "logit_after": [1e-6] * LAYERS}
    close = findings.effects.with_columns(
        pl.when(still).then(pl.lit(values, dtype=pl.List(pl.Float32))).otherwise(name).alias(name)
        for name, values in lists.items()
    )
    assert effect(record(replace(findings, effects=close), "popqa", "popqa-0"), "none").flips == 0


def test_one_item_is_the_same_as_one_of_all(run, found):
    for number in (0, 17, 40, 41, 50):
        assert record(run[0], found[number].dataset, found[number].item_id) == found[number]
    assert record(run[0], "popqa", "nobody") is None
    assert record(run[0], "nq", "popqa-0") is None


def test_an_item_that_is_not_used_has_nothing_measured(found):
    unused = [one for one in found if one.status != "used"]
    assert len(unused) == 4
    for one in unused:
        assert (one.effects, dict(one.pathways), one.reference_layer, one.probability_before) == ((), {}, None, None)


def numbers(packed: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed), dtype=kind)


def test_the_page_carries_the_same_numbers(run, found):
    data = item_data(run[0])
    items = data["items"]
    assert len(items["id"]) == len(found) == data["total"]
    by_key = {(one.dataset, one.item_id): one for one in found}
    page = [by_key[data["datasets"][number], name] for number, name in zip(items["dataset"], items["id"], strict=True)]
    assert [one.status == "used" for one in page] == [True] * 80 + [False] * 4
    for name in ("plain", "corrected"):
        coded = items["pathways"][name]
        assert [coded["names"][code] if code >= 0 else None for code in coded["of"]] == [
            one.pathways.get(name) for one in page
        ]
    for one in data["interventions"]:
        rows = range(one["count"]) if one["rows"] is None else numbers(one["rows"], "<u4").tolist()
        effects = [effect(page[row], one["name"]) for row in rows]
        assert [effect(item, one["name"]) is not None for item in page] == [
            row in set(rows) for row in range(len(page))
        ]
        at = numbers(one["at"], "<i2") * 0.01
        np.testing.assert_allclose(at, [effect.delta_p_reference for effect in effects], atol=0.0051)
        curves = numbers(one["curves"], "<i2" if one["name"] == "knockout" else "i1").reshape(-1, LAYERS) * one["step"]
        np.testing.assert_allclose(curves, [effect.delta_p for effect in effects], atol=0.51 * one["step"])
        flips = one["flips"] if isinstance(one["flips"], list) else [one["flips"]] * len(effects)
        assert flips == [effect.flips for effect in effects]
    (further,) = data["further"]
    values = dict(
        zip(numbers(further["rows"], "<u4").tolist(), numbers(further["values"], "<f4").tolist(), strict=True)
    )
    assert {page[row].item_id: value for row, value in values.items()} == {
        one.item_id: one.further[0].value for one in page if one.further
    }


def test_marks_count_as_the_browser_counts(run):
    question = "Who, 🦊, wrote 🐍 Emma?"
    words = [[question.index("wrote"), question.index("wrote") + 5], [question.index("🐍"), question.index("?")]]
    data = item_data(with_texts(run[0], 0, question=question, question_words=words))
    units, marks = data["items"]["question"][0].encode("utf-16-le"), data["items"]["marks"][0]
    assert [units[2 * a : 2 * b].decode("utf-16-le") for a, b in zip(marks[::2], marks[1::2], strict=True)] == [
        "wrote",
        "🐍 Emma",
    ]


def test_what_does_not_fit_is_left_out_in_order(run):
    findings, _ = run
    whole = len(embedded_json(item_data(findings)))
    for limit in (40_000, 25_000, 12_000, 5_000, 0):
        data = item_data(findings, limit)
        used = data["shown_used"]
        assert len(embedded_json(data["items"])) + len(embedded_json(data["interventions"])) <= limit + 3_000
        assert data["total_used"] == 80
        assert used == 80 or len(data["items"]["id"]) == used, "no unused item takes the place of a used one"
        of = np.bincount([*data["items"]["dataset"], 0, 1])
        assert abs(of[0] - of[1]) <= 1, "no dataset is preferred"
        if not data["all_curves"]:
            assert not data["all_further"]
            drawn = {one["name"] for one in data["interventions"] if one["curves"] is not None}
            assert drawn == {"knockout", "random", "none"}
    assert used == 0
    assert item_data(findings, whole * 2)["all_further"]


@pytest.mark.parametrize(("layers", "interventions"), [(30, 15), (64, 15)])
def test_six_thousand_items_fit_into_a_page(layers, interventions):
    n, rng = 6_000, np.random.default_rng(0)
    findings, _ = make_items(4, layers, ("popqa",))
    names = pl.DataFrame({"item_id": [f"q{number}" for number in range(n)]})
    items = findings.items.head(1).drop("item_id").join(names, how="cross")
    items = items.with_columns(question=pl.col("item_id") + " word" * 20)
    paths = findings.pathways.filter(pl.col("site") == "mlp").head(1).drop("item_id")
    before, after = (pl.Series(rng.normal(0, 3, (n, layers)).astype(np.float32)).arr.to_list() for _ in range(2))
    effects = [
        pl.DataFrame({"item_id": items["item_id"], "logit_clean": before, "logit_after": after}).with_columns(
            dataset=pl.lit("popqa"),
            intervention=pl.lit(f"i{number}" if number else "knockout"),
            variant=pl.lit("all"),
            probe=pl.lit("full"),
            site=pl.lit("mlp"),
            position=pl.lit("final"),
            n_cut=pl.lit(5),
        )
        for number in range(interventions)
    ]
    whole = replace(
        findings,
        items=items,
        pathways=items.select("item_id").join(paths, how="cross"),
        effects=pl.concat(effects),
        n_layers=layers,
    )
    data = item_data(whole)
    assert (len(data["items"]["id"]), data["all_curves"]) == (n, True)
    assert len(embedded_json(data).encode()) < 12_000_000
