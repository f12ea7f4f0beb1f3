"""The results below a folder: runs, comparisons, studies, detectors and validations, finished or not, newest first.

A result is recognised by its marker (`artefacts/sealed_folder.py`). Links are not followed, and nothing is written.
"""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.artefacts.sealed_folder import DETECTORS, INDEX, MARKERS, RUN, STUDY, VALIDATION, kind_of, read_sealed
from anchorscope.datasets.catalog import parse_spec
from anchorscope.errors import UserError
from anchorscope.files import PARTIAL, read_regular
from anchorscope.finished import open_finished
from anchorscope.report.answer_card import AnswerCard
from anchorscope.report.palette import display_name

_PAGES = ("report.html", "validation.html", "comparison/report.html")
_INSIDE = {"work", "figures", "states", "bundles"}  # of a folder that was recognised: not searched
_ALSO_INSIDE = {VALIDATION: {"run"}, STUDY: {"comparison"}}
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
    finished: bool = True
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


def list_results(root: Path) -> list[Result]:
    """Everything below a folder, newest first."""
    results = (_read_result(root, folder, kind) for folder, kind in _find_folders(root))
    return sorted(results, key=lambda result: -result.changed)


def _find_folders(root: Path) -> Iterator[tuple[Path, str]]:
    """Folders of results with their kinds."""
    for path, names, _ in islice(os.walk(root), _MOST_FOLDERS):
        folder = Path(path)
        kind = kind_of(folder)
        if kind is not None:
            yield folder, kind
        inside = set() if kind is None else _INSIDE | _ALSO_INSIDE.get(kind, set())
        is_deep = len(folder.relative_to(root).parts) >= _DEEPEST
        names[:] = [
            name
            for name in names
            if not is_deep and not name.startswith(".") and not name.endswith(PARTIAL) and name not in inside
        ]


def _read_result(root: Path, folder: Path, kind: str) -> Result:
    times = [file.stat().st_mtime for name in (INDEX, "manifest.json", *MARKERS) if (file := folder / name).is_file()]
    page = next((page for page in _PAGES if (folder / page).is_file()), None)
    try:
        content = _read_run(folder) if kind == RUN else _read_other(folder, kind)
    except _UNREADABLE as error:
        reason = " ".join(str(error).split())
        content = {"title": folder.name, "finished": False, "lines": (f"It cannot be read: {reason}",)}
    name = folder.relative_to(root).as_posix()
    return Result(kind=kind, name=name, changed=max(times, default=0.0), page=page, **content)


def _read_run(folder: Path) -> dict[str, Any]:
    if not (folder / "manifest.json").is_file():
        return _read_unfinished(folder)
    manifest, card = _read_card(folder, (folder / "manifest.json").stat().st_mtime_ns)
    counted = {row["dataset"]: row.get("used") for row in manifest["counts"]}
    used = {name: counted.get(name) for name in manifest["reference_layers"]}
    content = {"title": manifest["model"]["name"], "about": ", ".join(used)}
    return {**content, "answer": card.record(), "numbers": _run_numbers(card, used)}


@lru_cache(maxsize=1000)
def _read_card(folder: Path, changed: int) -> tuple[Mapping[str, Any], AnswerCard]:
    """The manifest and the answer card, remembered while the run is unchanged: one that was moved takes long."""
    run = open_finished(folder, checked=False)
    return run.manifest, run.card


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


def _read_unfinished(folder: Path) -> dict[str, Any]:
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


def _read_other(folder: Path, kind: str) -> dict[str, Any]:
    """A comparison, a study, a folder of detectors or a validation: what its own record says first."""
    record = read_sealed(folder / f"{'detection' if kind == DETECTORS else kind}.json")
    if kind == STUDY:
        return _read_study(folder, record)
    lines = record.get("answer") or record.get("summary") or ()
    return {"title": folder.name, "lines": (lines,) if isinstance(lines, str) else tuple(lines[:_LINES])}


def _read_study(folder: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    done = sum((folder / "runs" / str(name) / "manifest.json").is_file() for name in record["runs"])
    failed = [f"{name} failed: {failure['line']}" for name, failure in record["failed"].items()]
    shown = {"title": f"Study {record['name']}", "about": f"{done} of {len(record['runs'])} runs are done"}
    if done == len(record["runs"]) and not failed:
        return shown
    command = _command("study run", folder / "study.toml", folder)
    return {**shown, "finished": False, "lines": tuple(failed[:_LINES]), "command": command}
