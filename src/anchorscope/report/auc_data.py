"""The two charts of AUC to touch: what the probes read beside simpler guesses, and what survives the cuts."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from anchorscope.report.charts.live_chart import (
    Axis,
    LiveChart,
    LivePanel,
    Menu,
    chart_menu,
    live_lines,
    place_menus,
    spanned,
)
from anchorscope.report.findings import Findings
from anchorscope.report.looks import BASELINES, SURVIVING_LOOKS, WITHIN, Look, probe_looks
from anchorscope.report.palette import display_name
from anchorscope.report.result_rows import present

SCALE = 10_000


def probe_chart(findings: Findings) -> LiveChart:
    """AUC of the probes of all sites, beside everything simpler that could do the same."""
    table = probe_scores(findings)
    levels = table.filter(pl.col("layer").is_null()).with_columns(layer=pl.int_ranges(0, findings.n_layers))
    table = table.filter(pl.col("layer").is_not_null())
    menus = _menus(findings, table)
    lines = _lines(findings, table, menus)
    lines += _lines(findings, levels.explode("layer"), menus, anyway=("position",))
    looks = probe_looks(present(table, "site"), findings.site)
    return _chart(findings, "auc", "probe_auc", "Telling true from false answers", menus, looks, lines)


def surviving_chart(findings: Findings) -> LiveChart:
    """AUC of one site's probe before and after the cuts."""
    table = surviving_scores(findings)
    menus = _menus(findings, table, sites=True)
    lines = _lines(findings, table, menus)
    return _chart(findings, "sig", "surviving_signal", "What survives the cut", menus, SURVIVING_LOOKS, lines)


def probe_scores(findings: Findings) -> pl.DataFrame:
    """The clean probes, the headline site's within relations, and the baselines (no layer); `line` names the look."""
    clean, layered = pl.col("intervention") == "clean", pl.col("layer").is_not_null()
    within = (pl.col("kind") == WITHIN) & (pl.col("site").is_null() | (pl.col("site") == findings.site))
    levels = pl.col("kind").is_in(list(BASELINES)) & pl.col("layer").is_null()
    probes = (pl.col("kind") == "transfer") & layered
    line = pl.when(pl.col("kind") == "transfer").then(pl.col("site")).otherwise(pl.col("kind"))
    return _scores(findings).filter(levels | (clean & (probes | within))).with_columns(line=line)


def surviving_scores(findings: Findings) -> pl.DataFrame:
    """Untouched, and under the cuts; `line` names the look."""
    line = pl.concat_str("intervention", pl.lit("/"), "kind")
    found = _scores(findings).filter(pl.col("layer").is_not_null()).with_columns(line=line)
    return found.filter(pl.col("line").is_in(list(SURVIVING_LOOKS)))


def auc_span(findings: Findings) -> tuple[float, float]:
    """One y axis for both charts."""
    drawn = pl.concat([probe_scores(findings), surviving_scores(findings)])
    low, high = spanned(drawn, "auc", 0.05, (0.5, 0.6))
    return low, min(1.0, high)


def _scores(findings: Findings) -> pl.DataFrame:
    return findings.probe_scores.filter(pl.col("dataset").is_in(findings.datasets) & pl.col("auc").is_finite())


def _lines(
    findings: Findings, table: pl.DataFrame, menus: Sequence[Menu], anyway: Sequence[str] = ()
) -> list[list[Any]]:
    return live_lines(table, menus, "auc", SCALE, findings.n_layers, anyway=anyway)


def _menus(findings: Findings, table: pl.DataFrame, *, sites: bool = False) -> list[Menu]:
    names = {name: display_name(name) for name in findings.datasets}
    site, position = place_menus([table], {"site": findings.site, "position": findings.position})
    return [chart_menu("dataset", "Dataset", [table], names, named=True), *([site] if sites else []), position]


def _chart(
    findings: Findings,
    prefix: str,
    file: str,
    title: str,
    menus: Sequence[Menu],
    looks: Mapping[str, Look],
    lines: list[list[Any]],
) -> LiveChart:
    axis = Axis("AUC", *auc_span(findings), 0.5, 3)
    panel = LivePanel(findings.n_layers, lines)
    return LiveChart(prefix, "auc", title, axis, SCALE, menus, looks, [panel], file=file)
