"""The page of a study, made from the folders of its runs: nothing is measured anew."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from anchorscope.artefacts.sealed_folder import MANIFEST
from anchorscope.comparing.differences import NamedRun, differences
from anchorscope.comparing.rules import REFUSABLE
from anchorscope.errors import UserError
from anchorscope.files import canonical_hash, sha256
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.progress import Progress
from anchorscope.report.comparison.compared import Flag
from anchorscope.report.study.studied import ShownRun, Studied
from anchorscope.report.study.study_page import write_study_page
from anchorscope.study.grid import Study
from anchorscope.study.states import DONE, FAILED, RunState, Status, status_of
from anchorscope.study.study_folder import FILE, RUNS, StudyFolder, open_study

PAGE = "report.html"


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
    if status.count(DONE) and not folder.has_page(made_from):
        studied = _studied(study, status, folder)
        with folder.new_page(made_from) as made:
            write_study_page(studied, made, progress)


def _made_from(status: Status, folder: StudyFolder) -> str:
    """Changes with anything that the page shows. What is under way is told as not done."""
    runs = [
        [run.name, run.state, run.error, sha256(folder.run(run.name) / MANIFEST)]
        if run.state == DONE
        else [run.name, run.state == FAILED, run.error]
        for run in status.runs
    ]
    return canonical_hash([status.name, runs])


def _studied(study: Study, status: Status, folder: StudyFolder) -> Studied:
    shown: list[ShownRun] = []
    first: dict[str, FinishedRun] = {}
    for run in status.runs:
        finished = _opened(folder.run(run.name)) if run.state == DONE else None
        if finished is not None:
            first.setdefault(run.model, finished)
        shown.append(_shown(run, finished))
    return Studied(study.name, tuple(shown), _flags(first), _command(folder.path))


def _opened(place: Path) -> FinishedRun | None:
    try:
        return open_finished(place)
    except UserError:  # damaged since; `anchorscope verify` tells more
        return None


def _shown(run: RunState, finished: FinishedRun | None) -> ShownRun:
    state, error = run.state, run.error
    if state == DONE and finished is None:
        state, error = "damaged", f"Not what was written; see: anchorscope verify {shlex.quote(run.folder)}"
    page = f"{RUNS}/{run.name}/{PAGE}" if finished is not None and (Path(run.folder) / PAGE).is_file() else None
    if finished is None:
        return ShownRun(run.name, run.model, run.prompt, run.seed, state, error, page)
    findings = replace(finished.findings, model=run.model)
    return ShownRun(run.name, run.model, run.prompt, run.seed, state, error, page, findings, finished.card)


def _flags(first: dict[str, FinishedRun]) -> tuple[Flag, ...]:
    """In what the first runs of the models differ beside the model."""
    if len(first) < 2:
        return ()
    named: Sequence[NamedRun] = [NamedRun(model, run.path.name, run) for model, run in first.items()]
    return tuple(Flag(one.words, one.reason, one.refused) for one in differences(named, REFUSABLE))


def _command(out: Path) -> str:
    return shlex.join(["anchorscope", "study", "run", os.path.join(out, FILE), "--out", str(out)])
