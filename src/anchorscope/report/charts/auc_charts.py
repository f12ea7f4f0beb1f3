"""AUC per layer: how well a probe tells true from false answers, and what is left of that when the question is cut.

A probe's AUC means little alone: the relation asked for, the words, or the model's own confidence may predict truth as
well. So these baselines are level lines. The cuts need no threshold and no groups. "Same probe" asks the probe that was
trained on untouched states; it falls where the signal is lost and also where it is merely written differently.
"Trained again" is a new probe on the states under the cut; what it still reads cannot come from the tokens that were
cut. The random control shows what cutting anything would do.
"""

from typing import Any

import polars as pl

from anchorscope.report.findings import Findings
from anchorscope.report.palette import BASELINES, CONTROL_GREY, INK
from anchorscope.report.panel_figure import ChartSpec, Lines, Series

_COLUMNS = ("dataset", "intervention", "kind", "site", "layer", "auc", "ci_low", "ci_high", "n")
_BASELINE_LOOKS: dict[str, tuple[str, Any]] = {
    "relation-only": ("#b9a27c", ":"),
    "words": ("#4f2812", "--"),
    "confidence-mean": ("#54208a", "-."),
    "confidence-min": ("#ee4d8e", (0, (3, 1, 1, 1, 1, 1))),
}
_MARKS = {"markersize": 4.2, "markeredgewidth": 0.0, "markevery": 4}
_CUTS: tuple[tuple[str, str, dict[str, Any], str, str], ...] = (
    ("clean", "transfer", {"color": INK}, "Probe, untouched", "band"),
    ("random", "transfer", {"color": CONTROL_GREY, "linestyle": ":", "linewidth": 1.2}, "Random words cut", "none"),
    (
        "knockout",
        "refit",
        {"color": "#11692f", "marker": "s", "linestyle": "--"} | _MARKS,
        "Key words cut, probe trained again",
        "band",
    ),
    ("knockout", "transfer", {"color": "#d4281e", "marker": "o"} | _MARKS, "Key words cut, same probe", "band"),
)
"""Intervention, kind, look, label and interval of every line."""


def _rows(findings: Findings) -> pl.DataFrame:
    """Untouched and under the cuts, at the headline site, and the baselines, which have no layer and no site."""
    cuts = pl.concat_list("intervention", "kind").is_in([[cut, kind] for cut, kind, *_ in _CUTS])
    lines = cuts & (pl.col("site") == findings.site) & (pl.col("position") == findings.position)
    levels = pl.col("kind").is_in(list(BASELINES)) & pl.col("layer").is_null()
    known = pl.col("dataset").is_in(findings.datasets) & pl.col("auc").is_finite()
    rows = findings.probe_scores.filter(known & ((lines & pl.col("layer").is_not_null()) | levels))
    return rows.select(_COLUMNS).sort("dataset", "intervention", "kind", "layer", maintain_order=True)


def _panels(data: pl.DataFrame) -> list[Lines]:
    series = [Series({"intervention": cut, "kind": kind}, look, label, band) for cut, kind, look, label, band in _CUTS]
    for kind, (colour, stroke) in _BASELINE_LOOKS.items():
        look = {"color": colour, "linestyle": stroke, "linewidth": 1.4, "zorder": 2}
        series.append(Series({"kind": kind}, look, BASELINES[kind].capitalize(), "level"))
    return [Lines(series, "AUC", y="auc", null=0.5)]


PROBE_AUC = ChartSpec(
    "probe_auc",
    "telling true from false answers",
    "AUC per layer of the probe: untouched, random words hidden, key words hidden with the same and with a new probe; "
    "baselines as level lines",
    "AUC out of fold: 0.5 is guessing. “Trained again”: a new probe on the masked states.",
    "AUC = area under the ROC curve, out of fold; 0.5 is guessing. Bands: 95% intervals.",
    _rows,
    _panels,
    height=3.0,
    share="y",
    legend_columns=2,
)
