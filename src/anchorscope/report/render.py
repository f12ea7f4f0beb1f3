"""Everything the report room writes into a run folder, in one call."""

import json
from pathlib import Path
from typing import Any

from anchorscope.progress import Progress, Silent
from anchorscope.report.charts.auc_charts import ProbeAucChart, SurvivingSignalChart
from anchorscope.report.charts.delta_p import DeltaPChart, ReferenceLayerChart, TruthSplitChart
from anchorscope.report.charts.display import Display
from anchorscope.report.charts.parallel import save_all
from anchorscope.report.charts.question_share import QuestionShareChart
from anchorscope.report.experiments.section import experiment_figures
from anchorscope.report.findings import Findings
from anchorscope.report.run_page import write_report
from anchorscope.report.statements.all_statements import read


def figures_of(findings: Findings) -> list[Display]:
    """Every figure of a run, computed and not yet drawn; those of the experiments come last."""
    share = [QuestionShareChart.from_findings(findings)] if QuestionShareChart.was_made(findings) else []
    return [
        *share,
        DeltaPChart.from_findings(findings),
        ProbeAucChart.from_findings(findings),
        SurvivingSignalChart.from_findings(findings),
        TruthSplitChart.from_findings(findings),
        ReferenceLayerChart.from_findings(findings),
        *experiment_figures(findings),
    ]


def write_all(findings: Findings, out: Path, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Write the figures, observations.json, report.md and report.html; return the observations."""
    out.mkdir(parents=True, exist_ok=True)
    listener, figures = progress or Silent(), figures_of(findings)
    listener.start("figures", len(figures))
    save_all(figures, out, listener)
    listener.finish()
    observations = read(findings)
    text = json.dumps(observations, indent=2, ensure_ascii=False, allow_nan=False)
    (out / "observations.json").write_text(text + "\n", encoding="utf-8")
    write_report(findings, observations, out)
    return observations
