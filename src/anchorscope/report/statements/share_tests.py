"""The tested readings of the question share: the few that answer the question itself.

Four questions are put at one layer that was chosen without looking at the share: is there any, is there more than
random words take, do items differ, and does it remain with words, confidence and relation taken out? Their p-values are
corrected together over all datasets of the run (Holm).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from anchorscope.report.findings import Findings
from anchorscope.report.shares import LOWER, UPPER, ShareResult, results_of, share_at
from anchorscope.report.statements.reading_record import About, Reading
from anchorscope.report.verdicts import GOOD_WIDTH, above_zero, has_interval
from anchorscope.report.wording import count, estimate, number, p_value_cell
from anchorscope.stats.estimate import Estimate
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
    share = share_at(findings, dataset, found.layer)
    return f"Λ {estimate(share)} at layer {found.layer}; T = {number(found.estimate.value, 1)}"


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
    # The first is tested by T, which is no share: its number is the share itself.
    share = share_at(findings, dataset, found.layer) if question is QUESTIONS[0] else found.estimate
    verdict = above_zero(share, corrected)
    numbers = f"{question.numbers(findings, dataset, found)}; {_p(found, corrected)}; n = {found.estimate.n}"
    if verdict == "undecided":
        numbers += needed_items(share)
    return about.reading(question.claim, question.words, numbers, share, verdict, layer=found.layer,
                         unit="share of the evidence", standing="tested", p_value=found.p_value,
                         p_corrected=corrected)  # fmt: skip


def needed_items(found: Estimate | None) -> str:
    """How many items would make the interval narrow enough to decide; nothing where it is so already."""
    if found is None or not has_interval(found):
        return ""
    needed = found.n * ((found.ci_high - found.ci_low) / 2 / GOOD_WIDTH) ** 2
    if needed <= found.n:
        return ""
    return f", about {count(_rounded(needed))} would give ±{number(GOOD_WIDTH, 1)}"


def _rounded(n: float) -> int:
    """Two digits of a rough number."""
    size = 10 ** max(0, math.floor(math.log10(n)) - 1)
    return math.ceil(n / size) * size


def _p(found: ShareResult, corrected: float) -> str:
    origin = " (from the interval)" if found.p_from_interval else ""
    return f"p {_shown(found.p_value)}{origin}, corrected {_shown(corrected)}"


def _shown(p: float) -> str:
    text = p_value_cell(p)
    return text if text.startswith("<") else f"= {text}"
