"""The page of a study is the comparison's: of its finished runs, with a table of the runs that are not compared.

Where several models have finished runs, the first of each is compared; where one has, all of its runs are.
"""

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.artefacts.sealed_folder import MANIFEST
from anchorscope.comparing.compare import NamedRun, differences
from anchorscope.comparing.rules import REFUSABLE
from anchorscope.errors import UserError
from anchorscope.files import canonical_hash, sha256
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.progress import Progress
from anchorscope.report.comparison.comparison_page import Compared, write_comparison
from anchorscope.report.findings import Findings, nested_auc, summary_of
from anchorscope.report.palette import Q_ANCHORED, display_name
from anchorscope.report.shares import share_at
from anchorscope.report.wording import Table, as_percent, number
from anchorscope.stats.estimate import Estimate
from anchorscope.study.grid import Study
from anchorscope.study.study_folder import DONE, FAILED, FILE, RUNS, RunState, StudyFolder, open_study, status_of

PAGE = "report.html"


def report_study(study: Study, source: Path, out: Path, progress: Progress) -> Path:
    """Writes the page of what is done so far."""
    if not status_of(study, out).count(DONE):
        raise UserError(f"No run of the study in {str(out)!r} is done yet; run it with: {_command(out)}")
    with open_study(out, study, source) as folder:
        write_page_of(study, folder, progress)
    return out / PAGE


def write_page_of(study: Study, folder: StudyFolder, progress: Progress) -> None:
    """The page, where some run is done and the page is not there yet."""
    states, finished = [], {}
    for run in status_of(study, folder.path).runs:
        if run.state == DONE:
            try:
                finished[run.name] = open_finished(Path(run.folder))
            except UserError:  # damaged since it was made
                advice = f"damaged; see: anchorscope verify {shlex.quote(run.folder)}"
                run = replace(run, state="damaged", error=advice)
        states.append(run)
    hashes = {name: sha256(run.path / MANIFEST) for name, run in finished.items()}
    made_from = canonical_hash([study.name, hashes, [[run.name, run.state == FAILED, run.error] for run in states]])
    if finished and not folder.has_page(made_from):
        with folder.new_page(made_from) as made:
            summary = summary_table(states, finished)
            summary.write_csv(made / "summary.csv")
            write_comparison(_compared(study, states, finished, summary, folder), made, progress)


def _compared(
    study: Study,
    states: list[RunState],
    finished: Mapping[str, FinishedRun],
    summary: pl.DataFrame,
    folder: StudyFolder,
) -> Compared:
    models = {run.name: run.model for run in states}
    by_model: dict[str, str] = {}
    for name in finished:
        by_model.setdefault(models[name], name)
    shown = {model: finished[name] for model, name in by_model.items()} if len(by_model) > 1 else finished
    names = {run.path.name for run in shown.values()}
    failed = [run.name for run in states if run.state in (FAILED, "damaged")]
    count = "1 run failed and is" if len(failed) == 1 else f"{len(failed)} runs failed and are"
    named = [NamedRun(name, run.path.name, run) for name, run in shown.items()]
    return Compared(
        runs=tuple(run.findings for run in named),
        folders=tuple(f"{RUNS}/{run.folder}" for run in named),
        flags=tuple(differences(named, REFUSABLE)) if len(named) > 1 else (),
        command=_command(folder.path),
        kind="study",
        title=study.name,
        other_runs=runs_table(summary.filter(~pl.col("run").is_in(names))),
        note=f"{count} not in any number here: {', '.join(failed)}." if failed else "",
        pages={name: f"{RUNS}/{name}/{PAGE}" for name, run in finished.items() if (run.path / PAGE).is_file()},
        same_weights=len(by_model) == 1,
    )


def runs_table(summary: pl.DataFrame) -> Table:
    """Runs and datasets of summary.csv: their numbers, or why there are none."""
    rows = []
    for row in summary.iter_rows(named=True):
        needs = "" if row["needs_question"] is None else f", {as_percent(row['needs_question'])} needs the key words"
        auc = "" if row["auc"] is None else f"{display_name(row['dataset'])}: AUC {number(row['auc'], 2)}{needs}"
        rows.append((row["run"], row["state"], row["error"] or auc))
    return Table(("run", "state", "numbers, or why there are none"), tuple(rows), 3)


def summary_table(states: list[RunState], finished: Mapping[str, FinishedRun]) -> pl.DataFrame:
    """A row per finished run and dataset; one for every other run."""
    rows: list[dict[str, Any]] = []
    for run in states:
        about = {"run": run.name, "model": run.model, "prompt": run.prompt, "seed": run.seed, "state": run.state}
        findings = finished[run.name].findings if run.name in finished else None
        datasets = findings.datasets if findings else (None,)
        rows += [about | _numbers(findings, dataset) | {"error": run.error} for dataset in datasets]
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.col(pl.Float64).fill_nan(None))


def _numbers(findings: Findings | None, dataset: str | None) -> dict[str, Any]:
    """Items and numbers with their intervals, of a run's dataset; empty where there are none."""
    used = {row["dataset"]: row.get("used") for row in findings.counts.to_dicts()} if findings else {}
    numbers: dict[str, Any] = {"dataset": dataset, "items": used.get(dataset)}
    values: dict[str, Estimate | None] = dict.fromkeys(("needs_question", "needs_random", "auc", "q_anchored"))
    if findings is not None and dataset is not None:
        group = {"assignment": "plain", "intervention": "knockout", "group": Q_ANCHORED}
        values["needs_question"] = share_at(findings, dataset)
        values["needs_random"] = share_at(findings, dataset, "random")
        values["auc"] = nested_auc(findings, dataset)
        values["q_anchored"] = summary_of(findings, dataset, "group_share", **group)
    for name, value in values.items():
        ends = (value.value, value.ci_low, value.ci_high) if value else (None, None, None)
        numbers |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
    return numbers


def _command(out: Path) -> str:
    return shlex.join(["anchorscope", "study", "run", os.path.join(out, FILE), "--out", str(out)])
