"""A statement: what is measured, against which threshold, and what may be said of it, verdict by verdict.

People who look at the same chart disagree about what it shows. So every sentence of the report is written down before
the numbers are seen: a claim, the number that it rests on, a threshold (`report/verdicts.py`), and one sentence for
each verdict. A reading is a statement put to a run. Its record is what observations.json holds; its text carries the
verdict, so that it cannot be quoted as if the claim held. What a rule brings about by itself (Q lies below A where
items were sorted by just that) is told with its number and gets no verdict: it could not have come out otherwise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings, summary_of
from anchorscope.report.palette import display_name
from anchorscope.report.statements.run_curves import RunCurves
from anchorscope.report.verdicts import NO_VERDICT, Verdict, above, below, between
from anchorscope.report.wording import MISSING, number
from anchorscope.stats.curves import FEWEST_GROUPS, SampledCurve
from anchorscope.stats.estimate import Estimate

Reading = dict[str, Any]
"""A record of observations.json."""
Standing = Literal["tested", "control", "description", "by construction"]
"""What a reading is: an answer to the question (its p-values corrected together), a check of the instrument, something
said of a curve, or what the rule that sorts the items brings about by itself."""
Scope = Literal["dataset", "curve", "model"]
"""What it is about: a dataset, one curve of it, or all datasets of a run against each other."""


@dataclass(frozen=True)
class About:
    """What a statement is put to: a dataset, or all datasets of a run together, under one assignment rule."""

    findings: Findings
    dataset: str | None
    assignment: str | None
    curves: RunCurves | None = None
    """The chart's curves under this rule."""

    def summary(
        self, quantity: str, intervention: str | None = "knockout", group: str | None = None
    ) -> Estimate | None:
        """A quantity of the summary under this rule; of too few items without an interval."""
        if self.dataset is None:
            return None
        found = summary_of(
            self.findings, self.dataset, quantity, assignment=self.assignment, intervention=intervention, group=group
        )
        if found is not None and 0 < found.n < FEWEST_GROUPS:  # a bootstrap of so few has no honest interval
            return replace(found, ci_low=math.nan, ci_high=math.nan)
        return found

    def curve(self, group: str) -> SampledCurve | None:
        """The curve of a group with its draws; None where there is none."""
        return self.curves.curve(self.dataset, group) if self.curves and self.dataset else None

    @property
    def subject(self) -> str:
        """How a sentence begins."""
        rule = f", {RULES[self.assignment]}" if self.assignment else ""
        several = len(self.findings.datasets)
        together = "Both datasets" if several == 2 else f"All {several} datasets"
        return (display_name(self.dataset) if self.dataset else together) + rule


@dataclass(frozen=True)
class Found:
    """What was measured for a statement."""

    estimate: Estimate | None = None
    numbers: str = ""
    """The numbers in words, as they stand in brackets after the sentence."""
    layer: int | None = None
    """The layer that it is about."""
    p_value: float | None = None
    p_corrected: float | None = None
    """Over all tested statements of the run."""
    failing: tuple[int, ...] | None = None
    """Of a control that is asked at every layer: where it surely fails."""
    doubtful: tuple[int, ...] | None = None
    """Where its value lies beyond the limit and the interval does not."""
    verdict: Verdict | None = None
    """Where a threshold alone does not decide."""
    that: str = ""
    """The statement, where its words depend on what was found."""


@dataclass(frozen=True)
class Statement:
    """One claim, its measure and its sentences."""

    claim: str
    """Its name in observations.json."""
    topic: str
    """What it is about, in two or three words."""
    that: str
    """The claim as a clause: "the probe adds to the model's own confidence"."""
    fails: str
    """The sentence where it does not hold."""
    measure: Callable[[About], Found | None]
    """None where there is nothing to measure, and nothing is said."""
    judge: Callable[[Found], Verdict] = lambda found: found.verdict or "undecided"
    holds: str = ""
    """The sentence where it holds, if it says more than the clause."""
    open: str = ""
    """The sentence where it is undecided, if "Whether … is undecided" does not do."""
    rules: tuple[str | None, ...] = (None,)
    """The assignment rules under which it is asked; None where no rule matters."""
    built_in: tuple[str | None, ...] = ()
    """Those that bring it about by themselves."""
    key: tuple[str | None, ...] = ()
    """Those under which a reader wants it first."""
    standing: Standing = "description"
    scope: Scope = "dataset"
    group: str | None = None
    unit: str = "points"

    def sentence(self, verdict: Verdict | None, that: str = "") -> str:
        """What may be said, without numbers; without a verdict the claim alone."""
        clause = that or self.that
        said = clause[:1].upper() + clause[1:]
        if verdict == "holds":
            return said if that else self.holds or said
        if verdict == "does not hold":
            return self.fails
        return (self.open or f"Whether {clause} is undecided") if verdict else said

    def reading(self, about: About, found: Found) -> Reading:
        """The record of this statement on a run."""
        built_in = about.assignment in self.built_in
        verdict = None if built_in else self.judge(found)
        known = found.estimate is not None and not math.isnan(found.estimate.value)
        return record(
            id=":".join(filter(None, (about.dataset or "model", about.assignment, self.claim))),
            subject=about.subject,
            statement=found.that or self.that,
            numbers=found.numbers if known else MISSING,
            found=found.estimate,
            verdict=verdict,
            claim=self.claim,
            model=about.findings.model,
            dataset=about.dataset,
            site=about.findings.site,
            position=about.findings.position,
            assignment=about.assignment,
            scope=self.scope,
            unit=self.unit,
            sentence=self.sentence(verdict, found.that),
            topic=self.topic,
            group=self.group,
            layer=found.layer if known else None,
            standing="by construction" if built_in else self.standing,
            p_value=found.p_value,
            p_corrected=found.p_corrected,
            failing=found.failing,
            doubtful=found.doubtful,
            key=about.assignment in self.key,
        )


def record(
    *,
    id: str,
    subject: str,
    statement: str,
    numbers: str,
    found: Estimate | None,
    verdict: Verdict | None,
    claim: str,
    model: str,
    dataset: str | None,
    site: str,
    position: str,
    assignment: str | None,
    scope: str,
    unit: str,
    sentence: str = "",
    topic: str = "",
    group: str | None = None,
    layer: int | None = None,
    standing: Standing = "description",
    p_value: float | None = None,
    p_corrected: float | None = None,
    failing: Sequence[int] | None = None,
    doubtful: Sequence[int] | None = None,
    key: bool = False,
) -> Reading:
    """What every record of observations.json holds; without a sentence for the verdict the verdict itself is told."""
    told = f"{sentence} ({numbers})" if sentence else f"{statement} ({numbers}): {verdict}"
    return {
        "id": id,
        "text": f"{subject}: {told}{'' if verdict else f' – {NO_VERDICT}'}.",
        "topic": topic,
        "sentence": sentence,
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
        "key": key,
    }


def over(threshold: float) -> Callable[[Found], Verdict]:
    """Holds where the whole interval lies above."""
    return lambda found: above(found.estimate, threshold)


def under(threshold: float) -> Callable[[Found], Verdict]:
    """Holds where the whole interval lies below."""
    return lambda found: below(found.estimate, threshold)


def within(low: float, high: float) -> Callable[[Found], Verdict]:
    """Holds where the whole interval lies between the two."""
    return lambda found: between(found.estimate, low, high)


def estimate_in(reading: Reading | None) -> Estimate | None:
    """The number of a reading with its interval."""
    if reading is None or reading["value"] is None:
        return None
    low, high = (math.nan if reading[end] is None else float(reading[end]) for end in ("ci_low", "ci_high"))
    return Estimate(reading["value"], low, high, reading["n"], reading["method"])


def finite(value: float | None) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if value is not None and math.isfinite(value) else None


def at_layers(found: Estimate) -> str:
    """layer 8 [7, 12]; an end at infinity is "none": at no layer."""
    ends = () if math.isnan(found.ci_low) or math.isnan(found.ci_high) else (found.ci_low, found.ci_high)
    value, *shown = (number(end, 0) if math.isfinite(end) else "none" for end in (found.value, *ends))
    interval = f" [{', '.join(shown)}]" if shown else ""
    return f"layer {value}{interval}" if math.isfinite(found.value) else f"at no layer{interval}"


def short_number(reading: Reading) -> str:
    """The number of a reading alone, as its unit asks; "–" where there is none."""
    value, low, high = (reading[name] for name in ("value", "ci_low", "ci_high"))
    if value is None:
        return "none" if reading["unit"] == "layer" and low is not None else "–"
    digits, scale, sign = {
        "points": (1, 1.0, ""),
        "layer": (0, 1.0, ""),
        "share": (0, 100.0, "\u00a0%"),
        "share of the depth": (0, 100.0, "\u00a0%"),
    }.get(reading["unit"], (2, 1.0, ""))
    if low is None and high is None:
        return number(value * scale, digits) + sign
    ends = ("none" if end is None else number(end * scale, digits) for end in (low, high))
    return f"{number(value * scale, digits)}{sign} [{', '.join(ends)}]"
