"""What changes from model to model, on runs whose curves are known."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from anchorscope.report.comparison.across_models import read_across
from anchorscope.report.earlier_readings.curve_measures import widest_gap
from anchorscope.stats.curves import SampledCurve, difference_of, mean_of, ratio_of
from anchorscope.stats.estimate import Estimate
from claims_synthetic import FLAT, falling_to, run_with
from report_shares import World, with_shares


def run_of(depth, parameters, *, last=-20.0, place=0.5, datasets=("atlas",), step=0.0, **options):
    curves = {name: (falling_to(depth, place, last + step * i), FLAT) for i, name in enumerate(datasets)}
    return run_with(curves, **{"parameters": parameters, "model": f"model-{parameters}"} | options)


def reading(runs, claim, dataset="atlas", assignment="plain"):
    found = [one for one in read_across(runs) if one["claim"] == f"across:{claim}"]
    (one,) = [one for one in found if one["dataset"] == dataset and one["assignment"] == assignment]
    return one


SMALL, MIDDLE, LARGE = run_of(-30, 10**8), run_of(-45, 10**9), run_of(-60, 10**10)


def test_the_trough_deepens_with_size_in_whatever_order_the_runs_come():
    found = reading([LARGE, SMALL, MIDDLE], "trough_depth")
    assert found["value"] == pytest.approx(-30)
    assert found["ci_low"] < -30 < found["ci_high"] < -20
    assert (found["verdict"], found["monotone"], found["along"]) == ("holds", True, "with size")
    assert "The lowest value becomes lower with size (−30.0 [" in found["text"]
    assert "−30.0 for model-100000000 (100\u00a0M), −60.0 for model-10000000000 (10\u00a0B); in step" in found["text"]
    assert [one["value"] for one in found["values"]] == pytest.approx([-30, -45, -60])
    assert [one["parameters"] for one in found["values"]] == [10**8, 10**9, 10**10]


def test_what_does_not_change_is_said_not_to():
    runs = [run_of(-40, 10**8, noise=0.1), run_of(-42, 10**9, noise=0.1)]
    for claim in ("trough_depth", "trough_place", "decline_layers", "decline_share", "last_value", "separation"):
        found = reading(runs, claim)
        assert found["verdict"] == "does not hold", found["text"]
        assert " hardly changes with size (" in found["text"]


def test_noise_leaves_it_undecided():
    noisy = [run_of(-30, 10**8, noise=9.0), run_of(-40, 10**9, noise=9.0)]
    found = reading(noisy, "trough_depth")
    assert found["verdict"] == "undecided"
    assert "becomes" not in found["text"]
    three = reading([*noisy, run_of(-35, 10**10, noise=9.0)], "trough_depth")
    assert "Whether the lowest value changes in one direction with size is undecided" in three["text"]
    assert three["text"].endswith("; not in step over all 3 runs).")


def test_a_step_that_surely_goes_the_other_way_refutes_the_trend():
    found = reading([SMALL, run_of(-80, 10**9), LARGE], "trough_depth")
    assert (found["verdict"], found["monotone"]) == ("does not hold", False)
    assert "surely goes the other way" in found["text"]


def shared(share, parameters, *, datasets=("popqa", "nq"), random=0.08, **world):
    run = run_of(-40, parameters, datasets=datasets)
    return with_shares(run, World(together=share, question=0.0, answer=0.2, random=random, **world))


def test_the_parts_are_followed_first():
    found = read_across([shared(0.4, 10**8), shared(0.7, 10**9, random=0.3)])
    assert found[0]["assignment"] is None
    by_claim = {one["claim"]: one for one in found if one["assignment"] is None and one["dataset"] is None}
    tested = by_claim["across:share_tested"]
    assert (tested["verdict"], tested["key"], tested["value"]) == ("holds", True, pytest.approx(0.3, abs=0.01))
    assert tested["sentence"] == "What needs the key words grows with size"
    assert [one["value"] for one in tested["values"]] == pytest.approx([0.4, 0.7], abs=0.01)
    per_dataset = reading([shared(0.4, 10**8), shared(0.7, 10**9)], "share_tested", "nq", None)
    assert per_dataset["ci_high"] - per_dataset["ci_low"] > tested["ci_high"] - tested["ci_low"]  # a mean knows more
    assert by_claim["across:share_random"]["verdict"] == "holds"
    assert by_claim["across:share_together"]["value"] == pytest.approx(0.3, abs=0.01)
    assert by_claim["across:share_answer"]["verdict"] == "does not hold"


def test_random_weights_are_left_out():
    noise = replace(LARGE, model="shape:big", random_weights=True)
    assert read_across([SMALL, noise, MIDDLE]) == read_across([SMALL, MIDDLE]) != []
    assert read_across([SMALL, noise]) == []


def test_missing_draws_and_groups_that_never_part_are_undecided():
    lost = replace(LARGE, curve_samples=LARGE.curve_samples.clear())
    found = read_across([SMALL, lost])
    assert {(one["verdict"], one["value"]) for one in found} == {("undecided", None)}
    mixed = run_with({"atlas": (FLAT, falling_to(-40))}, parameters=10**9)
    never = reading([SMALL, mixed], "separation")
    assert never["verdict"] == "undecided"
    json.dumps([*found, *read_across([SMALL, mixed])], allow_nan=False)


def test_independent_intervals_add_like_the_sides_of_a_right_angle():
    one, other = Estimate(10.0, 7.0, 14.0, 50, ""), Estimate(4.0, 1.0, 8.0, 40, "")
    gap = difference_of(one, other)
    assert (gap.value, gap.ci_low, gap.ci_high, gap.n) == (6.0, 6 - math.hypot(3, 4), 6 + math.hypot(4, 3), 40)
    mean = mean_of([one, other])
    assert (mean.value, mean.ci_low) == (7.0, 7 - math.hypot(3, 3) / 2)
    assert mean_of([one]) is one
    times = ratio_of(one, other)
    assert times.value == pytest.approx(2.5)
    assert times.ci_low < 2.5 < times.ci_high
    assert ratio_of(one, Estimate(4.0, 0.0, 8.0, 40, "")).ci_high == math.inf
    assert ratio_of(Estimate(1.0, -1.0, 8.0, 40, ""), one).ci_low == 0.0
    assert math.isnan(ratio_of(Estimate(-1.0, -1.0, 8.0, 40, ""), one).value)
    assert math.isnan(difference_of(one, Estimate(4.0, math.nan, math.inf, 40, "")).ci_low)


def test_the_interval_of_a_difference_holds_the_truth_nineteen_times_in_twenty():
    rng = np.random.default_rng(0)
    held = 0
    for small, large in rng.normal([3.0, 5.0], [0.5, 1.2], (2000, 2)):
        ends = (Estimate(v, v - 1.96 * s, v + 1.96 * s, 9, "") for v, s in ((large, 1.2), (small, 0.5)))
        found = difference_of(*ends)
        held += found.ci_low < 2.0 < found.ci_high
    assert 0.935 < held / 2000 < 0.965


def sampled(values, noise=1.0, draws=400, seed=0):
    values = np.asarray(values, dtype=float)
    return SampledCurve(values, values + np.random.default_rng(seed).normal(0, noise, (draws, len(values))), 100)


def test_the_widest_gap_between_noisy_curves_holds_the_truth():
    """Noise alone makes a gap; the interval must reach down to where the truth is, also with draws of equal seeds."""
    rng = np.random.default_rng(3)
    held = {0.0: 0, 12.0: 0}
    for true in held:
        for trial in range(100):
            centres = np.array([0.0, true / 2, true / 3, true])[:, None] + rng.normal(0, 2, (4, 3))
            found = widest_gap([sampled(centre, 2.0, 200, trial) for centre in centres])
            held[true] += found.ci_low <= true <= found.ci_high
    assert min(held.values()) >= 92
