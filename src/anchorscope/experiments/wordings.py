"""The same items in several wordings: is the effect of the cut a property of the item, or noise?

Each item is asked again in other words, and after other solved examples; its answer, token by token, and its label
stay. A probe that learned from the original wording of one half of the items scores all wordings of the other half, and
what the cut states explain of its log-odds is learned out of fold, all wordings of an item held out together. The
evidence that an item loses, `lost` of evidence_items.parquet, is averaged once over the even wordings and once, by
other probes, over the odd ones: if items differ in it, the two agree. (Judged by the same probes they would also agree
in what these got wrong.) Reliability is a correlation of ranks, those of the sample; every draw weighs the items again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from anchorscope.answers.template import EXAMPLE_SETS, split_head, with_examples
from anchorscope.datasets.question import Question
from anchorscope.datasets.relations import reworded
from anchorscope.datasets.text import normalise
from anchorscope.experiments import section
from anchorscope.experiments.experiment import (
    Experiment,
    ExperimentInputs,
    Found,
    ItemValues,
    Statistic,
)
from anchorscope.experiments.statistics import METHOD, Floats, Indices, estimate_of
from anchorscope.experiments.supplied import all_fit, asked_again, run_supplied
from anchorscope.items import Item
from anchorscope.probes.folds import truth_strata
from anchorscope.report.findings import TRUTHS, find, select, statistics
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate
from anchorscope.spans.question_spans import locate_question_words
from anchorscope.stats.estimate import Estimate

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.draws import Draws
    from anchorscope.evidence_parts.half_splits import Halves
    from anchorscope.interventions.intervention import Writer

FEWEST = 60
"""Items below which no reliability is reported."""
ODD, EVEN = "odd wordings", "even wordings"
LOST, OTHER_PROBES = "lost", "other probes"
"""The measure, in the column `variant`; who judges the odd wordings, in `against`."""


@dataclass(frozen=True)
class Rows:
    """All wordings of some items, as rows of one table: the original of every used item first."""

    clean: Tensor
    """[row, d_model]."""
    cut: Tensor
    item: Indices
    """The used item of each row."""
    wording: Indices
    """0 for the original."""


def run(inputs: ExperimentInputs) -> Found:
    """Runs every wording, and compares the odd and the even ones."""
    writer = inputs.setting.writer()
    items, others, missing = _items(inputs, writer)
    n_wordings = 1 + ((len(others[0]) if others else 0) or len(EXAMPLE_SETS) - 1)
    texts = (
        _texts(inputs, writer, items, others, n_wordings)
        if len(items) >= FEWEST
        else []
    )
    fitting = [
        index
        for index in range(len(items))
        if all_fit(inputs, [text[index] for text in texts])
    ]
    if len(fitting) < len(items):
        missing += (
            f"{len(items) - len(fitting)} of {len(items)} items are left out: in other wordings they do not "
            f"fit the model's context of {inputs.planner.context:,} tokens",
        )
        items, texts = (
            items[fitting],
            [[text[index] for index in fitting] for text in texts],
        )
    if len(items) < FEWEST:
        why = "their relation has no other sentences of ours, and the prompt shows no examples that could be others"
        return Found(
            missing=(
                f"only {len(items)} items can be asked in other wordings, {FEWEST} needed; {why}",
            )
        )
    layer = inputs.most_frequent_reference
    rows = _run_wordings(inputs, items, texts, layer)
    all_splits, *split_halves = _lost_evidence(inputs, rows, items)
    halves = {EVEN: np.arange(0, n_wordings, 2), ODD: np.arange(1, n_wordings, 2)}
    even, odd = (
        lost[some].mean(axis=0)
        for lost, some in zip(split_halves, halves.values(), strict=True)
    )
    statistics = [
        Statistic(
            "wordings", Estimate(n_wordings, np.nan, np.nan, len(items), "counted")
        ),
        *_compute_reliabilities(inputs, even, odd, items, layer),
    ]
    values = [
        ItemValues(LOST, items, all_splits.mean(axis=0)),
        *(
            ItemValues(LOST, items, all_splits[some].mean(axis=0), half)
            for half, some in halves.items()
        ),
    ]
    return Found(tuple(statistics), tuple(values), missing)


def _items(
    inputs: ExperimentInputs, writer: Writer
) -> tuple[Indices, list[list[Question]], tuple[str, ...]]:
    """The used items that are asked in other wordings, their questions in our other sentences, and what is left out.

    If enough items have sentences, only those are asked; else all keep their words after other examples.
    """
    shown = {
        normalise(example.subject) for examples in EXAMPLE_SETS for example in examples
    }
    some = [
        item
        for item in inputs.some_items().tolist()
        if normalise(inputs.used_items[item].question.subject or "") not in shown
    ]
    others = {item: reworded(inputs.used_items[item].question) for item in some}
    with_sentences = [item for item in some if others[item]]
    if len(with_sentences) >= FEWEST:
        left_out = len(some) - len(with_sentences)
        reason = f"{left_out} of {len(some)} items are left out: their relation has no other sentences of ours"
        return (
            np.array(with_sentences),
            [others[item] for item in with_sentences],
            (reason,) if left_out else (),
        )
    if split_head(writer.template) is None:
        return np.array(with_sentences), [], ()
    reason = (
        f"dataset {inputs.dataset!r} has no relations that we have other sentences for (atlas and PopQA have): the "
        f"{len(EXAMPLE_SETS)} wordings differ in the prompt's examples only"
    )
    return np.array(some), [[] for _ in some], (reason,)


def _texts(
    inputs: ExperimentInputs,
    writer: Writer,
    items: Indices,
    others: Sequence[Sequence[Question]],
    n_wordings: int,
) -> list[list[Item]]:
    """The items in every wording but the original."""
    chosen, texts = [inputs.used_items[index] for index in items], []
    for number in range(1, n_wordings):
        template = with_examples(
            writer.template, EXAMPLE_SETS[number % len(EXAMPLE_SETS)]
        )
        questions = [
            mine[number - 1] if mine else item.question
            for item, mine in zip(chosen, others, strict=True)
        ]
        spans = [
            (None if mine else item.located.words) or locate_question_words(question)
            for item, mine, question in zip(chosen, others, questions, strict=True)
        ]
        texts.append(
            asked_again(replace(writer, template=template), chosen, questions, spans)
        )
    return texts


def _run_wordings(
    inputs: ExperimentInputs,
    items: Indices,
    texts: Sequence[Sequence[Item]],
    layer: int,
) -> Rows:
    """The states of every wording at one layer; those of the original exist already."""
    import torch

    from anchorscope.interventions.cuts import KNOCKOUT

    clean, cut = [inputs.states()[layer]], [inputs.cut_states()[KNOCKOUT.name][layer]]
    for number, again in enumerate(texts, 1):
        states = run_supplied(
            inputs, again, f"wording {number} of {len(texts)}", (KNOCKOUT,)
        )
        clean.append(states.clean[layer])
        cut.append(states.cut[KNOCKOUT.name][layer])
    return Rows(
        torch.cat(clean),
        torch.cat(cut),
        np.concatenate([np.arange(inputs.n), *([items] * len(texts))]),
        np.concatenate(
            [
                np.zeros(inputs.n, np.int64),
                np.repeat(np.arange(1, len(texts) + 1), len(items)),
            ]
        ),
    )


def _lost_evidence(
    inputs: ExperimentInputs, rows: Rows, items: Indices
) -> list[Floats]:
    """`lost` in every wording [wording, item], by probes of the originals: of all splits, then of either half."""
    from anchorscope.evidence_parts.half_splits import (
        CleanEvidence,
        Halves,
        clean_evidence,
        make_halves,
    )
    from anchorscope.evidence_parts.need import view_terms
    from anchorscope.evidence_parts.principal import principal_states

    used, device, labels = inputs.used_items, inputs.device, inputs.measured.labels
    strata, ids = (
        truth_strata(labels, [item.question.relation for item in used]),
        [item.item_id for item in used],
    )
    own = make_halves(inputs.measured.groups, strata, inputs.setting.seed, ids)
    halves = spread(own, rows.item, rows.wording == 0)
    directions = inputs.directions(inputs.n)
    clean, cut = (
        principal_states(part[None], directions, device)
        for part in (rows.clean, rows.cut)
    )
    evidence = clean_evidence(clean, halves, labels[rows.item], device, inputs.progress)
    tables, middle = [], own.n_splits // 2
    for splits in (slice(None), slice(0, middle), slice(middle, None)):
        terms = view_terms(
            CleanEvidence(
                evidence.principal, *(part[:, splits] for part in evidence[1:])
            ),
            cut,
            Halves(halves.first[splits], halves.folds[splits], halves.inner[splits]),
            labels[rows.item],
            device,
            inputs.progress,
            "wordings: key words cut",
        )
        by_wording = np.full((int(rows.wording.max()) + 1, inputs.n), np.nan)
        by_wording[rows.wording, rows.item] = terms.lost[0]
        tables.append(by_wording[:, items])
    return tables


def spread(halves: Halves, item: Indices, learns: np.ndarray) -> Halves:
    """The splits of items for rows that stand for them; probes learn from some of the rows only."""
    from anchorscope.evidence_parts.half_splits import Halves

    inner = np.where(learns, halves.inner[:, :, item], -1)
    return Halves(halves.first[:, item], halves.folds[:, item], inner)


def _compute_reliabilities(
    inputs: ExperimentInputs, even: Floats, odd: Floats, items: Indices, layer: int
) -> list[Statistic]:
    """The reliability of all wordings, from the rank correlation of the two halves; within truth as well."""
    from anchorscope.evidence.draws import resampling

    draws, labels, rows = inputs.draws.take(items), inputs.measured.labels[items], []
    method = (
        f"Spearman–Brown of the rank correlation of odd and even wordings, {METHOD}"
    )
    with resampling(draws.device):
        for truth in TRUTHS:
            inside = (
                np.full(len(labels), True)
                if truth == "all"
                else labels == (truth == "true")
            )
            halves = rank_correlation(even[inside], odd[inside], draws.take(inside))
            reliability = estimate_of(
                2 * halves / (1 + halves), int(inside.sum()), method
            )
            rows.append(
                Statistic(
                    "reliability",
                    reliability,
                    LOST,
                    OTHER_PROBES,
                    truth=truth,
                    probe_layer=layer,
                )
            )
    return rows


def rank_correlation(first: Floats, second: Floats, draws: Draws) -> Tensor:
    """Spearman's correlation of two measures [item] in every draw; NaN where one of them is constant."""
    import torch
    from scipy.stats import rankdata

    x, y = (rankdata(values) - (len(values) + 1) / 2 for values in (first, second))
    x, y = (ranks / max(float(ranks.std()), 1e-12) for ranks in (x, y))
    n, sx, sy, sxx, syy, sxy = draws.sums(
        np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1)
    )
    covariance = sxy / n - sx * sy / n**2
    spread = ((sxx / n - (sx / n) ** 2) * (syy / n - (sy / n) ** 2)).clamp(min=0).sqrt()
    return torch.where(spread > 1e-12, covariance / spread, torch.nan)


EXPERIMENT = Experiment(
    "wordings",
    "the same items in other words and after other examples: how reliable the evidence that an item loses is",
    run,
)


def _repeats(rows: pl.DataFrame) -> section.Said | None:
    reliability = find(rows, truth="all")
    return section.number(reliability, above(reliability, section.RELIABLE), estimate)


SECTION = section.SectionSpec(
    slug="wordings",
    title="Other wordings",
    rows=lambda run: select(
        statistics(run, "wordings", "reliability"), variant=LOST, against=OTHER_PROBES
    ),
    asks="Is what the cut does to an item the item's own, or of one wording?",
    careful="Reliable is not valid: relation, answer and length of an item stay too.",
    answer=section.Answer(
        "Single items repeat themselves well enough to be sorted: the evidence they lose has a reliability above 0.7",
        "Single items should not be sorted by the evidence that they lose: its reliability is below 0.7",
        "Whether single items can be sorted by the evidence that they lose (reliability above 0.7) is undecided",
        _repeats,
    ),
    tables=(
        section.TableSpec(
            "How well single items repeat themselves",
            (section.Key("truth", "of", TRUTHS),),
            (section.value("reliability", estimate), section.items()),
        ),
    ),
)
