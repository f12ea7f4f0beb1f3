"""A study, run from its first run to its last: what is done stays, what fails is written down, the others go on."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from anchorscope.datasets.catalog import parse_spec
from anchorscope.errors import Incomplete, UserError
from anchorscope.execute.choose import Choice
from anchorscope.execute.ray_executor import WarmModels
from anchorscope.models.loading import read_facts
from anchorscope.models.sources import is_hub_id
from anchorscope.pipeline import run_recipe
from anchorscope.prepare import ask, resolve
from anchorscope.progress import Progress, Silent
from anchorscope.study.grid import Study, StudyRun
from anchorscope.study.page import write_page_of
from anchorscope.study.study_folder import DONE, Status, StudyFolder, open_study, run_state, status_of


@dataclass
class Listening:
    """Where a study reports its progress."""

    tell: Callable[[str], None] = lambda _: None
    """Takes a line."""
    progress: Callable[[], Progress] = Silent
    """A new listener for every run."""


@dataclass(frozen=True)
class Outcome:
    """What became of a study."""

    status: Status
    incomplete: dict[str, str] = field(default_factory=dict)
    """Runs that ended for want of workers, with the line that says so."""

    @property
    def exit_code(self) -> int:
        """0 all done, 3 run it again, 2 a run failed by a mistake that the user can fix."""
        if self.incomplete:
            return 3
        return 0 if self.status.count("done") == len(self.status.runs) else 2


def run_study(
    study: Study, source: Path, out: Path, listening: Listening | None = None, choice: Choice | None = None
) -> Outcome:
    """Runs what is missing of a study into a folder; `source` is its file, `choice` says who runs the models."""
    heard = listening or Listening()
    check_study(study, out, choice is not None and choice.kind == "ray")
    incomplete: dict[str, str] = {}
    with open_study(out, study, source) as folder, closing(WarmModels()) as warm:
        numbers = {run.name: f"[{number}/{len(study.runs)}] {run.name}" for number, run in enumerate(study.runs, 1)}
        for _, of_model in groupby(study.runs, key=lambda run: run.model):
            missing = [run for run in of_model if run_state(folder, run).state != DONE]
            if missing:
                incomplete |= _run_model(missing, folder, heard, numbers, choice or Choice(), warm)
                write_page_of(study, folder, heard.progress())
        write_page_of(study, folder, heard.progress())
    return Outcome(status_of(study, out), incomplete)


def check_study(study: Study, out: Path, elsewhere: bool = False) -> None:
    """Finds the user's mistakes before anything runs: question files are read, weights are not.

    What is on the hub is checked when its turn comes.
    """
    folder, models, datasets = StudyFolder(out), set(), set()
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
                if spec.path is not None and (asked := (spec, recipe.columns, recipe.limit)) not in datasets:
                    datasets.add(asked)
                    ask(recipe, spec)
        except UserError as error:
            raise UserError(f"Model {run.model!r} of the study: {error}") from None


def _run_model(
    runs: Sequence[StudyRun],
    folder: StudyFolder,
    heard: Listening,
    numbers: dict[str, str],
    choice: Choice,
    warm: WarmModels,
) -> dict[str, str]:
    """The runs of one model, which is loaded once; the run that ended for want of workers."""
    for run in runs:
        heard.tell(f"{numbers[run.name]}: {', '.join(parse_spec(text).name for text in run.recipe.datasets)}")
        try:
            run_recipe(run.recipe, folder.run(run.name), progress=heard.progress(), choice=choice, warm=warm)
        except Incomplete as error:  # the model's other runs would have the same workers; the next one gets new ones
            warm.close()
            line = " ".join(str(error).split())
            heard.tell(f"{numbers[run.name]} incomplete: {line}")
            return {run.name: line}
        except UserError as error:
            line = " ".join(str(error).split())
            folder.set_failure(run, line)
            heard.tell(f"{numbers[run.name]} failed: {line}")
        else:
            folder.set_failure(run, None)
    return {}
