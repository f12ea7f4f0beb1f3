"""Checks of the parts of the evidence, over the band of layers that was fixed without looking at any share.

Two questions are tested: does any of the evidence need question and answer together, and do the key words carry more of
it than random words? Their p-values are corrected together over all datasets of a run (Holm, in `all_statements.py`).
"""

import math

from anchorscope.report.reading import Check, Measured, Subject
from anchorscope.report.shares import (
    NEEDS_QUESTION,
    PROBE,
    TOGETHER,
    band_layers,
    result_of,
    share_at,
    share_layer,
    truth_readers,
    why_silent,
)
from anchorscope.report.verdicts import WORST_FIRST, Verdict, above_zero, difference, gained, p_from_interval
from anchorscope.report.wording import estimate

EVIDENCE = "share of the evidence"
"""The unit of a share."""


def _needs_both(subject: Subject) -> Measured:
    findings, dataset = subject.findings, subject.dataset or ""
    share = share_at(findings, dataset, part=TOGETHER)
    if share is None or why_silent(findings, dataset) is not None:
        return Measured()
    numbers = f"{estimate(share)} over layers {band_layers(findings, dataset)}"
    return Measured(share, numbers, share_layer(findings, dataset), p_from_interval(share))


def _beyond_random(subject: Subject) -> Measured:
    findings, dataset = subject.findings, subject.dataset or ""
    result = result_of(findings, dataset, "above_random", NEEDS_QUESTION)
    if result is None or why_silent(findings, dataset) is not None:
        return Measured()
    random = share_at(findings, dataset, "random")
    numbers = f"{estimate(result.estimate)} more; random words alone {estimate(random)}"
    return Measured(result.estimate, numbers, share_layer(findings, dataset), result.p_value)


def _by_corrected_p(measured: Measured) -> Verdict:
    return above_zero(measured.estimate, math.nan if measured.p_corrected is None else measured.p_corrected)


TESTED = (
    Check(
        "needs_both",
        "The match",
        "part of the probe's evidence needs question and answer together",
        "Hardly any of the probe's evidence needs question and answer together",
        _needs_both,
        _by_corrected_p,
        standing="tested",
        unit=EVIDENCE,
        key=(None,),
    ),
    Check(
        "share_beyond_random",
        "More than any words",
        "the key words carry more of it than random words do",
        "The key words carry no more of it than random words do",
        _beyond_random,
        _by_corrected_p,
        standing="tested",
        unit=EVIDENCE,
        key=(None,),
    ),
)
"""The two questions."""


def _other_readers(subject: Subject) -> Measured | None:
    """The probe beside the best probe that sees less."""
    readers = truth_readers(subject.findings, subject.dataset or "")
    probe = readers.pop(PROBE, None)
    if probe is None or not readers:
        return None
    best = max(readers, key=lambda name: readers[name].value)
    gains = {name: difference(probe, area) for name, area in readers.items()}
    verdicts = {gained(gain) for gain in gains.values()}
    verdict = next(verdict for verdict in WORST_FIRST if verdict in verdicts)
    lacking = [name for name in SEE_LESS if not any(known.startswith(name) for known in readers)]
    if lacking and verdict == "yes":
        verdict = "inconclusive"
    unknown = f"; not known: {', '.join(lacking)}" if lacking else ""
    numbers = f"AUC {estimate(probe)}; best of the others, {best}: {estimate(readers[best])}{unknown}"
    return Measured(gains[best], numbers, verdict=verdict)


SEE_LESS = ("question only", "answer only", "words")
"""Probes that see less, as evidence_tests.csv names them; better than all of them needs all of them."""

DESCRIBED = (
    Check(
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
"""What is described beside them."""
