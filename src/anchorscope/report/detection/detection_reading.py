"""One reading of the detectors: a question, its answer in words, how sure that is, and why; and the verdict.

The record is what `observations.json` holds. What cannot come out otherwise (a gate that has seen the label) is told
with its number and gets no verdict.
"""

from dataclasses import dataclass
from typing import Any

from anchorscope.report.statements.statement import Standing, finite
from anchorscope.report.verdicts import NO_VERDICT, Verdict, has_interval
from anchorscope.report.wording import MISSING, number
from anchorscope.stats.estimate import Estimate

DIGITS = 3
"""Of an AUROC."""


@dataclass(frozen=True)
class DetectionReading:
    """A question that was put before the numbers were seen, and what they say."""

    claim: str
    """Its name in observations.json."""
    question: str
    answer: str
    """One sentence: yes, no or undecided, with the number."""
    sure: str
    """What the verdict rests on."""
    why: str
    """What to make of it."""
    found: Estimate | None
    verdict: Verdict | None
    standing: Standing = "description"
    p_value: float | None = None
    p_corrected: float | None = None

    @property
    def text(self) -> str:
        """Question, answer and verdict in one line, so that it cannot be quoted without."""
        said = " ".join(filter(None, (self.answer, self.sure, self.why)))
        return f"{self.question} {said}" + (f" ({self.badge})" if self.badge else "")

    @property
    def badge(self) -> str:
        """The verdict, or that there can be none; empty for what only tells a number."""
        return self.verdict or (NO_VERDICT if self.standing == "by construction" else "")

    def record(self, model: str) -> dict[str, Any]:
        """As observations.json holds it."""
        found = self.found
        return {
            "id": f"detection:{self.claim}",
            "text": self.text,
            "question": self.question,
            "value": finite(found.value if found else None),
            "ci_low": finite(found.ci_low if found else None),
            "ci_high": finite(found.ci_high if found else None),
            "verdict": self.verdict,
            "standing": self.standing,
            "p_value": finite(self.p_value),
            "p_corrected": finite(self.p_corrected),
            "claim": self.claim,
            "model": model,
            "unit": "AUROC",
            "n": found.n if found else 0,
            "method": found.method if found else "",
        }


YES_OR_NO = {"yes": "Yes", "no": "No", "inconclusive": "Undecided"}
"""How an answer begins."""


def claim_name(detector: str) -> str:
    """A detector as part of a claim's name."""
    return detector.replace("-", "_").replace("+", "_and_")


def signed(value: float, digits: int = DIGITS) -> str:
    """A difference, with its sign."""
    text = number(value, digits)
    return text if text.startswith("−") or float(text) == 0 else f"+{text}"


def signed_estimate(found: Estimate | None, digits: int = DIGITS) -> str:
    """+0.012 [−0.003, 0.027]."""
    if found is None:
        return MISSING
    text = signed(found.value, digits)
    if not has_interval(found):
        return text
    return f"{text} [{number(found.ci_low, digits)}, {number(found.ci_high, digits)}]"


def over_datasets(n: int) -> str:
    """What a mean runs over."""
    return "on the one dataset" if n == 1 else f"in the mean of {n} datasets"


def passes_words(passes: int | None) -> str:
    """1 pass, 3 passes, no further pass."""
    if passes is None:
        return "an unknown number of passes"
    return "no further pass" if passes == 0 else "1 pass" if passes == 1 else f"{passes} passes"
