"""What a finished run hands to the report: its tables and a few words, and how to look up numbers in them.

The report reads this record and nothing else, so that a page can be drawn again from a run folder, from a test, or
from several runs at once, without a model and without torch. The tables have the columns of the run folder's files;
`summary` is tidy (one number per row) because quantities will be added over time, and a missing one must not break
the page. Nothing is filled in: a row that is not there is None.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

import numpy as np
import polars as pl

from anchorscope.artefacts.schema import (
    BAND,
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
from anchorscope.report.verdicts import WIDEST_SHARE
from anchorscope.report.wording import count
from anchorscope.stats.curves import FEWEST_GROUPS, SampledCurve
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
    """The group of every item (pathways.parquet)."""
    summary: pl.DataFrame
    """dataset, site, position, intervention, group, quantity, value, ci_low, ci_high, n, method."""
    counts: pl.DataFrame
    """One row per dataset: what became of the questions that were read."""
    reference_layers: Mapping[str, tuple[int, ...]]
    """Per dataset, the reference layer l* of each fold at the headline site."""
    facts: Mapping[str, str]
    """What was run, in display order."""
    command: str
    random_weights: bool = False
    """Whether the model's weights were drawn at random: then every number here is noise, and the page says so."""
    experiments: pl.DataFrame = field(default_factory=lambda: empty(EXPERIMENT_SCHEMA))
    """Statistics of the further experiments (experiments.csv)."""
    experiment_items: pl.DataFrame = field(
        default_factory=lambda: empty(EXPERIMENT_ITEM_SCHEMA)
    )
    """What the further experiments measured on each item (experiment_items.parquet)."""
    unavailable: pl.DataFrame = field(default_factory=lambda: empty(UNAVAILABLE_SCHEMA))
    """Experiments that were asked for and cannot be done on a dataset."""
    curve_samples: pl.DataFrame = field(default_factory=lambda: empty(SAMPLE_SCHEMA))
    """The chart's knockout curves (truth all, headline place) in every bootstrap draw (curve_samples.parquet)."""
    effects: pl.DataFrame = field(default_factory=lambda: empty(EFFECT_SCHEMA))
    """Log-odds of single items before and after every intervention (effects.parquet), at the headline place."""
    evidence_parts: pl.DataFrame = field(default_factory=lambda: empty(PART_SCHEMA))
    """The parts of the evidence with their controls (evidence_parts.csv)."""
    evidence_tests: pl.DataFrame = field(
        default_factory=lambda: empty(EVIDENCE_TEST_SCHEMA)
    )
    """Numbers beside them (evidence_tests.csv)."""
    evidence_items: pl.DataFrame = field(
        default_factory=lambda: empty(EVIDENCE_ITEM_SCHEMA)
    )
    """Their terms item by item (evidence_items.parquet)."""
    parameters: int = 0
    """How large the model is; 0 where that is not known."""
    folder: str = ""
    """Where the run lies, as its user named it."""
    options: Mapping[str, Any] | None = None
    """Those of the run, where its model was given in memory, so that only a call in Python can run it again."""
    warnings: tuple[str, ...] = ()
    """What may make the numbers worth less than they look; one sentence each, without a full stop."""

    def at_headline(self, table: pl.DataFrame) -> pl.DataFrame:
        """The rows of a table at the headline site and position."""
        return table.filter(
            pl.col("site") == self.site, pl.col("position") == self.position
        )

    def drawn_curves(
        self, dataset: str, group: str, intervention: str = "knockout"
    ) -> pl.DataFrame:
        """The rows of one line of the chart that have a number."""
        wanted = {
            "dataset": dataset,
            "group": group,
            "intervention": intervention,
            "truth": "all",
        }
        return select(self.at_headline(self.curves), **wanted).filter(
            pl.col("delta_p").is_finite()
        )


# Rows of any table

TRUTHS = {"all": "all answers", "true": "true answers", "false": "false answers"}
Wanted = str | int | bool | Sequence[str] | None
"""The value asked for; None asks for null, several values for any of them."""
Where = Mapping[str, Wanted]
"""Column → the value asked for."""


def select(table: pl.DataFrame, **columns: Wanted) -> pl.DataFrame:
    """Rows whose columns are as asked; the truth "all" is also what has no truth at all."""
    fits = pl.lit(True)
    for column, value in columns.items():
        if value is None:
            fits &= pl.col(column).is_null()
        elif column == "truth" and value == "all":
            fits &= pl.col(column).is_null() | (pl.col(column) == "all")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            fits &= pl.col(column).is_in(list(value))
        else:
            fits &= pl.col(column) == value
    return table.filter(fits)


def first_row(table: pl.DataFrame, **columns: Wanted) -> Mapping[str, Any] | None:
    """The first row that `select` would give."""
    rows = select(table, **columns)
    return rows.row(0, named=True) if rows.height else None


def find(table: pl.DataFrame, **columns: Wanted) -> Estimate | None:
    """The first row that fits, as an estimate."""
    row = first_row(table, **columns)
    return None if row is None else row_estimate(row)


def present(table: pl.DataFrame, column: str, order: Sequence[str] = ()) -> list[str]:
    """Values of a column: those of the order first, the others as they come."""
    values = [
        str(value) for value in table[column].drop_nulls().unique(maintain_order=True)
    ]
    return [
        *(name for name in order if name in values),
        *(name for name in values if name not in order),
    ]


def row_estimate(row: Mapping[str, Any], column: str = "value") -> Estimate:
    """A row of a table as an estimate; a missing end of the interval is NaN."""
    low, high = (
        math.nan if row[name] is None else float(row[name])
        for name in ("ci_low", "ci_high")
    )
    return Estimate(
        float(row[column]), low, high, row["n"] or 0, row.get("method") or ""
    )


def first_estimate(rows: pl.DataFrame, column: str = "value") -> Estimate | None:
    """The first row as an estimate; None where there is none, or without a finite value."""
    row = rows.row(0, named=True) if rows.height else None
    return (
        None
        if row is None or row[column] is None or not math.isfinite(row[column])
        else row_estimate(row, column)
    )


# The summary and the AUCs


def summary_of(
    findings: Findings,
    dataset: str,
    quantity: str,
    *,
    intervention: str | None = None,
    group: str | None = None,
) -> Estimate | None:
    """One quantity at the headline site; a column that is null in the table ("not applicable") fits every request."""
    asked = {"intervention": intervention, "group": group}
    asked |= {"site": findings.site, "position": findings.position}
    rows = select(findings.summary, dataset=dataset, quantity=quantity)
    for column, value in asked.items():
        if value is not None:
            rows = rows.filter(pl.col(column).is_null() | (pl.col(column) == value))
    # An exact row is better than one that fits because a column does not apply, or was not asked.
    other = [
        pl.col(name).is_null() == (value is not None) for name, value in asked.items()
    ]
    return first_estimate(rows.sort(pl.sum_horizontal(other), maintain_order=True))


def auc_of(findings: Findings, dataset: str, kind: str) -> Estimate | None:
    """The AUC of a baseline, which has no layer and no site."""
    return first_estimate(
        select(findings.probe_scores, dataset=dataset, kind=kind, layer=None), "auc"
    )


def nested_auc(
    findings: Findings,
    dataset: str,
    intervention: str = "clean",
    *,
    kind: str = "nested",
    site: str | None = None,
) -> Estimate | None:
    """The headline AUC of a site: every fold at its own reference layer, so that no layer is picked by its score."""
    where = {
        "site": site or findings.site,
        "position": findings.position,
        "intervention": intervention,
    }
    return first_estimate(
        select(findings.probe_scores, dataset=dataset, kind=kind, **where), "auc"
    )


def headline_effects(
    effects: pl.DataFrame | pl.LazyFrame, site: str, position: str
) -> pl.DataFrame:
    """The rows that the page shows of single items: those of the chart's place."""
    fits = (pl.col("site") == site) & (pl.col("position") == position)
    return effects.lazy().filter(fits).collect()


# Rows of experiments.csv, for the experiments' sections

_ASPECT = r"_(difference|within_truth|within_folds|permuted)$"


def statistics(findings: Findings, experiment: str, *quantities: str) -> pl.DataFrame:
    """Rows of one experiment at the headline place that have a value; all of its quantities where none is named."""
    fits = pl.lit(True)
    for column, value in (("site", findings.site), ("position", findings.position)):
        fits &= pl.col(column).is_null() | (pl.col(column) == value)
    wanted = (
        fits
        & (pl.col("experiment") == experiment)
        & pl.col("dataset").is_in(list(findings.datasets))
    )
    if quantities:
        wanted &= pl.col("quantity").is_in(list(quantities))
    return with_aspects(
        findings.experiments.filter(wanted & pl.col("value").is_finite())
    )


def with_aspects(table: pl.DataFrame) -> pl.DataFrame:
    """The rows, with `measure` and `aspect`: "kappa_difference" is the measure kappa in its aspect difference."""
    quantity = pl.col("quantity")
    return table.with_columns(
        pl.col("truth").fill_null("all")
        if "truth" in table.columns
        else pl.lit("all").alias("truth"),
        measure=quantity.str.replace(_ASPECT, ""),
        aspect=quantity.str.extract(_ASPECT, 1).fill_null(""),
    )


def interventions(findings: Findings) -> pl.DataFrame:
    """Rows of the summary at the headline place that belong to an intervention and have a value."""
    fits = (
        pl.col("dataset").is_in(list(findings.datasets)) & pl.col("value").is_finite()
    )
    return with_aspects(
        findings.at_headline(findings.summary).filter(
            fits & pl.col("intervention").is_not_null()
        )
    )


def datasets_in(findings: Findings, table: pl.DataFrame) -> tuple[str, ...]:
    """The run's datasets that a table has rows of."""
    there = set(table["dataset"])
    return tuple(name for name in findings.datasets if name in there)


def sampled_curve(findings: Findings, dataset: str, group: str) -> SampledCurve | None:
    """A line of the paper's chart with its bootstrap draws; None where the run has none, or the group no items."""
    samples = select(
        findings.at_headline(findings.curve_samples), dataset=dataset, group=group
    )
    draws = np.array(samples.sort("layer")["delta_p"].to_list(), dtype=np.float64).T
    if not draws.size or not np.isfinite(draws[0]).all():
        return None
    line = findings.drawn_curves(dataset, group)
    items, groups = (
        line.select(pl.col("n", "n_groups").fill_null(0)).row(0)
        if line.height
        else (0, 0)
    )
    few = groups < FEWEST_GROUPS  # then nothing is known of its spread
    return SampledCurve(
        draws[0], np.full_like(draws[1:], np.nan) if few else draws[1:], items
    )


# The parts of the evidence, over the band of layers, and the numbers beside them

PARTS = {
    "together": "only question and answer together",
    "question": "the question alone",
    "answer": "the answer alone",
    "either": "either of them",
}
"""The four parts, which sum to 1, in words."""
NEEDS = {
    "needs-question": "needs the question's key words",
    "needs-answer": "needs the answer",
}
"""Sums of parts."""
TOGETHER, NEEDS_QUESTION = "together", "needs-question"
CONTROLS = {
    "random": "random words cut",
    "resample": "key words of another question",
    "paraphrase": "paraphrased question",
    "permuted": "labels permuted within relations",
    "random-weights": "random weights of the same shape",
}
"""What stands beside the knockout, in words."""
PROBE, WORDS, PERMUTED = "probe", "words + confidence", "permuted labels"
"""What reads truth, as evidence_tests.csv names them."""
_NEEDED = {"answers": 300, "groups": 20}
"""Used answers and groups that a sentence about shares needs."""
_LOWEST, _HIGHEST = -0.1, 1.1  # a share beyond is no statement about anything


def has_shares(findings: Findings) -> bool:
    """Whether any dataset of the run has parts."""
    return any(share_at(findings, dataset) is not None for dataset in findings.datasets)


def share_at(
    findings: Findings,
    dataset: str,
    intervention: str = "knockout",
    part: str = NEEDS_QUESTION,
) -> Estimate | None:
    """A share over the band."""
    table = findings.at_headline(findings.evidence_parts)
    return first_estimate(
        select(
            table, dataset=dataset, intervention=intervention, part=part, layer=BAND
        ),
        "share",
    )


def why_silent(findings: Findings, dataset: str) -> str | None:
    """Why nothing is said about this dataset's shares; None where something may be."""
    for name, needed in _NEEDED.items():
        result = first_estimate(evidence_rows(findings, dataset, name))
        if result is not None and result.value < needed:
            return (
                f"{count(round(result.value))} used {name}, {count(needed)} are needed"
            )
    share = share_at(findings, dataset, part=TOGETHER)
    if share is None:
        return "the run did not measure its parts"
    areas = evidence_rows(findings, dataset, "auc")
    probe, permuted = (
        first_estimate(select(areas, group=name)) for name in (PROBE, PERMUTED)
    )
    if probe is None or not probe.ci_low > max(
        0.5, permuted.value if permuted else 0.5
    ):
        return "the probe reads truth no better than one of permuted labels"
    shares = [
        share
        for part in PARTS
        if (share := share_at(findings, dataset, part=part)) is not None
    ]
    if any(
        not _LOWEST <= share.value <= _HIGHEST
        or share.ci_high - share.ci_low > WIDEST_SHARE
        for share in shares
    ):
        return "there is too little evidence to divide"
    return None


def band_layers(findings: Findings, dataset: str) -> str:
    """The layers of the band, in words; empty where there is none."""
    names = select(findings.at_headline(findings.evidence_tests), dataset=dataset)[
        "layers"
    ].drop_nulls()
    return str(names[0]) if len(names) else ""


def band_numbers(findings: Findings, dataset: str) -> list[int]:
    """The same as numbers."""
    numbers: list[int] = []
    for run in filter(None, band_layers(findings, dataset).split(", ")):
        first, _, last = run.partition("–")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def share_layer(findings: Findings, dataset: str) -> int | None:
    """The middle layer of the band; of a run without one the middle one of the reference layers."""
    layers = band_numbers(findings, dataset)
    if layers:
        return layers[len(layers) // 2]
    return (
        median_low(findings.reference_layers[dataset])
        if findings.reference_layers.get(dataset)
        else None
    )


def evidence_rows(findings: Findings, dataset: str, quantity: str) -> pl.DataFrame:
    """The rows of evidence_tests.csv for a quantity that have a value, in file order."""
    tests = findings.at_headline(findings.evidence_tests).filter(
        pl.col("value").is_finite()
    )
    return select(tests, dataset=dataset, quantity=quantity)


def truth_readers(findings: Findings, dataset: str) -> dict[str, Estimate]:
    """AUC of the probe, then of what may read truth without the model's understanding, by name.

    The run's own null experiments where they were made. The nested probe, and words with confidence, every run has.
    """
    rows = evidence_rows(findings, dataset, "auc").iter_rows(named=True)
    readers = {row["group"] or "": row_estimate(row) for row in rows}
    nested = {
        PROBE: nested_auc(findings, dataset),
        WORDS: auc_of(findings, dataset, "words+confidence"),
    }
    for name, area in nested.items():
        if area is not None and (
            name not in readers or math.isnan(readers[name].ci_low)
        ):
            readers[name] = area
    return {
        name: readers[name] for name in sorted(readers, key=lambda name: name != PROBE)
    }
