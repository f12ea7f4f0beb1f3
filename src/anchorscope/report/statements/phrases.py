"""What the words are made of: sections of paragraphs and lists, and each claim in three sentences, one per verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

from anchorscope.report.palette import display_name
from anchorscope.report.run_summary import tally
from anchorscope.report.statements.reading_record import Reading
from anchorscope.report.verdicts import Verdict
from anchorscope.report.wording import MISSING


@dataclass(frozen=True)
class Point:
    """One bullet."""

    label: str
    """What it is about, to be set apart from the text."""
    text: str


@dataclass(frozen=True)
class Points:
    """A list of bullets, under a heading where there are several lists."""

    heading: str
    """Empty where the section's title is enough."""
    points: tuple[Point, ...]


@dataclass(frozen=True)
class ProseSection:
    """One titled part."""

    title: str
    slug: str
    """Its place in the page, for links."""
    paragraphs: tuple[str, ...] = ()
    lists: tuple[Points, ...] = ()


@dataclass(frozen=True)
class Prose:
    """The chart in words."""

    sections: tuple[ProseSection, ...]


@dataclass(frozen=True)
class Phrases:
    """What may be said of a claim, without its numbers."""

    that: str
    """The claim after "That …", for datasets which do not agree."""
    fails: str
    holds: str = ""
    """Where it says more than the claim itself does."""
    open: str = ""
    """Where "Whether … is undecided" does not do."""

    def of(self, verdict: Verdict) -> str:
        """The one for a verdict."""
        if verdict == "holds":
            return self.holds or self.that[:1].upper() + self.that[1:]
        return self.fails if verdict == "does not hold" else self.open or f"Whether {self.that} is undecided"


@dataclass(frozen=True)
class ReadingIndex:
    """The readings of a run, asked for what may be said."""

    readings: Sequence[Reading]

    def one(self, dataset: str, rule: str | None, claim: str) -> Reading | None:
        """The reading of one dataset."""
        return next((r for r in self.readings if (r["dataset"], r["assignment"], r["claim"]) == (dataset, rule, claim)),
                    None)  # fmt: skip

    def has(self, rule: str | None, claim: str) -> bool:
        """Whether the claim was put to any dataset."""
        return bool(self._of_datasets(rule, claim))

    def verdict(self, dataset: str, rule: str | None, claim: str) -> Verdict:
        """The verdict on one dataset; undecided where there is none."""
        found: Verdict | None = (self.one(dataset, rule, claim) or {}).get("verdict")
        return found or "undecided"

    def agreed(self, rule: str | None, claim: str) -> Verdict | None:
        """The verdict on a claim if all datasets have the same."""
        found: set[Verdict] = {reading["verdict"] for reading in self._of_datasets(rule, claim)}
        return next(iter(found)) if len(found) == 1 else None

    def sentence(self, rule: str | None, claim: str, phrases: Phrases) -> str:
        """What may be said of a claim over all datasets, without numbers."""
        if not self._of_datasets(rule, claim):
            return f"That {phrases.that} is {MISSING}"
        verdict = self.agreed(rule, claim)
        return phrases.of(verdict) if verdict else f"That {phrases.that} {tally(self.readings, claim, rule)}"

    def numbers(self, rule: str | None, claim: str) -> str:
        """The numbers of a claim: of the one dataset, or of each."""
        own = self._of_datasets(rule, claim)
        over = [r for r in self.readings if (r["dataset"], r["assignment"], r["claim"]) == (None, rule, f"all_{claim}")]
        found = over or own
        if len(found) > 1:
            return "; ".join(f"{display_name(one['dataset'])} {one['numbers']}" for one in found)
        return str(found[0]["numbers"]) if found else MISSING

    def _of_datasets(self, rule: str | None, claim: str) -> list[Reading]:
        return [r for r in self.readings
                if r["dataset"] is not None and (r["assignment"], r["claim"]) == (rule, claim)]  # fmt: skip
