"""One reading: a claim that was put before the numbers were seen, its number and interval, and the verdict.

The record is what `observations.json` holds. Its text is one sentence that carries the verdict too, so that it cannot
be quoted as if the claim held. What a rule brings about by itself (Q lies below A where items were sorted by just that)
is told with its number and gets no verdict: it could not have come out otherwise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings, summary_of
from anchorscope.report.palette import display_name
from anchorscope.report.verdicts import NO_VERDICT, Verdict
from anchorscope.report.wording import MISSING, number
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.sampled_curve import FEWEST_GROUPS

Reading = dict[str, Any]
"""A record of observations.json."""
Standing = Literal["tested", "control", "description", "by construction"]
"""What a reading is: an answer to the question (its p-values corrected together), a check of the instrument, something
said of a curve, or what the rule that sorts the items brings about by itself."""


@dataclass(frozen=True)
class About:
    """What readings are about: a dataset, or all datasets of a run together, under one assignment rule."""

    findings: Findings
    dataset: str | None
    assignment: str | None

    def summary(
        self, quantity: str, intervention: str | None = "knockout", group: str | None = None
    ) -> Estimate | None:
        """A quantity of the summary under this rule."""
        if self.dataset is None:
            return None
        found = summary_of(
            self.findings, self.dataset, quantity, assignment=self.assignment, intervention=intervention, group=group
        )
        if found is not None and 0 < found.n < FEWEST_GROUPS:  # a bootstrap of so few has no honest interval
            return replace(found, ci_low=math.nan, ci_high=math.nan)
        return found

    def reading(
        self, claim: str, words: str, numbers: str, found: Estimate | None, verdict: Verdict | None, *,
        group: str | None = None, scope: str = "dataset", unit: str = "points", layer: int | None = None,
        standing: Standing = "description", p_value: float | None = None, p_corrected: float | None = None,
        failing: Sequence[int] | None = None, doubtful: Sequence[int] | None = None,
    ) -> Reading:  # fmt: skip
        """The record of one claim; `numbers` are shown where there is an estimate."""
        known = found is not None and not math.isnan(found.value)
        shown = numbers if known else MISSING
        return record(
            id=":".join(filter(None, (self.dataset or "model", self.assignment, claim))),
            subject=self.subject,
            statement=words,
            numbers=shown,
            found=found,
            verdict=verdict,
            claim=claim,
            model=self.findings.model,
            dataset=self.dataset,
            site=self.findings.site,
            position=self.findings.position,
            assignment=self.assignment,
            group=group,
            scope=scope,
            unit=unit,
            layer=layer if known else None,
            standing=standing,
            p_value=p_value,
            p_corrected=p_corrected,
            failing=failing,
            doubtful=doubtful,
        ) | {"key": False}

    @property
    def subject(self) -> str:
        """How a sentence begins."""
        rule = f", {RULES[self.assignment]}" if self.assignment else ""
        return (display_name(self.dataset) if self.dataset else _together(len(self.findings.datasets))) + rule


def record(
    *, id: str, subject: str, statement: str, numbers: str, found: Estimate | None, verdict: Verdict | None,
    claim: str, model: str, dataset: str | None, site: str, position: str, assignment: str | None, scope: str,
    unit: str, group: str | None = None, layer: int | None = None, standing: Standing = "description",
    p_value: float | None = None, p_corrected: float | None = None, failing: Sequence[int] | None = None,
    doubtful: Sequence[int] | None = None,
) -> Reading:  # fmt: skip
    """What every record of observations.json holds; `found` is the number that it rests on.

    `failing` are the layers at which a control that is asked of all layers surely fails, `doubtful` those at which its
    value lies beyond the limit and the interval does not.
    """
    return {
        "id": id,
        "text": f"{subject}: {statement} ({numbers}): {verdict or NO_VERDICT}.",
        "statement": statement,
        "numbers": numbers,
        "value": finite(found.value if found else None),
        "ci_low": finite(found.ci_low if found else None),
        "ci_high": finite(found.ci_high if found else None),
        "verdict": verdict,
        "standing": standing,
        "p_value": finite(p_value),
        "p_corrected": finite(p_corrected),
        "failing_layers": None if failing is None else list(failing),
        "doubtful_layers": None if doubtful is None else list(doubtful),
        "claim": claim,
        "model": model,
        "dataset": dataset,
        "site": site,
        "position": position,
        "assignment": assignment,
        "group": group,
        "scope": scope,
        "unit": unit,
        "layer": layer,
        "n": found.n if found else 0,
        "method": found.method if found else "",
    }


def built_in(reading: Reading) -> Reading:
    """The reading without its verdict: the rule itself brings it about."""
    text = reading["text"].removesuffix(f"{reading['verdict']}.") + f"{NO_VERDICT}."
    return reading | {"text": text, "verdict": None, "standing": "by construction"}


def finite(value: float | None) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if value is not None and math.isfinite(value) else None


def at_layers(found: Estimate) -> str:
    """layer 8 [7, 12]; an end at infinity is "none": at no layer."""
    value, *ends = (number(end, 0) if math.isfinite(end) else "none" for end in (found.value, *_ends(found)))
    interval = f" [{', '.join(ends)}]" if ends else ""
    return f"layer {value}{interval}" if math.isfinite(found.value) else f"at no layer{interval}"


def of_depth(found: Estimate) -> str:
    """66 % [52, 66] of the depth."""
    value, *ends = (number(100 * end, 0) for end in (found.value, *_ends(found)))
    interval = f" [{', '.join(ends)}]" if ends else ""
    return f"{value}\u00a0%{interval} of the depth"


def _ends(found: Estimate) -> tuple[float, ...]:
    return () if math.isnan(found.ci_low) or math.isnan(found.ci_high) else (found.ci_low, found.ci_high)


def _together(datasets: int) -> str:
    return "Both datasets" if datasets == 2 else f"All {datasets} datasets"
