"""The one sentence that a section answers with: a claim in three wordings, and the numbers that decide it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.experiments.experiment_rows import datasets_in, headline, rules_in, select
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.verdicts import Verdict, all_of
from anchorscope.report.wording import Show, count, estimate
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.sampled_curve import FEWEST_GROUPS

HALF = 0.5
"""Of an effect: a part that does at least half of the whole does most of it. Also the AUC of guessing."""
RELIABLE = 0.7
"""Below it single items should not be sorted by a measure: the usual line for comparing groups of people by a test."""
SMALL_GAP = 0.05
"""A difference of two shares below it is of no account."""


_ENDS = ("ci_low", "ci_high")
_MOST_SHOWN = 2  # datasets whose numbers stand in the sentence, of those that decide it


@dataclass(frozen=True)
class Said:
    """What one dataset says."""

    verdict: Verdict
    numbers: str
    """With interval and n."""


@dataclass(frozen=True)
class Answer:
    """A claim, and how a dataset decides it."""

    holds: str
    fails: str
    undecided: str
    """What is said in each case, without a full stop."""
    of: Callable[[pl.DataFrame], Said | None]
    """From one dataset's rows, under the headline rule where rules differ; None where its numbers are missing."""

    def give(self, findings: Findings, rows: pl.DataFrame) -> tuple[str, Verdict]:
        """The sentence over all datasets, and its verdict: it is so only where it is so of each."""
        few = pl.col("n") < FEWEST_GROUPS  # a bootstrap of so few has no honest interval, and decides nothing
        rows = rows.with_columns(pl.when(few).then(None).otherwise(pl.col(end)).alias(end) for end in _ENDS)
        found = {
            name: said
            for name in datasets_in(findings, rows)
            if (said := self.of(headline(select(rows, dataset=name)))) is not None
        }
        verdict = all_of([said.verdict for said in found.values()])
        words: Mapping[Verdict, str] = {"holds": self.holds, "does not hold": self.fails, "undecided": self.undecided}
        if not found:
            return f"{self.undecided}: this run has no such number.", "undecided"
        decide = {name: said.numbers for name, said in found.items() if said.verdict == verdict}
        numbers = [
            said if len(findings.datasets) == 1 else f"{display_name(name)}: {said}" for name, said in decide.items()
        ][:_MOST_SHOWN]
        more = len(found) - len(numbers)
        rule = [RULES[one] for one in rules_in(headline(rows)) if len(rules_in(rows)) > 1]
        return f"{words[verdict]} ({'; '.join([*numbers, *([f'{more} more'] if more else []), *rule])}).", verdict


def whole_percent(found: Estimate | None) -> str:
    """A share in a sentence."""
    return estimate(found, 0, 100.0, "\u00a0%")


def three_digits(found: Estimate | None) -> str:
    """An AUC."""
    return estimate(found, 3)


def told(found: Estimate | None, verdict: Verdict, show: Show, what: str = "") -> Said | None:
    """One number: what it is, its interval and its n."""
    if found is None:
        return None
    return Said(verdict, f"{what} {show(found)}, n = {count(found.n)}".strip())
