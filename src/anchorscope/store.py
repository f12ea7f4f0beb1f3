"""The run folder: what a step leaves behind, so that an interrupted run goes on where it stopped.

While a run is under way, every finished step stands in `work/` as one file that was written beside its place and then
renamed: it is there whole or not at all. At the end the results are written, then `manifest.json` last, then `work/`
goes away. A folder with a manifest is a finished run; nothing else is trusted as one.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from anchorscope.errors import UserError
from anchorscope.recipe import AFTER_ANSWERS, Recipe, make_recipe, read_recipe, to_toml

RESULTS = (
    "items.parquet", "probes.safetensors", "probe_scores.csv", "effects.parquet", "pathways.parquet", "curves.csv",
    "curve_samples.parquet", "reference_curves.csv", "summary.csv", "experiments.csv",
    "experiment_items.parquet", "observations.json", "figures", "report.html", "report.md",
)  # fmt: skip
"""What a finished run holds beside its recipe and manifest."""

LOCK = ".lock"
"""Held while a process runs in the folder."""

T = TypeVar("T")


class Format(Protocol):
    """How a step's result is written and read; see `checkpoints`."""

    @property
    def write(self) -> Callable[[Any, Path], None]:
        """Writes a result to a path."""

    @property
    def read(self) -> Callable[[Path], Any]:
        """Reads it back."""


class RunFolder:
    """One run's place on disk."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path = path
        self.recipe = recipe
        self.work = path / "work"
        self.opened = time.monotonic()

    @property
    def finished(self) -> bool:
        """Whether the run was completed."""
        return (self.path / "manifest.json").is_file()

    def step(self, name: str, make: Callable[[], T], form: Format) -> T:
        """A step's result: read if it is there, else made, written whole, and recorded with its time and memory."""
        place = self.work / name
        if place.exists():
            return cast(T, form.read(place))
        _reset_device_peak()
        began = time.monotonic()
        made = make()
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as half_made:
            form.write(made, half_made)
        record = {"step": name, "seconds": round(time.monotonic() - began, 3), "peak_memory_mb": peak_memory_mb()}
        self._record(record)
        return made

    def stored(self, name: str, form: Format) -> Any:
        """The result of a step that was made earlier; None if it was not."""
        place = self.work / name
        return form.read(place) if place.exists() else None

    def remember(self, name: str, value: int) -> None:
        """A number that a resumed run has to know; it takes the place of an earlier one."""
        with replacing(self.work / f"{name}.json") as half_made:
            half_made.write_text(json.dumps(value), encoding="utf-8")

    def remembered(self, name: str) -> int | None:
        """The number that was remembered last; None if none was."""
        place = self.work / f"{name}.json"
        return int(json.loads(place.read_text(encoding="utf-8"))) if place.exists() else None

    def records(self) -> list[dict[str, Any]]:
        """Time and memory of the steps so far, in the order in which they ended."""
        log = self.work / "steps.jsonl"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        by_step: dict[str, dict[str, Any]] = {}
        for line in lines:
            with contextlib.suppress(json.JSONDecodeError):  # the last line of a run that was killed while writing it
                record = json.loads(line)
                by_step[record["step"]] = record
        return list(by_step.values())

    def finish(self, manifest: dict[str, Any]) -> None:
        """Seals the run: sha256 of every file, the manifest last, then the work folder goes."""
        files = sorted(p for p in self.path.rglob("*") if p.is_file() and not p.is_relative_to(self.work))
        manifest["sha256"] = {str(p.relative_to(self.path)): sha256(p) for p in files if p.name != LOCK}
        with replacing(self.path / "manifest.json") as half_made:
            half_made.write_text(json.dumps(manifest, indent=2, allow_nan=False), encoding="utf-8")
        shutil.rmtree(self.work, ignore_errors=True)

    def _record(self, record: dict[str, Any]) -> None:
        # A line of its own even after a record that a kill cut off.
        with (self.work / "steps.jsonl").open("a", encoding="utf-8") as log:
            log.write("\n" + json.dumps(record) + "\n")


@contextlib.contextmanager
def open_run(path: Path, recipe: Recipe, fresh: bool) -> Iterator[RunFolder]:
    """The run folder for a recipe, ready and locked; an earlier run with another recipe is refused unless `fresh`.

    A folder that this call made and in which no question was answered is taken away again when the user's mistake ends
    the run.
    """
    folder, is_new = RunFolder(path, recipe), not os.path.lexists(path)
    with _user_told_of_os_errors(path):
        changed = _changed_options(path, recipe, fresh)
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK).open("w")
    with lock:
        with _user_told_of_os_errors(path):
            _lock(lock, path)  # before anything is changed: another process may be running here
            if fresh:
                _clear(path)
            elif changed:
                _keep_answers_only(folder.work)
            folder.work.mkdir(exist_ok=True)
            if fresh or changed or not (path / "recipe.toml").exists():
                with replacing(path / "recipe.toml") as half_made:
                    half_made.write_text(to_toml(recipe), encoding="utf-8")
        try:
            yield folder
        except UserError:
            if not any(folder.work.glob("*/answers.json")) and not folder.finished:
                _clear(path)
                (path / LOCK).unlink(missing_ok=True)
                if is_new:
                    path.rmdir()
            raise
        if folder.finished:
            shutil.rmtree(folder.work, ignore_errors=True)
        (path / LOCK).unlink(missing_ok=True)  # while it is held: a later process must not lock a file that is gone


@contextlib.contextmanager
def replacing(place: Path) -> Iterator[Path]:
    """A path to write to that takes the place of `place` only when all went well."""
    half_made = place.with_name(f"{place.name}.partial")
    if half_made.is_dir():
        shutil.rmtree(half_made)
    try:
        yield half_made
        if half_made.is_file():
            with half_made.open("rb") as written:
                os.fsync(written.fileno())  # after a power cut a renamed file must not be empty
        elif place.is_dir():
            shutil.rmtree(place)
        os.replace(half_made, place)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(half_made) if half_made.is_dir() else half_made.unlink(missing_ok=True)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a finished run."""
    try:
        found = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(f"{str(path)!r} is not a finished run (no manifest.json); run it to its end first.") from None
    if not isinstance(found, dict) or "sha256" not in found or not (path / "recipe.toml").is_file():
        raise UserError(f"{str(path)!r} is not a finished run of anchorscope (manifest.json is of something else).")
    return found


@contextlib.contextmanager
def _user_told_of_os_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror
        raise UserError(f"Folder {str(path)!r} cannot be written ({reason}); choose another with --out.") from None


def _changed_options(path: Path, recipe: Recipe, fresh: bool) -> list[str]:
    """Options that differ from the run that is there; refused unless only its answers exist and still serve.

    A folder that holds anything but a run is refused, `fresh` or not: starting over must not delete what is not ours.
    """
    if path.exists() and not path.is_dir():
        raise UserError(f"{str(path)!r} is a file, not a folder; choose another with --out.")
    known = path / "recipe.toml"
    foreign = _foreign_entries(path)
    if foreign:
        found = ", ".join(foreign[:5])
        raise UserError(f"Folder {str(path)!r} holds other things ({found}); choose an empty or new one with --out.")
    if fresh or not known.exists():
        return []
    before, now = make_recipe(read_recipe(known)).model_dump(), recipe.model_dump()
    now["batch_tokens"] = now["batch_tokens"] or before["batch_tokens"]  # not asked for: a run goes on with what it has
    changed = [name for name in now if before[name] != now[name]]
    answers_only = not (path / "manifest.json").exists() and not any((path / "work").glob("*/states.safetensors"))
    if changed and not (answers_only and AFTER_ANSWERS.issuperset(changed)):
        differences = "; ".join(f"{name} was {before[name]!r}, now {now[name]!r}" for name in changed)
        raise UserError(
            f"Folder {str(path)!r} holds a run with another recipe ({differences}); choose another folder "
            f"with --out, or start this one over with --fresh."
        )
    return changed


def _foreign_entries(path: Path) -> list[str]:
    """What a folder holds if it is not a run's: a run has a recipe, and a manifest or a work folder beside it."""
    entries = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    if "recipe.toml" in entries and entries & {"manifest.json", "work"}:
        return []
    # Stopped in its first moment, a run leaves no more than these; a recipe alone may be the user's own.
    begun = {LOCK, "recipe.toml.partial"}
    if "work" in entries and not any((path / "work").iterdir()):
        begun.add("work")
    return sorted(entries - begun)


def _keep_answers_only(work: Path) -> None:
    """Of an unfinished run whose later options changed, questions, answers and the model's identity still serve."""
    for place in work.glob("*/*"):
        if place.name not in ("questions.json", "answers.json"):
            shutil.rmtree(place) if place.is_dir() else place.unlink()


def _clear(path: Path) -> None:
    """Removes what a run wrote, the manifest first, and nothing else."""
    (path / "manifest.json").unlink(missing_ok=True)
    for name in (*RESULTS, "work", "recipe.toml"):
        place = path / name
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)


def _lock(handle: Any, path: Path) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise UserError(
            f"Another process is running in {str(path)!r}; wait for it, or choose another folder with --out."
        ) from None


def sha256(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _reset_device_peak() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def peak_memory_mb() -> dict[str, float]:
    """Peak of the process so far, and of the GPU in this step; Windows does not tell the first this way."""
    peaks = {"host": 0.0}
    if sys.platform != "win32":
        import resource

        unit = 2**20 if sys.platform == "darwin" else 2**10
        peaks["host"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        peaks["device"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return peaks
