"""Everything the report room writes into a run folder, in one call."""

import json
from pathlib import Path
from typing import Any

from anchorscope.progress import Progress, Silent
from anchorscope.report.charts.figures import displays
from anchorscope.report.charts.parallel import save_all
from anchorscope.report.findings import Findings
from anchorscope.report.page import write_report
from anchorscope.report.statements.claims import claims_records, judge
from anchorscope.report.statements.run_readings import read


def write_all(findings: Findings, out: Path, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Write the figures, observations.json, report.md and report.html; return the observations."""
    out.mkdir(parents=True, exist_ok=True)
    listener, figures = progress or Silent(), displays(findings)
    listener.start("figures", len(figures))
    save_all(figures, out, listener)
    listener.finish()
    observations, judged = read(findings), judge([findings])
    # One list for programs; the page tells the claims in a section of their own.
    text = json.dumps([*observations, *claims_records(judged)], indent=2, ensure_ascii=False, allow_nan=False)
    (out / "observations.json").write_text(text + "\n", encoding="utf-8")
    write_report(findings, observations, judged, out)
    return observations
