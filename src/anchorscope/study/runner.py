"""A study, run from its first run to its last: what is done stays, what fails is written down, the others go on.

It ends in the comparison of the runs that are done.
"""

import shlex
from collections.abc import Callable
from contextlib import closing
from itertools import groupby
from pathlib import Path

from anchorscope.comparing.compare import NamedRun, write_folder
from anchorscope.comparing.rules import REFUSABLE
from anchorscope.datasets.catalog import parse_spec
from anchorscope.errors import Incomplete, UserError
from anchorscope.execute.choose import Choice
from anchorscope.execute.ray_executor import WarmModels
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.models.loading import read_facts
from anchorscope.models.sources import is_hub_id
from anchorscope.pipeline import run_recipe
from anchorscope.prepare import ask, resolve
from anchorscope.progress import Progress
from anchorscope.study.grid import Study
from anchorscope.study.study_folder import (
    COMPARED,
    DONE,
    RUNS,
    StudyFolder,
    open_study,
    run_state,
    status_of,
)


def run_study(
    study: Study,
    source: Path,
    out: Path,
    tell: Callable[[str], None],
    progress: Callable[[], Progress],
    choice: Choice,
) -> dict[str, str]:
    """Runs what is missing of a study into a folder, and compares what is done in the end.

    `source` is the study's file, `tell` takes a line, `progress` makes a listener for every run, `choice` says who runs
    the models. Returns the runs that ended for want of workers, each with the line that says so.
    """
    check_study(study, out, choice.kind == "ray")
    incomplete: dict[str, str] = {}
    with open_study(out, study, source) as folder, closing(WarmModels()) as warm:
        titles = {
            run.name: f"[{number}/{len(study.runs)}] {run.name}"
            for number, run in enumerate(study.runs, 1)
        }
        for _, of_model in groupby(study.runs, key=lambda run: run.model):
            missing = [run for run in of_model if run_state(folder, run).state != DONE]
            for run in missing:
                tell(
                    f"{titles[run.name]}: {', '.join(parse_spec(text).name for text in run.recipe.datasets)}"
                )
                try:
                    target = folder.run(run.name)
                    run_recipe(
                        run.recipe,
                        target,
                        progress=progress(),
                        choice=choice,
                        warm=warm,
                    )
                    folder.set_failure(run, None)
                # the model's other runs would have the same workers
                except Incomplete as error:
                    warm.close()
                    incomplete[run.name] = " ".join(str(error).split())
                    tell(f"{titles[run.name]} incomplete: {incomplete[run.name]}")
                    break
                except UserError as error:
                    line = " ".join(str(error).split())
                    folder.set_failure(run, line)
                    tell(f"{titles[run.name]} failed: {line}")
        compare_done(folder, progress())
    return incomplete


def compare_done(folder: StudyFolder, progress: Progress) -> None:
    """Compares what is done, if it is two runs or more: the first run of each model, or all runs of the only one."""
    finished: dict[str, FinishedRun] = {}
    states: dict[str, tuple[str, str]] = {}
    models: dict[str, list[str]] = {}
    for run in status_of(folder.study, folder.path).runs:
        states[run.name] = (run.state, run.error or "")
        if run.state != DONE:
            continue
        try:
            finished[run.name] = open_finished(Path(run.folder))
            models.setdefault(run.model, []).append(run.name)
        except UserError:  # damaged since it was made
            verify = shlex.join(["anchorscope", "verify", run.folder])
            states[run.name] = ("damaged", f"see: {verify}")
    shown = {model: names[0] for model, names in models.items()}
    if len(models) == 1:
        shown = {name: name for name in finished}
    if len(shown) < 2:
        return
    runs = [
        NamedRun(label, f"{RUNS}/{name}", finished[name])
        for label, name in shown.items()
    ]
    missing = [
        (name, *state) for name, state in states.items() if name not in shown.values()
    ]
    write_folder(
        folder.path / COMPARED,
        runs,
        allowed=REFUSABLE,
        command=folder.command,
        progress=progress,
        missing=missing,
    )


def check_study(study: Study, out: Path, elsewhere: bool = False) -> None:
    """Finds the user's mistakes before anything runs: question files are read, weights are not.

    What is on the hub is checked when its turn comes.
    """
    folder, models, datasets = StudyFolder(out, study), set(), set()
    for run in study.runs:
        if run_state(folder, run).state == DONE:
            continue  # its files may be gone since
        try:
            recipe = resolve(run.recipe, elsewhere)
            if (source := (recipe.model, recipe.trust_remote_code)) not in models:
                models.add(source)
                if not is_hub_id(recipe.model) or Path(recipe.model).exists():
                    read_facts(*source)
            for spec in map(parse_spec, recipe.datasets):
                if (
                    spec.path is not None
                    and (asked := (spec, recipe.columns, recipe.limit)) not in datasets
                ):
                    datasets.add(asked)
                    ask(recipe, spec)
        except UserError as error:
            raise UserError(f"Model {run.model!r} of the study: {error}") from None
