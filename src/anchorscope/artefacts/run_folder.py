"""The run folder: one run's place on disk, locked while a process works in it.

`index.json` makes a folder a run and lists every file that it wrote. Steps lie in `work/`; results are written in one
go at the end, and `manifest.json` last. A folder with a whole manifest is a finished run, and stays one while it is
extended, until the new results replace the old.
"""

import contextlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from anchorscope.artefacts.forms import check_form
from anchorscope.artefacts.schema import SCHEMA_VERSION
from anchorscope.artefacts.sealed_folder import (
    INDEX,
    MANIFEST,
    Damaged,
    FileFacts,
    OwnFiles,
    are_inside,
    damage,
    facts_of,
    open_locked,
    read_json,
    refuse_foreign,
    sealed,
    unsealed,
    wrong_with,
)
from anchorscope.errors import UserError
from anchorscope.files import (
    LOCK,
    files_below,
    remove_files,
    remove_partials,
    write_json,
)
from anchorscope.progress import Progress, Silent

WORK = "work"
RESULTS = "results"
"""Beside this name results are written before they are put in their place."""
_MARK = "anchorscope run"
_LISTS = ("results", "arriving", "leaving", "notes", "events")
_STEP_FILE = re.compile(rf"{WORK}/(?:.+/)?[^/]+-[0-9a-f]{{12}}/.+", re.DOTALL)


class OtherVersion(UserError):
    """An index that another version of anchorscope wrote."""


@dataclass
class StepRecord:
    """A step: what it was made from, its files, time and memory."""

    key: str
    made_from: dict[str, Any]
    files: dict[str, FileFacts]
    """By path relative to the run folder; empty if the result was dropped."""
    seconds: float
    peak_memory_mb: dict[str, float]
    large: bool = False
    """Whether the result is dropped when the run is finished."""
    dropped: bool = False
    """Whether the result was made and then removed to save space."""


@dataclass
class RunFolder(OwnFiles):
    """What a run folder's index says, and what a process that has opened it may do."""

    steps: dict[str, StepRecord] = field(default_factory=dict)
    leaving: list[str] = field(default_factory=list)
    """Files that no step lists any more, and that may still exist."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Numbers that a resumed run needs."""
    events: list[str] = field(default_factory=list)
    """What was extended, redone or retried, in order."""
    progress: Progress = field(default_factory=Silent)
    is_new: bool = False
    seconds_in_steps: float = 0.0
    """Seconds spent on steps in this process."""

    @property
    def work(self) -> Path:
        return self.path / WORK

    def save(self) -> None:
        content = {
            "marker": _MARK,
            "schema_version": SCHEMA_VERSION,
            "steps": {name: vars(record) for name, record in self.steps.items()},
            **{name: getattr(self, name) for name in _LISTS},
        }
        write_json(self.path / INDEX, sealed(content), indent=None)  # after every step

    def tell(self, what: str) -> None:
        """A message for the user, also kept in the manifest."""
        self.events.append(what)
        self.progress.note(what)

    def step_files(self) -> list[str]:
        return [name for record in self.steps.values() for name in record.files]

    def is_own(self, name: str) -> bool:
        """Whether this run wrote a file: of a step, or as an unchanged result."""
        if any(name in record.files for record in self.steps.values()):
            return (
                not (self.path / name).is_symlink() and not (self.path / name).is_dir()
            )
        return super().is_own(name)

    # What goes

    def drop(self, names: Iterable[str]) -> None:
        """Saves the index without these files, then removes them."""
        self.leaving += names
        self.save()
        if self.leaving:
            remove_files(self.path, self.leaving)
            self.leaving.clear()
            self.save()

    def forget_steps(self) -> None:
        """Starts over: every step is made again. Results stay until the new ones replace them."""
        files = self.step_files()
        self.steps.clear()
        self.notes = {
            name: value for name, value in self.notes.items() if name == "recipe"
        }
        self.drop(files)

    def tidy(self) -> None:
        """Removes what a killed run left behind."""
        names = [name for name in self.arriving if name.startswith(f"{WORK}/")]
        self.arriving = {
            name: facts for name, facts in self.arriving.items() if name not in names
        }
        if names or self.leaving:
            self.drop(names)
        for folder in (self.path, self.work, *self.work.glob("*/")):
            remove_partials(folder)

    def abandon(self) -> None:
        """Removes a run that never got anywhere, and the folder that it made."""
        others = [name for name in (*self.results, *self.arriving) if self.is_own(name)]
        # the fault that ended the run may keep things here; the index goes last
        with contextlib.suppress(OSError):
            remove_files(self.path, [*self.step_files(), *others, *self.leaving, INDEX])
        for made in (*self.work.glob("*"), self.work):
            with contextlib.suppress(OSError):  # empty ones only
                made.rmdir()

    # Results

    def is_published(self, key: str) -> bool:
        """Whether the results of exactly these steps exist, and all files are whole; damage is reported."""
        if self.notes.get("published") != key:
            return False
        wrong = damage(self.path, self.results)
        if wrong is not None:
            self.tell(
                f"the finished run was changed: {wrong}; its results are written again"
            )
        return not self.forget_damaged_steps() and wrong is None

    def forget_damaged_steps(self, with_large: bool = True) -> bool:
        """Removes damaged steps from the index, so that they are made again if needed."""
        damaged = {
            name
            for name, record in self.steps.items()
            if (with_large or not record.large)
            and damage(self.path, record.files) is not None
        }
        for name in damaged:
            files = self.steps.pop(name).files
            self.tell(
                f"{name} is made again where it is needed: {damage(self.path, files)}"
            )
            for file, facts in files.items():
                if (
                    os.path.lexists(self.path / file)
                    and wrong_with(self.path / file, facts) is not None
                ):
                    self.move_aside(file)
            self.drop([file for file in files if os.path.lexists(self.path / file)])
        if damaged:
            self.notes.pop("published", None)
            self.save()
        return bool(damaged)

    def write_recipe(self, text: str) -> None:
        """Writes the recipe of an unfinished run, and remembers it, should the file be lost."""
        if MANIFEST not in self.results:
            self.notes["recipe"] = text
        self.write_early("recipe.toml", text.encode())

    def write_early(self, name: str, content: bytes) -> None:
        """Writes a result of an unfinished run; a finished one keeps its own until the end."""
        if MANIFEST not in self.results:
            self.write(name, content)

    def publish(self, made: Path, manifest: dict[str, Any], key: str) -> None:
        """Moves results from their own folder into place, the manifest last.

        It includes the final index, without large steps, so that a lost index can be replaced.
        """
        facts = facts_of(made, files_below(made))
        if "recipe.toml" in facts:
            self.notes["recipe"] = (made / "recipe.toml").read_text(encoding="utf-8")
        gone: dict[str, Any] = {"dropped": True, "files": {}}
        steps = {
            name: {**vars(record), **(gone if record.large else {})}
            for name, record in self.steps.items()
        }
        index = {"steps": steps, "notes": {**self.notes, "published": key}}
        hashes = {name: file_facts["sha256"] for name, file_facts in facts.items()}
        content = {
            "schema_version": SCHEMA_VERSION,
            **manifest,
            "index": index,
            "sha256": hashes,
        }
        write_json(made / MANIFEST, sealed(content))
        self.notes.pop("published", None)
        self.take(made, facts | facts_of(made, [MANIFEST]), MANIFEST)
        self._settle(key)

    def _settle(self, key: str) -> None:
        """Drops large steps at the end."""
        self.notes["published"] = key
        dropped = [
            record
            for record in self.steps.values()
            if record.large and not record.dropped
        ]
        files = [name for record in dropped for name in record.files]
        for record in dropped:
            record.dropped, record.files = True, {}
        self.drop(files)


@contextlib.contextmanager
def open_run(path: Path, progress: Progress | None = None) -> Iterator[RunFolder]:
    """The run folder, locked; a folder that holds anything else is refused.

    A run begun by this call, in which no question was answered, is removed again on a user's mistake or a disk fault,
    together with the folders made for it.
    """
    with open_locked(path, lambda: _refuse(path)):
        folder = read_index(path) if is_run(path) else RunFolder(path, is_new=True)
        folder.progress = progress or Silent()
        try:
            if folder.is_new:
                folder.save()
            folder.tidy()
            yield folder
        except (UserError, OSError):
            answered = any(name.endswith("/answers") for name in folder.steps)
            if folder.is_new and not answered:
                folder.abandon()
            raise


def _refuse(path: Path) -> None:
    """Refuses a folder that holds anything but a run, or whose index can't be used, or with links inside."""
    if is_run(path):
        return _refuse_links(read_index(path))
    with contextlib.suppress(OSError, ValueError):
        if (path / "recipe.toml").exists() and "sha256" in read_json(path / MANIFEST):
            raise UserError(
                f"The run in {str(path)!r} has no {INDEX} and cannot be resumed; choose another --out."
            )
    refuse_foreign(path, (LOCK,))


def _refuse_links(run: RunFolder) -> None:
    """Refuses a run with a link in place of a folder of ours."""
    listed = [*run.results, *run.arriving, *run.step_files()]
    folders = {
        run.path / part for name in listed for part in PurePosixPath(name).parents
    }
    folders |= {run.path / INDEX, run.work, *run.work.glob("*"), *run.work.glob("*/*")}
    links = sorted(
        folder.relative_to(run.path).as_posix()
        for folder in folders
        if folder.is_symlink()
    )
    if links:
        raise UserError(
            f"The run in {str(run.path)!r} has a link in the place of {links[0]!r}; links inside a run are not "
            f"followed, and nothing was changed. Remove it, or choose another folder with --out."
        )


# Reading


def is_run(folder: Path) -> bool:
    return (folder / INDEX).is_file()


def read_index(folder: Path) -> RunFolder:
    """The index of a run folder; a damaged one, or one of another version, is reported in one line."""
    try:
        record = unsealed(read_json(folder / INDEX))
        version = record.get("schema_version")
        if record.get("marker") == _MARK and version != SCHEMA_VERSION:
            raise OtherVersion(
                f"The run in {str(folder)!r} was written by another version of anchorscope (format {version}, this one "
                f"writes {SCHEMA_VERSION}); choose another folder with --out."
            )
        check_form(INDEX, record)
        whole = record["marker"] == _MARK and _is_possible(record)
    except (OSError, ValueError):
        whole = False
    if not whole:
        raise Damaged(
            f"{str(folder / INDEX)!r} is damaged, so it is unknown which files of this folder belong to the "
            f"run; nothing was changed. Run the same command again into another folder with --out."
        )
    return RunFolder(
        folder, steps=_steps(record), **{name: record[name] for name in _LISTS}
    )


def _is_possible(record: Mapping[str, Any]) -> bool:
    """Whether an index lists only what a run can have written: an index from elsewhere may list anything.

    Files of steps are removed without checking their content, so they must lie in a step's own folder.
    """
    results = [*record["results"], *record["arriving"]]
    in_steps = [
        *_files_of_steps(record),
        *record["leaving"],
        *(name for name in results if name.startswith(f"{WORK}/")),
    ]
    return are_inside([*in_steps, *results]) and all(
        map(_STEP_FILE.fullmatch, in_steps)
    )


def _files_of_steps(record: Mapping[str, Any]) -> list[str]:
    return [name for step in record["steps"].values() for name in step["files"]]


def _steps(record: Mapping[str, Any]) -> dict[str, StepRecord]:
    return {name: StepRecord(**step) for name, step in record["steps"].items()}


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a finished run, whole and of a known version."""
    try:
        record = read_json(path / MANIFEST)
    except FileNotFoundError:
        how = f": {rerun_command(path)}" if is_run(path) else "."
        raise UserError(
            f"{str(path)!r} is not a finished run (no manifest.json); run it to its end first{how}"
        ) from None
    except (OSError, ValueError):
        raise Damaged(
            f"{str(path)!r} is not a finished run (its manifest.json is damaged). {run_again(path)}"
        ) from None
    hashes, version = (
        (record.get("sha256"), record.get("schema_version", 1))
        if isinstance(record, dict)
        else (0, 0)
    )
    if (
        not isinstance(hashes, dict)
        or "recipe.toml" not in hashes
        or not isinstance(version, int)
    ):
        raise UserError(
            f"{str(path)!r} is not a finished run of anchorscope (manifest.json is of something else)."
        )
    if version > SCHEMA_VERSION:
        raise UserError(
            f"The run {str(path)!r} was written by a newer version of anchorscope (format {version}, this one reads up "
            f"to {SCHEMA_VERSION}); update anchorscope to read it."
        )
    if version < SCHEMA_VERSION:
        raise UserError(
            f"The run {str(path)!r} was written by an older version of anchorscope (format {version}, this one reads "
            f"{SCHEMA_VERSION}); read it with a version of format {version}, or run it again into another folder."
        )
    try:
        content = unsealed(record)
    except ValueError:
        raise Damaged(
            f"{str(path)!r} is not a finished run (its manifest.json was changed). {run_again(path)}"
        ) from None
    try:
        check_form(MANIFEST, content)
    except ValueError as error:
        raise Damaged(
            f"{str(path)!r} is not a finished run (its manifest.json has {error}). {run_again(path)}"
        ) from None
    return content


def index_in(folder: Path, manifest: Mapping[str, Any]) -> RunFolder:
    """The steps and notes of the final index, from the manifest; none where it lists what no run can have written."""
    index = manifest.get("index", {"steps": {}, "notes": {}})
    in_steps = _files_of_steps(index)
    if not (are_inside(in_steps) and all(map(_STEP_FILE.fullmatch, in_steps))):
        return RunFolder(folder)
    return RunFolder(
        folder,
        steps=_steps(index),
        notes=dict(index["notes"]),
        events=list(manifest.get("events", ())),
    )


def rerun_command(folder: Path) -> str:
    """The command that makes damaged files of a run again, from its recipe if that is whole."""
    recipe = folder / "recipe.toml"
    try:
        facts = read_index(folder).results.get(recipe.name)
    except UserError:
        return "anchorscope run --out NEW_FOLDER, with the options that the run was made with"
    if facts is not None and wrong_with(recipe, facts) is None:
        return shlex.join(["anchorscope", "run", str(recipe), "--out", str(folder)])
    return f"anchorscope run --out {shlex.quote(str(folder))}, with the options that the run was made with"


def run_again(path: Path) -> str:
    """The end of a message about damage."""
    return f"Run the same command again (a changed file is moved aside): {rerun_command(path)}"
