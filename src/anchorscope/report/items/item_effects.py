"""What every intervention did to every single item, as arrays: the explorer, `show` and their tests read these.

ΔP of an item is what the curves average: 100 · (probability of the true label after − before), by the probe of the
item's fold. An item that was run several times (with several donors) is shown by the mean over its runs; weighted by
`runs`, the mean over a group's items is the curve of curves.csv.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anchorscope.catalogue import INTERVENTIONS
from anchorscope.evidence.measured import true_label_probability
from anchorscope.report.findings import Findings, summary_of

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

_ROW = "__row"  # no column of a table is called so


@dataclass(frozen=True)
class ItemEffects:
    """One intervention, on all the items that it was made on."""

    intervention: str
    variant: str
    """The edges that were cut or what was put in, without the number of the donor."""
    rows: Whole
    """Which rows of `findings.items` these are, ascending."""
    runs: Whole
    """How often each item was run."""
    n_cut: Floats
    """Tokens that were cut, replaced or dropped; the mean over the runs."""
    before: Floats
    """Log-odds of "truthful" in the untouched model, [item, layer]."""
    after: Floats
    """Log-odds under the intervention, mean over the runs, [item, layer]."""
    delta_p: Floats
    """Points of probability that the true label gains, mean over the runs, [item, layer]."""
    at_reference: Floats
    """`delta_p` at the reference layer of the item's fold; NaN where the item has none."""
    flips: Whole
    """In how many runs the probe's call at the reference layer changes by more than noise."""


def item_effects(findings: Findings) -> list[ItemEffects]:
    """All interventions, in the order in which the page shows them: ways to take the question away, then controls."""
    known = _numbered(findings)
    table = findings.effects.join(known, on=["dataset", "item_id"], how="inner", nulls_equal=True)
    table = table.with_columns(variant=pl.col("variant").str.replace(r" \d+$", "")).sort(_ROW, maintain_order=True)
    parts = table.partition_by("intervention", "variant", as_dict=True, maintain_order=True)
    order = {name: place for place, name in enumerate(INTERVENTIONS)}
    names = sorted(parts, key=lambda name: (order.get(str(name[0]), len(order)), name))
    noise = {name: _noise(findings, name) for name in findings.datasets}
    return [_effects(str(name), str(variant), parts[name, variant], noise) for name, variant in names]


def reference_layers(findings: Findings) -> list[int | None]:
    """The reference layer of every row of `findings.items`, as pathways.parquet has it; None where it is not used."""
    return _numbered(findings)["reference_layer"].to_list()


def headline_pathways(findings: Findings) -> pl.DataFrame:
    """pathways.parquet at the place of the chart."""
    here = (pl.col("site") == findings.site) & (pl.col("position") == findings.position)
    return findings.pathways.filter(here)


def _numbered(findings: Findings) -> pl.DataFrame:
    """Every item with its row, its label and its reference layer."""
    assigned = headline_pathways(findings).filter(pl.col("assignment") == "plain")
    layers = assigned.select("dataset", "item_id", "reference_layer").unique(["dataset", "item_id"])
    items = findings.items.select("dataset", "item_id", "truthful").with_row_index(_ROW)
    return items.join(layers, on=["dataset", "item_id"], how="left", maintain_order="left")


def _noise(findings: Findings, dataset: str) -> float:
    """The change in log-odds that cutting nothing stays below in 99 of 100 items."""
    found = summary_of(findings, dataset, "noise_log_odds_p99", intervention="none")
    return 0.0 if found is None else found.value


def _effects(intervention: str, variant: str, table: pl.DataFrame, noise: dict[str, float]) -> ItemEffects:
    before, after = (_matrix(table[name]) for name in ("logit_clean", "logit_after"))
    label = table["truthful"].fill_null(False).to_numpy()
    delta = 100 * (true_label_probability(after.T, label) - true_label_probability(before.T, label)).T
    layer = table["reference_layer"].cast(pl.Int64).fill_null(-1).to_numpy()
    known, at_layer = layer >= 0, (np.arange(len(layer)), np.maximum(layer, 0))
    floor = table["dataset"].replace_strict(noise, default=0.0, return_dtype=pl.Float64).to_numpy()
    flipped = (
        ((after[at_layer] > 0) != (before[at_layer] > 0)) & (np.abs(after[at_layer] - before[at_layer]) > floor) & known
    )
    rows, starts, runs = np.unique(table[_ROW].to_numpy(), return_index=True, return_counts=True)

    def mean(values: Floats) -> Floats:
        """Over the runs of each item; rows are sorted by item."""
        sums = np.add.reduceat(values, starts, axis=0)
        return sums / (runs[:, None] if values.ndim > 1 else runs)

    return ItemEffects(
        intervention=intervention,
        variant=variant,
        rows=rows.astype(np.int64),
        runs=runs.astype(np.int64),
        n_cut=mean(table["n_cut"].to_numpy().astype(np.float64)),
        before=before[starts],
        after=mean(after),
        delta_p=mean(delta),
        at_reference=mean(np.where(known, delta[at_layer], np.nan)),
        flips=np.add.reduceat(flipped.astype(np.int64), starts),
    )


def _matrix(column: pl.Series) -> Floats:
    """[row, layer] of a column of lists, all as long as the model is deep."""
    return column.explode().to_numpy().astype(np.float64).reshape(len(column), -1)
