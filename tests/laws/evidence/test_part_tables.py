"""evidence_parts.csv and evidence_items.parquet: shares are ratios of the sums that stand beside them."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from anchorscope.artefacts.schema import BAND
from anchorscope.evidence import part_tables
from anchorscope.evidence.part_tables import (
    PartsOfDataset,
    evidence_items_frame,
    evidence_tests,
    parts_frame,
)
from anchorscope.evidence_parts.need import Terms
from anchorscope.evidence_parts.parts import BEFORE, BOTH, CUT, EvidenceItems
from anchorscope.stats.streams import stream

N, LAYERS, PLACES = 60, 3, [("mlp", "final"), ("residual", "final")]
LABELS = np.arange(N) % 2 == 0


def terms(places: int, need: float, seed: int) -> Terms:
    """A view that a share of every item's evidence needs, up to noise."""
    rng = stream(seed, "part tables")
    shape = (places * LAYERS, N)
    had = 1.0 + 0.5 * rng.standard_normal(shape)
    left = np.full(shape, 0.5)
    lost = 0.5 * (need * had + 0.1 * rng.standard_normal(shape))
    return Terms(
        lost, left, had, np.ones(shape), np.zeros(shape), np.zeros((shape[0], 8))
    )


@pytest.fixture(scope="module")
def parts() -> PartsOfDataset:
    needs = {
        "knockout": {
            CUT: terms(2, 0.6, 0),
            BEFORE: terms(1, 0.7, 1),
            BOTH: terms(1, 0.4, 2),
        },
        "other-site": {CUT: terms(1, 0.05, 3)},
        "permuted": {
            CUT: terms(1, 0.0, 4),
            BEFORE: terms(1, 0.0, 5),
            BOTH: terms(1, 0.0, 6),
        },
        "random 2": {
            CUT: terms(1, 0.3, 7),
            BEFORE: terms(1, 0.7, 1),
            BOTH: terms(1, 0.2, 8),
        },
        "random": {
            CUT: terms(1, 0.1, 9),
            BEFORE: terms(1, 0.7, 1),
            BOTH: terms(1, 0.1, 10),
        },
    }
    items = EvidenceItems(
        LABELS, np.arange(N), [None] * N, [str(item) for item in range(N)], 0
    )
    return PartsOfDataset("m", "d", items, needs, PLACES, 1, LAYERS, [1, 2], 12)


def test_the_needs_are_those_of_the_items(parts):
    rows, items = parts_frame(parts), evidence_items_frame(parts)
    for part, view in (
        ("needs-question", CUT),
        ("needs-answer", BEFORE),
        ("together", BOTH),
    ):
        mine = items.filter(
            (pl.col("intervention") == "knockout")
            & (pl.col("view") == view)
            & (pl.col("site") == "residual")
        )
        lost, left, had, label = (
            np.array(mine[name].to_list()).sum(axis=0)
            for name in ("lost", "label_left", "had", "label")
        )
        told = rows.filter(
            (pl.col("intervention") == "knockout")
            & (pl.col("part") == part)
            & (pl.col("site") == "residual")
            & (pl.col("layer") != BAND)
        )["share"]
        np.testing.assert_allclose(told, (lost / left) / (had / label), rtol=1e-4)


def test_parts_sum_to_one_at_every_layer_and_over_the_band(parts):
    rows = parts_frame(parts).filter(
        pl.col("part").is_in(["together", "question", "answer", "either"])
        & (pl.col("intervention") != "permuted")
        & (pl.col("site") == "residual")
    )
    sums = rows.group_by("intervention", "layer").agg(pl.col("share").sum(), pl.len())
    assert set(sums["len"]) == {4}
    np.testing.assert_allclose(sums["share"], 1.0)


def test_what_has_no_evidence_has_neither_a_share_nor_a_p_value(parts):
    """A layer whose probe says nothing leaves its own rows and the band's empty, and no others."""
    silent = {name: dict(views) for name, views in parts.needs.items()}
    for name, layer in (("other-site", 1), ("random", 1), ("random 2", 1)):
        had = silent[name][CUT].had.copy()
        had[layer] = 0
        silent[name][CUT] = silent[name][CUT]._replace(had=had)
    parts = replace(parts, needs=silent)
    rows = parts_frame(parts).filter(pl.col("part") == "needs-question")
    unknown = rows.filter(pl.col("share").is_null())
    assert set(unknown.select("intervention", "layer").iter_rows()) == {
        ("random", "1"),
        ("random", BAND),
    }
    assert unknown["ci_low"].is_null().all()
    scores = {"scores/clean": stream(0, "scores").standard_normal((LAYERS, N))}
    weights = np.ones((9, N), dtype=np.float32)
    tests = evidence_tests(parts, scores, {}, weights)
    found = part_tables.tests_frame(tests, parts)
    (floor,) = found.filter(pl.col("quantity") == "floor").iter_rows(named=True)
    assert (floor["value"], floor["p_value"]) == (None, None)
    known = found.filter(pl.col("group") == "needs-answer")
    assert known["p_value"].is_not_null().all()


def test_the_band_is_the_mean_of_its_layers_and_the_control_that_of_its_draws(parts):
    rows = parts_frame(parts).filter(
        (pl.col("part") == "needs-question") & (pl.col("site") == "residual")
    )
    knockout = rows.filter(pl.col("intervention") == "knockout")
    by_layer = dict(knockout.select("layer", "share").iter_rows())
    assert by_layer[BAND] == pytest.approx((by_layer["1"] + by_layer["2"]) / 2)
    assert (
        knockout.filter(pl.col("layer") == BAND)["method"]
        .str.contains("layers 1–2")
        .all()
    )
    random = rows.filter(pl.col("intervention") == "random")
    np.testing.assert_allclose(random["share"], 0.2, atol=0.05)
    assert random["method"].str.contains("mean of 2 random cuts").all()
