"""Knowledge boundary: does the model know what it answers through the question better than what it answers otherwise?

Per pathway: how many answers are true, how often the model says "I don't know" when the prompt allows it, how well
known the subjects are, and how sure the model was of its words. True and false answers were drawn in equal numbers, so
that half of the used answers are true by design. Every number is therefore given twice: `as drawn`, over the used
items, and `weighted`, each item standing for those of its kind that were not drawn (the inverse of its chance to be
drawn). A relation in which every answer is wrong has no drawn item, and no weight can bring it back: `coverage` says
what share of the answered questions the weighted items stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.lines import Line2D

from anchorscope.answers.generate import TOO_LONG
from anchorscope.answers.prompt_variants import allow_dont_know, says_dont_know
from anchorscope.datasets.question import POPULARITY, Question, log_popularity
from anchorscope.experiments import section
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.experiments.statistics import FEW, METHOD, Column, Floats, compare_pathways
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, GROUPS, DatasetStyle
from anchorscope.report.panel_figure import ChartSpec, Forest, GroupMarks, Style
from anchorscope.report.result_rows import find, present, rules_in, select, statistics
from anchorscope.report.verdicts import Verdict, above, below, between
from anchorscope.report.wording import Show, estimate, percent
from anchorscope.stats.estimate import Estimate

AS_DRAWN, WEIGHTED = "as drawn", "weighted"
"""Over the used items; and each standing for those that were not drawn."""


def run(inputs: ExperimentInputs) -> Found:
    """The four questions per pathway, and how much of the dataset the answers speak for."""
    asked, missing = _dont_know(inputs)
    known, reasons = _known(inputs)
    quantities = {"accuracy": inputs.measured.labels.astype(float), **asked, **known}
    sampling = np.array([item.label.weight for item in inputs.used_items], dtype=float)
    weighted = f"{METHOD}, weighted by inverse sampling probability"
    columns = [
        Column(name, values, variant, weights, method, ("all",) if name == "accuracy" else ("all", "true", "false"))
        for name, values in quantities.items()
        for variant, weights, method in ((AS_DRAWN, None, METHOD), (WEIGHTED, sampling, weighted))
    ]
    compared = compare_pathways(inputs, columns)
    coverage, not_covered = _coverage(inputs, sampling)
    return Found(
        statistics=(coverage, *compared.statistics),
        values=tuple(
            ItemValues(name.removesuffix("_rate"), np.flatnonzero(np.isfinite(values)), values[np.isfinite(values)])
            for name, values in {**asked, **known}.items()
        ),
        missing=(*missing, *reasons, *not_covered, *compared.lines()),
    )


def _dont_know(inputs: ExperimentInputs) -> tuple[dict[str, Floats], list[str]]:
    """Whether the model says so when it may, 1 or 0, of the items of a smaller experiment; NaN of the others."""
    items = inputs.some_items()
    questions = [inputs.used_items[index].question for index in items]
    own = [index for index, question in zip(items, questions, strict=True) if question.model_answer is None]
    missing = []
    if len(own) < len(items):
        missing.append(
            f"dont_know_rate: the answers to {len(items) - len(own)} of {len(items)} questions were supplied "
            f"(model_answer), so that asking the model again would not be about them"
        )
    if len(own) < FEW:
        return {}, missing or [f"dont_know_rate: only {len(own)} items, {FEW} needed"]
    said = ask_again(inputs, [inputs.used_items[index].question for index in own])
    values = np.full(inputs.n, np.nan)
    values[own] = [np.nan if text is None else says_dont_know(text) for text in said]
    return {"dont_know_rate": values}, missing


def ask_again(inputs: ExperimentInputs, questions: list[Question]) -> list[str | None]:
    """The model's answers to the questions, asked with the run's own prompt that now allows "I don't know".

    None where that longer prompt does not fit the model's context.
    """
    from anchorscope.execute.run_passes import run_answers
    from anchorscope.plan.passes import plan_answers

    writer = inputs.setting.writer()
    work = plan_answers(
        questions,
        writer.tokenizer,
        allow_dont_know(writer.template),
        inputs.max_new_tokens,
        inputs.planner.batch_tokens,
        inputs.planner.context,
    )
    answers = run_answers(inputs.executor, work, inputs.progress)
    return [None if answer.status == TOO_LONG else answer.text for answer in answers]


def _known(inputs: ExperimentInputs) -> tuple[dict[str, Floats], list[str]]:
    """What is known of the items without asking anything, and what is not."""
    found, missing = {}, []
    popularity = np.array([log_popularity(item.question) for item in inputs.used_items])
    n = int(np.isfinite(popularity).sum())
    if n >= FEW:
        found["popularity"] = popularity
    else:
        missing.append(
            f"popularity: {n or 'none'} of {inputs.n} items of dataset {inputs.dataset!r} say how well known their "
            f"subject is; PopQA does (s_pop), an own file needs a column {' or '.join(map(repr, POPULARITY[:4]))} with "
            f"numbers above 0"
        )
    log_probs = [item.answer.log_probs for item in inputs.used_items]
    told = sum(bool(one) for one in log_probs)
    if told >= FEW:
        found["confidence_mean"] = np.array([np.mean(one) if one else np.nan for one in log_probs])
        found["confidence_min"] = np.array([np.min(one) if one else np.nan for one in log_probs])
    if told < inputs.n:
        missing.append(
            f"confidence_mean, confidence_min: {inputs.n - told} of {inputs.n} answers were supplied (model_answer), "
            f"without the log-probabilities of their tokens"
        )
    return found, missing


def _coverage(inputs: ExperimentInputs, sampling: Floats) -> tuple[Statistic, list[str]]:
    """The share of all answered questions that the weighted items stand for: counted, so that it has no interval."""
    answered = sum(one.label.truthful is not None for one in inputs.items)
    share = min(1.0, float(sampling.sum()) / answered)
    exact = Estimate(share, np.nan, np.nan, answered, "exact share of the answered questions")
    found = Statistic("coverage", exact, WEIGHTED)
    if share > 1 - 0.5 / answered:
        return found, []
    return found, [
        f"accuracy and all other weighted numbers leave out {round((1 - share) * answered)} of {answered} answered "
        f"questions: in their relation all answers are wrong (or all right), or none of its pairs was drawn, so that "
        f"no used item stands for them"
    ]


EXPERIMENT = Experiment(
    "boundary", "per pathway: accuracy, how often the model says it does not know, popularity, confidence", run
)


QUANTITIES: dict[str, tuple[str, Show]] = {
    "accuracy": ("true answers", percent),
    "dont_know_rate": ("says “I don't know”", percent),
    "popularity": ("log10 popularity", estimate),
    "confidence_mean": ("mean log-probability", estimate),
    "confidence_min": ("lowest log-probability", estimate),
}
"""Quantity → its words and how it is written."""
_SHOWS = {name: show for name, (_, show) in QUANTITIES.items()}
_QUANTITY = section.Key("measure", "quantity", {name: words for name, (words, _) in QUANTITIES.items()})
_COLUMNS = ("dataset", "variant", "assignment", "group", "quantity", "value", "ci_low", "ci_high", "n", "method")
_SMALL: dict[str, Any] = {
    "color": CONTROL_GREY,
    "marker": "o",
    "markersize": 2.6,
    "markerfacecolor": CONTROL_GREY,
    "markeredgecolor": CONTROL_GREY,
    "linewidth": 0.8,
    "linestyle": "none",
}


@dataclass(frozen=True)
class _WeightedMarks(GroupMarks):
    """Both groups, weighted; the numbers as drawn are small and grey beside them."""

    def of(self, row: Mapping[str, Any], colours: DatasetStyle) -> tuple[float, Style] | None:
        offset = -0.22 if row["group"] == GROUPS[0] else 0.22
        weighted = super().of(row, colours)
        return (offset + 0.13, _SMALL) if row["variant"] == AS_DRAWN or weighted is None else (offset, weighted[1])


def _drawn(findings: Findings) -> pl.DataFrame:
    return select(statistics(findings, "boundary", *QUANTITIES), truth="all", group=GROUPS).select(_COLUMNS)


def _panels(data: pl.DataFrame) -> list[Forest]:
    rules = {rule: rule for rule in rules_in(data)}
    return [
        Forest(
            "assignment",
            rules,
            _WeightedMarks(),
            "share" if _SHOWS[quantity] is percent else "",
            QUANTITIES[quantity][0],
            1.95,
            {"quantity": quantity},
            None,
            words_once=True,
            bins=4,
        )
        for quantity in present(data, "quantity", tuple(QUANTITIES))
    ]


def _accuracy(rows: pl.DataFrame) -> section.Said | None:
    """Whether the share of true answers differs; equal only where the interval leaves room for a trifle."""
    gap = find(rows, measure="accuracy", aspect="difference", variant=WEIGHTED)
    apart = "holds" in (above(gap, 0.0), below(gap, 0.0))
    same = between(gap, -section.SMALL_GAP, section.SMALL_GAP) == "holds"
    verdict: Verdict = "does not hold" if same else "holds" if apart else "undecided"
    return section.number(gap, verdict, section.whole_percent, "Q − A, weighted")


SECTION = section.SectionSpec(
    slug="boundary",
    title="Knowledge boundary",
    rows=lambda findings: statistics(findings, "boundary"),
    asks="Do the pathways differ in what the model knows, admits not to know, and is sure of?",
    careful="Half of the answers are true by design; weights undo that. A rule that sorts by label makes groups "
    "differ in whatever goes with truth.",
    answer=section.Answer(
        "The groups differ in how many answers are true",
        "The groups hardly differ in how many answers are true",
        "Whether the groups differ in how many answers are true is undecided",
        _accuracy,
    ),
    charts=(
        ChartSpec(
            "boundary",
            "what the model knows, by pathway",
            "Accuracy, don't-know rate, popularity and confidence of both groups",
            "Each panel has a scale of its own.",
            "Large marks: weighted by inverse sampling probability. Small grey marks: as drawn, where half of the "
            "answers are true by design. Lines: 95 % intervals.",
            _drawn,
            _panels,
            labels=0.35,
            gap=0.3,
            height=lambda data: 0.35 + 0.5 * data["assignment"].n_unique(),
            more_handles=lambda data, _: [Line2D([], [], label=AS_DRAWN, **_SMALL)],
        ),
    ),
    tables=(
        section.TableSpec(
            "All answers",
            (_QUANTITY, section.RULE, section.Key("variant", "items count", {WEIGHTED: WEIGHTED})),
            section.both_groups(_SHOWS),
            lambda rows: select(rows, measure=tuple(QUANTITIES), truth="all"),
        ),
        section.TableSpec(
            "Q − A within true and within false answers",
            (_QUANTITY, section.RULE),
            tuple(
                column
                for truth in ("true", "false")
                for column in section.difference(_SHOWS, f"Q − A, {truth} answers", truth=truth)
            ),
            # Of true answers, all are true: accuracy has nothing to say here.
            lambda rows: select(rows, measure=tuple(QUANTITIES)[1:], variant=WEIGHTED, truth=("true", "false")),
        ),
        section.TableSpec(
            "Share of all answered questions that the weighted items stand for",
            (),
            (section.value("coverage", percent), section.items()),
            lambda rows: select(rows, quantity="coverage"),
        ),
    ),
)
