"""The key observations: what matters first, each in the sentence that its verdict allows, with the numbers."""

from anchorscope.report.findings import Findings
from anchorscope.report.prose.components import NOISE
from anchorscope.report.prose.phrases import Phrases, Told
from anchorscope.report.prose.section import Point, Points, Section
from anchorscope.report.readings.of_curves import MIN_RECOVERY, MIN_TROUGH, STAYS_FLAT
from anchorscope.report.readings.of_datasets import END_TOGETHER
from anchorscope.report.wording import MISSING, number

Key = tuple[str, str | None, str]

_FALL, _RISE, _END = (number(size, 0) for size in (MIN_TROUGH, MIN_RECOVERY, END_TOGETHER))
_FLAT = f"within ±{number(STAYS_FLAT, 0)} points of zero"

KEY_PHRASES: dict[Key, Phrases] = {
    ("Two groups, plain rule", "plain", "separation"): Phrases(
        "From some layer on, Q-Anchored stays below A-Anchored to the end",
        "Q-Anchored does not stay below A-Anchored to the end",
        "Whether Q-Anchored stays below A-Anchored to the end is undecided",
        "Q-Anchored stays below A-Anchored to the end",
    ),
    ("Who is in them", "plain", "sorts_by_label"): Phrases(
        "The plain rule mostly sorts the answers into true and false ones",
        "The plain rule does not simply sort the answers into true and false ones",
        "Whether the plain rule mostly sorts the answers into true and false ones is undecided",
        "the plain rule mostly sorts the answers into true and false ones",
    ),
    ("Two groups, corrected rule", "corrected", "separation"): Phrases(
        "With the common shift taken out, Q-Anchored still stays below A-Anchored from some layer on to the end",
        "With the common shift taken out, Q-Anchored does not stay below A-Anchored to the end",
        "Whether Q-Anchored stays below A-Anchored to the end once the common shift is taken out is undecided",
        "Q-Anchored stays below A-Anchored to the end once the common shift is taken out",
    ),
    ("Depth", "plain", "trough"): Phrases(
        f"The Q-Anchored curve gets more than {_FALL} points below zero",
        f"The Q-Anchored curve never gets more than {_FALL} points below zero",
        f"Whether the Q-Anchored curve gets more than {_FALL} points below zero is undecided",
        f"the Q-Anchored curve gets more than {_FALL} points below zero",
    ),
    ("Place", "plain", "trough_place"): Phrases(
        "The Q-Anchored curve is lowest in the middle third of the depth",
        "The Q-Anchored curve is lowest outside the middle third of the depth",
        "Whether the Q-Anchored curve is lowest in the middle third of the depth is undecided",
        "the Q-Anchored curve is lowest in the middle third of the depth",
    ),
    ("Return", "plain", "recovery"): Phrases(
        f"From its lowest layer to the end the Q-Anchored curve comes back by more than {_RISE} points",
        f"From its lowest layer to the end the Q-Anchored curve does not come back by more than {_RISE} points",
        f"Whether the Q-Anchored curve comes back by more than {_RISE} points is undecided",
        f"the Q-Anchored curve comes back by more than {_RISE} points",
    ),
    ("A-Anchored", "plain", "a_flat"): Phrases(
        f"The A-Anchored curve stays {_FLAT} at every layer",
        f"The A-Anchored curve does not stay {_FLAT} at every layer",
        f"Whether the A-Anchored curve stays {_FLAT} at every layer is undecided",
        f"the A-Anchored curve stays {_FLAT} at every layer",
    ),
    ("Control", "plain", "random_small"): Phrases(
        "Cutting random tokens does much less than cutting the question's key words",
        "Cutting random tokens does a large part of what cutting the question's key words does",
        "Whether cutting random tokens does much less is undecided",
        "cutting random tokens does much less",
    ),
    ("Probe", None, "beats_baselines"): Phrases(
        "The probe is better than every simple baseline",
        "The probe is not better than the best simple baseline",
        "Whether the probe is better than the best simple baseline is undecided",
        "the probe is better than the best simple baseline",
    ),
    ("What survives", None, "signal_survives"): Phrases(
        "With the key words cut, a probe trained anew still tells true from false",
        "With the key words cut, a probe trained anew does no better than guessing",
        "Whether a probe trained anew still tells true from false with the key words cut is undecided",
        "a probe trained anew still tells true from false with the key words cut",
    ),
}  # fmt: skip
"""By label, rule and claim."""

DATASET_PHRASES: dict[Key, Phrases] = {
    ("Lowest dataset", "plain", "lowest_dataset"): Phrases(
        "Of the Q-Anchored curves, that of",
        "The lowest Q-Anchored curve in the sample is not the lowest",
        "Which dataset's Q-Anchored curve lies lowest is undecided",
        "",
    ),
    ("Order of the datasets", "plain", "order_stable"): Phrases(
        "The Q-Anchored curves keep their order along the depth",
        "The Q-Anchored curves change places along the depth",
        "Whether the Q-Anchored curves keep their order along the depth is undecided",
        "",
    ),
    ("Spread at the end", "plain", "spread_end"): Phrases(
        f"The Q-Anchored curves end within {_END} points of each other",
        f"The Q-Anchored curves end more than {_END} points apart",
        f"Whether the Q-Anchored curves end within {_END} points of each other is undecided",
        "",
    ),
    ("Convergence", "plain", "converge"): Phrases(
        "The Q-Anchored curves draw nearer to each other towards the end",
        "The Q-Anchored curves do not draw nearer to each other towards the end",
        "Whether the Q-Anchored curves draw nearer to each other towards the end is undecided",
        "",
    ),
}  # fmt: skip
"""Where several datasets were run."""

ONE_DATASET = "Only one dataset was run, so nothing can be said about the order of datasets or how far they lie apart."


def key_observations(findings: Findings, told: Told) -> Section:
    """The list."""
    points = [
        Point(label, f"{told.sentence(rule, claim, phrases)} ({told.numbers(rule, claim)}).")
        for (label, rule, claim), phrases in KEY_PHRASES.items()
    ]
    if len(findings.datasets) < 2:
        points.append(Point("Datasets", ONE_DATASET))
    else:
        points += [_of_model(told, label, rule, claim, phrases)
                   for (label, rule, claim), phrases in DATASET_PHRASES.items()]  # fmt: skip
    warning = (NOISE,) if findings.random_weights else ()
    return Section("Key observations", "words-observations", warning, (Points("", tuple(points)),))


def _of_model(told: Told, label: str, rule: str | None, claim: str, phrases: Phrases) -> Point:
    wanted = (None, rule, claim)
    found = next((r for r in told.readings if (r["dataset"], r["assignment"], r["claim"]) == wanted), None)
    if found is None:
        return Point(label, f"{phrases.open} ({MISSING}).")
    said = phrases.of(found["verdict"])
    if claim == "lowest_dataset" and found["verdict"] == "holds":  # the statement says which
        said = f"{said}{found['statement'][len(said) :]}"
    return Point(label, f"{said} ({found['numbers']}).")
