"""`anchorscope view`: a page with a table of the results below a folder, and links to their reports.

A result is recognised by its marker (`artefacts/sealed_folder.py`); links are not followed. The page is one file that
shows what was there when it was written. Its first line has the hash of the others: only a page that nobody changed is
replaced.
"""

import os
import shlex
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from anchorscope.artefacts.sealed_folder import (
    DETECTORS,
    INDEX,
    MANIFEST,
    MARKERS,
    RUN,
    STUDY,
    kind_of,
    read_sealed,
)
from anchorscope.datasets.catalog import parse_spec
from anchorscope.errors import UserError, counted
from anchorscope.files import is_locked, partial_of, read_regular, replacing, writable
from anchorscope.finished import open_finished
from anchorscope.json_text import from_json
from anchorscope.report.page import fragment, page_frame
from anchorscope.report.palette import display_name

PAGE = "anchorscope-index.html"
FINISHED, RUNNING, STOPPED, UNREADABLE = "finished", "running", "stopped", "unreadable"
"""The states of a result."""
_REPORTS = ("report.html", "comparison/report.html")
_INSIDE = {"work", "figures", "states", "bundles"}
"""Folders of a result that hold no other result."""
_ALSO_INSIDE = {STUDY: {"comparison"}}
_AUC = "AUC of the probe"
_SCRIPTS = ("dom", "theme", "scrolling", "results")
_DEEPEST = 5
_MOST_FOLDERS = 20_000
_WRONG_CONTENT = (OSError, KeyError, ValueError, TypeError, AttributeError)
"""What comes of reading a record that somebody changed."""


@dataclass(frozen=True)
class Result:
    name: str
    """Its folder, relative to the one that was searched; `.` is that folder itself."""
    kind: str
    changed: float
    """When its last list was written, in seconds since 1970."""
    state: str = FINISHED
    model: str = ""
    datasets: tuple[str, ...] = ()
    auc: Mapping[str, float] = field(default_factory=dict)
    """AUC of the probe by dataset."""
    trust: Mapping[str, str] | None = None
    """The verdict on a run with its reason; None where there is no answer to judge."""
    about: str = ""
    """What else there is to say of it."""
    report: str | None = None
    """Its page, relative to the folder that was searched."""
    command: str | None = None
    """The command that resumes it."""


def list_results(root: Path) -> list[Result]:
    """Everything below a folder, newest first."""
    root = root.resolve()
    results = [_read_result(root, folder, kind) for folder, kind in _folders(root)]
    return sorted(results, key=lambda result: -result.changed)


def _folders(root: Path) -> Iterator[tuple[Path, str]]:
    for path, names, _ in islice(os.walk(root), _MOST_FOLDERS):
        folder = Path(path)
        kind = kind_of(folder)
        skipped: set[str] = set()
        if kind is not None:
            yield folder, kind
            skipped = _INSIDE | _ALSO_INSIDE.get(kind, set())
        is_deep = len(folder.relative_to(root).parts) >= _DEEPEST
        names[:] = [
            name
            for name in names
            if not is_deep
            and not name.startswith(".")
            and partial_of(name) is None
            and name not in skipped
        ]


def _read_result(root: Path, folder: Path, kind: str) -> Result:
    read = {RUN: _read_run, STUDY: _read_study}.get(kind, _read_other)
    lists = [folder / name for name in (INDEX, MANIFEST, *MARKERS)]
    try:
        for file in (*lists, folder / "recipe.toml", folder / "answer.json"):
            if file.is_symlink():
                raise UserError(f"{file.name} is a link, and links are not followed")
        content = read(folder)
    except (UserError, *_WRONG_CONTENT) as error:
        content = {"state": UNREADABLE, "about": " ".join(str(error).split())}
    times = [file.stat().st_mtime for file in lists if file.is_file()]
    return Result(
        name=folder.relative_to(root).as_posix(),
        kind=kind,
        changed=max(times, default=0.0),
        report=_report_in(root, folder),
        **content,
    )


def _report_in(root: Path, folder: Path) -> str | None:
    """The page of a result, unless a link leads out of the folder that is searched."""
    for name in _REPORTS:
        file = folder / name
        if file.is_file() and file.resolve().is_relative_to(root):
            return file.relative_to(root).as_posix()
    return None


def _read_run(folder: Path) -> dict[str, Any]:
    if is_locked(folder) or not (folder / MANIFEST).is_file():
        return _read_unfinished(folder)
    run = open_finished(folder, checked=False)
    content = {
        "model": str(run.manifest["model"]["name"]),
        "datasets": _dataset_names(run.recipe.datasets),
    }
    if run.is_for_detectors:
        return {**content, "about": "only what detectors read"}
    if "answer.json" not in run.manifest["sha256"]:
        return {**content, "about": "without answer.json"}
    card = from_json(run.checked_file("answer.json").read_bytes())
    trust = card["trust"]
    datasets = list(run.manifest["reference_layers"])
    return {
        **content,
        "auc": _aucs(card["numbers"], datasets),
        "trust": trust and {name: str(trust[name]) for name in ("verdict", "reason")},
    }


def _aucs(
    numbers: Sequence[Mapping[str, Any]], datasets: list[str]
) -> dict[str, float]:
    """The AUCs of an answer card, which names the dataset where there are several."""
    values = {number["name"]: number["value"] for number in numbers}
    found = {}
    for dataset in datasets:
        shown = display_name(dataset)
        value = values.get(f"{_AUC} ({shown})" if len(datasets) > 1 else _AUC)
        if value is not None:
            found[shown] = float(value)
    return found


def _dataset_names(specs: Sequence[str]) -> tuple[str, ...]:
    return tuple(display_name(parse_spec(text).name) for text in specs)


def _read_unfinished(folder: Path) -> dict[str, Any]:
    n = len(from_json(read_regular(folder / INDEX))["steps"])
    content: dict[str, Any] = {
        "state": RUNNING if is_locked(folder) else STOPPED,
        "about": f"{counted(n, 'step')} done",
    }
    recipe = folder / "recipe.toml"
    if not recipe.is_file():
        return content
    options = tomllib.loads(read_regular(recipe).decode())
    content["model"] = Path(str(options.get("model", ""))).name
    content["datasets"] = _dataset_names(options.get("datasets", ()))
    if content["state"] == STOPPED:
        words = ["anchorscope", "run", str(recipe), "--out", str(folder)]
        content["command"] = shlex.join(words)
    return content


def _read_study(folder: Path) -> dict[str, Any]:
    record = read_sealed(folder / "study.json")
    manifests = [folder / "runs" / str(run) / MANIFEST for run in record["runs"]]
    done = sum(manifest.is_file() for manifest in manifests)
    failed = [f"{run}: {why['line']}" for run, why in record["failed"].items()]
    about = [f"{done} of {len(manifests)} runs done"]
    if failed:
        about.append(f"{len(failed)} failed; the first, {failed[0]}")
    content: dict[str, Any] = {"model": str(record["name"]), "about": ", ".join(about)}
    if is_locked(folder):
        content["state"] = RUNNING
    elif failed or done < len(manifests):
        content["state"] = STOPPED
        words = ["anchorscope", "study", "run", "--out", str(folder)]
        content["command"] = shlex.join(words)
    return content


def _read_other(folder: Path) -> dict[str, Any]:
    """A comparison, or detectors: what its own record says first."""
    kind = kind_of(folder)
    record = read_sealed(folder / f"{'detection' if kind == DETECTORS else kind}.json")
    said = record.get("answer") or ""
    if not isinstance(said, str):
        said = said[0]
    model = record.get("model") or ""
    if isinstance(record.get("runs"), list) and kind != DETECTORS:
        model = ", ".join(str(run["run"]) for run in record["runs"])
    trained_on = record.get("trained_on", ())
    return {
        "model": str(model),
        "datasets": tuple(display_name(str(name)) for name in trained_on),
        "about": str(said),
    }


# The page


def page_place(folder: Path) -> Path:
    """Where the page of a folder goes; folders in which every file is ours stay as they are."""
    kind = kind_of(folder)
    if kind in (None, STUDY):
        return folder / PAGE
    raise UserError(
        f"{str(folder)!r} is no folder of results but one of them (kind: {kind}); name the folder around it, or say "
        f"with --out where the page goes."
    )


def write_page(results: Sequence[Result], folder: Path, page: Path) -> None:
    """Writes the page of the results in a folder, in place of an earlier one."""
    if os.path.lexists(page) and not _is_ours(page):
        raise UserError(
            f"{str(page)!r} was not written by anchorscope view, or was changed since; move it away, or name another "
            f"file with --out."
        )
    root = folder.resolve()
    content = {
        "folder": str(folder),
        "now": _time_text(time.time()),
        "out": shlex.quote(str(root)),
        "results": [_entry(result, root, page) for result in results],
        **page_frame(_SCRIPTS),
    }
    # A name that is no text has question marks in place of the bytes that are none.
    text = fragment("view", content).encode("utf-8", "replace")
    with writable(page.parent), replacing(page) as half_made:
        half_made.write_bytes(_first_line(text) + text)


def _entry(result: Result, root: Path, page: Path) -> dict[str, Any]:
    """A row of the table. A path that may not be what it looks like is in no command that is there to be copied."""
    place = str(root / result.name)
    can_compare = result.trust is not None and place.isprintable()
    address = None
    if result.report is not None:
        relative = os.path.relpath(root / result.report, page.parent.resolve())
        address = quote(os.fsencode(relative))
    return {
        **asdict(result),
        "when": _time_text(result.changed),
        "address": address,
        "compared": shlex.quote(place) if can_compare else None,
        "command": result.command if place.isprintable() else None,
    }


def _time_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _first_line(text: bytes) -> bytes:
    digest = sha256(text).hexdigest()
    return (
        f"<!-- Written by anchorscope view; sha256 of the rest: {digest} -->\n".encode()
    )


def _is_ours(page: Path) -> bool:
    if page.is_symlink():
        return False
    try:
        first, _, text = read_regular(page).partition(b"\n")
    except OSError:
        return False
    return first + b"\n" == _first_line(text)
