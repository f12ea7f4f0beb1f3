"""The page of a comparison, and what observations.json holds: everything the templates show, put together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorscope.report.claims import claims_table
from anchorscope.report.claims.claim import Judged
from anchorscope.report.comparison.compared import Compared
from anchorscope.report.comparison.data import comparison_data
from anchorscope.report.comparison.panels import RULE_TITLES, ModelPanels
from anchorscope.report.comparison.side_by_side import side_by_side
from anchorscope.report.comparison.story import comparison_summary
from anchorscope.report.comparison.tables import groups_table, models_table, results_table
from anchorscope.report.page import write_page
from anchorscope.report.page_script import CHART_SCRIPTS
from anchorscope.report.story import listing

_TITLE_LETTERS = 60
SCRIPTS = (*CHART_SCRIPTS, "delta_p_view", "compare_view")
FILES = {
    "report.html": "this page",
    "report.md": "the same as plain text",
    "observations.json": "the readings across models, the claims, and each run's main readings, for programs",
    "figures/": "every figure as PNG, SVG and PDF, with the numbers drawn as CSV",
    "curves.csv": "mean ΔP per layer of all runs, with intervals; the column run tells them apart",
    "comparison.json": "which runs, their models and recipes, every difference, hashes; written last",
}


def write_pages(
    compared: Compared, charts: Sequence[ModelPanels], across: Sequence[dict[str, Any]], judged: Sequence[Judged],
    readings: Mapping[str, Sequence[dict[str, Any]]], out: Path,
) -> None:  # fmt: skip
    """Write report.html and report.md; the figures must already lie in out/figures."""
    content = {
        "compared": compared,
        "title": _title(compared),
        "summary": comparison_summary(compared, across),
        "first": charts[0].name,
        "second": charts[1].name,
        "rules": (RULE_TITLES[compared.assignment], RULE_TITLES[compared.second_assignment]),
        "models": models_table(compared),
        "groups": groups_table(compared),
        "results": results_table(compared),
        "key_readings": [one for one in across if one["key"]],
        "other_readings": [one for one in across if not one["key"]],
        "claims": claims_table(judged),
        "rows": side_by_side(readings),
        "files": FILES,
    }
    data = {"compare-data": comparison_data(compared)}
    write_page("compare.html", content, out, scripts=SCRIPTS, data=data)
    write_page("compare.md", content, out)
    for kind in ("html", "md"):
        (out / f"compare.{kind}").rename(out / f"report.{kind}")


def _title(compared: Compared) -> str:
    """The models by name, as long as that is a title."""
    names = listing([run.model for run in compared.runs])
    return names if len(names) <= _TITLE_LETTERS else f"{len(compared.runs)} runs side by side"
