"""The results below a folder: runs, comparisons, studies, detectors and validations, finished or not, newest first.

A result is recognised by its marker: `index.json` or `manifest.json` with `recipe.toml` of a run, `comparison.json`,
`detection.json`, `validation.json`, `study.json`. Links are not followed, and nothing is written.
"""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from anchorscope.report.palette import display_name

_PAGES = ("report.html", "validation.html")
_INSIDE = {"work", "figures", "states", "bundles"}  # of a folder that was recognised: nothing is looked for there
_LINES = 3  # of a validation: the rest is on its page
_NUMBERS = {
    "auc": "AUC of the probe",
    "together": "evidence that needs question and answer together",
    "random": "evidence: needs random words",
}
"""Numbers of an answer card, by their columns."""
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
    answer: dict[str, Any] | None = None
    """The answer card of a run."""
    numbers: tuple[dict[str, Any], ...] = ()
    """Of a run, per dataset: `dataset`, `n`, `auc`, `together`, `random`, `controls`; None where not measured."""
    lines: tuple[str, ...] = ()
    """What else there is to say of it."""
    command: str | None = None
    """The command that continues it, where it is not finished."""


def _run_numbers(card: AnswerCard, used: Mapping[str, int | None]) -> tuple[dict[str, Any], ...]:
    """What the table of runs shows of a run, dataset by dataset; `used` counts answers."""
    values = {number.name: number.value for number in card.numbers}
    passed = re.search(r"(\d+) of (\d+) controls passed", card.trust.reason if card.trust else "")
    rows = []
    for dataset, n in used.items():
        where = f" ({display_name(dataset)})" if len(used) > 1 else ""
        measured = {key: values.get(name + where) for key, name in _NUMBERS.items()}
        rows.append({"dataset": display_name(dataset), "n": n, **measured, "controls": passed and passed[0]})
    return tuple(rows)


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
            content = self._run(folder) if kind == RUN else _other(folder, kind)
        except _UNREADABLE as error:
            reason = " ".join(str(error).split())
            content = {"title": folder.name, "finished": False, "lines": (f"It cannot be read: {reason}",)}
        return Result(kind=kind, name=name, changed=_changed(folder), page=page, **content)

    def _run(self, folder: Path) -> dict[str, Any]:
        if not (folder / "manifest.json").is_file():
            return _unfinished(folder)
        run = open_finished(folder, checked=False)
        counted = {row["dataset"]: row.get("used") for row in run.manifest["counts"]}
        used = {name: counted.get(name) for name in run.manifest["reference_layers"]}
        key = (str(folder), (folder / "manifest.json").stat().st_mtime_ns)
        if key not in self._cards:
            try:
                self._cards[key] = run.card
            except Damaged:
                raise
            except _UNREADABLE:  # tables of an early version
                self._cards[key] = None
        content = {"title": run.manifest["model"]["name"], "about": ", ".join(used), "finished": True}
        card = self._cards[key]
        if card is None:
            return {**content, "lines": ("An early version made it: its report has no answer card.",)}
        return {**content, "answer": card.record(), "numbers": _run_numbers(card, used)}


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
    content = {"finished": False, "lines": (f"Not finished: {n} step{' is' if n == 1 else 's are'} done.",)}
    recipe = folder / "recipe.toml"
    if not recipe.is_file():
        return {"title": folder.name, **content}
    options = tomllib.loads(read_regular(recipe).decode())
    about = ", ".join(parse_spec(text).name for text in options.get("datasets", ()))
    title = Path(str(options.get("model", folder.name))).name
    return {**content, "title": title, "about": about, "command": _command("run", recipe, folder)}


def _command(command: str, file: Path, folder: Path) -> str:
    return shlex.join(["anchorscope", *command.split(), str(file), "--out", str(folder)])


def _other(folder: Path, kind: str) -> dict[str, Any]:
    """A comparison, a study, a folder of detectors or a validation: what its own record says first."""
    record = read_sealed(folder / f"{'detection' if kind == DETECTORS else kind}.json")
    lines: Sequence[str] = record.get("answer") or record.get("summary") or ()
    content: dict[str, Any] = {"finished": True, "lines": (lines,) if isinstance(lines, str) else tuple(lines[:_LINES])}
    if kind == STUDY:
        return content | _study(folder, record)
    if kind == COMPARISON:
        return content | {"title": "Comparison of " + ", ".join(str(run["run"]) for run in record["runs"])}
    if kind == DETECTORS:
        learned = f"trained on {', '.join(record['trained_on'])}; saved: {', '.join(record['bundles']) or 'none'}"
        return content | {"title": f"Detectors of {record['model']}", "about": learned}
    return content | {"title": "Validation on planted pathways", "about": f"{len(record['recovery'])} experiments"}


def _study(folder: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    done = sum((folder / "runs" / str(name) / "manifest.json").is_file() for name in record["runs"])
    failed = [f"{name} failed: {failure['line']}" for name, failure in record["failed"].items()]
    shown = {"title": f"Study {record['name']}", "about": f"{done} of {len(record['runs'])} runs are done"}
    if done == len(record["runs"]) and not failed:
        return shown
    command = _command("study run", folder / "study.toml", folder)
    return {**shown, "finished": False, "lines": tuple(failed[:_LINES]), "command": command}
