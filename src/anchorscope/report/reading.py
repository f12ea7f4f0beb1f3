"""A check and its reading: a claim, the number that decides it, a threshold, and one sentence per verdict.

People who look at the same chart disagree about what it shows. So every sentence of a page is written before the
numbers are known: `Check` holds the claim, how it is measured, how the number is judged (`report/verdicts.py`), and the
sentences. `Reading` is a check applied to a run, or to several: number, interval, verdict and sentence. Pages, terminal
and JSON show readings and nothing else. A statement that the sorting rule makes true by itself (Q lies below A where
items were sorted by just that) is shown with its number and without a verdict.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings, summary_of
from anchorscope.report.palette import display_name
from anchorscope.report.run_curves import RunCurves
from anchorscope.report.verdicts import NO_VERDICT, Verdict, above, below, between
from anchorscope.report.wording import MISSING, NOTHING, Table, number
from anchorscope.stats.curves import FEWEST_GROUPS, SampledCurve
from anchorscope.stats.estimate import Estimate

Standing = Literal["tested", "control", "description", "by construction"]
"""An answer to the question (p-values corrected together), a control, a description of a curve, or what the rule that
sorts the items causes by itself."""
Scope = Literal["dataset", "curve", "model", "models", "run", "claim"]
"""What a reading is about: a dataset, a curve, all datasets of a run, several runs, or a claim made elsewhere."""
MARKS: dict[Verdict, str] = {"yes": "✓", "no": "✗", "inconclusive": "?", "not measured": "–"}
"""A verdict as one sign."""


@dataclass(frozen=True)
class Subject:
    """What a check is applied to: a dataset, or all datasets of a run together, under one assignment rule."""

    findings: Findings
    dataset: str | None
    assignment: str | None
    curves: RunCurves | None = None
    """The chart's curves under this rule."""

    def summary(
        self, quantity: str, intervention: str | None = "knockout", group: str | None = None
    ) -> Estimate | None:
        """A quantity of the summary under this rule; without an interval where it rests on too few items."""
        if self.dataset is None:
            return None
        value = summary_of(
            self.findings, self.dataset, quantity, assignment=self.assignment, intervention=intervention, group=group
        )
        if value is not None and 0 < value.n < FEWEST_GROUPS:  # a bootstrap of so few has no honest interval
            return replace(value, ci_low=math.nan, ci_high=math.nan)
        return value

    def curve(self, group: str) -> SampledCurve | None:
        """The curve of a group with its bootstrap draws."""
        return self.curves.curve(self.dataset, group) if self.curves and self.dataset else None

    @property
    def name(self) -> str:
        """How a sentence about it begins."""
        rule = f", {RULES[self.assignment]}" if self.assignment else ""
        several = len(self.findings.datasets)
        together = "Both datasets" if several == 2 else f"All {several} datasets"
        return (display_name(self.dataset) if self.dataset else together) + rule


@dataclass(frozen=True)
class Measured:
    """The number of a check, and what else is known about it."""

    estimate: Estimate | None = None
    numbers: str = ""
    """The numbers in words, shown after the sentence."""
    layer: int | None = None
    p_value: float | None = None
    p_corrected: float | None = None
    """Over all tested checks of the run."""
    failing: tuple[int, ...] | None = None
    """Layers at which a control fails with 95 % confidence."""
    doubtful: tuple[int, ...] | None = None
    """Layers at which its value is beyond the limit and the interval is not."""
    verdict: Verdict | None = None
    """Where a threshold alone does not decide."""
    that: str = ""
    """The claim, where its words depend on the numbers."""


@dataclass(frozen=True)
class Reading:
    """A check applied to the numbers."""

    id: str
    claim: str
    topic: str
    """What it is about, in two or three words."""
    statement: str
    """The claim as a clause."""
    sentence: str
    """What may be said, without numbers."""
    numbers: str
    estimate: Estimate | None
    verdict: Verdict | None
    """None where the sorting rule makes it true by itself."""
    unit: str
    subject: str
    model: str
    dataset: str | None = None
    site: str = ""
    position: str = ""
    assignment: str | None = None
    group: str | None = None
    scope: Scope = "dataset"
    standing: Standing = "description"
    layer: int | None = None
    p_value: float | None = None
    p_corrected: float | None = None
    failing: tuple[int, ...] | None = None
    doubtful: tuple[int, ...] | None = None
    key: bool = False
    """Whether a reader wants it first."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of its record: values per run, sources of a claim."""

    @property
    def text(self) -> str:
        """The whole sentence, with its subject and numbers."""
        return f"{self.subject}: {self.sentence} ({self.numbers}){'' if self.verdict else f' – {NO_VERDICT}'}."

    @property
    def mark(self) -> str:
        """The verdict as one sign."""
        return MARKS[self.verdict] if self.verdict else "≡"

    @property
    def value(self) -> str:
        """The number alone with its interval, as its unit asks; "–" where there is none."""
        if self.estimate is None or math.isnan(self.estimate.value):
            return NOTHING
        digits, scale, sign = _UNITS.get(self.unit, (2, 1.0, ""))
        value, *ends = (
            number(end * scale, digits) if math.isfinite(end) else "none"
            for end in (self.estimate.value, self.estimate.ci_low, self.estimate.ci_high)
        )
        known = not (math.isnan(self.estimate.ci_low) and math.isnan(self.estimate.ci_high))
        return f"{value}{sign}" + (f" [{', '.join(ends)}]" if known else "")

    def record(self) -> dict[str, Any]:
        """As observations.json holds it."""
        estimate = self.estimate
        return {
            "id": self.id,
            "text": self.text,
            "topic": self.topic,
            "sentence": self.sentence,
            "statement": self.statement,
            "numbers": self.numbers,
            "value": finite(estimate.value if estimate else None),
            "ci_low": finite(estimate.ci_low if estimate else None),
            "ci_high": finite(estimate.ci_high if estimate else None),
            "verdict": self.verdict,
            "standing": self.standing,
            "p_value": finite(self.p_value),
            "p_corrected": finite(self.p_corrected),
            "failing_layers": None if self.failing is None else list(self.failing),
            "doubtful_layers": None if self.doubtful is None else list(self.doubtful),
            "claim": self.claim,
            "model": self.model,
            "dataset": self.dataset,
            "site": self.site,
            "position": self.position,
            "assignment": self.assignment,
            "group": self.group,
            "scope": self.scope,
            "unit": self.unit,
            "layer": self.layer,
            "n": estimate.n if estimate else 0,
            "method": estimate.method if estimate else "",
            "key": self.key,
            **self.more,
        }


_UNITS = {
    "points": (1, 1.0, ""),
    "layer": (0, 1.0, ""),
    "share": (0, 100.0, "%"),
    "share of the depth": (0, 100.0, "%"),
    "share of the evidence": (0, 100.0, "%"),
}
"""Digits, scale and sign of a unit; others have two digits."""


@dataclass(frozen=True)
class Check:
    """One claim, its measure and its sentences."""

    claim: str
    """Its name in observations.json."""
    topic: str
    that: str
    """The claim as a clause: "the probe adds to the model's own confidence"."""
    fails: str
    """The sentence where it does not hold."""
    measure: Callable[[Subject], Measured | None]
    """None where the check does not apply."""
    judge: Callable[[Measured], Verdict] = lambda measured: measured.verdict or "inconclusive"
    holds: str = ""
    """The sentence where it holds, if it says more than the clause."""
    open: str = ""
    """The sentence where it is inconclusive, if "It is unclear whether …" does not fit."""
    rules: tuple[str | None, ...] = (None,)
    """The assignment rules under which it is asked; None where no rule matters."""
    built_in: tuple[str | None, ...] = ()
    """Those that make it true by themselves."""
    key: tuple[str | None, ...] = ()
    """Those under which a reader wants it first."""
    standing: Standing = "description"
    scope: Scope = "dataset"
    group: str | None = None
    unit: str = "points"

    def sentence(self, verdict: Verdict | None, that: str = "") -> str:
        """What may be said, without numbers; without a verdict the claim alone."""
        clause = that or self.that
        claimed = clause[:1].upper() + clause[1:]
        if verdict == "yes":
            return claimed if that else self.holds or claimed
        if verdict == "no":
            return self.fails
        if verdict == "not measured":
            return f"Not measured: {clause}"
        return (self.open or f"It is unclear whether {clause}") if verdict else claimed

    def reading(self, subject: Subject, measured: Measured) -> Reading:
        """The check applied to a run."""
        built_in = subject.assignment in self.built_in
        known = measured.estimate is not None and not math.isnan(measured.estimate.value)
        judged: Verdict = self.judge(measured) if measured.estimate is not None else "not measured"
        verdict = None if built_in else judged
        return Reading(
            id=":".join(filter(None, (subject.dataset or "model", subject.assignment, self.claim))),
            claim=self.claim,
            topic=self.topic,
            statement=measured.that or self.that,
            sentence=self.sentence(verdict, measured.that),
            numbers=measured.numbers if known else MISSING,
            estimate=measured.estimate,
            verdict=verdict,
            unit=self.unit,
            subject=subject.name,
            model=subject.findings.model,
            dataset=subject.dataset,
            site=subject.findings.site,
            position=subject.findings.position,
            assignment=subject.assignment,
            group=self.group,
            scope=self.scope,
            standing="by construction" if built_in else self.standing,
            layer=measured.layer if known else None,
            p_value=measured.p_value,
            p_corrected=measured.p_corrected,
            failing=measured.failing,
            doubtful=measured.doubtful,
            key=subject.assignment in self.key,
        )


def over(threshold: float) -> Callable[[Measured], Verdict]:
    """Yes where the whole interval is above."""
    return lambda measured: above(measured.estimate, threshold)


def under(threshold: float) -> Callable[[Measured], Verdict]:
    """Yes where the whole interval is below."""
    return lambda measured: below(measured.estimate, threshold)


def within(low: float, high: float) -> Callable[[Measured], Verdict]:
    """Yes where the whole interval is between the two."""
    return lambda measured: between(measured.estimate, low, high)


def finite(value: float | None) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if value is not None and math.isfinite(value) else None


def at_layers(layers: Estimate) -> str:
    """layer 8 [7, 12]; an end at infinity is "none": at no layer."""
    ends = () if math.isnan(layers.ci_low) or math.isnan(layers.ci_high) else (layers.ci_low, layers.ci_high)
    value, *shown = (number(end, 0) if math.isfinite(end) else "none" for end in (layers.value, *ends))
    interval = f" [{', '.join(shown)}]" if shown else ""
    return f"layer {value}{interval}" if math.isfinite(layers.value) else f"at no layer{interval}"


def readings_table(readings: Sequence[Reading], *, subjects: bool) -> Table:
    """Every reading with its numbers and its verdict; with `subjects`, each says what it is about."""
    rows = tuple(
        (
            f"{reading.subject}: {reading.topic}" if subjects or reading.assignment else reading.topic,
            f"{reading.statement[:1].upper()}{reading.statement[1:]}. {reading.numbers}.",
            reading.verdict or NO_VERDICT,
        )
        for reading in readings
    )
    return Table(("check", "claim and numbers", "verdict"), rows, 3)


def verdicts_table(readings: Sequence[Reading], datasets: Sequence[str]) -> Table:
    """Of several datasets: a row per check, with each dataset's verdict and number."""
    rows: dict[tuple[str | None, str], dict[str, Reading]] = {}
    for reading in readings:
        if reading.dataset is not None:
            rows.setdefault((reading.assignment, reading.claim), {})[reading.dataset] = reading
    lines = []
    for (rule, _), by_dataset in rows.items():
        claim = next(iter(by_dataset.values())).statement + (f" ({RULES[rule]})" if rule else "")
        cells = (
            f"{by_dataset[name].mark} {by_dataset[name].value}" if name in by_dataset else NOTHING for name in datasets
        )
        lines.append((claim[:1].upper() + claim[1:], *cells))
    return Table(("check", *map(display_name, datasets)), tuple(lines))
