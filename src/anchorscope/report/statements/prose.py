"""The chart in words, generated from the readings by templates: it never says more than the verdicts allow.

What matters first, what it means together, and what it does not show; what is drawn stands in `prose_chart.py`.
"""

from collections.abc import Sequence

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED
from anchorscope.report.statements.curve_readings import curve_statements
from anchorscope.report.statements.phrases import Phrases, Point, Points, Prose, ReadingIndex
from anchorscope.report.statements.phrases import ProseSection as Section
from anchorscope.report.statements.prose_chart import NOISE, components, overview, series
from anchorscope.report.statements.reading_record import Reading
from anchorscope.report.statements.share_prose import share_points
from anchorscope.report.verdicts import END_TOGETHER
from anchorscope.report.wording import MISSING, number

Key = tuple[str, str | None, str]

_END = number(END_TOGETHER, 0)
_TO_THE_END = "From its lowest layer to the end"


def _of_curve(group: str, claim: str) -> Phrases:
    """What may be said of the shape of a group's curve; the words do not depend on the depth of the model."""
    (one,) = (one for one in curve_statements(1) if one.claim == claim)
    return Phrases(f"the {group} curve {one.holds}", f"The {group} curve {one.fails}")


_RETURN = _of_curve(Q_ANCHORED, "recovery")

KEY_PHRASES: dict[Key, Phrases] = {
    ("Who is in the plain groups", "plain", "sorts_by_label"): Phrases(
        "the plain rule mostly sorts the answers into true and false ones",
        "The plain rule does not simply sort the answers into true and false ones",
    ),
    ("Place", "plain", "trough_place"): _of_curve(Q_ANCHORED, "trough_place"),
    ("Return", "plain", "recovery"): Phrases(
        _RETURN.that, f"{_TO_THE_END} t{_RETURN.fails[1:]}", f"{_TO_THE_END} {_RETURN.that}"
    ),
    ("A-Anchored", "plain", "a_flat"): _of_curve(A_ANCHORED, "flat"),
    ("Control", "plain", "random_small"): Phrases(
        "cutting random tokens does much less",
        "Cutting random tokens does a large part of what cutting the question's key words does",
        "Cutting random tokens does much less than cutting the question's key words",
    ),
    ("Probe", None, "beats_baselines"): Phrases(
        "the probe is better than the best simple baseline",
        "The probe is not better than the best simple baseline",
        "The probe is better than every simple baseline",
    ),
    ("Beside confidence", None, "adds_to_confidence"): Phrases(
        "the probe adds to the model's own confidence",
        "The probe adds nothing to the model's own confidence",
    ),
    ("What survives", None, "signal_survives"): Phrases(
        "a probe trained anew still tells true from false with the key words cut",
        "With the key words cut, a probe trained anew does no better than guessing",
        "With the key words cut, a probe trained anew still tells true from false",
    ),
}
"""By label, rule and claim."""

DATASET_PHRASES: dict[Key, Phrases] = {
    ("Lowest dataset", "plain", "lowest_dataset"): Phrases(
        "one Q-Anchored curve lies below all others",
        "The lowest Q-Anchored curve in the sample is not the lowest",
        "Of the Q-Anchored curves, that of",
        "Which dataset's Q-Anchored curve lies lowest is undecided",
    ),
    ("Order of the datasets", "plain", "order_stable"): Phrases(
        "the Q-Anchored curves keep their order along the depth",
        "The Q-Anchored curves change places along the depth",
    ),
    ("Spread at the end", "plain", "spread_end"): Phrases(
        f"the Q-Anchored curves end within {_END} points of each other",
        f"The Q-Anchored curves end more than {_END} points apart",
    ),
    ("Convergence", "plain", "converge"): Phrases(
        "the Q-Anchored curves draw nearer to each other towards the end",
        "The Q-Anchored curves do not draw nearer to each other towards the end",
    ),
}
"""Where several datasets were run."""

ONE_DATASET = "Only one dataset was run, so nothing can be said about the order of datasets or how far they lie apart."


def key_observations(findings: Findings, readings: ReadingIndex) -> Section:
    """The list: the question share first, then what the curves of the plain rule do."""
    points = share_points(readings)
    points += [
        Point(label, f"{readings.sentence(rule, claim, phrases)} ({readings.numbers(rule, claim)}).")
        for (label, rule, claim), phrases in KEY_PHRASES.items()
    ]
    if len(findings.datasets) < 2:
        points.append(Point("Datasets", ONE_DATASET))
    else:
        points += [_of_model(readings, label, rule, claim, phrases)
                   for (label, rule, claim), phrases in DATASET_PHRASES.items()]  # fmt: skip
    points += _built_in(readings)
    warning = (NOISE,) if findings.random_weights else ()
    return Section("Key observations", "words-observations", warning, (Points("", tuple(points)),))


def _built_in(readings: ReadingIndex) -> list[Point]:
    """What every rule brings about by itself, with its numbers and without a verdict."""
    rules = [rule for rule in RULES if readings.has(rule, "q_below_a")]
    told = [f"{RULES[rule]}: {readings.numbers(rule, 'q_below_a')}" for rule in rules]
    if not told:
        return []
    text = (
        "Q-Anchored lies below A-Anchored under any rule that sorts items by what the cut does to them "
        f"({'; '.join(told)}). It would in a model with one pathway as well."
    )
    return [Point("So by construction", text)]


def _of_model(readings: ReadingIndex, label: str, rule: str | None, claim: str, phrases: Phrases) -> Point:
    wanted = (None, rule, claim)
    found = next((r for r in readings.readings if (r["dataset"], r["assignment"], r["claim"]) == wanted), None)
    if found is None:
        return Point(label, f"{phrases.of('undecided')} ({MISSING}).")
    said = phrases.of(found["verdict"])
    if claim == "lowest_dataset" and found["verdict"] == "holds":  # the statement says which
        said = f"{said}{found['statement'][len(said) :]}"
    return Point(label, f"{said} ({found['numbers']}).")


PLAIN = Phrases(
    "the groups of the plain chart are mostly the true and the false answers under another name",
    "The groups of the plain chart are not mostly the true and the false answers under another name.",
    "The groups of the plain chart are mostly the true and the false answers under another name, so what separates "
    "them is no evidence of two pathways.",
    "How far the groups of the plain chart are the true and the false answers under another name is undecided, so what "
    "separates them should not be read as two pathways.",
)
NEEDED = Phrases(
    "part of the probe's evidence needs the question's key words",
    "Next to none of the probe's evidence needs the question's key words.",
    "Part of the probe's evidence needs the question's key words, the rest does not.",
    "Whether any of the probe's evidence needs the question's key words is undecided.",
)
DIFFER = Phrases(
    "items differ in how much of their evidence needs the key words",
    "Items do not differ in how much of their evidence needs the key words: this is one pathway, not two.",
    "Items differ in how much of their evidence needs the key words, as a continuum; this says nothing of two kinds of "
    "items.",
    "Whether items differ in how much of their evidence needs the key words is undecided, so two pathways cannot be "
    "told from one here.",
)
GIVEN = Phrases(
    "the share is more than words, confidence and base rates",
    "With words, confidence and relation taken out no share remains, so it may be no more than these.",
    "A share remains with words, confidence and relation taken out, so it is more than these.",
    "Whether the share is more than words, confidence and base rates is undecided.",
)
CONTROL = Phrases(
    "most of the knockout's effect belongs to the words that were cut, not to cutting as such",
    "Random cuts do much of the same, so a large part of the effect belongs to cutting as such.",
    "Random cuts do less than a quarter of what the knockout does, so most of its effect belongs to the words that "
    "were cut, not to cutting as such.",
    "Whether random cuts do much of the same is undecided, so the effect may belong to cutting as such.",
)
SURVIVES = Phrases(
    "some evidence of truth remains without the question's key words",
    "Without the question's key words, a probe trained anew does no better than guessing.",
    "Some evidence of truth remains without the question's key words.",
    "Whether any evidence of truth remains without the question's key words is undecided.",
)

INTERPRETED: dict[tuple[str | None, str], Phrases] = {
    (None, "share_needed"): NEEDED,
    (None, "items_differ"): DIFFER,
    (None, "share_given"): GIVEN,
    ("plain", "sorts_by_label"): PLAIN,
    ("plain", "random_small"): CONTROL,
    (None, "signal_survives"): SURVIVES,
}

NOT_MEASURED = (
    "This run did not measure the question share, and no rule that sorts items by what the cut does to them can tell "
    "one pathway from two."
)
LIMITS = (
    "Groups are chosen by what the cut does to them at the reference layer, so a distance there is built into the "
    "rule: in a model with one pathway the curves lie apart as well. A linear probe that reads truth out of a state "
    "does not show that the model uses it. The intervals take the fitted probes as given, and one run speaks for one "
    "model, one site and one position."
)


def interpretation(findings: Findings, readings: ReadingIndex) -> Section:
    """The last section."""
    if findings.random_weights:
        return Section("Interpretation", "words-interpretation", (NOISE,))
    asked = [key for key in INTERPRETED if readings.has(*key)]
    sentences = [_closed(readings.sentence(rule, claim, INTERPRETED[rule, claim])) for rule, claim in asked]
    opening = [] if readings.has(None, "share_needed") else [NOT_MEASURED]
    return Section("Interpretation", "words-interpretation", (" ".join([*opening, *sentences]), LIMITS))


def _closed(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."


def words(findings: Findings, observations: Sequence[Reading]) -> Prose:
    """Overview, components, curve by curve, key observations, interpretation."""
    readings = ReadingIndex(observations)
    return Prose((
        overview(findings),
        components(findings),
        series(findings, readings),
        key_observations(findings, readings),
        interpretation(findings, readings),
    ))  # fmt: skip
