"""The claims of five earlier readings, in the order in which the page shows them.

A word means what it means in the report's own readings (`report/verdicts.py`): a curve that comes back does so by more
than 5 points, one that is level keeps within 5. Only where an earlier reading gives a number of its own is that number
the threshold; then it stands here, with the reading that gives it.
"""

from anchorscope.report.earlier_readings.checks import against_others, change, every, one_order, sizes, times, together
from anchorscope.report.earlier_readings.claim import Claim, Condition
from anchorscope.report.earlier_readings.curve_measures import (
    change_from_middle,
    closing_to_the_end,
    depth_below_zero,
    fall_per_layer,
    gap_beyond_spread,
    highest,
    layers_from,
    level,
    level_from,
    lowest,
    mean_from,
    third,
    two_thirds,
    widest_gap,
)
from anchorscope.report.palette import A_ANCHORED, GROUPS
from anchorscope.report.verdicts import (
    CLOSING,
    MIDDLE_THIRD,
    MIN_RECOVERY,
    MIN_TROUGH,
    NEAR_ZERO,
    SAME_RATE,
    STAYS_FLAT,
)
from anchorscope.stats import curves as shape
from anchorscope.stats.curves import difference_of, spread

LLAMA, QWEN = "Llama-3.2 1B and 3B", "Qwen3 8B and 32B"
READINGS = {1: LLAMA, 2: LLAMA, 3: LLAMA, 4: QWEN, 5: QWEN}
"""What each reading looked at."""

FIRST_LOW = (-20.0, -10.0)
"""Reading 2: where the Q-Anchored lines begin."""
A_FALLS_TO = -20.0
"""Reading 3: the shallowest fall of an A-Anchored line that it gives."""
SIMILAR = 30.0
"""Reading 5: the widest distance of lines that it calls very similar."""
GREATER = (1.2, 1.3)
"""Reading 1: the larger model's values are 20–30 % greater."""
CLEAR_LEAD = 5.0
"""Points by which the first third must fall more than the others: as much as a fall is."""

_FIRST = "{} points at the first layer"
_BACK = "back by {} points from the lowest layer to the last"
_COMES_NOT_BACK = Condition(shape.recovery, _BACK, under=MIN_RECOVERY)

_OF_CURVES = (
    Claim(
        "groups_apart",
        "From a third of the depth on, Q-Anchored lies below A-Anchored at every layer.",
        (2, 3, 4, 5),
        (1,),
        every(
            Condition(
                lambda q, a: highest(layers_from(q - a, third(q))),
                "Q − A is {} points where they are closest",
                under=0.0,
            ),
            groups=GROUPS,
        ),
        ("q_above_a_late",),
    ),
    Claim(
        "q_above_a_late",
        "In the last third of the layers Q-Anchored lies above A-Anchored.",
        (1,),
        (2, 3, 4, 5),
        every(
            Condition(lambda q, a: mean_from(q - a, two_thirds(q)), "Q − A is {} points in the last third", over=0.0),
            groups=GROUPS,
        ),
        ("groups_apart",),
    ),
    Claim(
        "a_near_zero",
        f"The A-Anchored curve stays within {STAYS_FLAT:.0f} points of zero at every layer.",
        (2, 4, 5),
        (1, 3),
        every(
            Condition(shape.range_within, "{} points from zero where it is farthest", under=STAYS_FLAT),
            groups=(A_ANCHORED,),
        ),
        ("a_falls",),
    ),
    Claim(
        "a_falls",
        "The A-Anchored curve falls too, to −20 points or lower.",
        (1, 3),
        (2, 4, 5),
        every(Condition(lowest, "{} points at its lowest", under=A_FALLS_TO), groups=(A_ANCHORED,)),
        ("a_near_zero",),
    ),
    Claim(
        "starts_at_zero",
        f"The Q-Anchored curve begins near zero: within {NEAR_ZERO:.0f} points at the first layer.",
        (1, 3, 4, 5),
        (2,),
        every(Condition(shape.first, _FIRST, -NEAR_ZERO, NEAR_ZERO)),
        ("starts_low",),
    ),
    Claim(
        "starts_low",
        "The Q-Anchored curve begins low already: between −10 and −20 points at the first layer.",
        (2,),
        (1, 3, 4, 5),
        every(Condition(shape.first, _FIRST, *FIRST_LOW)),
        ("starts_at_zero",),
    ),
    Claim(
        "falls_early",
        "The Q-Anchored curve falls most in the first third of the layers: by 5 points more than in either other.",
        (3, 4),
        (1, 5),
        every(
            Condition(
                lambda q: shape.lead_of_third(q, 0),
                "fall of the first third less that of the steepest other: {} points",
                over=CLEAR_LEAD,
            )
        ),
    ),
    Claim(
        "trough_in_the_middle",
        "The Q-Anchored curve is lowest in the middle third of the layers.",
        (2,),
        (3, 4, 5),
        every(
            Condition(
                lambda q: shape.trough(q).relative,
                "lowest at {} of the depth",
                *MIDDLE_THIRD,
                unit="share of the depth",
            )
        ),
    ),
    Claim(
        "recovers",
        f"The Q-Anchored curve comes back from its lowest point by more than {MIN_RECOVERY:.0f} points.",
        (2, 4),
        (3, 5),
        every(Condition(shape.recovery, _BACK, over=MIN_RECOVERY)),
        ("stays_low", "falls_on"),
    ),
    Claim(
        "stays_low",
        f"The Q-Anchored curve stays low: level within {shape.FLAT:.0f} points from the middle layer on, back by less"
        f" than {MIN_RECOVERY:.0f}.",
        (3,),
        (2, 4, 5),
        every(
            Condition(
                lambda q: level_from(q, shape.FLAT),
                "level from {} of the depth on",
                under=0.5 + 1e-9,
                unit="share of the depth",
            ),
            _COMES_NOT_BACK,
        ),
        ("recovers", "falls_on"),
    ),
    Claim(
        "falls_on",
        f"The Q-Anchored curve falls to the end: by more than {MIN_TROUGH:.0f} points from the middle layer on.",
        (3, 5),
        (2, 4),
        every(
            Condition(change_from_middle, "{} points from the middle layer to the last", under=-MIN_TROUGH),
            _COMES_NOT_BACK,
        ),
        ("recovers", "stays_low"),
    ),
)


def _lowest(dataset: str, shown: str, says: tuple[int, ...], against: tuple[int, ...]) -> Claim:
    text = f"Of the Q-Anchored curves that of {shown} lies lowest, in the mean from a third of the depth on."
    rivals = tuple(f"{name}_lowest" for name in ("popqa", "triviaqa", "hotpotqa", "nq") if name != dataset)
    check = against_others(dataset, level, "{} points against", under=0.0)
    return Claim(f"{dataset}_lowest", text, says, against, check, rivals)


_OF_DATASETS = (
    _lowest("popqa", "PopQA", (2, 3, 5), (1, 4)),
    _lowest("triviaqa", "TriviaQA", (2,), (1, 3, 4, 5)),
    _lowest("hotpotqa", "HotpotQA", (4,), (1, 2, 3, 5)),
    _lowest("nq", "NQ", (1,), (2, 3, 4, 5)),
    Claim(
        "nq_most_volatile",
        "Of the Q-Anchored curves that of NQ changes most from layer to layer.",
        (1, 4),
        (),
        against_others("nq", shape.volatility, "{} points of jaggedness against", over=0.0),
    ),
    Claim(
        "datasets_similar",
        "The Q-Anchored curves of the datasets are alike: nowhere more than 30 points apart.",
        (2, 5),
        (1, 4),
        together(Condition(widest_gap, "{} points apart where two are farthest", under=SIMILAR)),
    ),
    Claim(
        "order_kept",
        "The datasets' Q-Anchored curves have one order and keep it: none change places by 5 points.",
        (2, 3),
        (5,),
        one_order(),
    ),
    Claim(
        "datasets_converge",
        "The datasets' Q-Anchored curves are closer together at the end than in the middle.",
        (5,),
        (3,),
        together(Condition(closing_to_the_end, "distance in the middle less that at the end: {} points", over=CLOSING)),
    ),
    Claim(
        "anchoring_over_dataset",
        "The group matters more than the dataset: Q and A lie farther apart than the datasets do.",
        (2, 5),
        (),
        together(
            Condition(gap_beyond_spread, "gap of the groups less spread of the datasets: {} points", over=0.0), GROUPS
        ),
    ),
)

_OF_SIZES = (
    Claim(
        "larger_deeper",
        "The larger model's Q-Anchored curves reach a deeper trough.",
        (1, 2, 3, 4),
        (),
        sizes(Condition(change(lowest), "the trough changes by {} points", under=0.0)),
    ),
    Claim(
        "larger_a_quarter_greater",
        "The larger model's Q-Anchored curves reach 20 to 30 % deeper below zero.",
        (1, 2),
        (3, 4),
        sizes(Condition(times(depth_below_zero), "{} times as deep", *GREATER, unit="ratio")),
    ),
    Claim(
        "larger_longer_decline",
        "In the larger model the decline takes more layers.",
        (2, 3, 5),
        (),
        sizes(
            Condition(
                change(lambda curve: shape.decline(curve).length),
                "the decline changes by {} layers",
                over=0.0,
                unit="layers",
            )
        ),
    ),
    Claim(
        "larger_same_rate",
        "Both sizes lose about as much per layer, within a quarter.",
        (5,),
        (),
        sizes(Condition(times(fall_per_layer), "{} times as much per layer", *SAME_RATE, unit="ratio")),
    ),
    Claim(
        "larger_more_volatile",
        "The larger model's Q-Anchored curves are more jagged from layer to layer.",
        (1, 4),
        (),
        sizes(Condition(times(shape.volatility), "{} times as jagged", over=1.0, unit="ratio")),
    ),
    Claim(
        "larger_tighter_end",
        "The larger model's datasets end closer together.",
        (5,),
        (2,),
        sizes(
            Condition(
                lambda small, large: difference_of(spread(large, -1), spread(small, -1)),
                "the spread at the last layer changes by {} points",
                under=0.0,
            ),
            datasets=2,
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (*_OF_CURVES, *_OF_DATASETS, *_OF_SIZES)
"""Every claim."""
