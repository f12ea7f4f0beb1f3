"""What a finished run hands to the report: tables and a few words, nothing that computes.

The report reads this record and nothing else, so that a page can be drawn again from a run folder, from a test, or
from several runs at once, without a model and without torch. The tables have the columns of the run folder's files;
`summary` is tidy (one number per row) because quantities will be added over time, and a missing one must not break
the page.
Looking up a single number of it is here as well.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

import polars as pl

from anchorscope.artefacts.schema import (
    EFFECT_SCHEMA,
    EVIDENCE_ITEM_SCHEMA,
    EVIDENCE_TEST_SCHEMA,
    EXPERIMENT_ITEM_SCHEMA,
    EXPERIMENT_SCHEMA,
    PART_SCHEMA,
    SAMPLE_SCHEMA,
    UNAVAILABLE_SCHEMA,
    empty,
)
from anchorscope.stats.estimate import Estimate


@dataclass(frozen=True)
class Findings:
    """One run, as the report sees it."""

    model: str
    """Display name, for example "SmolLM2-135M-Instruct"."""
    n_layers: int
    """Number of blocks; layers are 0 … n_layers − 1."""
    site: str
    """The headline site, for example "mlp"."""
    position: str
    """The headline position, for example "final"."""
    datasets: tuple[str, ...]
    """Names in the order in which they are shown."""
    items: pl.DataFrame
    """One row per item, used or not (items.parquet)."""
    probe_scores: pl.DataFrame
    """AUC per intervention, kind, site, position and layer (probe_scores.csv); baselines have no layer."""
    curves: pl.DataFrame
    """Mean ΔP per layer (curves.csv) for the interventions knockout, random and none."""
    pathways: pl.DataFrame
    """The group of every item under every assignment (pathways.parquet), with the probe that assigned it."""
    reference_curves: pl.DataFrame
    """Like `curves` (plain, knockout, truth all, headline site), with the layers that l* was moved by in `shift`."""
    summary: pl.DataFrame
    """dataset, site, position, assignment, intervention, group, quantity, value, ci_low, ci_high, n, method."""
    counts: pl.DataFrame
    """One row per dataset: what became of the questions that were read."""
    reference_layers: Mapping[str, tuple[int, ...]]
    """Per dataset, the reference layer l* of each fold at the headline site."""
    facts: Mapping[str, str]
    """What was run, in display order."""
    command: str
    """The command that repeats the run."""
    steps: pl.DataFrame
    """step, seconds, peak_memory_mb."""
    random_weights: bool = False
    """Whether the model's weights were drawn at random: then every number here is noise, and the page says so."""
    experiments: pl.DataFrame = field(default_factory=lambda: empty(EXPERIMENT_SCHEMA))
    """Statistics of the further experiments (experiments.csv)."""
    experiment_items: pl.DataFrame = field(default_factory=lambda: empty(EXPERIMENT_ITEM_SCHEMA))
    """What the further experiments measured on each item (experiment_items.parquet)."""
    unavailable: pl.DataFrame = field(default_factory=lambda: empty(UNAVAILABLE_SCHEMA))
    """Experiments that were asked for and cannot be done on a dataset."""
    curve_samples: pl.DataFrame = field(default_factory=lambda: empty(SAMPLE_SCHEMA))
    """The chart's knockout curves (truth all, headline place) in every bootstrap draw (curve_samples.parquet)."""
    effects: pl.DataFrame = field(default_factory=lambda: empty(EFFECT_SCHEMA))
    """Log-odds of single items before and after every intervention (effects.parquet): headline place, probe `full`."""
    evidence_parts: pl.DataFrame = field(default_factory=lambda: empty(PART_SCHEMA))
    """The parts of the evidence with their controls (evidence_parts.csv); older runs have none."""
    evidence_tests: pl.DataFrame = field(default_factory=lambda: empty(EVIDENCE_TEST_SCHEMA))
    """Numbers beside them (evidence_tests.csv)."""
    evidence_items: pl.DataFrame = field(default_factory=lambda: empty(EVIDENCE_ITEM_SCHEMA))
    """Their terms item by item (evidence_items.parquet)."""
    parameters: int = 0
    """How large the model is; 0 where that is not known."""
    folder: str = ""
    """Where the run lies, as its user named it."""
    options: Mapping[str, Any] | None = None
    """Those of the run, where its model was given in memory, so that only a call in Python can run it again."""
    supplied: Mapping[str, int] = field(default_factory=dict)
    """Per dataset, how many of the asked questions brought their answer: the model did not write these."""
    balanced_by: Mapping[str, str] = field(default_factory=dict)
    """Per dataset, where true and false answers were really balanced: `relation`, `dataset` or `none`."""
    grouped_by: Mapping[str, str] = field(default_factory=dict)
    """Per dataset, what really kept items in one fold: `subject`, `question` (nothing but itself) or `answer`."""
    warnings: tuple[str, ...] = ()
    """What may make the numbers worth less than they look; one sentence each, without a full stop."""

    def drawn_curves(self, dataset: str, rule: str, group: str, intervention: str = "knockout") -> pl.DataFrame:
        """The rows of one line of the chart that have a number."""
        wanted = {"dataset": dataset, "assignment": rule, "group": group, "intervention": intervention, "truth": "all"}
        here = wanted | {"site": self.site, "position": self.position}
        return self.curves.filter(pl.col("delta_p").is_finite(), *(pl.col(key) == value for key, value in here.items()))


def headline_effects(effects: pl.DataFrame | pl.LazyFrame, site: str, position: str) -> pl.DataFrame:
    """The rows that the page shows of single items: the chart's place, the probe that was trained on all folds."""
    here = (pl.col("site") == site) & (pl.col("position") == position) & (pl.col("probe") == "full")
    return effects.lazy().filter(here).collect()


def summary_of(
    findings: Findings,
    dataset: str,
    quantity: str,
    *,
    assignment: str | None = None,
    intervention: str | None = None,
    group: str | None = None,
) -> Estimate | None:
    """One quantity at the headline site; a column that is null in the table ("not applicable") fits every request."""
    fits = (pl.col("dataset") == dataset) & (pl.col("quantity") == quantity)
    asked = {
        "site": findings.site,
        "position": findings.position,
        "assignment": assignment,
        "intervention": intervention,
        "group": group,
    }
    for column, value in asked.items():
        if value is not None:
            fits &= pl.col(column).is_null() | (pl.col(column) == value)
    rows = findings.summary.filter(fits)
    if rows.height > 1:  # an exact row is better than one that fits because a column does not apply, or was not asked
        other = [pl.col(name).is_null() == (value is not None) for name, value in asked.items()]
        rows = rows.sort(pl.sum_horizontal(other), maintain_order=True)
    return first_estimate(rows)


def auc_of(findings: Findings, dataset: str, kind: str) -> Estimate | None:
    """The AUC of a baseline, which has no layer and no site."""
    mine = (pl.col("dataset") == dataset) & (pl.col("kind") == kind) & pl.col("layer").is_null()
    return first_estimate(findings.probe_scores.filter(mine), "auc")


def nested_auc(
    findings: Findings, dataset: str, intervention: str = "clean", *, kind: str = "nested", site: str | None = None
) -> Estimate | None:
    """The headline AUC of a site: every fold at its own reference layer, so that no layer is picked by its score."""
    here = {
        "dataset": dataset,
        "kind": kind,
        "intervention": intervention,
        "site": site or findings.site,
        "position": findings.position,
    }
    return first_estimate(findings.probe_scores.filter(*(pl.col(name) == value for name, value in here.items())), "auc")


def headline_layer(findings: Findings, dataset: str) -> int | None:
    """The middle one of the folds' reference layers: where a single layer must stand for all folds."""
    layers = findings.reference_layers.get(dataset, ())
    return median_low(layers) if layers else None


def row_estimate(row: Mapping[str, Any], column: str = "value") -> Estimate:
    """A row of a table as an estimate; a missing end of the interval is NaN."""
    low, high = (math.nan if row[name] is None else float(row[name]) for name in ("ci_low", "ci_high"))
    return Estimate(float(row[column]), low, high, row["n"] or 0, row.get("method") or "")


def first_estimate(rows: pl.DataFrame, column: str = "value") -> Estimate | None:
    """The first row as an estimate; None where there is none, or without a finite value."""
    row = rows.row(0, named=True) if rows.height else None
    return None if row is None or row[column] is None or not math.isfinite(row[column]) else row_estimate(row, column)
