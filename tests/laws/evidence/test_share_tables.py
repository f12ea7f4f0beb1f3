"""question_share.csv and question_share_items.parquet: the shares are ratios of the sums that stand beside them."""

import numpy as np
import polars as pl
import pytest

from anchorscope.evidence.share_tables import ShareContext, share_frame, share_items_frame
from anchorscope.question_share.evidence import GROUPS, Lost
from anchorscope.question_share.shares import ShareDraws, Shares
from anchorscope.schema import SHARE_COLUMNS, SHARE_ITEM_SCHEMA
from anchorscope.stats.estimate import group_weights
from anchorscope.stats.streams import stream

N, LAYERS, PLACES = 60, 2, [("mlp", "final"), ("residual", "final")]
LABELS = np.arange(N) % 2 == 0


def lost(places: int, share: float, seed: int, evidence: float = 1.0) -> Lost:
    """A cut that takes a share of every item's evidence, up to noise."""
    rng = stream(seed, "share tables")
    shape = (places * LAYERS, N)
    had = evidence + 0.5 * rng.standard_normal(shape)
    third = np.arange(N) % 3
    everyone = np.ones(N, dtype=bool)
    members = np.stack([everyone, LABELS, ~LABELS, *(third == one for one in range(3))])
    return Lost(
        lost=share * had + 0.1 * rng.standard_normal(shape),
        had=had,
        clean=had,
        explained=had,
        predicted=had,
        members=np.broadcast_to(members, (shape[0], *members.shape)).copy(),
        influence=np.zeros((shape[0], len(GROUPS), N)),
        by_split=np.zeros((shape[0], len(GROUPS), 8)),
    )


@pytest.fixture(scope="module")
def tables():
    found = {
        "knockout": lost(2, 0.6, 0),
        "none": lost(2, 0.0, 1),
        "random": lost(2, 0.1, 2),
        "random 2": lost(1, 0.3, 3),
        "permuted": lost(1, 0.0, 4),
    }
    shares = Shares(found, LAYERS, headline=1)
    draws = ShareDraws(group_weights(np.arange(N), 300, stream(0, "draws")), 8, stream(0, "noise"))
    context = ShareContext("m", "d", [str(item) for item in range(N)], np.arange(N), PLACES, 12)
    return shares, share_frame(shares, draws, context), share_items_frame(shares, context)


def test_columns_and_rows(tables):
    _, rows, items = tables
    assert tuple(rows.columns) == SHARE_COLUMNS
    assert dict(items.schema) == SHARE_ITEM_SCHEMA
    counts = dict(rows.group_by("intervention").len().iter_rows())
    # A further draw of the control has no rows of its own; permuted labels are not sorted in thirds.
    everywhere = 2 * LAYERS
    wanted = {"knockout": everywhere * 6, "none": everywhere * 6, "random": everywhere * 6, "permuted": LAYERS * 3}
    assert counts == wanted


def test_a_share_is_the_ratio_of_the_items_sums(tables):
    _, rows, items = tables
    for intervention in ("knockout", "random", "permuted"):
        mine = items.filter((pl.col("intervention") == intervention) & (pl.col("site") == "residual"))
        sums = {name: np.array(mine[name].to_list()).sum(axis=0) for name in ("lost", "had")}
        told = rows.filter(
            (pl.col("intervention") == intervention)
            & (pl.col("site") == "residual")
            & (pl.col("group") == "all")
            & (pl.col("truth") == "all")
        )["share"]
        # The random control's two draws have evidence of their own here; in a run it is the same.
        tolerance = 0.03 if intervention == "random" else 1e-4
        np.testing.assert_allclose(told, sums["lost"] / sums["had"], atol=tolerance)


def test_the_random_control_is_the_mean_of_its_draws_at_the_headline_only(tables):
    _, rows, _ = tables
    random = rows.filter((pl.col("intervention") == "random") & (pl.col("truth") == "all"))
    at_headline, elsewhere = random.filter(pl.col("site") == "residual"), random.filter(pl.col("site") == "mlp")
    np.testing.assert_allclose(at_headline["share"], 0.2, atol=0.05)
    np.testing.assert_allclose(elsewhere["share"], 0.1, atol=0.05)
    assert at_headline["method"].str.contains("mean of 2 random cuts").all()
    assert elsewhere["method"].str.contains("1 random cut").all()


def test_intervals_hold_the_share_and_permuted_covers_zero(tables):
    _, rows, _ = tables
    assert ((rows["ci_low"] <= rows["share"]) & (rows["share"] <= rows["ci_high"])).all()
    knockout = rows.filter((pl.col("intervention") == "knockout") & (pl.col("group") == "all"))
    assert (knockout["ci_low"] > 0.5).all()
    assert (knockout["ci_high"] < 0.7).all()
    permuted = rows.filter(pl.col("intervention") == "permuted")
    assert (permuted["ci_low"] < 0.02).all()
    assert (permuted["ci_high"] > -0.02).all()


def test_where_there_is_no_evidence_there_is_no_share():
    shares = Shares({"knockout": lost(1, 0.5, 5, evidence=0.0), "random": lost(1, 0.5, 6)}, LAYERS, headline=0)
    draws = ShareDraws(group_weights(np.arange(N), 300, stream(0, "draws")), 8, stream(0, "noise"))
    context = ShareContext("m", "d", [str(item) for item in range(N)], np.arange(N), PLACES[:1], 12)
    rows = share_frame(shares, draws, context)
    assert rows.filter(pl.col("intervention") == "knockout")["share"].null_count() > 0
    assert rows.filter(pl.col("intervention") == "random")["share"].null_count() == 0
