"""The results below a folder: runs, comparisons, studies, detectors and validations, finished or not, newest first.

A result is recognised by its marker: `index.json` or `manifest.json` with `recipe.toml` of a run, `comparison.json`,
`detection.json`, `validation.json`, `study.json`. Links are not followed, and nothing is written.
"""

import json
import os
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.artefacts.sealed_folder import (
    COMPARISON,
    DETECTORS,
    INDEX,
    MARKERS,
    RUN,
    STUDY,
    VALIDATION,
    Damaged,
    kind_of,
    read_sealed,
)
from anchorscope.datasets.catalog import parse_spec
from anchorscope.errors import UserError
from anchorscope.files import PARTIAL, read_regular
from anchorscope.finished import open_finished
from anchorscope.report.answer_card import AnswerCard

_PAGES = ("report.html", "validation.html")
_INSIDE = {"work", "figures", "states", "bundles"}  # of a folder that was recognised: nothing is looked for there
_LINES = 3  # of a validation: the rest is on its page
_DEEPEST, _MOST_FOLDERS = 5, 20_000
_UNREADABLE = (UserError, OSError, KeyError, ValueError, TypeError, AttributeError, pl.exceptions.PolarsError)


@dataclass(frozen=True)
class Result:
    """One folder."""

    kind: str
    name: str
    """Relative to the folder that was searched; `.` is that folder itself."""
    title: str
    """The model, or what was compared."""
    changed: float
    """When its last file was written, in seconds since 1970."""
    finished: bool
    about: str = ""
    """Datasets, runs, detectors: in a few words."""
    page: str | None = None
    """Its report, relative to the folder."""
    card: AnswerCard | None = None
    lines: tuple[str, ...] = ()
    """What else there is to say of it."""
    command: str | None = None
    """The command that continues it, where it is not finished."""

    def record(self) -> dict[str, Any]:
        """For programs."""
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        answer = None if self.card is None else self.card.record()
        del record["card"]
        return {**record, "answer": answer, "lines": list(self.lines)}


@dataclass
class ResultFolder:
    """A folder whose results are listed; answer cards are remembered while their run is unchanged."""

    root: Path
    _cards: dict[tuple[str, int], AnswerCard | None] = field(default_factory=dict)

    def list(self) -> "Sequence[Result]":
        """Everything below, newest first."""
        results = (self._read(folder, kind) for folder, kind in self.folders())
        return sorted(results, key=lambda result: -result.changed)

    def folders(self) -> Iterator[tuple[Path, str]]:
        """Folders of results with their kinds."""
        waiting, visited = [(self.root, 0)], 0
        while waiting and visited < _MOST_FOLDERS:
            folder, depth = waiting.pop()
            visited += 1
            kind = kind_of(folder)
            if kind is not None:
                yield folder, kind
            if depth < _DEEPEST:
                inside = {*_INSIDE, *({"run"} if kind == VALIDATION else ())} if kind is not None else set()
                waiting += [(below, depth + 1) for below in _subfolders(folder) if below.name not in inside]

    def _read(self, folder: Path, kind: str) -> Result:
        name = folder.relative_to(self.root).as_posix()
        page = next((page for page in _PAGES if (folder / page).is_file()), None)
        try:
            content = self._run(folder) if kind == RUN else _READERS[kind](folder)
        except _UNREADABLE as error:
            reason = " ".join(str(error).split())
            content = {"title": folder.name, "finished": False, "lines": (f"It cannot be read: {reason}",)}
        return Result(kind=kind, name=name, changed=_changed(folder), page=page, **content)

    def _run(self, folder: Path) -> dict[str, Any]:
        if not (folder / "manifest.json").is_file():
            return _unfinished(folder)
        run = open_finished(folder, checked=False)
        counts = run.manifest["counts"]
        used = sum(row.get("used") or 0 for row in counts)
        about = f"{', '.join(run.manifest['reference_layers'])}; {used:,} answers used"
        key = (str(folder), (folder / "manifest.json").stat().st_mtime_ns)
        if key not in self._cards:
            try:
                self._cards[key] = run.card
            except Damaged:
                raise
            except _UNREADABLE:  # tables of an early version
                self._cards[key] = None
        card = self._cards[key]
        lines = () if card is not None else ("An early version made it: its report has no answer card.",)
        return {"title": run.manifest["model"]["name"], "about": about, "finished": True, "card": card, "lines": lines}


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # no permission to read it
        return []
    return [folder / name for name in sorted(names) if not name.startswith(".") and not name.endswith(PARTIAL)]


def _changed(folder: Path) -> float:
    """The last of the files that are written at the end, or at every step."""
    times = []
    for name in (INDEX, "manifest.json", *MARKERS):
        try:
            times.append((folder / name).stat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)


def _unfinished(folder: Path) -> dict[str, Any]:
    """A run that was stopped, or is under way."""
    n = len(json.loads(read_regular(folder / INDEX))["steps"])
    done = f"{n} step{' is' if n == 1 else 's are'} done"
    content = {"title": folder.name, "finished": False, "lines": (f"Not finished: {done}.",)}
    recipe = folder / "recipe.toml"
    if not recipe.is_file():
        return content
    options = tomllib.loads(read_regular(recipe).decode())
    about = ", ".join(parse_spec(text).name for text in options.get("datasets", ()))
    command = f"anchorscope run {shlex.quote(str(recipe))} --out {shlex.quote(str(folder))}"
    return {**content, "title": Path(str(options.get("model", folder.name))).name, "about": about, "command": command}


def _comparison(folder: Path) -> dict[str, Any]:
    runs = read_sealed(folder / "comparison.json")["runs"]
    return {
        "title": "Comparison of " + ", ".join(str(run["run"]) for run in runs),
        "about": f"{len(runs)} runs",
        "finished": True,
    }


def _detectors(folder: Path) -> dict[str, Any]:
    record = read_sealed(folder / "detection.json")
    saved = ", ".join(record["bundles"])
    lines = [f"Saved detectors: {saved}."] if saved else []
    lines += [f"{text[:1].upper()}{text[1:]}." for text in record.get("warnings", ())]
    return {
        "title": f"Detectors of {record['model']}",
        "about": f"trained on {', '.join(record['trained_on'])}",
        "finished": True,
        "lines": tuple(lines),
    }


def _validation(folder: Path) -> dict[str, Any]:
    record = read_sealed(folder / "validation.json")
    return {
        "title": "Validation on planted pathways",
        "about": f"{len(record['recovery'])} experiments",
        "finished": True,
        "lines": tuple(record.get("summary", ())[:_LINES]),
    }


def _study(folder: Path) -> dict[str, Any]:
    record = read_sealed(folder / "study.json")
    runs = [folder / "runs" / str(name) for name in record["runs"]]
    done = sum((run / "manifest.json").is_file() for run in runs)
    failed = [f"{name} failed: {failure['line']}" for name, failure in record["failed"].items()]
    command = f"anchorscope study run {shlex.quote(str(folder / 'study.toml'))} --out {shlex.quote(str(folder))}"
    finished = done == len(runs) and not failed
    return {
        "title": f"Study {record['name']}",
        "about": f"{done} of {len(runs)} runs are done",
        "finished": finished,
        "lines": tuple(failed[:_LINES]),
        "command": None if finished else command,
    }


_READERS = {COMPARISON: _comparison, DETECTORS: _detectors, VALIDATION: _validation, STUDY: _study}
