"""The folder of a study: its file, a run folder per run below `runs/`, their comparison; and how far every run is.

`study.json` marks it and says why runs failed. How far a run is, its own folder says, whatever became of the process
that worked in it. The comparison is a folder as `anchorscope compare` writes it.
"""

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anchorscope.artefacts.run_folder import is_run, read_index, read_manifest
from anchorscope.artefacts.sealed_folder import (
    MANIFEST,
    STUDY_MARKER,
    open_locked,
    read_sealed,
    refuse_foreign,
    refuse_linked,
    sealed_text,
)
from anchorscope.errors import UserError, counted
from anchorscope.files import (
    LOCK,
    is_locked,
    make_folder,
    move_aside,
    replacing,
    sha256,
    writable,
)
from anchorscope.recipe import Recipe, make_recipe, read_recipe
from anchorscope.study.grid import Study, StudyRun, read_study

FILE, RUNS, COMPARED = "study.toml", "runs", "comparison"
"""The study's own file, the folder of its runs, and that of their comparison."""
PAGE = f"{COMPARED}/report.html"
DONE, RUNNING, FAILED, STOPPED, WAITING = STATES = (
    "done",
    "running",
    "failed",
    "stopped",
    "waiting",
)
"""Of a run. Stopped: started, and resumed by the same command. Waiting: not begun, or finished with other options."""
_OURS = (LOCK, RUNS, COMPARED, FILE)
_MACHINE = {
    "device": "auto",
    "dtype": "auto",
    "evidence_items": None,
    "batch_tokens": None,
    "threads": None,
    "random_cuts": None,
}
"""Options that a run settles itself where the study leaves them open, with the value that leaves them so."""


@dataclass
class StudyFolder:
    """A study's folder, and what it remembers."""

    path: Path
    study: Study
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    """Why a run failed (`line`), and of which options (`key`)."""
    written: dict[str, str] = field(default_factory=dict)
    """Hash of the study's file as it was written."""

    @property
    def command(self) -> str:
        """What goes on with the study, and writes its comparison again."""
        return shlex.join(["anchorscope", "study", "run", "--out", str(self.path)])

    def run(self, name: str) -> Path:
        """The folder of one run."""
        return self.path / RUNS / name

    def save(self) -> None:
        """Writes study.json, whole."""
        runs = [run.name for run in self.study.runs]
        content = {
            "name": self.study.name,
            "runs": runs,
            "failed": self.failed,
            "command": self.command,
        }
        with replacing(self.path / STUDY_MARKER) as half_made:
            half_made.write_text(
                sealed_text(self.path, content, [FILE]), encoding="utf-8"
            )

    def set_failure(self, run: StudyRun, line: str | None) -> None:
        """Keeps why a run failed, or forgets it."""
        self.failed.pop(run.name, None)
        self.failed |= (
            {run.name: {"key": run.key, "line": line}} if line is not None else {}
        )
        self.save()


@contextlib.contextmanager
def open_study(path: Path, study: Study, source: Path) -> Iterator[StudyFolder]:
    """The folder, ready and locked; one that holds anything but a study is refused.

    It keeps the study's file; one that was edited in its place stays as it is, one that is in the way moves.
    """
    file = path / FILE

    def refuse() -> None:
        for name in (STUDY_MARKER, FILE, RUNS, COMPARED):
            refuse_linked(path / name)
        # a user's files beside a study's are left alone
        if not (path / STUDY_MARKER).is_file():
            refuse_foreign(path, _OURS)

    with open_locked(path, refuse):
        with writable(path):
            folder = read_folder(path, study)
            make_folder(path / RUNS)
            if not (
                file.exists() and source.exists() and os.path.samefile(file, source)
            ):
                if file.exists() and sha256(file) != folder.written.get(FILE):
                    move_aside(file)
                with replacing(file) as half_made:
                    half_made.write_text(study.to_toml(), encoding="utf-8")
            folder.save()
        yield folder


def read_folder(path: Path, study: Study) -> StudyFolder:
    """What a study's folder remembers; nothing where it is new."""
    try:
        record = read_sealed(path / STUDY_MARKER)
        return StudyFolder(path, study, record["failed"], record["sha256"])
    except (FileNotFoundError, NotADirectoryError):
        return StudyFolder(path, study)
    except (OSError, ValueError, KeyError):
        raise UserError(
            f"{str(path / STUDY_MARKER)!r} is damaged. Its runs are whole in themselves: move it away, and the same "
            f"command goes on."
        ) from None


def study_in(path: Path) -> Study:
    """The study that a folder holds."""
    if not (path / FILE).is_file():
        raise UserError(
            f"{str(path)!r} holds no study (no {FILE}); run one with: anchorscope study run STUDY.toml --out DIR"
        )
    return read_study(path / FILE)


@dataclass(frozen=True)
class RunState:
    """How far one run of a study is."""

    name: str
    state: str
    steps: int
    """Steps that the run holds."""
    model: str
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
        states = [f"{n} {state}" for state in STATES if (n := self.count(state))]
        runs = counted(len(self.runs), "run")
        return f"{self.name}: {runs}, {', '.join(states)}"

    def record(self) -> dict[str, Any]:
        """For programs."""
        counts = {state: self.count(state) for state in STATES}
        about = {
            "study": self.name,
            "out": self.folder,
            "running": self.running,
            "counts": counts,
        }
        return {**about, "runs": [asdict(run) for run in self.runs]}


def status_of(study: Study, path: Path) -> Status:
    """The states of all runs of a study in its folder, which need not be there yet."""
    folder = read_folder(path, study)
    return Status(
        study.name,
        str(path),
        is_locked(path),
        tuple(run_state(folder, run) for run in study.runs),
    )


def run_state(folder: StudyFolder, run: StudyRun) -> RunState:
    """One run."""
    path = folder.run(run.name)
    state, steps, error = WAITING, 0, None
    if is_run(path):
        state = STOPPED
        with contextlib.suppress(UserError):  # damaged: the run itself will report it
            steps = len(read_index(path).steps)
    if (path / MANIFEST).is_file():
        error = _not_as_asked(path, run.recipe)
        state = WAITING if error else DONE
    failure = folder.failed.get(run.name)
    if state != DONE and is_locked(path):
        state, error = RUNNING, None
    elif state != DONE and failure is not None and failure["key"] == run.key:
        state, error = FAILED, failure["line"]
    return RunState(run.name, state, steps, run.model, str(path), error)


def _not_as_asked(path: Path, asked: Recipe) -> str | None:
    """Why a finished run is not the one that is asked for; None if it is."""
    try:
        read_manifest(path)
        made = make_recipe(read_recipe(path / "recipe.toml"))
    except UserError as error:
        return str(error)
    differing = [
        name.replace("_", "-")
        for name in Recipe.model_fields
        if not _fits(name, made, asked)
    ]
    return (
        f"finished with another {', '.join(differing)}; the same command brings it up to date"
        if differing
        else None
    )


def _fits(name: str, made: Recipe, asked: Recipe) -> bool:
    has, wants = getattr(made, name), getattr(asked, name)
    if (
        name == "evidence"
    ):  # a run that is resumed keeps the experiments that it has made
        return set(wants) <= set(has)
    return bool(has == wants) or (name in _MACHINE and wants == _MACHINE[name])
