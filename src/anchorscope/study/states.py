"""How far a study is, read from the folders of its runs themselves: true whatever became of the process that ran them.

| state | |
|---|---|
| `done` | finished, with the options that the study gives it |
| `running` | a process works in its folder just now |
| `failed` | it ended with the line in `error`, under the same options |
| `stopped` | begun, and nobody works on it: the same command goes on with it |
| `waiting` | not begun, or finished with other options |

`shards` counts the planned batches of the model's passes: how many there are in the steps that were planned so far, and
how many are done. A run that never counted them has `null` and 0. `steps` counts the steps that the run holds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anchorscope.artefacts.run_folder import RunFolder, index_in, is_run, read_index, read_manifest
from anchorscope.artefacts.sealed_folder import MANIFEST, STUDY_MARKER
from anchorscope.artefacts.shards import WORK, stores_below
from anchorscope.errors import UserError
from anchorscope.files import is_locked
from anchorscope.recipe import Recipe, make_recipe, read_recipe
from anchorscope.study.grid import Study, StudyRun
from anchorscope.study.study_folder import StudyFolder, look_into

DONE, RUNNING, FAILED, STOPPED, WAITING = STATES = ("done", "running", "failed", "stopped", "waiting")
"""Of a run."""
SHARDS = "shards"
"""The note in a run's index that counts them: `done` and `planned`."""
_MACHINE = {"device": "auto", "dtype": "auto", "evidence_items": None, "batch_tokens": None, "threads": None}
"""Options that a run settles itself where the study leaves them open, with the value that leaves them so."""


@dataclass(frozen=True)
class RunState:
    """One run of a study."""

    name: str
    state: str
    shards_done: int
    shards: int | None
    """None where the run has not counted them."""
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
    done, planned = _shards(index, place)
    return RunState(
        run.name,
        state,
        done,
        planned,
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


def _shards(index: RunFolder | None, place: Path) -> tuple[int, int | None]:
    """Those of every step that was planned; in the step under way, those that are in its store count as done."""
    told = index.notes.get(SHARDS) if index is not None else None
    if not isinstance(told, Mapping) or not all(isinstance(told.get(key), int) for key in ("done", "planned")):
        return 0, None
    work = place / WORK
    stored = {store.folder.relative_to(work).as_posix(): len(store.ids()) for store in stores_below(work)}
    done = sum(max(counts[1], min(counts[0], stored.get(step, 0))) for step, counts in told.get("steps", {}).items())
    return max(done, told["done"]), told["planned"]


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
    if name == "evidence":  # a run that is gone on with keeps the experiments that it has made
        return set(wants) <= set(has)
    return bool(has == wants) or (name in _MACHINE and wants == _MACHINE[name])
