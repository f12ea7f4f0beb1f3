"""The chart in words, generated from the readings by templates: it never says more than the verdicts allow.

What matters first, what it means together, and what it does not show; what is drawn stands in `prose_chart.py`.
"""

from collections.abc import Sequence

from anchorscope.report.assignment_rules import rules_of
from anchorscope.report.findings import Findings
from anchorscope.report.statements.curve_readings import END_TOGETHER, MIN_RECOVERY, MIN_TROUGH, STAYS_FLAT
from anchorscope.report.statements.phrases import Phrases, Point, Points, Prose, Told
from anchorscope.report.statements.phrases import ProseSection as Section
from anchorscope.report.statements.prose_chart import NOISE, components, overview, series
from anchorscope.report.statements.reading import Reading
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


PLAIN = Phrases(
    "The groups of the plain chart are mostly the true and the false answers under another name, so what separates "
    "them is no evidence of two pathways.",
    "The groups of the plain chart are not mostly the true and the false answers under another name.",
    "How far the groups of the plain chart are the true and the false answers under another name is undecided, so what "
    "separates them should not be read as two pathways.",
    "the groups of the plain chart are mostly the true and the false answers under another name",
)
CORRECTED = Phrases(
    "With the common shift taken out the groups still stay apart to the end, so that shift alone does not make the two "
    "curves.",
    "With the common shift taken out the groups do not stay apart to the end.",
    "Whether the groups stay apart to the end once the common shift is taken out is undecided.",
    "the groups stay apart to the end once the common shift is taken out",
)
RETAINED = Phrases(
    "By the retained rule, which asks a probe that was trained on the cut states, the groups stay apart as well.",
    "By the retained rule, which asks a probe that was trained on the cut states, the groups do not stay apart.",
    "By the retained rule, which asks a probe that was trained on the cut states, it is undecided whether the groups "
    "stay apart.",
    "the groups stay apart by the retained rule as well",
)
CONTROL = Phrases(
    "Random cuts do less than a quarter of what the knockout does, so most of its effect belongs to the words that "
    "were cut, not to cutting as such.",
    "Random cuts do much of the same, so a large part of the effect belongs to cutting as such.",
    "Whether random cuts do much of the same is undecided, so the effect may belong to cutting as such.",
    "most of the knockout's effect belongs to the words that were cut, not to cutting as such",
)
SURVIVES = Phrases(
    "Some evidence of truth remains without the question's key words.",
    "Without the question's key words, a probe trained anew does no better than guessing.",
    "Whether any evidence of truth remains without the question's key words is undecided.",
    "some evidence of truth remains without the question's key words",
)

INTERPRETED: dict[tuple[str | None, str], Phrases] = {
    ("plain", "sorts_by_label"): PLAIN,
    ("corrected", "separation"): CORRECTED,
    ("retained", "separation"): RETAINED,
    ("plain", "random_small"): CONTROL,
    (None, "signal_survives"): SURVIVES,
}

LIMITS = (
    "Groups are chosen by what the cut does to them at the reference layer, so a distance there is built into the "
    "rule; the controls, the label shares and the retained rule say more than the distance does. A linear probe that "
    "reads truth out of a state does not show that the model uses it. The intervals take the fitted probes as given, "
    "and one run speaks for one model, one site and one position."
)


def interpretation(findings: Findings, told: Told) -> Section:
    """The last section."""
    if findings.random_weights:
        return Section("Interpretation", "words-interpretation", (NOISE,))
    asked = [key for key in INTERPRETED if key[0] is None or key[0] in rules_of(findings)]
    sentences = [_closed(told.sentence(rule, claim, INTERPRETED[rule, claim])) for rule, claim in asked]
    apart = ("Two groups, plain rule", "plain", "separation")
    opening = _closed(told.sentence("plain", "separation", KEY_PHRASES[apart]))
    return Section("Interpretation", "words-interpretation", (" ".join([opening, *sentences]), LIMITS))


def _closed(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."


def words(findings: Findings, observations: Sequence[Reading]) -> Prose:
    """Overview, components, curve by curve, key observations, interpretation."""
    told = Told(observations)
    return Prose((
        overview(findings),
        components(findings),
        series(findings, told),
        key_observations(findings, told),
        interpretation(findings, told),
    ))  # fmt: skip
