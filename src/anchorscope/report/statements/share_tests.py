"""The tested readings of the question share: the few that answer the question itself.

Four questions are put at one layer that was chosen without looking at the share: is there any, is there more than
random words take, do items differ, and does it remain with words, confidence and relation taken out? Their p-values are
corrected together over all datasets of the run (Holm).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from anchorscope.report.findings import Findings
from anchorscope.report.shares import LOWER, UPPER, ShareResult, result_of, results_of, share_at
from anchorscope.report.statements.reading_record import About, Reading
from anchorscope.report.verdicts import above_zero
from anchorscope.report.wording import count, estimate, p_value_cell
from anchorscope.stats.holm import holm

Numbers = Callable[[Findings, str, ShareResult], str]


@dataclass(frozen=True)
class Question:
    """One of the tested readings."""

    claim: str
    """Its name in observations.json."""
    quantity: str
    """Its name in question_share_tests.csv."""
    words: str
    """What is claimed."""
    numbers: Numbers
    """What stands beside it, without p-value and items."""


def _share(findings: Findings, dataset: str, found: ShareResult) -> str:
    return f"Λ {estimate(found.estimate)} at layer {found.layer}"


def _above_random(findings: Findings, dataset: str, found: ShareResult) -> str:
    random = share_at(findings, dataset, found.layer, "random")
    return f"Λ − that of random words {estimate(found.estimate)}; random words alone {estimate(random)}"


def _thirds(findings: Findings, dataset: str, found: ShareResult) -> str:
    lower, upper = (share_at(findings, dataset, found.layer, group=group) for group in (LOWER, UPPER))
    return f"upper − lower third, held out: {estimate(found.estimate)}; {estimate(lower)} and {estimate(upper)}"


def _given(findings: Findings, dataset: str, found: ShareResult) -> str:
    return f"Λ {estimate(found.estimate)} once {found.group or 'they'} are taken out"


QUESTIONS = (
    Question("share_needed", "share_above_zero", "part of the probe's evidence needs the question's key words", _share),
    Question("share_beyond_random", "share_above_random",
             "the key words carry more of the evidence than random words do", _above_random),
    Question("items_differ", "thirds_difference",
             "items differ in how much of their evidence needs the key words", _thirds),
    Question("share_given", "share_given",
             "it is no artefact of words, confidence or base rates: a share remains without them", _given),
)  # fmt: skip
"""The family over which p-values are corrected, for every dataset."""


def family_words(findings: Findings) -> str:
    """Which tests are corrected together."""
    datasets = len(findings.datasets)
    return f"{len(QUESTIONS)} questions" + (f" on {datasets} datasets" if datasets > 1 else "")


def question_readings(findings: Findings) -> list[Reading]:
    """The tested readings of all datasets, their p-values corrected together."""
    asked = [(dataset, question, _widest(findings, dataset, question))
             for dataset in findings.datasets for question in QUESTIONS]  # fmt: skip
    corrected = holm([math.nan if found is None else found.p_value for _, _, found in asked])
    return [_tested(About(findings, dataset, None), question, found, p)
            for (dataset, question, found), p in zip(asked, corrected, strict=True)]  # fmt: skip


def _widest(findings: Findings, dataset: str, question: Question) -> ShareResult | None:
    """The row that is tested; of several sets that were taken out, the one that names most."""
    rows = results_of(findings, dataset, question.quantity)
    return max(rows, key=lambda row: row.group.count(","), default=None)


def _tested(about: About, question: Question, found: ShareResult | None, corrected: float) -> Reading:
    findings, dataset = about.findings, about.dataset or ""
    if found is None:
        return about.reading(question.claim, question.words, "", None, "undecided", unit="share of the evidence",
                             standing="tested")  # fmt: skip
    verdict = above_zero(found.estimate, corrected)
    numbers = f"{question.numbers(findings, dataset, found)}; {_p(found, corrected)}; n = {found.estimate.n}"
    if verdict == "undecided":
        numbers += needed_items(findings, dataset, question.quantity)
    return about.reading(question.claim, question.words, numbers, found.estimate, verdict, layer=found.layer,
                         unit="share of the evidence", standing="tested", p_value=found.p_value,
                         p_corrected=corrected)  # fmt: skip


def needed_items(findings: Findings, dataset: str, quantity: str) -> str:
    """How many items would decide it, where the run says so."""
    found = result_of(findings, dataset, "minimum_n", quantity) or result_of(findings, dataset, "minimum_n", "all", "")
    if found is None or not math.isfinite(found.estimate.value) or found.estimate.value <= found.estimate.n:
        return ""
    return f", about {count(round(found.estimate.value))} would decide it"


def _p(found: ShareResult, corrected: float) -> str:
    origin = " (from the interval)" if found.p_from_interval else ""
    return f"p {_shown(found.p_value)}{origin}, corrected {_shown(corrected)}"


def _shown(p: float) -> str:
    text = p_value_cell(p)
    return text if text.startswith("<") else f"= {text}"
