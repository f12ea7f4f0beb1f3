"""How far a study is, read from the folders of its runs themselves: true whatever became of the process that ran them.

| state | |
|---|---|
| `done` | finished, with the options that the study gives it |
| `running` | a process works in its folder just now |
| `failed` | it ended with the line in `error`, under the same options |
| `stopped` | started, but no process is working on it: the same command resumes it |
| `waiting` | not begun, or finished with other options |

`steps` counts the steps that the run holds.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anchorscope.artefacts.run_folder import RunFolder, index_in, is_run, read_index, read_manifest
from anchorscope.artefacts.sealed_folder import MANIFEST, STUDY_MARKER
from anchorscope.errors import UserError
from anchorscope.files import is_locked
from anchorscope.recipe import Recipe, make_recipe, read_recipe
from anchorscope.study.grid import Study, StudyRun
from anchorscope.study.study_folder import StudyFolder, look_into

DONE, RUNNING, FAILED, STOPPED, WAITING = STATES = ("done", "running", "failed", "stopped", "waiting")
"""Of a run."""
_MACHINE = {"device": "auto", "dtype": "auto", "evidence_items": None, "batch_tokens": None, "threads": None}
"""Options that a run settles itself where the study leaves them open, with the value that leaves them so."""


@dataclass(frozen=True)
class RunState:
    """One run of a study."""

    name: str
    state: str
    steps: int
    """Steps that the run holds."""
    model: str
    prompt: str
    seed: int
    datasets: tuple[str, ...]
    folder: str
    error: str | None = None
    """Why it failed, or what a reader has to know of its state."""


@dataclass(frozen=True)
class Status:
    """All runs."""

    name: str
    folder: str
    running: bool
    """Whether a process works on the study just now."""
    runs: tuple[RunState, ...]

    def count(self, state: str) -> int:
        """Runs in this state."""
        return sum(run.state == state for run in self.runs)

    @property
    def line(self) -> str:
        """How far it is, in one line."""
        counted = [f"{n} {state}" for state in STATES if (n := self.count(state))]
        return f"{self.name}: {len(self.runs)} run{'s' * (len(self.runs) != 1)}, {', '.join(counted)}"

    def record(self) -> dict[str, Any]:
        """For programs."""
        counts = {state: self.count(state) for state in STATES}
        return {
            "study": self.name,
            "out": self.folder,
            "running": self.running,
            "counts": counts,
            "runs": [asdict(run) for run in self.runs],
        }


def status_of(study: Study, path: Path) -> Status:
    """The states of all runs of a study in its folder, which need not be there yet."""
    folder = look_into(path) if (path / STUDY_MARKER).is_file() else StudyFolder(path)
    runs = tuple(run_state(folder, run) for run in study.runs)
    return Status(study.name, str(path), is_locked(path), runs)


def run_state(folder: StudyFolder, run: StudyRun) -> RunState:
    """One run."""
    place = folder.run(run.name)
    index, others = _index(place), None
    state = STOPPED if index is not None else WAITING
    error = None
    failed = folder.failed.get(run.name)
    if (place / MANIFEST).is_file():
        others = _not_as_asked(place, run.recipe)
        state = DONE if others is None else WAITING
        error = others
    if state != DONE and is_locked(place):
        state, error = RUNNING, None
    elif state != DONE and failed is not None and failed["key"] == run.key:
        state, error = FAILED, failed["line"]
    return RunState(
        run.name,
        state,
        len(index.steps) if index else 0,
        run.model,
        run.recipe.prompt,
        run.recipe.seed,
        run.recipe.datasets,
        str(place),
        error,
    )


def is_done(folder: StudyFolder, run: StudyRun) -> bool:
    """Whether a run is finished as the study asks for it."""
    place = folder.run(run.name)
    return (place / MANIFEST).is_file() and _not_as_asked(place, run.recipe) is None


def _index(place: Path) -> RunFolder | None:
    """What a run knows of itself; a finished one whose index was lost says it in its manifest."""
    try:
        if is_run(place):
            return read_index(place)
        return index_in(place, read_manifest(place)) if (place / MANIFEST).is_file() else None
    except UserError:  # damaged: the run itself will tell
        return RunFolder(place)


def _not_as_asked(place: Path, asked: Recipe) -> str | None:
    """Why a finished run is not the one that is asked for; None if it is."""
    try:
        read_manifest(place)
        found = make_recipe(read_recipe(place / "recipe.toml"))
    except UserError as error:
        return str(error)
    differing = [name.replace("_", "-") for name in Recipe.model_fields if not _fits(name, found, asked)]
    return f"finished with another {', '.join(differing)}; the same command brings it up to date" if differing else None


def _fits(name: str, found: Recipe, asked: Recipe) -> bool:
    has, wants = getattr(found, name), getattr(asked, name)
    if name == "evidence":  # a run that is resumed keeps the experiments that it has made
        return set(wants) <= set(has)
    return bool(has == wants) or (name in _MACHINE and wants == _MACHINE[name])
