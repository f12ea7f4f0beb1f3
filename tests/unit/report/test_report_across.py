"""Readings across runs whose curves and shares are known."""

import json
import math
from dataclasses import replace

import pytest

from anchorscope.report.comparison import along, read_across
from anchorscope.stats.curves import difference_of, mean_of
from anchorscope.stats.estimate import Estimate
from drawn_curves import FLAT, falling_to, run_with
from report_shares import World, with_shares


def run_of(depth, parameters, *, datasets=("atlas",)):
    curves = {name: (falling_to(depth, last=-10), FLAT) for name in datasets}
    return run_with(
        curves, noise=0.3, model=f"model-{parameters}", parameters=parameters
    )


SMALL, LARGE = run_of(-30, 10**8), run_of(-60, 10**10)


def reading(runs, claim, dataset="popqa"):
    (found,) = [
        one
        for one in read_across(runs)
        if (one.claim, one.dataset) == (f"across:{claim}", dataset)
    ]
    return found


def shared(share, parameters, *, datasets=("popqa", "nq"), random=0.08, **world):
    run = run_of(-40, parameters, datasets=datasets)
    return with_shares(
        run, World(together=share, question=0.0, answer=0.2, random=random, **world)
    )


def test_the_parts_come_first_and_a_mean_knows_more():
    found = read_across([shared(0.4, 10**8), shared(0.7, 10**9, random=0.3)])
    assert (found[0].claim, found[0].dataset, found[0].key) == (
        "across:share_together",
        None,
        True,
    )
    by_claim = {one.claim: one for one in found if one.dataset is None}
    tested = by_claim["across:share_tested"]
    assert (tested.verdict, tested.estimate.value) == (
        "yes",
        pytest.approx(0.3, abs=0.01),
    )
    assert tested.numbers.endswith("40% for model-100000000, 70% for model-1000000000")
    assert by_claim["across:share_random"].verdict == "yes"
    assert by_claim["across:share_together"].estimate.value == pytest.approx(
        0.3, abs=0.01
    )
    assert by_claim["across:share_answer"].verdict == "no"
    single = next(
        one
        for one in found
        if (one.claim, one.dataset) == ("across:share_tested", "nq")
    )
    widths = [one.estimate.ci_high - one.estimate.ci_low for one in (single, tested)]
    assert widths[0] > widths[1]


def test_a_trend_in_whatever_order_the_runs_come_noise_and_a_step_back():
    small, middle, large = shared(0.3, 10**8), shared(0.45, 10**9), shared(0.6, 10**10)
    found = reading([large, small, middle], "share_together")
    assert (found.verdict, found.sentence[-9:]) == ("yes", "with size")
    assert found.estimate.value == pytest.approx(0.3)
    assert reading([small, shared(0.31, 10**9)], "share_together").verdict == "no"
    assert reading(
        [shared(0.3, 10**8, half=0.3), shared(0.45, 10**9, half=0.3)], "share_together"
    ).verdict == ("inconclusive")
    assert (
        reading([small, shared(0.75, 10**9), large], "share_together").verdict == "no"
    )


def test_shares_that_are_not_quoted_are_not_compared():
    found = read_across([shared(0.4, 10**8), shared(0.7, 10**9, n=310, groups=19)])
    assert {one.verdict for one in found if one.unit != "points"} == {"not measured"}


def test_the_depth_of_the_curves_is_compared():
    found = reading([LARGE, SMALL], "lowest_delta_p", "atlas")
    assert (found.verdict, found.estimate.value) == ("yes", pytest.approx(-30, abs=2))
    assert found.sentence == "The lowest Q-Anchored ΔP decreases with size"
    assert (
        reading(
            [SMALL, replace(SMALL, model="again")], "lowest_delta_p", "atlas"
        ).verdict
        == "no"
    )


def test_equal_weights_are_not_called_sizes():
    assert along([SMALL, replace(SMALL, model="again")]) == "from run to run"
    assert along([SMALL, LARGE]) == along([LARGE, SMALL]) == "with size"


def test_random_weights_are_left_out_and_records_are_json():
    small, middle, large = (
        shared(share, size)
        for share, size in ((0.3, 10**8), (0.4, 10**9), (0.5, 10**10))
    )
    noise = replace(large, model="shape:big", random_weights=True)
    assert read_across([small, noise, middle]) == read_across([small, middle]) != []
    assert read_across([small, noise]) == []
    json.dumps([one.record() for one in read_across([small, middle])], allow_nan=False)


def test_independent_intervals_add_like_the_sides_of_a_right_angle():
    one, other = Estimate(10.0, 7.0, 14.0, 50, ""), Estimate(4.0, 1.0, 8.0, 40, "")
    gap = difference_of(one, other)
    assert (gap.value, gap.ci_low, gap.ci_high, gap.n) == (
        6.0,
        6 - math.hypot(3, 4),
        6 + math.hypot(4, 3),
        40,
    )
    mean = mean_of([one, other])
    assert (mean.value, mean.ci_low) == (7.0, 7 - math.hypot(3, 3) / 2)
    assert mean_of([one]) is one
    assert math.isnan(
        difference_of(one, Estimate(4.0, math.nan, math.inf, 40, "")).ci_low
    )
