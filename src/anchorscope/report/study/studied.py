"""What a study hands to its page: every run with its state, and the findings of those that are done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anchorscope.report.answer_card import AnswerCard
from anchorscope.report.comparison.compared import Flag, panel_title
from anchorscope.report.findings import Findings, nested_auc, summary_of
from anchorscope.report.palette import Q_ANCHORED
from anchorscope.report.shares import share_at
from anchorscope.stats.estimate import Estimate

Measure = Callable[[Findings, str], Estimate | None]
"""A number of a run on a dataset."""


def share(run: Findings, dataset: str) -> Estimate | None:
    """What needs the question's key words, over the band."""
    return share_at(run, dataset)


def random_share(run: Findings, dataset: str) -> Estimate | None:
    """The same where random words are cut."""
    return share_at(run, dataset, "random")


def auc(run: Findings, dataset: str) -> Estimate | None:
    """Of the probe, layers chosen without the items that are scored."""
    return nested_auc(run, dataset)


def q_anchored(run: Findings, dataset: str) -> Estimate | None:
    """The part of the items whose verdict flips under the cut, by the paper's rule."""
    asked = {"assignment": "plain", "intervention": "knockout", "group": Q_ANCHORED}
    return summary_of(run, dataset, "group_share", **asked)


@dataclass(frozen=True)
class ShownRun:
    """One run of a study."""

    name: str
    model: str
    """What the study calls its model."""
    prompt: str
    seed: int
    state: str
    error: str | None = None
    page: str | None = None
    """Its own page, relative to the study's."""
    findings: Findings | None = None
    """Of a run that is done, under the study's name of its model."""
    card: AnswerCard | None = None


@dataclass(frozen=True)
class Studied:
    """A study, as its page sees it."""

    name: str
    runs: tuple[ShownRun, ...]
    """All of them, in the study's order."""
    flags: tuple[Flag, ...] = ()
    """In what the first runs of the models differ beside the model."""
    command: str = ""
    """What goes on with it, or repeats it."""

    @property
    def done(self) -> tuple[ShownRun, ...]:
        """Runs with findings."""
        return tuple(run for run in self.runs if run.findings is not None)

    @property
    def first(self) -> dict[str, ShownRun]:
        """Per model the first run that is done: it stands for the model in charts."""
        return {run.model: run for run in reversed(self.done)}

    @property
    def models(self) -> tuple[str, ...]:
        """Those with a run that is done, in the study's order."""
        return tuple(dict.fromkeys(run.model for run in self.done))

    @property
    def learned(self) -> tuple[str, ...]:
        """Models whose weights were not drawn at random."""
        return tuple(model for model in self.models if not findings_of(self.first[model]).random_weights)

    def title(self, model: str) -> str:
        """Its name; random weights are said with it."""
        return panel_title(findings_of(self.first[model]))

    @property
    def datasets(self) -> tuple[str, ...]:
        """Of all runs that are done."""
        return tuple(dict.fromkeys(name for run in self.done for name in findings_of(run).datasets))

    def of(self, model: str) -> tuple[ShownRun, ...]:
        """The runs of a model that are done."""
        return tuple(run for run in self.done if run.model == model)

    def measured(self, runs: Sequence[ShownRun], dataset: str, measure: Measure) -> list[Estimate]:
        """A number of these runs, of those that have it."""
        having = [findings_of(run) for run in runs if dataset in findings_of(run).datasets]
        found = [measure(one, dataset) for one in having]
        return [one for one in found if one is not None and one.value == one.value]


def findings_of(run: ShownRun) -> Findings:
    """The findings of a run that is done."""
    assert run.findings is not None, "only runs that are done are asked"
    return run.findings
