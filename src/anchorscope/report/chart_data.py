"""What the page's charts can show, as compact JSON: one list of whole numbers per curve, not one object per point.

Values are stored in thousandths of a point (ΔP) and ten-thousandths (AUC, question share): what is shown is rounded
once more, and must not come out differently from the tables. A run with many experiments may have more curves than a
page should carry. Then what a reader would miss least goes first: further interventions at other sites and positions
than the chart's, the splits by truth there, the splits of further interventions, other by_site.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from anchorscope.catalogue import INTERVENTIONS, intervention_label
from anchorscope.report.assignment_rules import MENU_TITLES
from anchorscope.report.charts.auc_charts import BASELINES
from anchorscope.report.experiments.experiment_rows import TRUTHS, present
from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, dataset_styles, display_name
from anchorscope.report.shares import CONTROLS, share_layer

MOST_POINTS = 140_000  # about three megabytes
MAIN_INTERVENTIONS = ("knockout", "direct", "random", "none")
"""Those that the page carries for every site and position."""
CURVE_SCALE = 1_000
SCORE_SCALE = 10_000

_CURVE_KEYS = ("dataset", "site", "position", "intervention", "probe", "assignment", "group", "truth")
_SCORE_KEYS = ("dataset", "intervention", "kind", "site", "position")
_SHARE_KEYS = ("dataset", "site", "position", "intervention", "group", "truth")


def page_data(findings: Findings, most_points: int = MOST_POINTS) -> dict[str, Any]:
    """Everything that the interactive charts draw from."""
    all_curves = _curves(findings)
    curves = _that_fit(findings, all_curves, most_points)
    scores = findings.probe_scores.filter(pl.col("dataset").is_in(findings.datasets) & pl.col("auc").is_finite())
    return {
        "model": findings.model,
        "layers": findings.n_layers,
        "site": findings.site,
        "position": findings.position,
        "datasets": dataset_entries(findings.datasets),
        "groups": list(GROUPS),
        "rules": _named(present(curves, "assignment", tuple(MENU_TITLES)), MENU_TITLES),
        "sites": present(curves, "site", (findings.site,)),
        "positions": present(curves, "position", (findings.position,)),
        "interventions": [
            [name, intervention_label(name)] for name in present(curves, "intervention", tuple(INTERVENTIONS))
        ],
        "truths": _named(present(curves, "truth", tuple(TRUTHS)), TRUTHS),
        "references": _references(findings),
        "curves": {"scale": CURVE_SCALE, "rows": _rows(curves, _CURVE_KEYS, "delta_p", findings.n_layers, CURVE_SCALE)},
        "all_curves_here": curves.height == all_curves.height,
        "scores": {"scale": SCORE_SCALE, "rows": _rows(
            scores.filter(pl.col("layer").is_not_null()), _SCORE_KEYS, "auc", findings.n_layers, SCORE_SCALE)},
        "baselines": _baselines(scores),
        "shares": _shares(findings),
    }  # fmt: skip


def _shares(findings: Findings) -> dict[str, Any]:
    """The question share of every place, with the layer at which it is tested."""
    known = pl.col("share").is_finite() & pl.col("dataset").is_in(findings.datasets)
    rows = findings.question_share.filter(known)
    tested = {name: share_layer(findings, name) for name in findings.datasets} if rows.height else {}
    return {
        "scale": SCORE_SCALE,
        "rows": _rows(rows, _SHARE_KEYS, "share", findings.n_layers, SCORE_SCALE),
        "controls": [[name, CONTROLS[name]] for name in present(rows, "intervention", tuple(CONTROLS))
                     if name in CONTROLS],
        "truths": _named(present(rows, "truth", tuple(TRUTHS)), TRUTHS),
        "sites": present(rows, "site", (findings.site,)),
        "positions": present(rows, "position", (findings.position,)),
        "layers": {name: layer for name, layer in tested.items() if layer is not None},
    }  # fmt: skip


def dataset_entries(datasets: Sequence[str]) -> list[dict[str, str]]:
    """How the charts name and draw each dataset; one alone needs no marker."""
    return [
        {"id": name, "name": display_name(name), "q": colours.q_colour, "a": colours.a_colour,
         "marker": colours.marker if len(datasets) > 1 else ""}
        for name, colours in dataset_styles(datasets).items()
    ]  # fmt: skip


def _curves(findings: Findings) -> pl.DataFrame:
    """Rows of curves.csv that have a value and items; `probe` says which one measures."""
    there = pl.col("delta_p").is_finite() & (pl.col("n") > 0) & pl.col("dataset").is_in(findings.datasets)
    again = pl.col("variant").eq_missing("refit")
    return findings.curves.filter(there).with_columns(
        probe=pl.when(again).then(pl.lit("again")).otherwise(pl.lit("same"))
    )


def _that_fit(findings: Findings, curves: pl.DataFrame, most_points: int) -> pl.DataFrame:
    here = (pl.col("site") == findings.site) & (pl.col("position") == findings.position)
    main = pl.col("intervention").is_in(MAIN_INTERVENTIONS)
    undivided = pl.col("truth") == "all"
    steps = (pl.lit(True), here | main, here | (main & undivided), (here & (main | undivided)) | (main & undivided))
    for wanted in steps:
        kept = curves.filter(wanted)
        if kept.height <= most_points:
            return kept
    return curves.filter(here & main)


def _rows(table: pl.DataFrame, keys: Sequence[str], value: str, n_layers: int, scale: int) -> list[list[Any]]:
    """One row per curve: its keys, the items behind it, and three lists over the layers."""
    columns = (value, "ci_low", "ci_high")
    grouped = table.sort("layer").group_by(keys, maintain_order=True)
    found = grouped.agg("layer", pl.col("n").max().alias("items"), *columns)
    rows = []
    for row in found.iter_rows(named=True):
        lists = [_by_layer(row["layer"], row[name], n_layers, scale) for name in columns]
        rows.append([*(row[key] for key in keys), row["items"], *lists])
    return rows


def _by_layer(layers: Iterable[int], values: Iterable[float | None], n_layers: int, scale: int) -> list[int | None]:
    placed: list[int | None] = [None] * n_layers
    for layer, value in zip(layers, values, strict=True):
        placed[layer] = _whole(value, scale)
    return placed


def _whole(value: float | None, scale: int) -> int | None:
    return None if value is None or not math.isfinite(value) else round(value * scale)


def _references(findings: Findings) -> list[list[Any]]:
    """Per dataset, site and position the reference layers of the folds, as the plain rule used them."""
    if not findings.pathways.height:
        return [[name, findings.site, findings.position, sorted(set(layers))]
                for name, layers in findings.reference_layers.items()]  # fmt: skip
    plain = findings.pathways.filter(pl.col("assignment") == "plain").drop_nulls("reference_layer")
    by_site = plain.group_by("dataset", "site", "position", maintain_order=True).agg(pl.col("reference_layer").unique())
    found = {(d, s, p): sorted(layers) for d, s, p, layers in by_site.iter_rows()}
    for name, layers in findings.reference_layers.items():
        found[name, findings.site, findings.position] = sorted(set(layers))
    return [[*place, layers] for place, layers in found.items()]


def _baselines(scores: pl.DataFrame) -> list[list[Any]]:
    rows = scores.filter(pl.col("kind").is_in(list(BASELINES)) & pl.col("layer").is_null())
    return [
        [dataset, kind, BASELINES[kind], *(_whole(value, SCORE_SCALE) for value in numbers)]
        for dataset, kind, *numbers in rows.select("dataset", "kind", "auc", "ci_low", "ci_high").iter_rows()
    ]


def _named(values: Iterable[str], names: dict[str, str]) -> list[list[str]]:
    return [[value, names.get(value, value)] for value in values]
