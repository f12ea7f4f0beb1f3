"""Everything a study writes beside its runs: the figures, the page as HTML and Markdown, and summary.csv."""

from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.progress import Progress
from anchorscope.report.charts.display import Display
from anchorscope.report.charts.evidence_parts import PartBars
from anchorscope.report.charts.parallel import save_all
from anchorscope.report.comparison import comparison_text
from anchorscope.report.comparison.compared import Compared
from anchorscope.report.comparison.comparison_page import comparison_data
from anchorscope.report.comparison.control_checks import controls_sentence, controls_table, failed_controls
from anchorscope.report.comparison.run_panels import delta_p_charts
from anchorscope.report.page_writer import CHART_SCRIPTS, write_page
from anchorscope.report.statements import read
from anchorscope.report.study import study_tables as text
from anchorscope.report.study.studied import Measure, Studied, auc, findings_of, q_anchored, random_share, share
from anchorscope.report.study.study_chart import StudyShares

FILES = {
    "report.html": "this page",
    "report.md": "the same as plain text",
    "summary.csv": "a row per run and dataset: share that needs the key words, AUC, Q-Anchored part, with intervals",
    "figures/": "every figure as PNG, SVG and PDF, with the numbers drawn as CSV",
    "runs/NAME/": "the folder of every run, with its own page",
    "study.toml": "the study, with paths written out",
}
_MEASURES: dict[str, Measure] = {
    "needs_question": share,
    "needs_random": random_share,
    "auc": auc,
    "q_anchored": q_anchored,
}
_SCHEMA: dict[str, type[pl.DataType]] = {
    "run": pl.String,
    "model": pl.String,
    "prompt": pl.String,
    "seed": pl.Int64,
    "state": pl.String,
    "dataset": pl.String,
    "items": pl.Int64,
    **{f"{name}{end}": pl.Float64 for name in _MEASURES for end in ("", "_low", "_high")},
    "error": pl.String,
}


def write_study_page(studied: Studied, out: Path, progress: Progress) -> list[str]:
    """Writes figures, summary.csv, report.html and report.md; what the page says first."""
    compared = Compared(
        runs=tuple(findings_of(studied.first[model]) for model in studied.models),
        folders=tuple(studied.first[model].name for model in studied.models),
        flags=studied.flags,
        command=studied.command,
    )
    summary(studied).write_csv(out / "summary.csv")
    figures = _figures(studied, compared)
    progress.start("figures", len(figures))
    save_all(figures, out, progress)
    progress.finish()
    content = _content(studied, compared) | {"drawn": [one.name for one in figures]}
    data = {"chart-data": comparison_data(compared)} if compared.runs else {}
    write_page("study.html", content, out, scripts=CHART_SCRIPTS, data=data)
    write_page("study.md", content, out)
    for kind in ("html", "md"):
        (out / f"study.{kind}").rename(out / f"report.{kind}")
    lead: list[str] = content["lead"]
    return lead


def summary(studied: Studied) -> pl.DataFrame:
    """A row per run that is done and dataset; one for every other run."""
    rows: list[dict[str, Any]] = []
    for run in studied.runs:
        about = {
            "run": run.name,
            "model": run.model,
            "prompt": run.prompt,
            "seed": run.seed,
            "state": run.state,
            "error": run.error,
        }
        if run.findings is None:
            rows.append(about)
            continue
        used = {row["dataset"]: row.get("used") for row in run.findings.counts.to_dicts()}
        for dataset in run.findings.datasets:
            numbers: dict[str, float] = {}
            for name, found in ((name, measure(run.findings, dataset)) for name, measure in _MEASURES.items()):
                if found is not None:
                    numbers |= {name: found.value, f"{name}_low": found.ci_low, f"{name}_high": found.ci_high}
            rows.append({**about, "dataset": dataset, "items": used.get(dataset), **numbers})
    whole = [dict.fromkeys(_SCHEMA) | row for row in rows]
    return pl.DataFrame(whole, schema=_SCHEMA).with_columns(pl.col(pl.Float64).fill_nan(None))


def _figures(studied: Studied, compared: Compared) -> list[Display]:
    found: list[Display] = []
    shares = StudyShares.from_studied(studied)
    found += [shares] if shares is not None else []
    if compared.runs:
        bars = PartBars.from_runs(compared.runs)
        found += [bars] if bars else []
        found += delta_p_charts(compared)[:1]
    return found


def _content(studied: Studied, compared: Compared) -> dict[str, Any]:
    readings = {run.model: read(run) for run in compared.runs}
    failed = failed_controls(compared, readings)
    lead = [text.lead(studied), controls_sentence(compared, failed), text.progress_sentence(studied)]
    return {
        "studied": studied,
        "compared": compared,
        "lead": lead,
        "failed_controls": any(one.sure for one in failed),
        "failures": text.failures(studied),
        "missing": text.missing_sentence(studied),
        "answers": text.answers_table(studied),
        "share_grid": text.share_grid(studied),
        "auc_grid": text.auc_grid(studied),
        "spread": text.spread_table(studied),
        "groups": comparison_text.groups_table(compared),
        "models": comparison_text.models_table(compared),
        "controls": controls_table(failed),
        "runs": text.runs_table(studied),
        "states": text.STATES,
        "files": FILES,
    }
