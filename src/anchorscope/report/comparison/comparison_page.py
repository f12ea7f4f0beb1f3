"""Everything a comparison writes beside its curves and its manifest: figures, observations.json, the page, its data."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorscope.progress import Progress
from anchorscope.report.answer_card import answer_card
from anchorscope.report.assignment_rules import CHART_TITLES
from anchorscope.report.chart_data import MOST_POINTS, dataset_entries, page_data
from anchorscope.report.charts.parallel import save_all
from anchorscope.report.comparison import comparison_text as text
from anchorscope.report.comparison.across_models import read_across
from anchorscope.report.comparison.compared import Compared, panel_title
from anchorscope.report.comparison.control_checks import controls_sentence, controls_table, failed_controls
from anchorscope.report.comparison.run_panels import SharePanels, delta_p_charts
from anchorscope.report.comparison.trends_chart import trends_charts
from anchorscope.report.earlier_readings.judging import Judged, claims_records, claims_table, judge
from anchorscope.report.page_writer import CHART_SCRIPTS, write_page
from anchorscope.report.palette import GROUPS
from anchorscope.report.shares import CONTROLS
from anchorscope.report.statements import read
from anchorscope.report.wording import listing

OWN = "own"
"""The choice that leaves every run at its own headline site or position, where these differ."""
_CHOICES = ("rules", "sites", "positions", "interventions", "truths")
_KEPT = ("layers", "site", "position", "shares")
_SITE, _POSITION, _INTERVENTION = 1, 2, 3  # places in a row of curves
_TITLE_LETTERS = 60
SCRIPTS = (*CHART_SCRIPTS, "share_view", "delta_p_view", "compare_view")
FILES = {
    "report.html": "this page",
    "report.md": "the same as plain text",
    "observations.json": "readings across runs, each run's main readings, and claims where asked for, for programs",
    "figures/": "every figure as PNG, SVG and PDF, with the numbers drawn as CSV",
    "curves.csv": "mean ΔP per layer of all runs, with intervals; the column run tells them apart",
    "comparison.json": "which runs, their models and recipes, every difference, hashes; written last",
}


def comparison_data(compared: Compared) -> dict[str, Any]:
    """Curves by run, and one menu for all panels."""
    pages = [page_data(run, MOST_POINTS // len(compared.runs)) for run in compared.runs]
    menu = {name: _shared([page[name] for page in pages]) for name in _CHOICES}
    start = {"rule": compared.assignment, "depth": "1" if compared.relative_depth else "0"}
    measured = [page["shares"] for page in pages if page["shares"]["rows"]]
    shares = {name: _shared([one[name] for one in measured]) for name in ("truths", "sites", "positions")}
    drawn = {name for one in measured for name, _ in one["controls"]}
    for name in ("site", "position"):
        headlines = {str(page[name]) for page in pages}
        start[name] = headlines.pop() if len(headlines) == 1 else OWN
        for choices in (menu, shares):
            choices[f"{name}s"] = [OWN] * (start[name] == OWN) + choices[f"{name}s"]
    shares["controls"] = [[name, words] for name, words in CONTROLS.items() if name in drawn]
    return {
        "menu": {**menu, "datasets": dataset_entries(compared.datasets), "groups": list(GROUPS), "shares": shares},
        "start": start,
        "runs": [
            {"name": run.model, "title": panel_title(run), **{name: page[name] for name in _KEPT},
             "curves": _within(page["curves"], menu, page)}
            for run, page in zip(compared.runs, pages, strict=True)
        ],
    }  # fmt: skip


def _within(curves: Mapping[str, Any], menu: Mapping[str, Any], page: Mapping[str, Any]) -> dict[str, Any]:
    """The curves that the menu, or a run's own headline place, can ask for; a run's control whoever else has one."""
    known = {"random", *(str(name) for name, _ in menu["interventions"])}
    sites, positions = {*menu["sites"], page["site"]}, {*menu["positions"], page["position"]}
    rows = [
        row for row in curves["rows"]
        if row[_INTERVENTION] in known and row[_SITE] in sites and row[_POSITION] in positions
    ]  # fmt: skip
    return {"scale": curves["scale"], "rows": rows}


def _shared(lists: Sequence[Iterable[Any]]) -> list[Any]:
    """Entries of the first list that all others have too."""
    first, *others = [list(one) for one in lists] or [[]]
    return [entry for entry in first if all(entry in other for other in others)]


def write_comparison(compared: Compared, out: Path, progress: Progress, claims: bool = False) -> list[str]:
    """Write the figures, observations.json, report.md and report.html; return what the page says first."""
    shares = SharePanels.was_made(compared)
    trends = trends_charts(compared, shares)
    figures = [*([SharePanels.from_compared(compared)] if shares else []), *delta_p_charts(compared), *trends]
    progress.start("figures", len(figures))
    save_all(figures, out, progress)
    progress.finish()
    across, judged = read_across(compared.runs), judge(compared.runs) if claims else []
    readings = {run.model: read(run) for run in compared.runs}
    own = [
        {**one, "id": f"{run}:{one['id']}", "scope": "run"}
        for run, found in readings.items() for one in found if one["key"]
    ]  # fmt: skip
    observations = [*across, *claims_records(judged), *own]
    dumped = json.dumps(observations, indent=2, ensure_ascii=False, allow_nan=False)
    (out / "observations.json").write_text(dumped + "\n", encoding="utf-8")
    content = _content(compared, across, judged, readings) | {
        "shares": text.shares_table(compared) if shares else None,
        "trends": [chart.name for chart in trends],
    }
    data = {"compare-data": comparison_data(compared)}
    write_page("compare.html", content, out, scripts=SCRIPTS, data=data)
    write_page("compare.md", content, out)
    for kind in ("html", "md"):
        (out / f"compare.{kind}").rename(out / f"report.{kind}")
    lead: list[str] = content["lead"]
    return lead


def _content(
    compared: Compared, across: Sequence[dict[str, Any]], judged: Sequence[Judged],
    readings: Mapping[str, Sequence[dict[str, Any]]],
) -> dict[str, Any]:  # fmt: skip
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
