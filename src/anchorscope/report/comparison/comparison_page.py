"""Everything a comparison writes beside its curves and its manifest: figures, observations.json, the page, its data."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorscope.progress import Progress
from anchorscope.report.assignment_rules import CHART_TITLES
from anchorscope.report.chart_data import delta_p_chart, live_records, share_chart
from anchorscope.report.charts.parallel import save_all
from anchorscope.report.comparison.compared import Compared, panel_title
from anchorscope.report.comparison.comparison_text import (
    comparison_summary,
    groups_table,
    models_table,
    results_table,
    shares_table,
    side_by_side,
)
from anchorscope.report.comparison.model_panels import ModelPanels, panel_charts
from anchorscope.report.comparison.share_panels import SharePanels
from anchorscope.report.comparison.trends_chart import TrendsChart
from anchorscope.report.page_writer import CHART_SCRIPTS, write_page
from anchorscope.report.statements.across_models import read_across
from anchorscope.report.statements.all_statements import read
from anchorscope.report.statements.claim import Judged
from anchorscope.report.statements.claims import claims_records, claims_table, judge
from anchorscope.report.wording import listing


def comparison_data(compared: Compared) -> dict[str, Any]:
    """The charts to touch: a panel per run, one menu and one y axis for all."""
    titles = [panel_title(run) for run in compared.runs]
    relative = compared.relative_depth
    share = share_chart(compared.runs, compared.datasets, titles, relative=relative)
    delta_p = delta_p_chart(compared.runs, compared.datasets, titles, rule=compared.assignment, relative=relative)
    return {"model": _title(compared), "views": live_records({"share-compare": share, "compare-view": delta_p})}


_TITLE_LETTERS = 60
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
        "rules": (CHART_TITLES[compared.assignment], CHART_TITLES[compared.second_assignment]),
        "shares": shares_table(compared) if SharePanels.was_made(compared) else None,
        "models": models_table(compared),
        "groups": groups_table(compared),
        "results": results_table(compared),
        "key_readings": [one for one in across if one["key"]],
        "other_readings": [one for one in across if not one["key"]],
        "claims": claims_table(judged),
        "rows": side_by_side(readings),
        "files": FILES,
    }
    data = {"chart-data": comparison_data(compared)}
    write_page("compare.html", content, out, scripts=CHART_SCRIPTS, data=data)
    write_page("compare.md", content, out)
    for kind in ("html", "md"):
        (out / f"compare.{kind}").rename(out / f"report.{kind}")


def _title(compared: Compared) -> str:
    """The models by name, as long as that is a title."""
    names = listing([run.model for run in compared.runs])
    return names if len(names) <= _TITLE_LETTERS else f"{len(compared.runs)} runs side by side"


def write_comparison(compared: Compared, out: Path, progress: Progress) -> list[dict[str, Any]]:
    """Write the figures, observations.json, report.md and report.html; return the observations."""
    charts = panel_charts(compared)
    share = [SharePanels.from_compared(compared)] if SharePanels.was_made(compared) else []
    figures = [*share, *charts, TrendsChart.from_compared(compared)]
    progress.start("figures", len(figures))
    save_all(figures, out, progress)
    progress.finish()
    across, judged = read_across(compared.runs), judge(compared.runs)
    readings = {run.model: read(run) for run in compared.runs}
    own = [
        {**one, "id": f"{run}:{one['id']}", "scope": "run"}
        for run, found in readings.items() for one in found if one["key"]
    ]  # fmt: skip
    observations = [*across, *claims_records(judged), *own]
    text = json.dumps(observations, indent=2, ensure_ascii=False, allow_nan=False)
    (out / "observations.json").write_text(text + "\n", encoding="utf-8")
    write_pages(compared, charts, across, judged, readings, out)
    return observations
