"""The page of a study is the comparison's: of its finished runs, with a table of the runs that are not compared.

Where several models have finished runs, the first of each is compared; where one has, all of its runs are.
"""

import os
import shlex
from pathlib import Path

from anchorscope.comparing.compare import NamedRun, write_folder
from anchorscope.comparing.rules import REFUSABLE
from anchorscope.errors import UserError
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.progress import Progress
from anchorscope.study.grid import Study
from anchorscope.study.study_folder import COMPARED, DONE, FILE, PAGE, RUNS, StudyFolder, open_study, status_of


def report_study(study: Study, source: Path, out: Path, progress: Progress) -> Path:
    """Writes the page of what is done so far."""
    if not status_of(study, out).count(DONE):
        raise UserError(f"No run of the study in {str(out)!r} is done yet; run it with: {_command(out)}")
    with open_study(out, study, source) as folder:
        write_page(study, folder, progress)
    return out / PAGE


def write_page(study: Study, folder: StudyFolder, progress: Progress) -> None:
    """The comparison of what is done so far, if anything is."""
    finished: dict[str, FinishedRun] = {}
    states: dict[str, tuple[str, str]] = {}
    models: dict[str, list[str]] = {}
    for run in status_of(study, folder.path).runs:
        states[run.name] = run.state, run.error or ""
        if run.state == DONE:
            try:
                finished[run.name] = open_finished(Path(run.folder))
                models.setdefault(run.model, []).append(run.name)
            except UserError:  # damaged since it was made
                states[run.name] = "damaged", f"see: anchorscope verify {shlex.quote(run.folder)}"
    if not finished:
        return
    shown = {model: names[0] for model, names in models.items()}
    if len(models) == 1:
        shown = {name: name for name in finished}
    write_folder(
        folder.path / COMPARED,
        [NamedRun(label, f"{RUNS}/{name}", finished[name]) for label, name in shown.items()],
        REFUSABLE,
        _command(folder.path),
        progress,
        study=study.name,
        other_runs=tuple((name, *state) for name, state in states.items() if name not in shown.values()),
        pages={
            name: f"../{RUNS}/{name}/report.html"
            for name, run in finished.items()
            if (run.path / "report.html").is_file()
        },
    )


def _command(out: Path) -> str:
    return shlex.join(["anchorscope", "study", "run", os.path.join(out, FILE), "--out", str(out)])
