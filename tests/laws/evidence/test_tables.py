"""The tables of one dataset: the contract's columns, no NaN, the same numbers in any order of the items."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from anchorscope.evidence.measured import Measured
from anchorscope.evidence.tables import Evidence, evidence_tables
from anchorscope.progress import Silent
from anchorscope.stats.auc import auc
from anchorscope.stats.estimate import group_weights
from evidence_synthetic import permuted, random_measured

SITES = ("attention", "mlp", "residual")
CONTRACT = {
    "curves": "model dataset intervention variant site position assignment group truth layer delta_p ci_low ci_high n "
    "n_groups",
    "probe_scores": "model dataset intervention kind site position layer auc ci_low ci_high log_loss brier n n_groups",
    "pathways": "dataset item_id site position assignment reference_layer pathway",
}
"""As docs/run-folder.md promises."""
N_LAYERS = 4


def make_evidence(n: int = 200, seed: int = 0, relations: bool = True, confidence: bool = True) -> Evidence:
    places = {(site, "final"): random_measured(n=n, seed=seed, n_none=n // 2) for site in SITES}
    # Only the scores differ between sites; the items are the same.
    first = places["attention", "final"]
    for place, (site, position) in enumerate(places):
        other = random_measured(n=n, seed=seed, n_none=n // 2)
        scale = 1 + 0.1 * place
        after = {name: scale * logits for name, logits in other.after.items()}
        places[site, position] = replace(first, before=scale * other.before, after=after)
    rng = np.random.default_rng(seed)
    sure = rng.normal(size=n).tolist()
    return Evidence(
        model="Tiny",
        dataset="facts",
        item_ids=[f"item-{index}" for index in range(n)],
        questions=[f"What is the {word} of {index}?" for index, word in enumerate(rng.choice(["a1", "b2", "c3"], n))],
        answers=[str(word) for word in rng.choice(["Rome", "Oslo", "Lima", "Bern"], n)],
        relations=[str(word) if relations else None for word in rng.choice(["capital", "author"], n)],
        confidence_mean=sure if confidence else [None] * n,
        confidence_min=[one - 1 for one in sure] if confidence else [None] * n,
        variants=dict.fromkeys(first.after, "all"),
        places=places,
        refits={"knockout": rng.normal(size=(N_LAYERS, n)), "random": rng.normal(size=(N_LAYERS, n))},
        headline=("mlp", "final"),
        weights=group_weights(first.groups, 60, rng),
    )


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return make_evidence()


@pytest.fixture(scope="module")
def tables(evidence: Evidence) -> dict[str, pl.DataFrame]:
    return evidence_tables(evidence, Silent())


def test_tables_have_the_columns_of_the_contract(tables: dict[str, pl.DataFrame]) -> None:
    for name in ("curves", "probe_scores"):
        assert tables[name].columns == CONTRACT[name].split()
    # The cross-fitted assignment has two rows per item, one per assigning probe: a column says which.
    assert [name for name in tables["pathways"].columns if name != "probe"] == CONTRACT["pathways"].split()
    assert set(tables) == {"curves", "curve_samples", "reference_curves", "probe_scores", "pathways", "summary"}


def no_nan(tables: dict[str, pl.DataFrame]) -> bool:
    floats = [frame[name] for frame in tables.values() for name, kind in frame.schema.items() if kind.is_float()]
    return not any(column.is_nan().any() or column.is_infinite().any() for column in floats)


def test_nothing_is_nan(tables: dict[str, pl.DataFrame]) -> None:
    assert no_nan(tables)
    assert tables["curves"]["delta_p"].null_count() == 0


def test_every_curve_is_there_once(tables: dict[str, pl.DataFrame]) -> None:
    keys = ["intervention", "site", "assignment", "group", "truth", "layer"]
    curves = tables["curves"]
    assert curves.select(keys).unique().height == curves.height == 3 * 3 * 3 * 2 * 3 * N_LAYERS
    assert set(curves["assignment"]) == {"plain", "cross-fitted", "corrected"}
    assert set(curves["group"]) == {"Q-Anchored", "A-Anchored"}
    assert set(curves["truth"]) == {"all", "true", "false"}
    assert set(curves["intervention"]) == {"knockout", "random", "none"}
    constant = curves.select("model", "dataset", "variant", "position").unique()
    assert constant.rows() == [("Tiny", "facts", "all", "final")]


def test_curves_split_by_truth_add_up(tables: dict[str, pl.DataFrame]) -> None:
    keys = ["intervention", "site", "assignment", "group", "layer"]
    curves = tables["curves"].filter(pl.col("assignment") != "cross-fitted")
    whole = curves.filter(pl.col("truth") == "all").sort(keys)
    parts = [curves.filter(pl.col("truth") == truth).sort(keys) for truth in ("true", "false")]
    assert (parts[0]["n"] + parts[1]["n"]).to_list() == whole["n"].to_list()
    mixed = (parts[0]["delta_p"] * parts[0]["n"] + parts[1]["delta_p"] * parts[1]["n"]) / whole["n"]
    assert mixed.to_list() == pytest.approx(whole["delta_p"].to_list())


def test_every_kind_of_score_is_there(tables: dict[str, pl.DataFrame]) -> None:
    scores = tables["probe_scores"]
    by_layer = scores.filter(pl.col("layer").is_not_null()).group_by("intervention", "kind", "site").len()
    wanted = {("clean", "transfer"), ("clean", "within-relation")}
    wanted |= {(name, "transfer") for name in ("knockout", "random", "none")}
    assert set(by_layer.rows()) == {
        *((name, kind, site, N_LAYERS) for name, kind in wanted for site in SITES),
        ("knockout", "refit", "mlp", N_LAYERS),
        ("random", "refit", "mlp", N_LAYERS),
    }
    nested = scores.filter(pl.col("kind").str.starts_with("nested") & (pl.col("kind") != "nested+confidence"))
    wanted = {("clean", "nested"), ("clean", "nested-within-relation")}
    wanted |= {(name, "nested") for name in ("knockout", "random", "none")}
    assert sorted(nested.select("intervention", "kind", "site", "position", "layer").rows()) == sorted(
        [
            *((name, kind, site, "final", None) for name, kind in wanted for site in SITES),
            ("knockout", "nested-refit", "mlp", "final", None),
            ("random", "nested-refit", "mlp", "final", None),
        ]
    )
    joined = scores.filter(pl.col("kind").str.ends_with("+confidence"))
    assert joined.select("kind", "site", "position", "layer").rows() == [
        ("nested+confidence", "mlp", "final", None),
        ("words+confidence", None, None, None),
    ]
    baselines = scores.filter(pl.col("site").is_null() & (pl.col("kind") != "words+confidence"))
    assert baselines["kind"].to_list() == ["relation-only", "words", "confidence-mean", "confidence-min"]
    assert baselines.select("site", "position", "log_loss", "brier").null_count().row(0) == (4, 4, 4, 4)
    assert set(baselines["intervention"]) == {"clean"}


def test_the_nested_score_reads_every_fold_at_its_own_reference_layer(
    evidence: Evidence, tables: dict[str, pl.DataFrame]
) -> None:
    measured = evidence.places["mlp", "final"]
    reference = measured.reference[measured.probe("full")]
    assert len(set(reference.tolist())) > 1  # or any one layer would do
    own, items = reference[measured.folds], np.arange(len(measured.labels))
    for name, logits in (("clean", measured.before), ("knockout", measured.after["knockout"])):
        row = tables["probe_scores"].filter(kind="nested", intervention=name, site="mlp").row(0, named=True)
        wanted = auc(logits[measured.probe("full")][own, items], measured.labels, measured.folds)
        assert row["auc"] == pytest.approx(float(wanted))
        assert row["ci_low"] < row["auc"] < row["ci_high"]
        assert row["n"] == len(items)


def test_differences_to_the_baselines_and_to_chance_stand_in_the_summary(evidence: Evidence) -> None:
    known = replace(evidence, permuted={"knockout": np.linspace(0.4, 0.6, 50)})
    tables = evidence_tables(known, Silent())
    here = pl.col("layer").is_null() & (pl.col("site").is_null() | (pl.col("site") == "mlp"))
    kinds = tables["probe_scores"].filter(here).select(pl.concat_str("intervention", pl.lit(" "), "kind"), "auc")
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
    assert {"within-relation", "nested-within-relation", "nested+confidence"}.isdisjoint(scores["kind"])
    compared = tables["summary"].filter(pl.col("quantity").str.starts_with("auc"))
    assert compared.select("quantity", "group").rows() == [("auc_difference", "words")]


def test_within_relation_scores_compare_only_items_of_one_relation_and_fold(
    evidence: Evidence, tables: dict[str, pl.DataFrame]
) -> None:
    measured = evidence.places["mlp", "final"]
    relations = np.array(evidence.relations)
    wins, pairs = 0.0, 0
    for i in np.flatnonzero(measured.labels):
        for j in np.flatnonzero(~measured.labels):
            if measured.folds[i] == measured.folds[j] and relations[i] == relations[j]:
                x, y = measured.before[0, 2, i], measured.before[0, 2, j]
                wins += 1.0 if x > y else 0.5 if x == y else 0.0
                pairs += 1
    kind = (pl.col("kind") == "within-relation") & (pl.col("site") == "mlp") & (pl.col("layer") == 2)
    assert tables["probe_scores"].filter(kind)["auc"].item() == pytest.approx(wins / pairs)


def test_pathways_hold_every_item_once_per_way(evidence: Evidence, tables: dict[str, pl.DataFrame]) -> None:
    pathways = tables["pathways"]
    ways = [("plain", "full"), ("cross-fitted", "a"), ("cross-fitted", "b"), ("corrected", "full")]
    assert set(pathways.select("site", "assignment", "probe").unique().rows()) == {
        (site, *way) for site in SITES for way in ways
    }
    assert pathways.height == len(SITES) * len(ways) * len(evidence.item_ids)
    assert set(pathways["pathway"]) == {"Q-Anchored", "A-Anchored", "misclassified"}
    measured = evidence.places["mlp", "final"]
    half = pathways.filter((pl.col("site") == "mlp") & (pl.col("probe") == "b"))
    assert half["item_id"].to_list() == list(evidence.item_ids)
    assert half["reference_layer"].to_list() == measured.reference[2][measured.folds].tolist()


def test_pathways_and_curves_count_the_same_items(tables: dict[str, pl.DataFrame]) -> None:
    whole = (pl.col("truth") == "all") & (pl.col("intervention") == "knockout") & (pl.col("layer") == 0)
    keys = ["site", "assignment", "group"]
    counted = tables["pathways"].rename({"pathway": "group"}).group_by(keys).len("n")
    both = tables["curves"].filter(whole).join(counted, on=keys, suffix="_pathways")
    single = both.filter(pl.col("assignment") != "cross-fitted")
    assert single.height == len(SITES) * 2 * 2
    assert single["n"].to_list() == single["n_pathways"].to_list()
    halves = both.filter(pl.col("assignment") == "cross-fitted")  # two rows per item, of which the curve shows the mean
    assert halves.height == len(SITES) * 2
    assert (halves["n_pathways"] - 2 * halves["n"]).abs().max() <= 1


def test_the_chart_is_also_drawn_for_earlier_and_later_reference_layers(tables: dict[str, pl.DataFrame]) -> None:
    reference = tables["reference_curves"]
    assert reference.columns == [*CONTRACT["curves"].split(), "shift"]
    assert sorted(set(reference["shift"])) == [-1, 0, 1]
    still = reference.filter(pl.col("shift") == 0).drop("shift")
    plain = (pl.col("assignment") == "plain") & (pl.col("truth") == "all") & (pl.col("site") == "mlp")
    assert_frame_equal(still, tables["curves"].filter(plain & (pl.col("intervention") == "knockout")))


def reordered(evidence: Evidence, order: np.ndarray) -> Evidence:
    lists = ("item_ids", "questions", "answers", "relations", "confidence_mean", "confidence_min")
    return replace(
        evidence,
        **{name: [getattr(evidence, name)[index] for index in order] for name in lists},
        places={place: permuted(measured, order) for place, measured in evidence.places.items()},
        refits={name: logits[:, order] for name, logits in evidence.refits.items()},
        weights=evidence.weights[:, order],
    )


def test_the_order_of_the_items_changes_no_number(evidence: Evidence, tables: dict[str, pl.DataFrame]) -> None:
    order = np.random.default_rng(5).permutation(len(evidence.item_ids))
    again = evidence_tables(reordered(evidence, order), Silent())
    for name, frame in tables.items():
        other = again[name]
        if name == "pathways":
            keys = ["site", "assignment", "probe", "item_id"]
            frame, other = frame.sort(keys), other.sort(keys)
        assert_frame_equal(frame, other, abs_tol=1e-6, rel_tol=1e-6)  # sums in another order


def test_groups_without_items_are_null_and_keep_their_kind() -> None:
    evidence = make_evidence()
    still = {place: one_sided(measured) for place, measured in evidence.places.items()}
    tables = evidence_tables(replace(evidence, places=still), Silent())
    assert no_nan(tables)
    nobody = tables["curves"].filter((pl.col("group") == "Q-Anchored") & (pl.col("intervention") == "knockout"))
    assert set(nobody["n"]) == set(nobody["n_groups"]) == {0}
    assert nobody.select("delta_p", "ci_low", "ci_high").null_count().row(0) == (nobody.height,) * 3
    assert tables["curves"].schema["delta_p"] == pl.Float64


def one_sided(measured: Measured) -> Measured:
    """A cut that changes nothing: nobody is Q-Anchored."""
    return replace(measured, after={**measured.after, "knockout": measured.before.copy()})
