"""The run folder: one run's place on disk, locked while a process works in it.

`index.json` is the marker that makes a folder a run, and lists every file that the run wrote: no other file is ever
removed, and a file that stands in the way of a result is moved aside. Steps lie in `work/`; results are written in one
go at the end, and `manifest.json` after all of them. A folder with a whole manifest is a finished run. It stays one
while it is being extended, up to the moment when the new results take the place of the old.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from anchorscope.artefacts.index import INDEX, WORK, FileFacts, Index, damage, facts_of, is_run, read_index
from anchorscope.artefacts.shards import ShardStore, drop_shards, stores_below
from anchorscope.artefacts.step import Format, MadeFrom, Source, Step
from anchorscope.artefacts.store_writer import StoreWriter
from anchorscope.errors import UserError
from anchorscope.execute.store import Store
from anchorscope.files import LOCK as LOCK
from anchorscope.files import (
    PARTIAL,
    canonical_hash,
    files_below,
    move_aside,
    move_files,
    new_folder,
    read_regular,
    remove_files,
    replacing,
    sync_folder,
    sync_tree,
    writable,
    write_json,
)
from anchorscope.files import locked as locked
from anchorscope.progress import Progress, Silent
from anchorscope.schema import SCHEMA_VERSION

MANIFEST = "manifest.json"
RESULTS = f"results{PARTIAL}"
"""Where results are written before they are put in their place."""
_HALF_MADE = re.compile(rf"[a-z-]+-[0-9a-f]{{12}}{re.escape(PARTIAL)}|{re.escape(RESULTS)}")
T = TypeVar("T")


class RunFolder:
    """A run folder that is open, and locked."""

    def __init__(self, path: Path, index: Index, progress: Progress, is_new: bool) -> None:
        self.path, self.index, self.progress, self.is_new = path, index, progress, is_new
        self.work, self.seconds_in_steps = path / WORK, 0.0  # that making steps has taken in this process
        self.under_way: list[StoreWriter[ShardStore]] = []  # shards of the steps being made, the innermost last
        self._counted: set[str] = set()  # steps whose shards were counted in this process

    def step(
        self,
        name: str,
        parents: Sequence[Step[Any] | Source],
        made_from: MadeFrom,
        form: Format,
        make: Callable[[], T],
        large: bool = False,
    ) -> Step[T]:
        """A step of this run; nothing is read or made before its value is asked for."""
        return Step(self, name, parents, made_from, form, make, large)

    def shards(self) -> Store | None:
        """Where the step that is being made keeps results of its shards; None where none is."""
        return self.under_way[-1] if self.under_way else None

    def count_shards(self, planned: int, done: int) -> None:
        """Notes how many planned batches the step that is being made has, and how many are done, beside all others."""
        if not self.under_way:
            return
        step = self.under_way[-1].store.folder.relative_to(self.work).as_posix()
        steps = dict(self.index.notes.get("shards", {}).get("steps", {}))
        before = steps.get(step, (0, 0)) if step in self._counted else (0, 0)  # one that was stopped begins again
        self._counted.add(step)
        steps[step] = [before[0] + planned, before[1] + done]
        totals = [sum(counts) for counts in zip(*steps.values(), strict=True)]
        self.remember("shards", {"planned": totals[0], "done": totals[1], "steps": steps})

    def tell(self, what: str) -> None:
        """Something that the user has to know: told at once, and in the manifest."""
        self.index.events.append(what)
        self.progress.note(what)

    def remember(self, name: str, value: Any) -> None:
        """A value that a resumed run has to know; it takes the place of an earlier one."""
        self.index.notes[name] = value
        self.index.save(self.path)

    def remembered(self, name: str) -> Any:
        """The value that was remembered last; None if none was."""
        return self.index.notes.get(name)

    def forget_steps(self) -> None:
        """Starts over: every step is made anew. Results stay until the new ones take their place."""
        files = [name for record in self.index.steps.values() for name in record.files]
        self.index.steps.clear()
        self.index.notes = {name: value for name, value in self.index.notes.items() if name == "recipe"}
        self.drop(files)
        drop_shards(self.work)

    def drop(self, names: Iterable[str]) -> None:
        """Saves the index, in which these files stand no more, and removes them."""
        self.index.leaving += names
        self.index.save(self.path)
        if self.index.leaving:
            remove_files(self.path, self.index.leaving)
            self.index.leaving.clear()
            self.index.save(self.path)

    def tidy(self) -> None:
        """Removes what a run that was killed left: files on their way out, steps on their way in."""
        names = [name for name in self.index.arriving if name.startswith(f"{self.work.name}/")]
        self.index.arriving = {name: one for name, one in self.index.arriving.items() if name not in names}
        if names or self.index.leaving:
            self.drop(names)
        for half_made in (*self.work.glob("*"), *self.work.glob("*/*"), self.path / RESULTS):
            if _HALF_MADE.fullmatch(half_made.name) and half_made.is_dir():
                shutil.rmtree(half_made)

    def is_published(self, key: str) -> bool:
        """Whether the results of exactly these steps are there, and all files whole; damage is reported."""
        if self.index.notes.get("published") != key:
            return False
        wrong = damage(self.path, self.index.results)
        if wrong is not None:
            self.tell(f"the finished run was changed: {wrong}; its results are written again")
        return not self._forget_damaged_steps() and wrong is None

    def _forget_damaged_steps(self) -> bool:
        """Takes steps out of the index whose files are not what was written, so that they are made again if needed."""
        damaged = {name for name, record in self.index.steps.items() if damage(self.path, record.files) is not None}
        for name in damaged:
            files = self.index.steps.pop(name).files
            self.tell(f"{name} is made again where it is needed: {damage(self.path, files)}")
            for file, facts in files.items():
                if os.path.lexists(self.path / file) and damage(self.path, {file: facts}) is not None:
                    self._move_aside(file)
            self.drop([file for file in files if os.path.lexists(self.path / file)])
        if damaged:
            self.index.notes.pop("published", None)
            self.index.save(self.path)
        return bool(damaged)

    def write_recipe(self, text: str) -> None:
        """Writes the recipe of a run that is not finished, and remembers it, should the file be lost."""
        if MANIFEST not in self.index.results:
            self.index.notes["recipe"] = text
        self.write_early("recipe.toml", text.encode())

    def write_early(self, name: str, content: bytes) -> None:
        """Writes a result of a run that is not finished; a finished one keeps its own up to the end."""
        facts = {name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}}
        if MANIFEST in self.index.results or damage(self.path, facts) is None:
            return
        self.clear_way([name])
        (self.path / name).parent.mkdir(exist_ok=True)
        self.index.arriving |= facts
        self.index.save(self.path)
        with replacing(self.path / name) as half_made:
            half_made.write_bytes(content)
        self.index.results |= facts
        self.index.arriving.pop(name)
        self.index.save(self.path)

    def publish(self, made: Path, manifest: dict[str, Any], key: str) -> None:
        """Puts results, written in a folder of their own, into their place; the manifest comes last."""
        names = files_below(made)
        facts = facts_of(made, names)
        hashes = {name: known["sha256"] for name, known in facts.items()}
        if "recipe.toml" in names:
            self.index.notes["recipe"] = (made / "recipe.toml").read_text(encoding="utf-8")
        kept = self.index.when_finished(key)
        sealed = {"schema_version": SCHEMA_VERSION, **manifest, "index": kept, "sha256": hashes}
        write_json(made / MANIFEST, {**sealed, "seal": canonical_hash(sealed)})
        sync_tree(made)
        last = facts_of(made, [MANIFEST])
        self.clear_way([*names, MANIFEST])
        old = self._old_results({*names, MANIFEST})
        self.index.notes.pop("published", None)
        self.index.arriving = facts | last
        self.index.save(self.path)
        (self.path / MANIFEST).unlink(missing_ok=True)  # from here on the folder is not a finished run
        sync_folder(self.path)
        move_files(made, self.path, names)
        self.index.results, self.index.arriving = facts, last | old
        self.index.save(self.path)
        remove_files(self.path, old)
        move_files(made, self.path, [MANIFEST])
        self.index.results, self.index.arriving = facts | last, {}
        self._settle(key)

    def _settle(self, key: str) -> None:
        """The end: large steps go, and shards of steps that were never stored."""
        self.index.notes["published"] = key
        dropped = [record for record in self.index.steps.values() if record.large and not record.dropped]
        files = [name for record in dropped for name in record.files]
        for record in dropped:
            record.dropped, record.files = True, {}
        self.drop(files)
        drop_shards(self.work)

    def _is_own(self, name: str) -> bool:
        """Whether a file is one that this run wrote: of a step, or as a result that is unchanged."""
        if any(name in record.files for record in self.index.steps.values()):
            return (self.path / name).is_symlink() or not (self.path / name).is_dir()
        return self._own_facts(name) is not None

    def _own_facts(self, name: str) -> FileFacts | None:
        """Size and hash of a result that is unchanged; None for any other file."""
        known = [one[name] for one in (self.index.results, self.index.arriving) if name in one]
        return next((facts for facts in known if damage(self.path, {name: facts}) is None), None)

    def _old_results(self, new: set[str]) -> dict[str, FileFacts]:
        """Results that have no successor; one that was changed stays, and is the user's from now on."""
        old = {name: self._own_facts(name) for name in sorted({*self.index.results, *self.index.arriving} - new)}
        for name, facts in old.items():
            if facts is None and (self.path / name).exists():
                self.tell(f"{name} is no result of this run any more; it was changed, so that it stays")
        return {name: facts for name, facts in old.items() if facts is not None}

    def clear_way(self, names: Iterable[str]) -> None:
        """Moves aside what stands where a result goes and is not the run's own: changed since, or never written."""
        for name in names:
            for part in reversed(PurePosixPath(name).parents[:-1]):  # a file where a folder has to be
                if os.path.lexists(self.path / part) and not (self.path / part).is_dir():
                    self._move_aside(str(part))
            if os.path.lexists(self.path / name) and not self._is_own(name):
                self._move_aside(name)

    def _move_aside(self, name: str) -> None:
        aside = move_aside(self.path / name)
        self.index.results.pop(name, None)
        self.tell(f"{name} was not what the run had written; it was moved to {aside.name}")

    def abandon(self) -> None:
        """Takes away what a run left that never got anywhere; a folder that it made goes with it."""
        steps = [name for record in self.index.steps.values() for name in record.files]
        others = [name for name in (*self.index.results, *self.index.arriving) if self._is_own(name)]
        with contextlib.suppress(OSError):  # the fault that ended the run may keep things here; the index goes last
            remove_files(self.path, [*steps, *others, *self.index.leaving, INDEX])
        drop_shards(self.work)
        for made in (*self.work.glob("*"), self.work):
            with contextlib.suppress(OSError):  # empty ones only
                made.rmdir()


@contextlib.contextmanager
def open_run(path: Path, progress: Progress | None = None) -> Iterator[RunFolder]:
    """The run folder, ready and locked; a folder that holds anything but a run is refused.

    A run that this call began, and in which no question was answered, is taken away again when the user's mistake or a
    fault of the disk ends it; so are the folders that were made for it.
    """
    with writable(path):
        if path.exists() and not path.is_dir():
            raise UserError(f"{str(path)!r} is a file, not a folder; choose another with --out.")
        refuse_foreign(path)
        if is_run(path):
            refuse_links(path, read_index(path))  # both before a lock is made
    with new_folder(path), locked(path):
        with writable(path):
            refuse_foreign(path)  # another process may have been here in the meantime
            is_new = not is_run(path)
            index = Index() if is_new else read_index(path)
        folder = RunFolder(path, index, progress or Silent(), is_new)
        try:
            if is_new:
                index.save(path)
            folder.tidy()
            yield folder
        except (UserError, OSError):
            answered = any(name.endswith("/answers") for name in index.steps)
            if is_new and not answered and not any(store.ids() for store in stores_below(folder.work)):
                folder.abandon()
            raise


def refuse_links(path: Path, index: Index) -> None:
    """Refuses a run in which a link stands in the place of a folder of ours: what it leads to is not the run's."""
    listed = [*index.results, *index.arriving, *(name for record in index.steps.values() for name in record.files)]
    folders = {path / part for name in listed for part in PurePosixPath(name).parents}
    folders |= {path / WORK, path / RESULTS, *(path / WORK).glob("*"), *(path / WORK).glob("*/*")}
    links = sorted(folder.relative_to(path).as_posix() for folder in folders if folder.is_symlink())
    if links:
        raise UserError(
            f"The run in {str(path)!r} has a link in the place of {links[0]!r}; links inside a run are not followed, "
            f"and nothing was changed. Remove it, or choose another folder with --out."
        )


def refuse_foreign(path: Path) -> None:
    """Refuses a folder that holds anything but a run of ours."""
    if not path.is_dir() or is_run(path):
        return
    entries = sorted(entry.name for entry in path.iterdir() if entry.name not in (LOCK, f"{INDEX}{PARTIAL}"))
    if {"recipe.toml", MANIFEST} <= set(entries) and (found := _our_manifest(path / MANIFEST)) is not None:
        older = f"was made by an older version of anchorscope, which left no list of its files ({INDEX})"
        why = f"has lost its {INDEX}" if "schema_version" in found else older
        raise UserError(
            f"The run in {str(path)!r} {why}; it can be shown and compared, but not gone on with. Choose another "
            f"folder with --out."
        )
    if entries:
        listed = ", ".join(entries[:5])
        raise UserError(f"Folder {str(path)!r} holds other things ({listed}); choose an empty or new one with --out.")


def _our_manifest(place: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(read_regular(place))
        return found if "sha256" in found else None
    except (OSError, ValueError, TypeError):
        return None
