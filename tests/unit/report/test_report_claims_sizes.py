"""The claims about a larger model against a smaller one, on curves whose answer is known."""

from dataclasses import replace

import numpy as np

from anchorscope.report.earlier_readings.checks import TWO_SHARED_NEEDED
from claims_synthetic import FLAT, LAYERS, LOW, PAPER, falling_to, four, judged, run_with, verdicts


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
