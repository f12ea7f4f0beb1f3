"""How much flows from the question into the answer, item by item: the density over items, by truth and by pathway.

If there are two pathways, one expects two humps in the whole and the groups under different ones. A hump near nothing
can also come from confidence: the probe's loss has no slope where the probe is sure. So the same is drawn for the
probe's log-odds, whose slope has no such factor.
"""

from typing import Any

import numpy as np
import polars as pl

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.experiments.experiment_rows import TRUTHS, find, present, select, statistics
from anchorscope.report.experiments.panels import Lines, Series
from anchorscope.report.experiments.section import SectionSpec
from anchorscope.report.experiments.section_answer import HALF, Answer, Said, three_digits, told
from anchorscope.report.experiments.section_chart import ChartSpec
from anchorscope.report.experiments.section_tables import (
    RULE,
    TRUTH,
    Key,
    TableSpec,
    both_groups,
    items,
    p_value,
    value,
)
from anchorscope.report.findings import Findings
from anchorscope.report.palette import A_ANCHORED, INK, Q_ANCHORED
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate, percent
from anchorscope.stats.modes import density_grid, gaussian_density

QUANTITY = "question_to_answer"
FEW = 10
"""Items below which a density is not drawn: it would show the kernel and not the items."""
LOSSES = {"loss": "probe's loss", "log_odds": "probe's log-odds"}
SPLITS = {"truth": "by truth", "plain": "by pathway, plain", "corrected": "by pathway, corrected"}
_STYLES: dict[str, dict[str, Any]] = {
    "all": {"color": INK, "linewidth": 1.0, "linestyle": (0, (1.0, 1.4))},
    "true": {"color": "#0072b2", "linestyle": "-"},
    "false": {"color": "#d55e00", "linestyle": (0, (5.0, 1.6, 1.0, 1.6))},
    Q_ANCHORED: {"color": "#6a3d9a", "linestyle": "-"},
    A_ANCHORED: {"color": "#b5871d", "linestyle": (0, (4.0, 1.8))},
}
_NAMES = TRUTHS | {"all": "all items"}
_DRAWN = {
    "dataset": pl.String,
    "variant": pl.String,
    "split": pl.String,
    "part": pl.String,
    "n": pl.Int64,
    "log10_saliency": pl.Float64,
    "density": pl.Float64,
}
_OF = Key("variant", "of", LOSSES)


def _items(findings: Findings) -> pl.DataFrame:
    """The saliency of every item, with its truth and its pathways."""
    found = select(findings.experiment_items, experiment="saliency", quantity=QUANTITY, dataset=findings.datasets)
    about = findings.items.select(
        "dataset",
        "item_id",
        truth=pl.when("truthful").then(pl.lit("true")).otherwise(pl.lit("false")),
        plain=pl.col("pathway"),
        corrected=pl.col("pathway_corrected"),
    )
    return found.filter(pl.col("value").is_finite()).join(about, on=["dataset", "item_id"], how="left")


def _drawn(findings: Findings) -> pl.DataFrame:
    """The curves; each part's area is its share of the items, so that parts add up to the whole."""
    positive = _items(findings).filter(pl.col("value") > 0).with_columns(log=pl.col("value").log10())
    curves = [
        _curves(rows, str(dataset), str(variant))
        for (dataset, variant), rows in positive.group_by("dataset", "variant", maintain_order=True)
    ]
    return pl.concat(curves) if curves else pl.DataFrame(schema=_DRAWN)


def _curves(positive: pl.DataFrame, dataset: str, variant: str) -> pl.DataFrame:
    """The density of all items and of the parts of every split, on one grid."""
    frames = [pl.DataFrame(schema=_DRAWN)]
    for split in SPLITS:
        inside = positive.filter(pl.col(split).is_in(list(_STYLES)))
        if inside.height < FEW:
            continue
        grid = density_grid(inside["log"].to_numpy())
        for part in ("all", *present(inside, split)):
            values = inside["log"] if part == "all" else select(inside, **{split: part})["log"]
            heights = gaussian_density(values.to_numpy(), grid) * len(values) / inside.height
            if len(values) >= FEW and np.isfinite(heights).all():
                about = {"dataset": dataset, "variant": variant, "split": split, "part": part, "n": len(values)}
                frame = pl.DataFrame({"log10_saliency": grid, "density": heights})
                frame = frame.with_columns(pl.lit(value).alias(name) for name, value in about.items())
                frames.append(frame.select(pl.col(name).cast(kind) for name, kind in _DRAWN.items()))
    return pl.concat(frames)


def _note(findings: Findings) -> str:
    none = _items(findings).filter(pl.col("value") == 0).height
    zeros = f" Not drawn: {none} values of exactly zero, which have no logarithm." if none else ""
    return (
        "Saliency S = |A · ∂L/∂A|, summed over heads, layers up to l*, answer positions and key words. Densities over "
        "items (Gaussian kernel, Silverman's width); the area of a part is its share of the items in the panel. Parts "
        f"of fewer than {FEW} items are not drawn.{zeros}"
    )


_SERIES = [
    Series({"part": part}, style, _NAMES.get(part, part), "none" if part == "all" else "area")
    for part, style in _STYLES.items()
]
_PANELS = [
    Lines(
        _SERIES,
        "density",
        words,
        2.9,
        {"split": split},
        "log10_saliency",
        "density",
        "log10 S",
        False,
        null=None,
        finish=lambda axes, rows, _: axes.set_ylim(bottom=0) if rows.height else None,
    )
    for split, words in SPLITS.items()
]


def _shapes(rows: pl.DataFrame) -> pl.DataFrame:
    """Dip and coefficient of every part of the items, with the part in words."""
    rule = pl.col("assignment").replace(RULES)
    group = pl.when(pl.col("group").is_not_null()).then(pl.format("{}, {}, ", "group", rule)).otherwise(pl.lit(""))
    found = select(rows, measure=("dip", "bimodality_coefficient"))
    return found.with_columns(who=group + pl.col("truth").replace(TRUTHS))


def _finds_pathway(rows: pl.DataFrame) -> Said | None:
    area = find(rows, measure="auc", aspect="within_truth", variant="log_odds")
    return told(area, above(area, HALF), three_digits, "AUC within truth")


SECTION = SectionSpec(
    slug="saliency",
    title="Saliency",
    rows=lambda findings: statistics(findings, "saliency"),
    asks="How much does the verdict lean on attention from answer to key words? Attention times its slope; nothing is "
    "cut.",
    careful="The loss has no slope where the probe is sure; log-odds are free of that. A cut is no small change, a "
    "slope is.",
    answer=Answer(
        "Saliency finds the Q-Anchored items better than guessing, within true and within false answers",
        "Saliency does not find the Q-Anchored items within true and within false answers",
        "Whether saliency finds the Q-Anchored items is undecided",
        _finds_pathway,
    ),
    charts=(
        ChartSpec(
            "saliency",
            "saliency from question to answer",
            "Density over items of the saliency from question to answer, by truth and by pathway",
            "Dotted: all items of the panel.",
            _note,
            _drawn,
            lambda _: _PANELS,
            by="variant",
            by_words=lambda loss: LOSSES.get(loss, loss),
            height=1.9,
            gap=0.4,
            legend_columns=5,
            made=lambda findings: bool(_items(findings).filter(pl.col("value") > 0).height),
        ),
    ),
    tables=(
        TableSpec(
            "How well it finds the Q-Anchored items (AUC, 0.5 is guessing)",
            (Key("measure", "score", {"auc": "saliency", "auc_share": "share"}), _OF, RULE),
            (
                value("all answers", three_digits, aspect="", truth="all"),
                p_value(aspect="", truth="all"),
                items(aspect="", truth="all"),
                value("within truth", three_digits, aspect="within_truth"),
                p_value(aspect="within_truth"),
                value("true answers", three_digits, aspect="", truth="true"),
                value("false answers", three_digits, aspect="", truth="false"),
            ),
            lambda rows: select(rows, measure=("auc", "auc_share")),
        ),
        TableSpec(
            "The groups",
            (Key("measure", "quantity", {"log10_question_to_answer": "log10 question to answer"}), _OF, RULE, TRUTH),
            both_groups(estimate),
            lambda rows: select(rows, measure=("log10_question_to_answer", "share")),
        ),
        TableSpec(
            "One hump or two (of log10 S): a small p of the dip speaks against one, a coefficient above 0.556 for two",
            (_OF, Key("who", "items of")),
            (
                value("dip", three_digits, quantity="dip"),
                p_value(quantity="dip"),
                value("dip within folds", three_digits, quantity="dip_within_folds"),
                p_value(quantity="dip_within_folds"),
                value("coefficient", three_digits, quantity="bimodality_coefficient"),
                value("coefficient within folds", three_digits, quantity="bimodality_coefficient_within_folds"),
                items(),
            ),
            _shapes,
        ),
        TableSpec(
            "How much of the spread of the loss's saliency is the probe's confidence",
            (),
            (value("share of the variance", percent), items()),
            lambda rows: select(rows, quantity="confidence_variance_share"),
        ),
    ),
)
