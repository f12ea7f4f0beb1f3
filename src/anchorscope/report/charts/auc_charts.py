"""AUC per layer: how well a probe tells true from false answers, and what is left of that when the question is cut.

A probe's AUC means little alone: the relation asked for, the words, or the model's own confidence may predict truth as
well. So the first chart has these baselines as level lines, and the AUC within relations, where a probe cannot gain by
knowing which relations are easy.

The second chart needs no threshold and no groups. `transfer` asks the probe that was trained on untouched states; it
falls where the signal is lost and also where it is merely written differently. `refit` trains a new probe on the states
under the cut; what it still reads cannot come from the tokens that were cut. The random control shows what cutting
anything would do.
"""

from typing import Any

import polars as pl

from anchorscope.report.findings import Findings
from anchorscope.report.palette import BASELINES, CONTROL_GREY, INK, SITE_COLOURS
from anchorscope.report.panel_figure import ChartSpec, Lines, Series
from anchorscope.report.result_rows import present

WITHIN = "within-relation"
_COLUMNS = ("dataset", "intervention", "kind", "site", "layer", "auc", "ci_low", "ci_high", "n")
_NOTE = "AUC = area under the ROC curve, out of fold; 0.5 is guessing. Bands: 95% intervals."
_MARKERS = {"attention": "s", "mlp": "o", "residual": "^"}
_BASELINE_LOOKS = {
    "relation-only": (CONTROL_GREY, ":"),
    "words": ("#4f2812", "--"),
    "confidence-mean": ("#54208a", "-."),
    "confidence-min": ("#ee4d8e", (0, (3, 1, 1, 1, 1, 1))),
}


def _marked(colour: str, marker: str, linestyle: str = "-") -> dict[str, Any]:
    marks = {"marker": marker, "markersize": 4.2, "markeredgewidth": 0.0, "markevery": 4}
    return {"color": colour, "linestyle": linestyle} | marks


def _probe_rows(findings: Findings) -> pl.DataFrame:
    """The clean probes of all sites, the headline site's within relations, and the baselines, which have no layer."""
    clean, layered = pl.col("intervention") == "clean", pl.col("layer").is_not_null()
    within = (pl.col("kind") == WITHIN) & (pl.col("site").is_null() | (pl.col("site") == findings.site))
    baselines = pl.col("kind").is_in(list(BASELINES)) & ~layered
    wanted = baselines | (clean & layered & ((pl.col("kind") == "transfer") | within))
    return _scores(findings, wanted).sort("dataset", "kind", "site", "layer", maintain_order=True)


def _probe_lines(data: pl.DataFrame) -> list[Lines]:
    sites = sorted(present(data.filter(pl.col("kind") == "transfer"), "site"))
    series = [
        Series(
            {"kind": "transfer", "site": site},
            _marked(SITE_COLOURS.get(site, "#007f8c"), _MARKERS.get(site, "D")),
            f"Probe at {site}",
        )
        for site in sites
    ]
    thin = {"color": INK, "linestyle": ":", "linewidth": 1.3}
    series.append(Series({"kind": WITHIN}, thin, "Probe within relations", "none"))
    for kind, (colour, stroke) in _BASELINE_LOOKS.items():
        look = {"color": colour, "linestyle": stroke, "linewidth": 1.4, "zorder": 2}
        series.append(Series({"kind": kind}, look, BASELINES[kind].capitalize(), "level"))
    return [Lines(series, "AUC", y="auc", null=0.5)]


_CUTS: tuple[tuple[str, str, dict[str, Any], str, str], ...] = (
    ("clean", "transfer", {"color": INK}, "Untouched", "band"),
    ("random", "transfer", {"color": CONTROL_GREY, "linestyle": ":", "linewidth": 1.2}, "Random words cut", "none"),
    ("knockout", "refit", _marked("#11692f", "s", "--"), "Key words cut, probe trained again", "band"),
    ("knockout", "transfer", _marked("#d4281e", "o"), "Key words cut, same probe", "band"),
)


def _surviving_rows(findings: Findings) -> pl.DataFrame:
    """Untouched and under the cuts, at the headline site."""
    wanted = pl.col("layer").is_not_null() & (pl.col("site") == findings.site)
    cuts = pl.concat_list("intervention", "kind").is_in([[cut, kind] for cut, kind, *_ in _CUTS])
    return _scores(findings, wanted & cuts).sort("dataset", "intervention", "kind", "layer")


def _surviving_lines(data: pl.DataFrame) -> list[Lines]:
    series = [Series({"intervention": cut, "kind": kind}, look, label, band) for cut, kind, look, label, band in _CUTS]
    return [Lines(series, "AUC", y="auc", null=0.5)]


def _scores(findings: Findings, wanted: pl.Expr) -> pl.DataFrame:
    here = pl.col("position").is_null() | (pl.col("position") == findings.position)
    known = pl.col("dataset").is_in(findings.datasets) & pl.col("auc").is_finite()
    return findings.probe_scores.filter(here & known & wanted).select(_COLUMNS)


PROBE_AUC = ChartSpec(
    "probe_auc",
    "telling true from false answers",
    "AUC per layer of the probes at each site, with baselines as level lines",
    "AUC out of fold: 0.5 is guessing.",
    _NOTE,
    _probe_rows,
    _probe_lines,
    height=3.0,
    share="y",
    legend_columns=2,
)
SURVIVING_SIGNAL = ChartSpec(
    "surviving_signal",
    "what survives the cut",
    "AUC per layer: untouched, random words hidden, key words hidden with the same and with a new probe",
    "“Trained again”: a new probe on the masked states.",
    _NOTE,
    _surviving_rows,
    _surviving_lines,
    height=3.0,
    share="y",
    legend_columns=2,
)
