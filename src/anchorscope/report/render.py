"""Everything the report room writes into a run folder: readings for programs, then figures and the page."""

import json
from pathlib import Path
from typing import Any

from anchorscope.progress import Progress, Silent
from anchorscope.report.answer_card import answer_card
from anchorscope.report.charts.auc_charts import ProbeAucChart, SurvivingSignalChart
from anchorscope.report.charts.delta_p import DeltaPChart
from anchorscope.report.charts.display import Display
from anchorscope.report.charts.evidence_parts import EvidencePartsChart, PartBars
from anchorscope.report.charts.parallel import save_all
from anchorscope.report.findings import Findings
from anchorscope.report.panel_figure import experiment_charts
from anchorscope.report.reading import Reading
from anchorscope.report.run_page import write_report
from anchorscope.report.statements.all_statements import read


def figures_of(findings: Findings) -> list[Display]:
    """Every figure of a run, computed and not yet drawn; those of the experiments come last."""
    bars = PartBars.from_runs([findings])
    parts = [EvidencePartsChart.from_findings(findings), bars] if bars else []
    return [
        *parts,
        DeltaPChart.from_findings(findings),
        ProbeAucChart.from_findings(findings),
        SurvivingSignalChart.from_findings(findings),
        *(chart.from_findings(findings) for chart in experiment_charts() if chart.was_made(findings)),
    ]


def write_all(findings: Findings, out: Path, progress: Progress | None = None, report: bool = True) -> list[Reading]:
    """Write observations.json and answer.json and, with `report`, figures, report.md and report.html."""
    out.mkdir(parents=True, exist_ok=True)
    readings = read(findings)
    _write_json(out / "observations.json", [reading.record() for reading in readings])
    _write_json(out / "answer.json", answer_card(findings, readings).record())
    if report:
        listener, figures = progress or Silent(), figures_of(findings)
        listener.start("figures", len(figures))
        save_all(figures, out, listener)
        listener.finish()
        write_report(findings, readings, out)
    return readings


def _write_json(place: Path, content: Any) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    place.write_text(text + "\n", encoding="utf-8")
