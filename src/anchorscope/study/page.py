"""The page of a study: the comparison's page for the first finished run of every model, and a table of all runs."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.artefacts.sealed_folder import MANIFEST
from anchorscope.comparing.differences import NamedRun, differences
from anchorscope.comparing.rules import REFUSABLE
from anchorscope.errors import UserError
from anchorscope.files import canonical_hash, sha256
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.progress import Progress
from anchorscope.report.comparison.compared import Compared, Difference
from anchorscope.report.comparison.comparison_page import write_comparison
from anchorscope.report.findings import Findings, nested_auc, summary_of
from anchorscope.report.palette import Q_ANCHORED, display_name
from anchorscope.report.shares import share_at
from anchorscope.report.wording import NOTHING, Table, as_percent, number
from anchorscope.stats.estimate import Estimate
from anchorscope.study.grid import Study
from anchorscope.study.states import DONE, FAILED, RunState, Status, status_of
from anchorscope.study.study_folder import FILE, RUNS, StudyFolder, open_study

PAGE = "report.html"
_DAMAGED = "damaged"
_MEASURES = ("needs_question", "needs_random", "auc", "q_anchored")
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


def report_study(study: Study, source: Path, out: Path, progress: Progress) -> Path:
    """Writes the page of what is done so far."""
    if not any(run.state == DONE for run in status_of(study, out).runs):
        raise UserError(f"No run of the study in {str(out)!r} is done yet; run it with: {_command(out)}")
    with open_study(out, study, source) as folder:
        write_page_of(study, folder, progress)
    return out / PAGE


def write_page_of(study: Study, folder: StudyFolder, progress: Progress) -> None:
    """The page, where some run is done and the page is not there yet."""
    status = status_of(study, folder.path)
    made_from = _made_from(status, folder)
    if not status.count(DONE) or folder.has_page(made_from):
        return
    finished = {run.name: opened for run in status.runs if run.state == DONE and (opened := _opened(run.folder))}
    states = [_with_damage(run, finished) for run in status.runs]
    if finished:
        with folder.new_page(made_from) as made:
            summary = summary_table(states, finished)
            summary.write_csv(made / "summary.csv")
            write_comparison(_compared(study, states, finished, summary, folder), made, progress)


def _made_from(status: Status, folder: StudyFolder) -> str:
    """Changes with anything that the page shows; a run in progress counts as not done."""
    runs = [
        [run.name, run.state, run.error, sha256(folder.run(run.name) / MANIFEST)]
        if run.state == DONE
        else [run.name, run.state == FAILED, run.error]
        for run in status.runs
    ]
    return canonical_hash([status.name, runs])


def _opened(place: str) -> FinishedRun | None:
    try:
        return open_finished(Path(place))
    except UserError:  # damaged since; `anchorscope verify` says more
        return None


def _with_damage(run: RunState, finished: Mapping[str, FinishedRun]) -> RunState:
    if run.state != DONE or run.name in finished:
        return run
    return replace(run, state=_DAMAGED, error=f"damaged; see: anchorscope verify {shlex.quote(run.folder)}")


def _compared(
    study: Study,
    states: list[RunState],
    finished: Mapping[str, FinishedRun],
    summary: pl.DataFrame,
    folder: StudyFolder,
) -> Compared:
    first: dict[str, FinishedRun] = {}
    for run in states:
        if run.name in finished:
            first.setdefault(run.model, finished[run.name])
    pages = {name: f"{RUNS}/{name}/{PAGE}" for name, run in finished.items() if (run.path / PAGE).is_file()}
    return Compared(
        runs=tuple(replace(run.findings, model=model) for model, run in first.items()),
        folders=tuple(f"{RUNS}/{run.path.name}" for run in first.values()),
        flags=_differences(first),
        command=_command(folder.path),
        kind="study",
        title=study.name,
        all_runs=runs_table(summary),
        note=_failed_note(states),
        pages=pages,
    )


def _failed_note(states: list[RunState]) -> str:
    failed = [run.name for run in states if run.state in (FAILED, _DAMAGED)]
    if not failed:
        return ""
    runs = "1 run failed and is" if len(failed) == 1 else f"{len(failed)} runs failed and are"
    return f"{runs} not in any number here: {', '.join(failed)}."


def _differences(first: Mapping[str, FinishedRun]) -> tuple[Difference, ...]:
    """In what the first runs of the models differ besides the model."""
    if len(first) < 2:
        return ()
    return tuple(differences([NamedRun(model, run.path.name, run) for model, run in first.items()], REFUSABLE))


def runs_table(summary: pl.DataFrame) -> Table:
    """Every run and dataset of summary.csv, whatever became of the run."""
    rows = tuple(
        (
            row["run"],
            row["state"],
            display_name(row["dataset"]) if row["dataset"] else NOTHING,
            NOTHING if row["needs_question"] is None else as_percent(row["needs_question"]),
            NOTHING if row["auc"] is None else number(row["auc"], 2),
            row["error"] or "",
        )
        for row in summary.iter_rows(named=True)
    )
    return Table(("run", "state", "dataset", "needs the key words", "AUC of the probe", "error"), rows, 6)


def summary_table(states: list[RunState], finished: Mapping[str, FinishedRun]) -> pl.DataFrame:
    """A row per finished run and dataset; one for every other run."""
    rows: list[dict[str, Any]] = []
    for run in states:
        about = {name: getattr(run, name) for name in ("model", "prompt", "seed", "state", "error")} | {"run": run.name}
        findings = finished[run.name].findings if run.name in finished else None
        used = {row["dataset"]: row.get("used") for row in findings.counts.to_dicts()} if findings else {}
        for dataset in findings.datasets if findings else [None]:
            numbers: dict[str, float] = {}
            for name, value in (_numbers(findings, dataset) if findings and dataset else {}).items():
                numbers |= {name: value.value, f"{name}_low": value.ci_low, f"{name}_high": value.ci_high}
            rows.append({**about, "dataset": dataset, "items": used.get(dataset), **numbers})
    whole = [dict.fromkeys(_SCHEMA) | row for row in rows]
    return pl.DataFrame(whole, schema=_SCHEMA).with_columns(pl.col(pl.Float64).fill_nan(None))


def _numbers(findings: Findings, dataset: str) -> dict[str, Estimate]:
    asked = {"assignment": "plain", "intervention": "knockout", "group": Q_ANCHORED}
    values = (
        share_at(findings, dataset),
        share_at(findings, dataset, "random"),
        nested_auc(findings, dataset),
        summary_of(findings, dataset, "group_share", **asked),
    )
    return {name: value for name, value in zip(_MEASURES, values, strict=True) if value is not None}


def _command(out: Path) -> str:
    return shlex.join(["anchorscope", "study", "run", os.path.join(out, FILE), "--out", str(out)])
