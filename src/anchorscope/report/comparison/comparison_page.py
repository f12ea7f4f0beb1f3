"""Everything a comparison writes beside its curves and its manifest: figures, observations.json, the page, its data."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorscope.progress import Progress
from anchorscope.report.assignment_rules import CHART_TITLES
from anchorscope.report.chart_data import MOST_POINTS, dataset_entries, page_data
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
from anchorscope.report.palette import GROUPS
from anchorscope.report.statements.across_models import read_across
from anchorscope.report.statements.all_statements import read
from anchorscope.report.statements.claim import Judged
from anchorscope.report.statements.claims import claims_records, claims_table, judge
from anchorscope.report.wording import listing

OWN = "own"
"""The choice that leaves every run at its own headline site or position, where these differ."""
_CHOICES = ("rules", "sites", "positions", "interventions", "truths")
_KEPT = ("layers", "site", "position", "curves")
_SITE, _POSITION, _INTERVENTION = 1, 2, 3  # places in a row of curves


def comparison_data(compared: Compared) -> dict[str, Any]:
    """Curves by run, and one menu for all panels."""
    pages = [page_data(run, MOST_POINTS // len(compared.runs)) for run in compared.runs]
    menu = {name: _shared([page[name] for page in pages]) for name in _CHOICES}
    start = {"rule": compared.assignment, "depth": "1" if compared.relative_depth else "0"}
    for name in ("site", "position"):
        headlines = {str(page[name]) for page in pages}
        start[name] = headlines.pop() if len(headlines) == 1 else OWN
        menu[f"{name}s"] = [OWN] * (start[name] == OWN) + menu[f"{name}s"]
    return {
        "menu": {**menu, "datasets": dataset_entries(compared.datasets), "groups": list(GROUPS)},
        "start": start,
        "runs": [
            {"name": run.model, "title": panel_title(run), **{name: page[name] for name in _KEPT},
             "curves": _within(page["curves"], menu, page)}
            for run, page in zip(compared.runs, pages, strict=True)
        ],
    }  # fmt: skip


def _within(curves: Mapping[str, Any], menu: Mapping[str, Any], page: Mapping[str, Any]) -> dict[str, Any]:
    """The curves that the menu, or a run's own headline place, can ask for."""
    known = {str(name) for name, _ in menu["interventions"]}
    sites, positions = {*menu["sites"], page["site"]}, {*menu["positions"], page["position"]}
    rows = [
        row for row in curves["rows"]
        if row[_INTERVENTION] in known and row[_SITE] in sites and row[_POSITION] in positions
    ]  # fmt: skip
    return {"scale": curves["scale"], "rows": rows}


def _shared(lists: Sequence[Iterable[Any]]) -> list[Any]:
    """Entries of the first list that all others have too."""
    first, *others = [list(one) for one in lists]
    return [entry for entry in first if all(entry in other for other in others)]


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
    data = {"compare-data": comparison_data(compared)}
    write_page("compare.html", content, out, scripts=SCRIPTS, data=data)
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
