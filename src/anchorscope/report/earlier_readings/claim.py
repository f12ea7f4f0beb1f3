"""A claim of an earlier reader, and what the numbers say about it.

A claim speaks of all curves it is about, so one that surely goes against it is enough to refute it, and it holds only
if it surely holds for each. Every curve is judged by its own 95 % interval; with four datasets a claim that is true is
therefore refuted by chance up to four times as often as with one.

A verdict also needs the value itself on the claim's side of the threshold. Two claims whose conditions exclude each
other can then never both hold, however odd the draws are.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from anchorscope.report.statements.run_curves import RunCurves
from anchorscope.report.verdicts import WORST_FIRST, Verdict, has_interval, inside
from anchorscope.report.wording import estimate, points
from anchorscope.stats.estimate import Estimate

Needs = Literal["one model", "several datasets", "two model sizes"]
Unit = Literal["points", "share of the depth", "layers", "ratio"]

TOO_WIDE = "the interval is too wide"
NO_DRAWS = "a curve is missing: its group has no items, or the run kept no draws"
TOO_FEW = "too few items or draws for an interval"
NOT_DEFINED = "there is no such number here: too few layers, or nothing to divide by"
RANDOM_WEIGHTS = "random weights are no evidence"

_SHOWN: dict[Unit, Callable[[Estimate], str]] = {
    "points": points,
    "share of the depth": lambda found: estimate(found, 0, 100.0, "\u00a0%"),
    "layers": lambda found: estimate(found, 1),
    "ratio": estimate,
}


@dataclass(frozen=True)
class Part:
    """What one curve, dataset or model says about a claim."""

    verdict: Verdict
    found: Estimate | None
    words: str
    """The number in a phrase; where there is none, empty."""
    dataset: str = ""
    """Which one; empty where it is about all of them."""
    model: str = ""
    """Whose curve; for two sizes, from which to which."""
    reason: str = ""
    """Why it is undecided."""
    margin: float = math.nan
    """How far the value lies on the claim's side; below zero on the other."""
    unit: Unit = "points"


@dataclass(frozen=True)
class Condition:
    """A number of some curves, and where it has to lie."""

    measure: Callable[..., Estimate]
    words: str
    """The number in a phrase, as {}."""
    over: float = -math.inf
    under: float = math.inf
    unit: Unit = "points"

    def judge(self, *curves: object) -> Part:
        """Does it lie there? Surely, surely not, or the interval reaches over an edge."""
        found = self.measure(*curves)
        if math.isnan(found.value):
            return missing(NOT_DEFINED)
        words = self.words.format(_SHOWN[self.unit](found))
        margin = min(found.value - self.over, self.under - found.value)
        if not has_interval(found):
            return Part("undecided", found, words, reason=TOO_FEW, unit=self.unit)
        verdict = inside(found, self.over, self.under)
        reason = TOO_WIDE if verdict == "undecided" else ""
        return Part(verdict, found, words, reason=reason, margin=margin, unit=self.unit)


@dataclass(frozen=True)
class Check:
    """How runs are asked about a claim."""

    needs: Needs
    ask: Callable[[Sequence[RunCurves]], list[Part]]
    """What the runs say, part by part."""


@dataclass(frozen=True)
class Claim:
    """One sentence about a ΔP chart that can be computed."""

    id: str
    text: str
    """Our wording, with its threshold."""
    says: tuple[int, ...]
    """The readings that say so."""
    against: tuple[int, ...]
    """Those that say otherwise."""
    check: Check
    opposes: tuple[str, ...] = ()
    """Claims that cannot hold where this one does."""


def missing(reason: str) -> Part:
    """Nothing can be said, for a reason."""
    return Part("undecided", None, "", reason=reason)


def worst(parts: Sequence[Part]) -> Part:
    """The part that speaks most against a claim."""
    return min(
        parts, key=lambda part: (WORST_FIRST.index(part.verdict), part.margin if part.margin == part.margin else 0)
    )
