"""Saliency: how much the probe's verdict depends on the attention that the answer pays to the question's exact tokens.

S = Σ |A · ∂L/∂A|, over layers up to the item's reference layer l*, heads, queries of the answer and keys in E_Q
(`question_to_answer`); A is the attention after the softmax. `share` divides it by the sum over all keys. L is the
probe's log-odds (`log_odds`), or its cross-entropy with the true label (`loss`), as in the paper: S(loss) = P(wrong
label) · S(log_odds), near zero where the probe is sure, whatever the pathway.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from anchorscope.engine.sequences import SITES
from anchorscope.evidence.delta_p import A_ANCHORED, GROUPS, Q_ANCHORED, at_reference
from anchorscope.experiments import section
from anchorscope.experiments.experiment import (
    Experiment,
    ExperimentInputs,
    Found,
    ItemValues,
)
from anchorscope.experiments.statistics import FEW, Floats, Indices, pathway_aucs
from anchorscope.report.findings import Findings, find, select
from anchorscope.report.palette import INK
from anchorscope.report.panel_figure import ChartSpec, Lines, Series
from anchorscope.report.verdicts import above

LOSS, LOG_ODDS = "loss", "log_odds"
"""What is differentiated: the probe's cross-entropy with the true label, or its log-odds."""
_QUESTION = "question"  # E_Q, among the sets of keys


def run(inputs: ExperimentInputs) -> Found:
    """Saliency of each item, and how well it separates the pathways."""
    return analyse(inputs, *measure_flow(inputs, inputs.some_items()))


def measure_flow(inputs: ExperimentInputs, items: Indices) -> tuple[Floats, Floats]:
    """A pass with gradients over some of the items: S of the log-odds, and its share; NaN for the other used items."""
    from anchorscope.engine.saliency import ALL
    from anchorscope.execute.run_passes import run_saliency
    from anchorscope.plan.passes import plan_saliency

    position, site = inputs.headline
    some = [inputs.used_items[item] for item in items]
    reference, folds = inputs.reference[items], inputs.measured.folds[items]
    work = plan_saliency(
        inputs.planner,
        sequences=[
            item.sequence(inputs.setting.positions[position : position + 1])
            for item in some
        ],
        prefix=inputs.prefix,
        keys={_QUESTION: tuple(item.located.question_tokens for item in some)},
        site=SITES[site],
        layers=[int(layer) for layer in reference],
        weight=inputs.probes.weight[folds, reference],
        bias=inputs.probes.bias[folds, reference],
    )
    ran = run_saliency(inputs.executor, work, inputs.progress)
    question, everything = (
        ran.of(name).sum(axis=(1, 2), dtype=np.float64) for name in (_QUESTION, ALL)
    )
    flow, share = np.full((2, inputs.n), np.nan)
    flow[items] = question
    np.divide(
        question,
        everything,
        out=(part := np.full(len(items), np.nan)),
        where=everything > 0,
    )
    share[items] = part
    return flow, share


def wrong_probability(inputs: ExperimentInputs) -> Floats:
    measured = inputs.measured
    clean = at_reference(measured.before, measured.reference, measured.folds)
    return np.exp(
        -np.logaddexp(
            0.0, np.where(inputs.measured.labels, clean, -clean).astype(float)
        )
    )


def analyse(inputs: ExperimentInputs, flow: Floats, share: Floats) -> Found:
    """All statistics of measured saliency: S of the log-odds, and its share."""
    sums = {LOSS: flow * wrong_probability(inputs), LOG_ODDS: flow}
    parts = [
        *(pathway_aucs(inputs, "auc", name, values) for name, values in sums.items()),
        pathway_aucs(inputs, "auc_share", LOG_ODDS, share),
    ]
    values = [("question_to_answer", name, each) for name, each in sums.items()] + [
        ("share", LOG_ODDS, share)
    ]
    return Found(
        tuple(row for rows, _ in parts for row in rows),
        tuple(
            ItemValues(
                quantity,
                np.flatnonzero(np.isfinite(each)),
                each[np.isfinite(each)],
                name,
            )
            for quantity, name, each in values
        ),
        tuple(dict.fromkeys(reason for _, reasons in parts for reason in reasons)),
    )


EXPERIMENT = Experiment(
    "saliency",
    "how much the probe's verdict depends on the answer's attention to the question (gradients)",
    run,
)

LOSSES = {LOSS: "probe's loss", LOG_ODDS: "probe's log-odds"}
_STYLES: dict[str, dict[str, Any]] = {
    "all items": {"color": INK, "linewidth": 1.0, "linestyle": (0, (1.0, 1.4))},
    Q_ANCHORED: {"color": "#6a3d9a", "linestyle": "-"},
    A_ANCHORED: {"color": "#b5871d", "linestyle": (0, (4.0, 1.8))},
}
_DRAWN = {
    **dict.fromkeys(("dataset", "variant", "part"), pl.String),
    "n": pl.Int64,
    **dict.fromkeys(("log10_saliency", "density"), pl.Float64),
}


def _items(findings: Findings) -> pl.DataFrame:
    """log10 S of every item that has a pathway."""
    rows = select(
        findings.experiment_items,
        experiment="saliency",
        quantity="question_to_answer",
        dataset=findings.datasets,
    )
    rows = rows.filter(
        pl.col("value").is_finite() & (pl.col("value") > 0)
    ).with_columns(log=pl.col("value").log10())
    rows = rows.join(
        findings.items.select("dataset", "item_id", "pathway"),
        on=["dataset", "item_id"],
    )
    return select(rows, pathway=GROUPS)


def _figure_rows(findings: Findings) -> pl.DataFrame:
    """The density of all items and of each pathway, whose area is its share of the items."""
    from scipy.stats import gaussian_kde  # only here: it takes a second

    frames = [pl.DataFrame(schema=_DRAWN)]
    for (dataset, variant), rows in _items(findings).group_by(
        "dataset", "variant", maintain_order=True
    ):
        logs = rows["log"].to_numpy()
        # where a Gaussian of about that width is nearly 0
        margin = 4 * np.std(logs) * len(logs) ** -0.2 or 1.0
        grid = np.linspace(logs.min() - margin, logs.max() + margin, 256)
        for part in _STYLES:
            values = (select(rows, pathway=part) if part in GROUPS else rows)[
                "log"
            ].to_numpy()
            if len(values) >= FEW and np.ptp(values) > 0:
                heights = (
                    gaussian_kde(values, "silverman")(grid) * len(values) / rows.height
                )
                columns = (dataset, variant, part, len(values), grid, heights)
                frames.append(
                    pl.DataFrame(dict(zip(_DRAWN, columns, strict=True)), schema=_DRAWN)
                )
    return pl.concat(frames)


_SERIES = [
    Series({"part": part}, style, part, "area" if part in GROUPS else "none")
    for part, style in _STYLES.items()
]
_PANELS = [
    Lines(
        _SERIES,
        "density",
        words,
        2.9,
        {"variant": loss},
        "log10_saliency",
        "density",
        "log10 S",
        False,
        null=None,
        finish=lambda axes, rows, _: axes.set_ylim(bottom=0) if rows.height else None,
    )
    for loss, words in LOSSES.items()
]


def _finds_pathway(rows: pl.DataFrame) -> section.Said | None:
    area = find(rows, quantity="auc_within_truth", variant=LOG_ODDS)
    return section.number(
        area, above(area, section.HALF), section.three_digits, "AUC within truth"
    )


SECTION = section.SectionSpec(
    slug="saliency",
    title="Saliency",
    asks="How much does the verdict lean on attention from answer to key words? Attention times its slope; nothing is "
    "cut.",
    careful="The loss has no slope where the probe is sure; log-odds are free of that. A cut is no small change, a "
    "slope is.",
    answer=section.Answer(
        "Saliency finds the Q-Anchored items better than guessing, within true and within false answers",
        "Saliency does not find the Q-Anchored items within true and within false answers",
        "Whether saliency finds the Q-Anchored items is undecided",
        _finds_pathway,
    ),
    charts=(
        ChartSpec(
            "saliency",
            "saliency from question to answer",
            "Density over items of the saliency from question to answer, by pathway",
            "Dotted: all items of the panel.",
            "Saliency S = |A · ∂L/∂A|, summed over heads, layers up to l*, answer positions and key words. Densities "
            "over items with S > 0 (Gaussian kernel, Silverman's width); the area of a part is its share of the items "
            f"in the panel. Parts of fewer than {FEW} items are not drawn.",
            _figure_rows,
            lambda _: _PANELS,
            height=1.9,
            gap=0.4,
            legend_columns=5,
            made=lambda findings: bool(_items(findings).height),
        ),
    ),
    tables=(
        section.TableSpec(
            "How well it finds the Q-Anchored items (AUC, 0.5 is guessing)",
            (section.Key("variant", "of", LOSSES),),
            (
                section.value("AUC", section.three_digits, quantity="auc"),
                section.value(
                    "AUC within truth",
                    section.three_digits,
                    quantity="auc_within_truth",
                ),
                section.p_value(quantity="auc_within_truth"),
                section.value(
                    "of its share",
                    section.three_digits,
                    quantity="auc_share_within_truth",
                ),
                section.items(quantity="auc"),
            ),
        ),
    ),
)
