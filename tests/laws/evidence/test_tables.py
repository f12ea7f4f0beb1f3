"""The tables of one dataset: the contract's columns, no NaN, the same numbers in any order of the items."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from anchorscope.evidence.delta_p import Measured
from anchorscope.evidence.tables import Evidence, evidence_tables
from anchorscope.progress import Silent
from anchorscope.stats.auc import auc
from evidence_synthetic import make_evidence, permuted


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return make_evidence()


@pytest.fixture(scope="module")
def tables(evidence: Evidence) -> dict[str, pl.DataFrame]:
    return evidence_tables(evidence, Silent())


def no_nan(tables: dict[str, pl.DataFrame]) -> bool:
    floats = [
        frame[name]
        for frame in tables.values()
        for name, kind in frame.schema.items()
        if kind.is_float()
    ]
    return not any(
        column.is_nan().any() or column.is_infinite().any() for column in floats
    )


def test_curves_split_by_truth_add_up(tables: dict[str, pl.DataFrame]) -> None:
    keys = ["intervention", "site", "group", "layer"]
    curves = tables["curves"]
    whole = curves.filter(pl.col("truth") == "all").sort(keys)
    parts = [
        curves.filter(pl.col("truth") == truth).sort(keys)
        for truth in ("true", "false")
    ]
    assert (parts[0]["n"] + parts[1]["n"]).to_list() == whole["n"].to_list()
    mixed = (
        parts[0]["delta_p"] * parts[0]["n"] + parts[1]["delta_p"] * parts[1]["n"]
    ) / whole["n"]
    assert mixed.to_list() == pytest.approx(whole["delta_p"].to_list())


def test_the_nested_score_reads_folds_at_their_reference_layer(
    evidence: Evidence, tables: dict[str, pl.DataFrame]
) -> None:
    measured = evidence.places["mlp", "final"]
    reference = measured.reference
    assert len(set(reference.tolist())) > 1  # or any one layer would do
    own, items = reference[measured.folds], np.arange(len(measured.labels))
    for name, logits in (
        ("clean", measured.before),
        ("knockout", measured.after["knockout"]),
    ):
        row = (
            tables["probe_scores"]
            .filter(kind="nested", intervention=name, site="mlp")
            .row(0, named=True)
        )
        wanted = auc(logits[own, items], measured.labels, measured.folds)
        assert row["auc"] == pytest.approx(float(wanted))
        assert row["ci_low"] < row["auc"] < row["ci_high"]
        assert row["n"] == len(items)


def test_differences_to_the_baselines_and_to_chance_stand_in_the_summary(
    evidence: Evidence,
) -> None:
    known = replace(evidence, permuted={"knockout": np.linspace(0.4, 0.6, 50)})
    tables = evidence_tables(known, Silent())
    here = pl.col("layer").is_null() & (
        pl.col("site").is_null() | (pl.col("site") == "mlp")
    )
    kinds = (
        tables["probe_scores"]
        .filter(here)
        .select(pl.concat_str("intervention", pl.lit(" "), "kind"), "auc")
    )
    scores = dict(kinds.iter_rows())
    rows = tables["summary"].filter(pl.col("quantity").str.starts_with("auc"))
    assert set(rows.select("site", "position").rows()) == {("mlp", "final")}
    found = {(row["quantity"], row["group"]): row for row in rows.iter_rows(named=True)}
    for kind in ("relation-only", "words", "confidence-mean", "confidence-min"):
        wanted = scores["clean nested"] - scores[f"clean {kind}"]
        assert found["auc_difference", kind]["value"] == pytest.approx(wanted)
    for kind in ("nested", "words"):
        wanted = scores[f"clean {kind}+confidence"] - scores["clean confidence-mean"]
        assert found["auc_beyond_confidence", kind]["value"] == pytest.approx(wanted)
    assert found["auc_permuted", "refit"]["value"] == pytest.approx(0.5)
    wanted = scores["knockout nested-refit"] - 0.5
    assert found["auc_beyond_permuted", "refit"]["value"] == pytest.approx(wanted)


def test_baselines_that_cannot_be_computed_are_left_out() -> None:
    tables = evidence_tables(make_evidence(relations=False, confidence=False), Silent())
    scores = tables["probe_scores"]
    assert scores.filter(pl.col("site").is_null())["kind"].to_list() == ["words"]
    assert {
        "within-relation",
        "nested-within-relation",
        "nested+confidence",
    }.isdisjoint(scores["kind"])
    compared = tables["summary"].filter(pl.col("quantity").str.starts_with("auc"))
    assert compared.select("quantity", "group").rows() == [("auc_difference", "words")]


def test_within_relation_scores_compare_one_relation_and_fold(
    evidence: Evidence, tables: dict[str, pl.DataFrame]
) -> None:
    measured = evidence.places["mlp", "final"]
    strata = 2 * measured.folds + (np.array(evidence.relations) == "capital")
    wanted = auc(measured.before[2], measured.labels, strata)
    kind = (
        (pl.col("kind") == "within-relation")
        & (pl.col("site") == "mlp")
        & (pl.col("layer") == 2)
    )
    assert tables["probe_scores"].filter(kind)["auc"].item() == pytest.approx(
        float(wanted)
    )


def reordered(evidence: Evidence, order: np.ndarray) -> Evidence:
    lists = (
        "item_ids",
        "questions",
        "answers",
        "relations",
        "confidence_mean",
        "confidence_min",
    )
    return replace(
        evidence,
        **{name: [getattr(evidence, name)[index] for index in order] for name in lists},
        places={
            place: permuted(measured, order)
            for place, measured in evidence.places.items()
        },
        refits={name: logits[:, order] for name, logits in evidence.refits.items()},
        weights=evidence.weights[:, order],
    )


def test_the_order_of_the_items_changes_no_number(
    evidence: Evidence, tables: dict[str, pl.DataFrame]
) -> None:
    order = np.random.default_rng(5).permutation(len(evidence.item_ids))
    again = evidence_tables(reordered(evidence, order), Silent())
    for name, frame in tables.items():
        other = again[name]
        if name == "pathways":
            keys = ["site", "item_id"]
            frame, other = frame.sort(keys), other.sort(keys)
        # sums in another order
        assert_frame_equal(frame, other, abs_tol=1e-6, rel_tol=1e-6)


def test_groups_without_items_are_null_and_keep_their_kind() -> None:
    evidence = make_evidence()
    still = {place: one_sided(measured) for place, measured in evidence.places.items()}
    tables = evidence_tables(replace(evidence, places=still), Silent())
    assert no_nan(tables)
    nobody = tables["curves"].filter(
        (pl.col("group") == "Q-Anchored") & (pl.col("intervention") == "knockout")
    )
    assert set(nobody["n"]) == set(nobody["n_groups"]) == {0}
    assert (
        nobody.select("delta_p", "ci_low", "ci_high").null_count().row(0)
        == (nobody.height,) * 3
    )
    assert tables["curves"].schema["delta_p"] == pl.Float64


def one_sided(measured: Measured) -> Measured:
    """A cut that changes nothing: nobody is Q-Anchored."""
    return replace(
        measured, after={**measured.after, "knockout": measured.before.copy()}
    )
