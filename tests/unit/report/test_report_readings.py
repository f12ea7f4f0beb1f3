"""Readings of curves whose answer is known, with intervals that allow it and intervals that do not."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from anchorscope.report.verdicts import (
    NOOP_FLIPS,
    above,
    all_of,
    below,
    between,
    difference,
    size_ratio,
    with_zero_bound,
)
from anchorscope.stats.estimate import Estimate
from report_readings import read
from report_synthetic import (
    LAYERS,
    SUMMARY_SCHEMA,
    curve_rows,
    make_findings,
    summary_row,
    without,
)


def reading(findings, claim):
    (found,) = [o for o in read(findings) if o["claim"] == claim]
    return found


def with_summary(*rows):
    return replace(
        make_findings(("atlas",)),
        summary=pl.DataFrame(list(rows), schema=SUMMARY_SCHEMA),
    )


@pytest.mark.parametrize(
    ("true_q", "true_a", "verdict"),
    [(0.98, 0.1, "yes"), (0.52, 0.49, "no"), (0.8, 0.3, "inconclusive")],
)
def test_label_sorting(true_q, true_a, verdict):
    about = {"intervention": "knockout"}
    findings = with_summary(
        summary_row("atlas", "true_share", true_q, 0.02, group="Q-Anchored", **about),
        summary_row("atlas", "true_share", true_a, 0.02, group="A-Anchored", **about),
    )
    assert reading(findings, "sorts_by_label")["verdict"] == verdict


def with_curves(random, half, spoilt=()):
    """A run whose Q-Anchored line falls by 50 points from layer 5 on, with what random words do beside it."""
    knockout = np.where(np.arange(LAYERS) < 5, 0.0, -50.0)
    other = np.full(LAYERS, random, dtype=float)
    for layer, value in spoilt:
        other[layer] = value
    rows = [
        curve_rows("atlas", values, width=half, intervention=cut)
        for cut, values in (("knockout", knockout), ("random", other))
    ]
    return replace(make_findings(("atlas",)), curves=pl.concat(rows))


@pytest.mark.parametrize(
    ("random", "half", "verdict"),
    [(-1, 2, "yes"), (-30, 2, "no"), (-11, 4, "inconclusive")],
)
def test_random_control(random, half, verdict):
    assert reading(with_curves(random, half), "random_small")["verdict"] == verdict


def test_the_random_control_is_asked_at_every_layer_where_the_line_has_fallen():
    found = reading(
        with_curves(-1, 2, spoilt=[(2, -30), (20, -30)]), "random_small"
    )  # layer 2 is not talked about
    assert (found["verdict"], found["failing_layers"], found["layer"]) == (
        "no",
        [20],
        20,
    )


@pytest.mark.parametrize(
    ("rate", "n", "verdict"),
    [(0.0, 200, "yes"), (0.0, 40, "inconclusive"), (0.2, 200, "inconclusive")],
)
def test_noop_needs_enough_items(rate, n, verdict):
    findings = with_summary(
        summary_row("atlas", "flip_rate", rate, intervention="none", n=n)
    )
    assert reading(findings, "noop")["verdict"] == verdict


def test_what_survives_is_judged_by_permuted_labels():
    findings = make_findings(("atlas",))
    found = reading(findings, "signal_survives")
    assert (found["verdict"], found["value"]) == ("yes", 0.22)
    assert "with permuted labels 0.50 [0.44, 0.56]" in found["text"]
    low = summary_row(
        "atlas",
        "auc_beyond_permuted",
        0.05,
        0.06,
        intervention="knockout",
        group="refit",
    )
    rest = without(findings, "auc_beyond_permuted")
    doubtful = replace(
        rest,
        summary=pl.concat(
            [rest.summary, pl.DataFrame([low], schema=rest.summary.schema)]
        ),
    )
    assert reading(doubtful, "signal_survives")["verdict"] == "inconclusive"
    assert reading(rest, "signal_survives")["verdict"] == "not measured"


@pytest.mark.parametrize(
    ("gain", "verdict"), [(0.06, "yes"), (-0.06, "no"), (0.01, "inconclusive")]
)
def test_what_the_probe_adds_to_confidence(gain, verdict):
    row = summary_row(
        "atlas",
        "auc_beyond_confidence",
        gain,
        0.03,
        intervention="clean",
        group="nested",
    )
    found = reading(with_summary(row), "adds_to_confidence")
    assert (found["verdict"], found["value"]) == (verdict, gain)
    assert "of confidence alone 0.68" in found["text"]


def test_interval_arithmetic():
    a, b = Estimate(5.0, 4.0, 6.0, 10, ""), Estimate(-20.0, -30.0, -10.0, 20, "")
    gap = difference(a, b)
    assert gap is not None
    assert (gap.value, gap.ci_low, gap.ci_high, gap.n) == (25.0, 14.0, 36.0, 10)
    ratio = size_ratio(a, b)
    assert ratio is not None
    assert (ratio.value, ratio.ci_low, ratio.ci_high) == (0.25, 4 / 30, 0.6)
    maybe_zero = size_ratio(a, Estimate(1.0, -1.0, 3.0, 5, ""))
    assert maybe_zero is not None
    assert math.isinf(maybe_zero.ci_high)
    assert difference(a, None) is None
    assert above(None, 0) == below(None, 0) == "inconclusive"
    assert (
        above(a, 4.0) == "inconclusive"
    )  # an end that touches the threshold decides nothing


def test_between_needs_the_whole_interval_inside():
    assert between(Estimate(0.0, -1.0, 1.0, 9, ""), -5, 5) == "yes"
    assert between(Estimate(5.0, 4.0, 6.0, 9, ""), -5, 5) == "inconclusive"
    assert between(Estimate(9.0, 6.0, 12.0, 9, ""), -5, 5) == "no"
    assert between(Estimate(-9.0, -12.0, -6.0, 9, ""), -5, 5) == "no"
    assert (
        between(Estimate(0.0, math.nan, math.nan, 9, ""), -5, 5)
        == between(None, -5, 5)
        == "inconclusive"
    )


def test_a_claim_about_all_is_refuted_by_one_and_left_open_by_one():
    assert all_of(["yes", "yes"]) == "yes"
    assert all_of(["yes", "inconclusive"]) == "inconclusive"
    assert all_of(["inconclusive", "no", "yes"]) == "no"
    assert all_of([]) == "inconclusive"


def test_a_zero_rate_gets_an_exact_bound():
    bound = with_zero_bound(Estimate(0.0, 0.0, 0.0, 200, ""))
    assert bound is not None
    assert bound.ci_high == pytest.approx(1 - 0.025 ** (1 / 200))
    assert bound.ci_high < NOOP_FLIPS
    some = Estimate(0.1, 0.05, 0.2, 200, "")
    assert with_zero_bound(some) is some
