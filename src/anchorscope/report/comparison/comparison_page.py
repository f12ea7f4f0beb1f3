"""Everything a comparison writes beside its curves and its manifest: figures, observations.json, the page, its data."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorscope.progress import Progress
from anchorscope.report.answer_card import answer_card
from anchorscope.report.assignment_rules import CHART_TITLES
from anchorscope.report.chart_data import delta_p_chart, live_records, share_chart
from anchorscope.report.charts.evidence_parts import PartBars
from anchorscope.report.charts.parallel import save_all
from anchorscope.report.comparison import comparison_text as text
from anchorscope.report.comparison.across_models import read_across
from anchorscope.report.comparison.compared import Compared, panel_title
from anchorscope.report.comparison.control_checks import controls_sentence, controls_table, failed_controls
from anchorscope.report.comparison.run_panels import delta_p_charts
from anchorscope.report.comparison.trends_chart import trends_charts
from anchorscope.report.earlier_readings.judging import Judged, claims_records, claims_table, judge
from anchorscope.report.page_writer import CHART_SCRIPTS, write_page
from anchorscope.report.statements import read
from anchorscope.report.wording import listing

_TITLE_LETTERS = 60
FILES = {
    "report.html": "this page",
    "report.md": "the same as plain text",
    "observations.json": "readings across runs, each run's main readings, and claims where asked for, for programs",
    "figures/": "every figure as PNG, SVG and PDF, with the numbers drawn as CSV",
    "curves.csv": "mean ΔP per layer of all runs, with intervals; the column run tells them apart",
    "comparison.json": "which runs, their models and recipes, every difference, hashes; written last",
}


def comparison_data(compared: Compared) -> dict[str, Any]:
    """The charts to touch: a panel per run, one menu and one y axis for all."""
    titles = {run.model: panel_title(run) for run in compared.runs}
    relative = compared.relative_depth
    share = share_chart(compared.runs, compared.datasets, titles, relative=relative)
    delta_p = delta_p_chart(compared.runs, compared.datasets, titles, rule=compared.assignment, relative=relative)
    return {"model": "", "views": live_records({"compare-share": share, "compare-view": delta_p})}


def write_comparison(compared: Compared, out: Path, progress: Progress, claims: bool = False) -> list[str]:
    """Write the figures, observations.json, report.md and report.html; return what the page says first."""
    bars = PartBars.from_runs(compared.runs)
    trends = trends_charts(compared, bars is not None)
    figures = [*([bars] if bars else []), *delta_p_charts(compared), *trends]
    progress.start("figures", len(figures))
    save_all(figures, out, progress)
    progress.finish()
    across, judged = read_across(compared.runs), judge(compared.runs) if claims else []
    readings = {run.model: read(run) for run in compared.runs}
    own = [
        {**one, "id": f"{run}:{one['id']}", "scope": "run"}
        for run, found in readings.items()
        for one in found
        if one["key"]
    ]
    observations = [*across, *claims_records(judged), *own]
    dumped = json.dumps(observations, indent=2, ensure_ascii=False, allow_nan=False)
    (out / "observations.json").write_text(dumped + "\n", encoding="utf-8")
    content = _content(compared, across, judged, readings) | {
        "shares": text.shares_table(compared) if bars else None,
        "trends": [chart.name for chart in trends],
    }
    data = {"chart-data": comparison_data(compared)}
    write_page("compare.html", content, out, scripts=CHART_SCRIPTS, data=data)
    write_page("compare.md", content, out)
    for kind in ("html", "md"):
        (out / f"compare.{kind}").rename(out / f"report.{kind}")
    lead: list[str] = content["lead"]
    return lead


def _content(
    compared: Compared,
    across: Sequence[dict[str, Any]],
    judged: Sequence[Judged],
    readings: Mapping[str, Sequence[dict[str, Any]]],
) -> dict[str, Any]:
    cards = {run.model: answer_card(run, readings[run.model]) for run in compared.runs}
    failed = failed_controls(compared, readings)
    of_shares = [one for one in across if one["assignment"] is None]
    of_curves = [one for one in across if one["assignment"] is not None]
    names = listing([run.model for run in compared.runs])
    return {
        "compared": compared,
        "title": names if len(names) <= _TITLE_LETTERS else f"{len(compared.runs)} runs side by side",
        "lead": [text.answer(compared, across, cards), controls_sentence(compared, failed), text.setting(compared)],
        "failed": any(one.sure for one in failed),
        "cards": text.cards_table(compared, cards),
        "second": f"delta_p_{compared.second_assignment}",
        "rules": (CHART_TITLES[compared.assignment], CHART_TITLES[compared.second_assignment]),
        "groups": text.groups_table(compared),
        "controls": controls_table(failed),
        "along": next((one["along"] for one in across), "with size"),
        "share_trends": text.trends_table([one for one in of_shares if one["key"]]),
        "share_trends_by_dataset": text.trends_table([one for one in of_shares if not one["key"]]),
        "curve_trends": text.trends_table([one for one in of_curves if one["key"]]),
        "curve_trends_by_dataset": text.trends_table([one for one in of_curves if not one["key"]]),
        "models": text.models_table(compared),
        "claims": claims_table([one for one in judged if one.plain.found]),
        "claims_elsewhere": claims_table([one for one in judged if not one.plain.found]),
        "files": FILES,
    }
