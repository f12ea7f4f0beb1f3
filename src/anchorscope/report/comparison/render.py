"""Everything a comparison writes beside its curves and its manifest, in one call."""

import json
from pathlib import Path
from typing import Any

from anchorscope.progress import Progress
from anchorscope.report.across.reading import read_across
from anchorscope.report.charts.draughtsmen import save_all
from anchorscope.report.claims import claims_records, judge
from anchorscope.report.comparison.compared import Compared
from anchorscope.report.comparison.page import write_pages
from anchorscope.report.comparison.panels import panel_charts
from anchorscope.report.comparison.trends import TrendsChart
from anchorscope.report.readings import read


def write_comparison(compared: Compared, out: Path, progress: Progress) -> list[dict[str, Any]]:
    """Write the figures, observations.json, report.md and report.html; return the observations."""
    charts = panel_charts(compared)
    figures = [*charts, TrendsChart.from_compared(compared)]
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
