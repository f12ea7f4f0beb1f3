"""Statements about the question share Λ: what is tested, its shape along the depth, and what else reads truth.

Four questions are put at one layer that was chosen without looking at the share: is there any, is it more than random
words take, do items differ, and does it remain with words, confidence and relation taken out? Their p-values are
corrected together over all datasets of a run (Holm, in `all_statements.py`).
"""

import math
from collections.abc import Callable

from anchorscope.report.findings import Findings
from anchorscope.report.shares import LOWER, PROBE, UPPER, ShareResult, result_of, results_of, share_at, truth_readers
from anchorscope.report.statements.layer_band import LayerBand, share_band
from anchorscope.report.statements.statement import About, Found, Statement, at_layers, over, within
from anchorscope.report.verdicts import (
    GOOD_WIDTH,
    NEGLIGIBLE_SHARE,
    WORST_FIRST,
    Verdict,
    above_zero,
    difference,
    gained,
    has_interval,
)
from anchorscope.report.wording import count, estimate, number
from anchorscope.stats.estimate import Estimate

EVIDENCE = "share of the evidence"
"""The unit of a share."""
_TENTH = number(100 * NEGLIGIBLE_SHARE, 0)

Numbers = Callable[[Findings, str, ShareResult], str]


def needed_items(found: Estimate | None) -> int | None:
    """How many items would make the interval narrow enough to decide; None where it is so already."""
    if found is None or not has_interval(found):
        return None
    needed = found.n * ((found.ci_high - found.ci_low) / 2 / GOOD_WIDTH) ** 2
    if needed <= found.n:
        return None
    size = 10 ** max(0, math.floor(math.log10(needed)) - 1)  # two digits of a rough number
    return math.ceil(needed / size) * size


def _tested(quantity: str, numbers: Numbers, own: bool = False) -> Callable[[About], Found]:
    """The row that is tested; of several sets that were taken out, the one that names most."""

    def measure(about: About) -> Found:
        findings, dataset = about.findings, about.dataset or ""
        row = max(results_of(findings, dataset, quantity), key=lambda one: one.group.count(","), default=None)
        if row is None:
            return Found()
        # The first question is tested by T, which is no share: its number is the share itself.
        share = share_at(findings, dataset, row.layer) if own else row.estimate
        return Found(share, numbers(findings, dataset, row), row.layer, row.p_value)

    return measure


def _by_corrected_p(found: Found) -> Verdict:
    return above_zero(found.estimate, math.nan if found.p_corrected is None else found.p_corrected)


def _difference_by_corrected_p(found: Found) -> Verdict:
    p = math.nan if found.p_corrected is None else found.p_corrected
    return above_zero(found.estimate, p, both_ways=True)


def _share(findings: Findings, dataset: str, row: ShareResult) -> str:
    share = share_at(findings, dataset, row.layer)
    return f"Λ {estimate(share)} at layer {row.layer}; T = {number(row.estimate.value, 1)}"


def _above_random(findings: Findings, dataset: str, row: ShareResult) -> str:
    random = share_at(findings, dataset, row.layer, "random")
    return f"{estimate(row.estimate)} more; random words alone {estimate(random)}"


def _thirds(findings: Findings, dataset: str, row: ShareResult) -> str:
    lower, upper = (share_at(findings, dataset, row.layer, group=group) for group in (LOWER, UPPER))
    needed = needed_items(row.estimate)
    more = f"; about {count(needed)} items would give ±{number(GOOD_WIDTH, 1)}" if needed else ""
    beside = random_thirds(findings, dataset, row.layer)
    control = "; random words {} and {}".format(*map(estimate, beside)) if beside else ""
    return (
        f"upper − lower third, held out: {estimate(row.estimate)}; {estimate(lower)} and {estimate(upper)}{control}"
        f"{more}"
    )


def random_thirds(findings: Findings, dataset: str, layer: int | None) -> tuple[Estimate, Estimate] | None:
    """The same thirds where random words were cut: what items differ in without the key words."""
    lower, upper = (share_at(findings, dataset, layer, "random", group) for group in (LOWER, UPPER))
    return None if lower is None or upper is None else (lower, upper)


def _given(findings: Findings, dataset: str, row: ShareResult) -> str:
    return f"Λ {estimate(row.estimate)} once {row.group or 'they'} are taken out"


TESTED = (
    Statement(
        "share_needed",
        "A share",
        "part of the probe's evidence needs the question's key words",
        "Hardly any of the probe's evidence needs the question's key words",
        _tested("share_above_zero", _share, own=True),
        _by_corrected_p,
        standing="tested",
        unit=EVIDENCE,
        key=(None,),
    ),
    Statement(
        "share_beyond_random",
        "More than any words",
        "the key words carry more of it than random words do",
        "The key words carry no more of it than random words do",
        _tested("share_above_random", _above_random),
        _by_corrected_p,
        standing="tested",
        unit=EVIDENCE,
        key=(None,),
    ),
    Statement(
        "items_differ",
        "Items",
        "items differ in how much of their evidence needs the key words",
        "Items do not differ by more than a tenth in it, as far as their cut state predicts it",
        _tested("thirds_difference", _thirds),
        _difference_by_corrected_p,
        standing="tested",
        unit=EVIDENCE,
        key=(None,),
    ),
    Statement(
        "share_given",
        "Words and base rates",
        "a share remains with words, confidence and relation taken out",
        "With words, confidence and relation taken out no share remains: it may be no more than these",
        _tested("share_given", _given),
        _by_corrected_p,
        standing="tested",
        unit=EVIDENCE,
        key=(None,),
    ),
)
"""The four questions."""


def _peak(about: About) -> Found:
    band = share_band(about.findings, about.dataset or "", "knockout")
    if band is None:
        return Found()
    where, last = band.peak_layer, about.findings.n_layers - 1
    measured = 0 in band.layers and last in band.layers
    inside, at_end = where.ci_low > 0 and where.ci_high < last, where.ci_high == 0 or where.ci_low == last
    inside, at_end = inside and measured, at_end and measured
    verdict: Verdict = "yes" if inside else "no" if at_end else "inconclusive"
    numbers = f"Λ {estimate(band.peak)}, highest at {at_layers(where)}; half of it from {at_layers(band.half_way)} on"
    return Found(where, numbers, int(where.value), verdict=verdict)


def _change(end: int, of: Callable[[LayerBand], Estimate]) -> Callable[[About], Found]:
    def measure(about: About) -> Found:
        band = share_band(about.findings, about.dataset or "", "knockout")
        ends = (0, about.findings.n_layers - 1)
        if band is None or band.layers[end] != ends[end]:
            return Found()
        layer = band.layers[end]
        return Found(of(band), f"by {estimate(of(band))}; at layer {layer} {estimate(band.estimate(end))}", layer)

    return measure


def _by_truth(about: About) -> Found:
    findings, dataset = about.findings, about.dataset or ""
    gap = result_of(findings, dataset, "true_minus_false")
    if gap is None:
        return Found()
    true, false = (estimate(share_at(findings, dataset, gap.layer, truth=truth)) for truth in ("true", "false"))
    return Found(gap.estimate, f"Λ {true} of true, {false} of false; difference {estimate(gap.estimate)}", gap.layer)


def _other_readers(about: About) -> Found | None:
    """The probe beside the best probe that sees less."""
    readers = truth_readers(about.findings, about.dataset or "")
    probe = readers.pop(PROBE, None)
    if probe is None or not readers:
        return None
    best = max(readers, key=lambda name: readers[name].value)
    gains = {name: difference(probe, one) for name, one in readers.items()}
    verdicts = {gained(gain) for gain in gains.values()}
    verdict = next(one for one in WORST_FIRST if one in verdicts)
    lacking = [name for name in SEE_LESS if not any(known.startswith(name) for known in readers)]
    if lacking and verdict == "yes":
        verdict = "inconclusive"
    told = f"; not known: {', '.join(lacking)}" if lacking else ""
    numbers = f"AUC {estimate(probe)}; best of the others, {best}: {estimate(readers[best])}{told}"
    return Found(gains[best], numbers, verdict=verdict)


SEE_LESS = ("question only", "answer only", "words")
"""Probes that see less, as question_share_tests.csv names them; better than all of them needs all of them."""


SHAPE = (
    Statement(
        "share_peak",
        "Along the depth",
        "the share is highest inside the model, not at its first or last layer",
        "The share is highest at an end of the model",
        _peak,
        scope="curve",
        unit="layer",
        key=(None,),
    ),
    Statement(
        "share_rises",
        "Rise",
        f"the share rises by more than {_TENTH} points from the first layer on",
        f"The share does not rise by more than {_TENTH} points",
        _change(0, lambda band: band.rise),
        over(NEGLIGIBLE_SHARE),
        scope="curve",
        unit=EVIDENCE,
    ),
    Statement(
        "share_falls",
        "Fall",
        f"the share falls by more than {_TENTH} points towards the last layer",
        f"The share does not fall by more than {_TENTH} points towards the last layer",
        _change(-1, lambda band: band.fall),
        over(NEGLIGIBLE_SHARE),
        scope="curve",
        unit=EVIDENCE,
    ),
    Statement(
        "share_same_by_truth",
        "By truth",
        f"true and false answers have the same share, within ±{_TENTH} points",
        f"True and false answers differ by more than {_TENTH} points in their share",
        _by_truth,
        within(-NEGLIGIBLE_SHARE, NEGLIGIBLE_SHARE),
        unit=EVIDENCE,
    ),
    Statement(
        "auc_above_nulls",
        "Probes that see less",
        "the probe reads truth better than every probe that sees less (question only, answer only, words)",
        "The probe reads truth no better than the best probe that sees less",
        _other_readers,
        unit="AUC",
        open="Whether the probe reads truth better than probes that see less is undecided",
        key=(None,),
    ),
)
"""What is described of the share."""
