"""A claim of an earlier reader, and what the numbers say about it.

A claim speaks of all curves it is about, so one that surely goes against it is enough to refute it, and it holds only
if it surely holds for each. Every curve is judged by its own 95 % interval; with four datasets a claim that is true is
therefore refuted by chance up to four times as often as with one.

A verdict also needs the value itself on the claim's side of the threshold. Two claims whose conditions exclude each
other can then never both hold, however odd the draws are.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from anchorscope.report.statements.run_curves import RunCurves
from anchorscope.report.verdicts import WORST_FIRST, Verdict, has_interval, inside
from anchorscope.stats.estimate import Estimate

Needs = Literal["one model", "several datasets", "two model sizes"]

TOO_WIDE = "the interval is too wide"
NO_DRAWS = "a curve is missing: its group has no items, or the run kept no draws"
TOO_FEW = "too few items or draws for an interval"
NOT_DEFINED = "there is no such number here: too few layers, or nothing to divide by"
RANDOM_WEIGHTS = "random weights are no evidence"


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
    unit: str = ""
    """Where the number is of another kind than the claim's others."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim under one rule."""

    verdict: Verdict
    found: Estimate | None
    """The number of the part that speaks most against the claim."""
    told: str
    """What was found, with that number, as a phrase."""
    reason: str
    """Why it is undecided; else empty."""
    parts: tuple[Part, ...]
    """All that it rests on."""
    unit: str
    """Of the number."""
    names_first: bool
    """Whether the phrase begins with a name, which is written as it is."""

    @property
    def sentence(self) -> str:
        """What was found, as a sentence of its own."""
        return f"{self.told if self.names_first else self.told[:1].upper() + self.told[1:]}."


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
    needs: Needs
    check: Callable[[Sequence[RunCurves]], list[Part]]
    """What the runs say, part by part."""
    unit: str = "points"
    opposes: tuple[str, ...] = ()
    """Claims that cannot hold where this one does."""


@dataclass(frozen=True)
class Judged:
    """A claim with its verdicts on some runs."""

    claim: Claim
    models: tuple[str, ...]
    plain: Judgement
    """As the charts that were read are drawn."""
    corrected: Judgement
    """With the shift taken out that the cut gives to every item."""
    site: str
    position: str


def decide(found: Estimate, words: str, *, over: float = -math.inf, under: float = math.inf) -> Part:
    """Does it lie between the two? Surely, surely not, or the interval reaches over an edge."""
    if math.isnan(found.value):
        return missing(NOT_DEFINED)
    margin = min(found.value - over, under - found.value)
    if not has_interval(found):
        return Part("undecided", found, words, reason=TOO_FEW)
    verdict = inside(found, over, under)
    return Part(verdict, found, words, reason=TOO_WIDE if verdict == "undecided" else "", margin=margin)


def missing(reason: str, dataset: str = "", model: str = "") -> Part:
    """Nothing can be said, for a reason."""
    return Part("undecided", None, "", dataset, model, reason)


def worst(parts: Sequence[Part]) -> Part:
    """The part that speaks most against a claim."""
    return min(
        parts, key=lambda part: (WORST_FIRST.index(part.verdict), part.margin if part.margin == part.margin else 0)
    )


def both(main: Part, also: Part) -> Part:
    """A claim of two conditions: where the second holds, the first has the say, with its number."""
    return main if also.verdict == "holds" else worst([main, also])


def named(part: Part, dataset: str, model: str) -> Part:
    """The part with what it is about."""
    return replace(part, dataset=dataset, model=model)
