"""The claims about a larger model against a smaller one, on curves whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.report.earlier_readings.checks import SHARED_NEEDED, TWO_SHARED_NEEDED, TWO_SIZES_NEEDED
from anchorscope.report.earlier_readings.claim import NOT_DEFINED
from claims_synthetic import BACK, FLAT, LAYERS, LOW, PAPER, falling_to, four, judged, run_with, verdicts


def test_two_sizes():
    small = run_with({"atlas": (falling_to(-40, 0.5, -20), FLAT)}, noise=0.2, model="small", parameters=10**8)
    curves = falling_to(-50, 0.5, -20, 61), np.zeros(61)
    big = run_with({"atlas": curves}, noise=0.2, model="big", parameters=10**9)
    found = verdicts(big, small)
    assert found["larger_deeper"] == "holds"
    assert found["larger_a_quarter_greater"] == "holds"  # 50 against 40
    assert found["larger_longer_decline"] == "holds"
    assert found["larger_same_rate"] == "does not hold"  # 30 layers against 15
    assert judged("larger_deeper", big, small).plain.sentence.startswith("small (100\u00a0M) to big (1.0\u00a0B): the")
    turned = verdicts(replace(big, parameters=10**8), replace(small, parameters=10**9))
    assert [turned[f"larger_{name}"] for name in ("deeper", "a_quarter_greater", "longer_decline")] == [
        "does not hold"
    ] * 3
    assert judged("larger_tighter_end", big, small).plain.reason == TWO_SHARED_NEEDED


def test_two_sizes_with_several_datasets():
    asked = ("larger_tighter_end", "larger_more_volatile")
    wide = {name: LOW + 6 * place for place, name in enumerate(PAPER)}
    jagged = {name: LOW + place + 5 * (-1.0) ** np.arange(LAYERS) for place, name in enumerate(PAPER)}
    small, big = four(wide, parameters=10**8), four(jagged, parameters=10**9)
    found = verdicts(small, big, only=asked)
    assert (found["larger_tighter_end"], found["larger_more_volatile"]) == ("holds", "holds")
    turned = verdicts(replace(big, parameters=1), small, only=asked)
    assert (turned["larger_tighter_end"], turned["larger_more_volatile"]) == ("does not hold", "does not hold")
    same = verdicts(replace(big, parameters=1), big, only=asked)
    assert (same["larger_tighter_end"], same["larger_more_volatile"]) == ("undecided", "undecided")


def test_what_cannot_be_compared_says_why():
    one = run_with({"atlas": (BACK, FLAT)})
    assert judged("larger_deeper", one).plain.reason == TWO_SIZES_NEEDED
    assert judged("larger_deeper", one, one).plain.reason == TWO_SIZES_NEEDED
    assert judged("larger_deeper", one, replace(one, parameters=0)).plain.reason == TWO_SIZES_NEEDED
    other = run_with({"popqa": (BACK, FLAT)}, parameters=10**10)
    assert judged("larger_deeper", one, other).plain.reason == SHARED_NEEDED
    assert judged("datasets_similar", one).plain.reason == "needs a run on several datasets"


def test_a_ratio_of_nothing_is_not_a_number():
    flat = run_with({"atlas": (FLAT, FLAT)}, parameters=10**8)
    found = judged("larger_a_quarter_greater", flat, replace(flat, parameters=10**9)).plain
    assert (found.verdict, found.reason, found.found) == ("undecided", NOT_DEFINED, None)
    assert "nan" not in found.sentence


def test_how_much_deeper_is_counted_from_zero():
    small, large = (falling_to(depth) - 10 for depth in (-45.0, -60.0))  # troughs at −55 and −70, as reading 2 has them
    runs = [
        run_with({"atlas": (q, FLAT)}, noise=0.1, parameters=size, model=str(size), seed=size % 7)
        for q, size in ((small, 10**9), (large, 3 * 10**9))
    ]
    found = judged("larger_a_quarter_greater", *runs).plain
    assert found.found.value == pytest.approx(70 / 55, abs=0.01)
    assert found.verdict == "holds"


def test_a_flat_bottom_leaves_the_rate_of_decline_open():
    q = np.minimum(0, np.maximum(-60.0, -10.0 * np.arange(LAYERS)))  # level from layer 6 on: its lowest layer is chance
    runs = [
        run_with({"atlas": (q, FLAT)}, noise=0.5, parameters=size, model=str(size), seed=size % 7)
        for size in (10**9, 3 * 10**9)
    ]
    assert judged("larger_same_rate", *runs).plain.verdict == "undecided"
