"""A reading: a claim, the number that decides it, a verdict, and what may be said.

People who look at the same chart disagree about what it shows. So every sentence of a page is written before the
numbers are known (`checks.py` lists those of a run), and the number decides which one is shown. Pages, terminal and
JSON show readings and nothing else.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from anchorscope.report.palette import display_name
from anchorscope.report.verdicts import Verdict
from anchorscope.report.wording import NOTHING, Table, capitalised, estimate
from anchorscope.stats.estimate import Estimate

Standing = Literal["tested", "control", "description"]
"""An answer to the question (p-values corrected together), a control, or a description."""
EVIDENCE = "share of the evidence"
"""The unit of a share."""
MARKS: dict[Verdict, str] = {
    "yes": "✓",
    "no": "✗",
    "inconclusive": "?",
    "not measured": "–",
}
"""A verdict as one sign."""


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
    verdict: Verdict
    unit: str
    subject: str
    model: str
    dataset: str | None = None
    site: str = ""
    position: str = ""
    of_groups: bool = False
    """Whether it is about the paper's groups."""
    group: str | None = None
    scope: str = "dataset"
    """What it is about: `dataset`, `curve`, `models`, `run`, or an earlier `claim`."""
    standing: Standing = "description"
    layer: int | None = None
    p_value: float | None = None
    p_corrected: float | None = None
    """Over all tested checks of the run."""
    failing: tuple[int, ...] | None = None
    """Layers at which a control fails with 95 % confidence."""
    doubtful: tuple[int, ...] | None = None
    """Layers at which its value is beyond the limit and the interval is not."""
    key: bool = False
    """Whether a reader wants it first."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of its record: values per run, sources of a claim."""

    @property
    def text(self) -> str:
        """The whole sentence, with its subject and numbers."""
        return f"{self.subject}: {self.sentence} ({self.numbers})."

    @property
    def value(self) -> str:
        """The number alone with its interval, as its unit asks; "–" where there is none."""
        if self.estimate is None or math.isnan(self.estimate.value):
            return NOTHING
        return estimate(self.estimate, *_UNITS.get(self.unit, (2,)))

    def record(self) -> dict[str, Any]:
        """As observations.json holds it."""
        number = self.estimate or Estimate(math.nan, math.nan, math.nan, 0, "")
        layers = {"failing_layers": self.failing, "doubtful_layers": self.doubtful}
        return {
            **{
                name: value
                for name, value in vars(self).items()
                if name not in _NOT_RECORDED
            },
            **{
                name: None if some is None else list(some)
                for name, some in layers.items()
            },
            "text": self.text,
            "value": finite(number.value),
            "ci_low": finite(number.ci_low),
            "ci_high": finite(number.ci_high),
            "n": number.n,
            "method": number.method,
            "p_value": finite(self.p_value),
            "p_corrected": finite(self.p_corrected),
            **self.more,
        }


_NOT_RECORDED = ("subject", "estimate", "failing", "doubtful", "more")
_PERCENT = (0, 100.0, "%")
_UNITS: dict[str, tuple[Any, ...]] = {
    "points": (1,),
    "layer": (0,),
    "share": _PERCENT,
    "share of the depth": _PERCENT,
    EVIDENCE: _PERCENT,
}
"""Digits, scale and sign of a unit; others have two digits."""


def finite(value: float | None, digits: int | None = None) -> float | None:
    """For JSON, which has no NaN and no infinity; rounded where `digits` are given."""
    if value is None or not math.isfinite(value):
        return None
    return value if digits is None else round(value, digits)


def readings_table(readings: Sequence[Reading], *, subjects: bool) -> Table:
    """Every reading with its numbers and its verdict; with `subjects`, each says what it is about."""
    rows = tuple(
        (
            f"{reading.subject}: {reading.topic}" if subjects else reading.topic,
            f"{capitalised(reading.statement)}: {reading.numbers}.",
            reading.verdict,
        )
        for reading in readings
    )
    return Table(("check", "claim and numbers", "verdict"), rows, 3)


def verdicts_table(
    readings: Sequence[Reading], datasets: Sequence[str | None]
) -> Table:
    """A row per check, with each dataset's verdict and number; None is the mean of all datasets."""
    cells: dict[str, dict[str | None, str]] = {}
    for reading in readings:
        cell = (
            NOTHING
            if reading.value == NOTHING
            else f"{MARKS[reading.verdict]} {reading.value}"
        )
        cells.setdefault(capitalised(reading.statement), {})[reading.dataset] = cell
    rows = tuple(
        (claim, *(cells[claim].get(name, NOTHING) for name in datasets))
        for claim in cells
    )
    return Table(
        ("check", *(display_name(name) if name else "mean" for name in datasets)), rows
    )
