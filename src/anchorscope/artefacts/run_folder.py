"""The run folder: one run's place on disk, locked while a process works in it.

`index.json` is the marker that makes a folder a run, and lists every file that the run wrote: no other file is ever
removed, and a file that stands in the way of a result is moved aside. Steps lie in `work/`; results are written in one
go at the end, and `manifest.json` after all of them. A folder with a whole manifest is a finished run. It stays one
while it is being extended, up to the moment when the new results take the place of the old.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from anchorscope.artefacts.durable import canonical_hash, make_folder, replacing, sync_folder, sync_tree, write_json
from anchorscope.artefacts.index import INDEX, Index, damage, facts_of, is_run, read_index
from anchorscope.artefacts.step import Clock, Format, MadeFrom, Source, Step
from anchorscope.errors import UserError
from anchorscope.schema import SCHEMA_VERSION

LOCK = ".lock"
"""Held while a process runs in the folder."""
MANIFEST = "manifest.json"
T = TypeVar("T")


class RunFolder:
    """A run folder that is open, and locked."""

    def __init__(self, path: Path, index: Index, tell: Callable[[str], None], is_new: bool) -> None:
        self.path, self.index, self._tell, self.is_new = path, index, tell, is_new
        self.work = path / "work"
        self.clock = Clock()

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

    def tell(self, what: str) -> None:
        """Something that the user has to know: told at once, and in the manifest."""
        self.index.events.append(what)
        self._tell(what)

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
        self.index.notes.clear()
        self.index.save(self.path)
        self.remove_files(files)

    def remove_files(self, names: Iterable[str]) -> None:
        """Removes files of this run, and the folders that are empty then; the caller has taken them off the index."""
        for name in names:
            place = self.path / name
            place.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # until a folder is not empty
                for folder in place.parents:
                    if folder == self.path:
                        break
                    folder.rmdir()

    def is_published(self, key: str) -> bool:
        """Whether the results of exactly these steps are there, whole; what is wrong with them is told."""
        if self.index.notes.get("published") != key:
            return False
        wrong = damage(self.path, self.index.results)
        if wrong is not None:
            self.tell(f"the finished run was changed: {wrong}; its results are written again")
        return wrong is None

    def publish(self, made: Path, manifest: dict[str, Any], key: str) -> None:
        """Puts results, written in a folder of their own, into their place; the manifest comes last."""
        sync_tree(made)
        names = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
        self.index.notes.pop("published", None)
        self.index.save(self.path)
        self._clear_way([*names, MANIFEST])
        (self.path / MANIFEST).unlink(missing_ok=True)  # from here on the folder is not a finished run
        for name in names:
            make_folder((self.path / name).parent)
            os.replace(made / name, self.path / name)
            sync_folder((self.path / name).parent)
        old = set(self.index.results) - {*names, MANIFEST}
        self.index.results = facts_of(self.path, names)
        self.index.save(self.path)
        self.remove_files(old)
        hashes = {name: known["sha256"] for name, known in self.index.results.items()}
        sealed = {"schema_version": SCHEMA_VERSION, **manifest, "sha256": hashes}
        write_json(self.path / MANIFEST, {**sealed, "seal": canonical_hash(sealed)})
        self._settle(key)

    def _settle(self, key: str) -> None:
        """The end: large steps that are not to be kept go."""
        self.index.results |= facts_of(self.path, [MANIFEST])
        self.index.notes["published"] = key
        dropped = [record for record in self.index.steps.values() if record.large and not record.dropped]
        files = [name for record in dropped for name in record.files]
        for record in dropped:
            record.dropped, record.files = True, {}
        self.index.save(self.path)
        self.remove_files(files)

    def _clear_way(self, names: Sequence[str]) -> None:
        """Moves aside what stands where a result goes and is not the run's own: changed since, or never written."""
        for name in names:
            place = self.path / name
            known = self.index.results.get(name)
            if not os.path.lexists(place) or (known is not None and damage(self.path, {name: known}) is None):
                continue
            if name in (MANIFEST, "recipe.toml") and known is None and place.is_file():
                continue  # written by this run before its index knew: at its start, or in a run that was cut off
            aside = next(
                one for number in range(1, 10_000)
                if not os.path.lexists(one := place.with_name(f"{place.name}.changed-{number}"))
            )  # fmt: skip
            os.replace(place, aside)
            self.tell(f"{name} was not what the run had written; it was moved to {aside.name}")

    def abandon(self) -> None:
        """Takes away what a run left that never got anywhere; a folder that it made goes with it."""
        files = [name for record in self.index.steps.values() for name in record.files]
        self.remove_files([*files, "recipe.toml", INDEX])
        with contextlib.suppress(OSError):
            self.work.rmdir()


@contextlib.contextmanager
def open_run(path: Path, tell: Callable[[str], None] = lambda what: None) -> Iterator[RunFolder]:
    """The run folder, ready and locked; a folder that holds anything but a run is refused.

    A folder that this call made, and in which no question was answered, is taken away again when the user's mistake
    ends the run.
    """
    if path.exists() and not path.is_dir():
        raise UserError(f"{str(path)!r} is a file, not a folder; choose another with --out.")
    refuse_foreign(path)
    made_here = not path.exists()
    with _os_errors_told(path):
        make_folder(path)
    with _locked(path):
        with _os_errors_told(path):
            refuse_foreign(path)  # another process may have been here in the meantime
            is_new = not is_run(path)
            index = Index() if is_new else read_index(path)
            if is_new:
                index.save(path)
        folder = RunFolder(path, index, tell, is_new)
        try:
            yield folder
        except UserError:
            got_nowhere = not any(name.endswith("/answers") for name in index.steps) and not index.results
            if got_nowhere:
                folder.abandon()
                (path / LOCK).unlink(missing_ok=True)
                if made_here:
                    with contextlib.suppress(OSError):
                        path.rmdir()
            raise


def refuse_foreign(path: Path) -> None:
    """Refuses a folder that holds anything but a run of ours."""
    if not path.is_dir() or is_run(path):
        return
    entries = sorted(entry.name for entry in path.iterdir() if entry.name not in (LOCK, f"{INDEX}.partial"))
    if {"recipe.toml", MANIFEST} <= set(entries) and _is_old_manifest(path / MANIFEST):
        raise UserError(
            f"The run in {str(path)!r} was made by an older version of anchorscope, which left no list of its files; "
            f"it can be shown and compared, but not gone on with. Choose another folder with --out."
        )
    if entries:
        found = ", ".join(entries[:5])
        raise UserError(f"Folder {str(path)!r} holds other things ({found}); choose an empty or new one with --out.")


def _is_old_manifest(place: Path) -> bool:
    try:
        return "sha256" in json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(path / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"Another process is running in {str(path)!r}; wait for it, or choose another folder with --out."
        ) from None
    except (OSError, NotImplementedError) as error:
        raise UserError(
            f"Folder {str(path)!r} cannot be locked ({error}), so that two runs could write there at once; choose a "
            f"folder on another file system with --out."
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _os_errors_told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror
        raise UserError(f"Folder {str(path)!r} cannot be written ({reason}); choose another with --out.") from None


def write_text(place: Path, text: str) -> None:
    """A text file, whole or not at all."""
    with replacing(place) as half_made:
        half_made.write_text(text, encoding="utf-8")
