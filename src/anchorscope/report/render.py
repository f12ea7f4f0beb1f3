"""Everything the report room writes into a run folder: readings for programs, then figures and the page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from anchorscope.errors import UserError, unknown
from anchorscope.progress import Progress, Silent
from anchorscope.report.answer_card import answer_card
from anchorscope.report.charts.auc_charts import PROBE_AUC
from anchorscope.report.charts.delta_p import chart_name, delta_p_chart
from anchorscope.report.charts.evidence_parts import EVIDENCE_PARTS, part_bars
from anchorscope.report.checks import read
from anchorscope.report.findings import Findings
from anchorscope.report.page import write_json
from anchorscope.report.palette import RULES
from anchorscope.report.panel_figure import ExperimentFigure, experiment_charts, save_all
from anchorscope.report.reading import Reading
from anchorscope.report.run_page import write_report


def figures_of(findings: Findings) -> list[ExperimentFigure]:
    """Every figure of a run, computed and not yet drawn; those of the experiments come last."""
    bars, specs = part_bars([findings]), (PROBE_AUC, *experiment_charts())
    parts = [EVIDENCE_PARTS.from_findings(findings), bars] if bars else []
    return [
        *parts,
        delta_p_chart(findings),
        delta_p_chart(findings, "corrected"),
        *(spec.from_findings(findings) for spec in specs if spec.was_made(findings)),
    ]


def figure_named(
    findings: Findings, name: str, datasets: Sequence[str] | None = None, size: tuple[float, float] | None = None
) -> ExperimentFigure:
    """A figure by name, of all datasets or some; `size` in inches is for the ΔP charts, which have one panel."""
    for dataset in datasets or ():
        if dataset not in findings.datasets:
            raise unknown("dataset", dataset, findings.datasets)
    chosen = tuple(dataset for dataset in findings.datasets if not datasets or dataset in datasets)
    rules = {chart_name(rule): rule for rule in RULES}
    if name in rules:
        return delta_p_chart(replace(findings, datasets=chosen), rules[name], size)
    if size:
        raise UserError(f"Only {', '.join(rules)} take a size; {name!r} was asked for. Leave the size out.")
    displays = {display.name: display for display in figures_of(replace(findings, datasets=chosen))}
    if name not in displays:
        raise unknown("figure", name, sorted({*displays, *rules}))
    return displays[name]


def write_all(findings: Findings, out: Path, progress: Progress | None = None, report: bool = True) -> list[Reading]:
    """Write observations.json and answer.json and, with `report`, figures, report.md and report.html."""
    out.mkdir(parents=True, exist_ok=True)
    readings = read(findings)
    write_json(out / "observations.json", [reading.record() for reading in readings])
    write_json(out / "answer.json", answer_card(findings, readings).record())
    if report:
        listener, figures = progress or Silent(), figures_of(findings)
        listener.start("figures", len(figures))
        save_all(figures, out, listener)
        listener.finish()
        write_report(findings, readings, out)
    return readings
