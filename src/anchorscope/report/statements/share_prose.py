"""What may be said of the question share, verdict by verdict: the page's lead and the words below it draw on this."""

from collections.abc import Sequence
from dataclasses import dataclass

from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.shares import LOWER, UPPER, has_shares, result_of, share_at, share_layer
from anchorscope.report.statements.layer_band import layer_names
from anchorscope.report.statements.phrases import Phrases, Point, ReadingIndex
from anchorscope.report.statements.reading_record import Reading
from anchorscope.report.statements.share_controls import SHARE_CONTROLS
from anchorscope.report.statements.share_tests import family_words, needed_items
from anchorscope.report.wording import estimate, listing, short_percent
from anchorscope.stats.estimate import Estimate

SHARE_PHRASES: dict[tuple[str, str], Phrases] = {
    ("A share", "share_needed"): Phrases(
        "part of the probe's evidence needs the question's key words",
        "Next to none of the probe's evidence needs the question's key words",
    ),
    ("More than any words", "share_beyond_random"): Phrases(
        "the key words carry more of it than random words do",
        "The key words carry no more of it than random words do",
    ),
    ("Items", "items_differ"): Phrases(
        "items differ in how much of their evidence needs the key words",
        "Items do not differ in how much of their evidence needs the key words, by more than a tenth",
    ),
    ("Words and base rates", "share_given"): Phrases(
        "a share remains with words, confidence and relation taken out",
        "With words, confidence and relation taken out no share remains: it may be an artefact of them",
        "With words, confidence and relation taken out a share remains",
    ),
    ("Random words", "share_random_small"): Phrases(
        "random words take less than a quarter of the share at every layer that has one",
        "This control fails: random words take more than a quarter of the share",
    ),
    ("Random words of equal attention", "share_random_mass_small"): Phrases(
        "random words of equal attention take less than a quarter of the share at every layer that has one",
        "This control fails: random words of equal attention take more than a quarter of the share",
    ),
    ("Nothing cut", "share_floor_small"): Phrases(
        "estimation alone loses less than a tenth at every layer",
        "This control fails: estimation alone loses more than a tenth",
    ),
    ("Permuted labels", "share_permuted_zero"): Phrases(
        "permuted labels give no share at any layer",
        "This control fails: permuted labels give a share",
    ),
    ("Random weights", "share_random_weights"): Phrases(
        "random weights of the same shape have less than a quarter of the share",
        "This control fails: random weights of the same shape have more than a quarter of the share",
    ),
    ("Probes that see less", "auc_above_nulls"): Phrases(
        "the probe reads truth better than probes that see the question only, the answer only, or words and confidence",
        "The probe reads truth no better than the best probe that sees less (question only, answer only, words)",
        "The probe reads truth better than every probe that sees less (question only, answer only, words)",
        "Whether the probe reads truth better than probes that see less is undecided",
    ),
    ("Along the depth", "share_peak"): Phrases(
        "the share is highest inside the model, not at its first or last layer",
        "The share is highest at an end of the model",
        "The share is highest inside the model, not at its first or last layer",
    ),
}
"""By label and claim, in the order in which they are told; the first four are tested, controls follow."""

WHY = (
    "A probe that was trained on other items gives each answer log-odds of being true: the evidence. Then attention to "
    "the question's key words is cut, and label and log-odds are predicted from the cut states. What these can no "
    "longer predict is the evidence that needs the key words; Λ, the question share, is its share of all evidence. 0: "
    "the answer alone carries the evidence. 1: nothing is left without the question. What both tell counts as the "
    "answer's. Items are not sorted, so that two groups need not come out."
)


@dataclass(frozen=True)
class Lead:
    """What the page says first."""

    answer: str
    """The question, answered in one or two sentences."""
    sure: tuple[Point, ...]
    """How sure it is: tests, controls and nulls."""
    why: str
    """What the number means."""
    family: str
    """Over which tests p-values were corrected."""


def lead(findings: Findings, observations: Sequence[Reading]) -> Lead | None:
    """The lead of a run; None where it did not measure the question share."""
    if not has_shares(findings):
        return None
    readings = ReadingIndex(observations)
    parts = (_shares(findings, readings), _items(findings, readings), _failed(findings, readings))
    answer = " ".join(part for part in parts if part)
    return Lead(answer, tuple(share_points(readings)), WHY, family_words(findings))


def share_points(readings: ReadingIndex) -> list[Point]:
    """A bullet for every statement about the share that the run can speak to."""
    return [
        Point(label, f"{readings.sentence(None, claim, phrases)} ({readings.numbers(None, claim)}).")
        for (label, claim), phrases in SHARE_PHRASES.items()
        if readings.has(None, claim)
    ]


def short_share(found: Estimate | None) -> str:
    """A share in running text: 70 % [60, 81]."""
    return estimate(found, 0, 100.0, "\u00a0%")


def _shares(findings: Findings, readings: ReadingIndex) -> str:
    """How much of the evidence needs the key words, and what random words take."""
    if len(findings.datasets) > 1:
        told = [f"{display_name(dataset)} {_share_of(findings, readings, dataset)}" for dataset in findings.datasets]
        return f"How much of the probe's evidence needs the question's key words: {'; '.join(told)}."
    (dataset,) = findings.datasets
    layer, verdict = share_layer(findings, dataset), readings.verdict(dataset, None, "share_needed")
    found = share_at(findings, dataset, layer)
    if found is None:
        return "The question share could not be measured at the layer that is tested: there is too little evidence."
    share = short_share(found)
    random = f"random words take {short_share(share_at(findings, dataset, layer, 'random'))}"
    if verdict == "holds":
        first = f"About {share} of the probe's evidence needs the question's key words at layer {layer}; {random}."
        return first + _BESIDE_RANDOM[readings.verdict(dataset, None, "share_beyond_random")]
    opening = (
        "Next to none of the probe's evidence needs the question's key words"
        if verdict == "does not hold"
        else "Whether any of the probe's evidence needs the question's key words is undecided"
    )
    return f"{opening}: {share} at layer {layer}; {random}."


_BESIDE_RANDOM = {
    "holds": "",
    "does not hold": " That is no more than any words would take.",
    "undecided": " Whether that is more than any words would take is undecided.",
}


def _share_of(findings: Findings, readings: ReadingIndex, dataset: str) -> str:
    """The same of one of several datasets, in a phrase."""
    layer = share_layer(findings, dataset)
    found = share_at(findings, dataset, layer)
    if found is None:
        return "could not be measured"
    share = short_share(found)
    words = {"holds": "about", "does not hold": "next to none,", "undecided": "undecided,"}
    opening = words[readings.verdict(dataset, None, "share_needed")]
    random = short_percent(share_at(findings, dataset, layer, "random"))
    more = readings.verdict(dataset, None, "share_beyond_random")
    beside = {"holds": "", "does not hold": ", no less", "undecided": ", perhaps no less"}[more]
    return f"{opening} {share} (layer {layer}; random words {random}{beside})"


def _items(findings: Findings, readings: ReadingIndex) -> str:
    """Whether items differ; where that is open, how many would be needed."""
    several = len(findings.datasets) > 1
    told: dict[str, list[str]] = {"holds": [], "does not hold": [], "undecided": []}
    for dataset in findings.datasets:
        verdict, name = readings.verdict(dataset, None, "items_differ"), display_name(dataset)
        found = result_of(findings, dataset, "thirds_difference")
        layer = found.layer if found else None
        on = f"on {name} " if several else ""
        if verdict == "undecided":
            n = f"at n = {found.estimate.n}{needed_items(found.estimate)}" if found else ""
            told[verdict].append(f"{on}{n}".strip())
            continue
        show = short_percent if several else short_share
        thirds = [show(share_at(findings, dataset, layer, group=group)) for group in (LOWER, UPPER)]
        told[verdict].append(f"{on}({thirds[0]} in the lower third, {thirds[1]} in the upper, held out)")
    sentences = []
    if told["holds"]:
        sentences.append(f"Items differ in this {listing(told['holds'])}.")
    if told["does not hold"]:
        sentences.append(f"Items do not differ in this by more than a tenth {listing(told['does not hold'])}.")
    if told["undecided"]:
        sentences.append(f"Whether items differ is undecided {listing(told['undecided'])}.")
    return " ".join(sentences)


def _failed(findings: Findings, readings: ReadingIndex) -> str:
    """Which controls fail, and which are in doubt: on which datasets, at which layers."""
    said: dict[str, list[str]] = {"failing_layers": [], "doubtful_layers": []}
    for label, claim in SHARE_PHRASES:
        for dataset in findings.datasets if claim in SHARE_CONTROLS else ():
            found = readings.one(dataset, None, claim)
            if found is None or found["verdict"] == "holds":
                continue
            failed = found["verdict"] == "does not hold"
            name = "failing_layers" if failed else "doubtful_layers"
            if failed or found[name]:
                said[name].append(f"{label.lower()} ({_at(findings, dataset, found[name])})")
    sentences = [f"Not every control passes: {listing(said['failing_layers'])}."] if said["failing_layers"] else []
    if said["doubtful_layers"]:
        sentences.append(f"Controls beyond their limit, though not surely: {listing(said['doubtful_layers'])}.")
    return " ".join(sentences)


def _at(findings: Findings, dataset: str, layers: list[int] | None) -> str:
    named = [display_name(dataset)] if len(findings.datasets) > 1 else []
    return ", ".join([*named, layer_names(tuple(layers)) if layers else "at the layer that is tested"])
