"""`anchorscope view`: the results below a folder, newest first, on a small server on this machine.

A result is recognised by its marker (`artefacts/sealed_folder.py`). Links are not followed, and nothing is written.

Sorting and filtering are in the address (`/?sort=auc&down=1&q=popqa`), so that no script is needed. Runs that are
ticked are compared in a temporary folder. The server answers GET and HEAD, to names of this machine only, so that no
page of another site can ask it through the user's browser. A file is sent if it lies, links resolved, within a folder
of ours.
"""

import hashlib
import io
import os
import re
import shlex
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qs, quote, unquote, urlsplit

import polars as pl

from anchorscope.artefacts.sealed_folder import (
    DETECTORS,
    INDEX,
    MARKERS,
    RUN,
    STUDY,
    kind_of,
    read_sealed,
)
from anchorscope.datasets.catalog import parse_spec
from anchorscope.errors import UserError
from anchorscope.files import is_locked, partial_of, read_regular
from anchorscope.finished import open_finished
from anchorscope.json_text import from_json
from anchorscope.report.answer_card import AnswerCard
from anchorscope.report.page import fragment
from anchorscope.report.palette import display_name

_PAGES = ("report.html", "comparison/report.html")
_INSIDE = {
    "work",
    "figures",
    "states",
    "bundles",
}  # of a folder that was recognised: not searched
_ALSO_INSIDE = {STUDY: {"comparison"}}
_LINES = 3  # of a comparison, detectors or a study: the rest is on its page
_NUMBERS = {
    "auc": "AUC of the probe",
    "together": "evidence that needs question and answer together",
    "random": "evidence: needs random words",
}
"""Numbers of an answer card, by their columns."""
_DEEPEST, _MOST_FOLDERS = 5, 20_000
_UNREADABLE = (
    UserError,
    OSError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    pl.exceptions.PolarsError,
)


@dataclass(frozen=True)
class Result:
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
    """The command that continues it, where it is not finished and nobody is at it."""


def list_results(root: Path) -> list[Result]:
    """Everything below a folder, newest first."""
    results = (_read_result(root, folder, kind) for folder, kind in _find_folders(root))
    return sorted(results, key=lambda result: -result.changed)


def _find_folders(root: Path) -> Iterator[tuple[Path, str]]:
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
            if not is_deep
            and not name.startswith(".")
            and partial_of(name) is None
            and name not in inside
        ]


def _read_result(root: Path, folder: Path, kind: str) -> Result:
    times = [
        file.stat().st_mtime
        for name in (INDEX, "manifest.json", *MARKERS)
        if (file := folder / name).is_file()
    ]
    page = next((page for page in _PAGES if (folder / page).is_file()), None)
    try:
        content = _read_run(folder) if kind == RUN else _read_other(folder, kind)
    except _UNREADABLE as error:
        reason = " ".join(str(error).split())
        content = {
            "title": folder.name,
            "finished": False,
            "lines": (f"It cannot be read: {reason}",),
        }
    name = folder.relative_to(root).as_posix()
    return Result(
        kind=kind, name=name, changed=max(times, default=0.0), page=page, **content
    )


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


def _run_numbers(
    card: AnswerCard, used: Mapping[str, int | None]
) -> tuple[dict[str, Any], ...]:
    """What the table of runs shows of a run, dataset by dataset; `used` counts answers."""
    values = {number.name: number.value for number in card.numbers}
    passed = re.search(
        r"(\d+) of (\d+) controls passed", card.trust.reason if card.trust else ""
    )
    rows = []
    for dataset, n in used.items():
        where = f" ({display_name(dataset)})" if len(used) > 1 else ""
        measured = {key: values.get(name + where) for key, name in _NUMBERS.items()}
        rows.append(
            {
                "dataset": display_name(dataset),
                "n": n,
                **measured,
                "controls": passed and passed[0],
            }
        )
    return tuple(rows)


def _read_unfinished(folder: Path) -> dict[str, Any]:
    """A run that was stopped, or is under way."""
    n = len(from_json(read_regular(folder / INDEX))["steps"])
    is_running = is_locked(folder)
    state = "Running" if is_running else "Not finished"
    content = {
        "finished": False,
        "lines": (f"{state}: {n} step{' is' if n == 1 else 's are'} done.",),
    }
    recipe = folder / "recipe.toml"
    if not recipe.is_file():
        return {"title": folder.name, **content}
    options = tomllib.loads(read_regular(recipe).decode())
    about = ", ".join(parse_spec(text).name for text in options.get("datasets", ()))
    title = Path(str(options.get("model", folder.name))).name
    return {
        **content,
        "title": title,
        "about": about,
        "command": None if is_running else _command("run", recipe, folder),
    }


def _command(command: str, file: Path, folder: Path) -> str:
    return shlex.join(
        ["anchorscope", *command.split(), str(file), "--out", str(folder)]
    )


def _read_other(folder: Path, kind: str) -> dict[str, Any]:
    """A comparison, a study or a folder of detectors: what its own record says first."""
    record = read_sealed(folder / f"{'detection' if kind == DETECTORS else kind}.json")
    if kind == STUDY:
        return _read_study(folder, record)
    lines = record.get("answer") or ()
    return {
        "title": folder.name,
        "lines": (lines,) if isinstance(lines, str) else tuple(lines[:_LINES]),
    }


def _read_study(folder: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    done = sum(
        (folder / "runs" / str(name) / "manifest.json").is_file()
        for name in record["runs"]
    )
    failed = [
        f"{name} failed: {failure['line']}"
        for name, failure in record["failed"].items()
    ]
    shown = {
        "title": f"Study {record['name']}",
        "about": f"{done} of {len(record['runs'])} runs are done",
    }
    if done == len(record["runs"]) and not failed:
        return shown
    is_running = is_locked(folder)
    command = _command("study run", folder / "study.toml", folder)
    return {
        **shown,
        "finished": False,
        "lines": ("Running.",) if is_running else tuple(failed[:_LINES]),
        "command": None if is_running else command,
    }


# The server

_FILES, _COMPARED = "/files/", "/compared/"
_LOOPBACK = ("127.0.0.1", "localhost")
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'unsafe-inline'"
_PAGE = f"{_NOTHING}; img-src 'self' data:; script-src 'unsafe-inline'"  # a report's own policy allows less
_COLUMNS = {
    "title": "model",
    "dataset": "dataset",
    "n": "answers",
    "auc": "AUC of the probe",
    "together": "needs both",
    "random": "needs random words",
    "controls": "controls passed",
    "changed": "date",
}


def index_page(
    results: Sequence[Result], folder: Path, asked: Mapping[str, str]
) -> str:
    """The table of runs, sorted and filtered as asked, and a list of everything else, the newest first."""
    entries = [
        {
            **asdict(result),
            "when": time.strftime("%Y-%m-%d %H:%M", time.localtime(result.changed)),
            "place": str(folder / result.name),
            "address": _FILES + quote((Path(result.name) / result.page).as_posix())
            if result.page
            else None,
        }
        for result in results
    ]
    rows = [entry | numbers for entry in entries for numbers in entry["numbers"]]
    words = asked.get("q", "").lower().split()
    shown = [
        row
        for row in rows
        if all(
            word in "{title} {dataset} {place}".format(**row).lower() for word in words
        )
    ]
    key, down = asked.get("sort", ""), asked.get("down", "1") == "1"
    key = key if key in _COLUMNS else "changed"
    measured = sorted(
        (row for row in shown if row[key] is not None),
        key=lambda row: row[key],
        reverse=down,
    )
    content = {
        "folder": str(folder),
        "counted": f"{len(results)} result{'s' * (len(results) != 1)}",
        "columns": _COLUMNS,
        "rows": [*measured, *(row for row in shown if row[key] is None)],
        "hidden": len(rows) - len(shown),
        "asked": {"q": asked.get("q", ""), "sort": key, "down": down},
        "others": [entry for entry in entries if not entry["numbers"]],
    }
    return fragment("view", content)


class ViewServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = (
        False  # a port that another program listens on is refused, not shared
    )

    def __init__(
        self, folder: Path, port: int = 0, compare: Callable[..., object] | None = None
    ) -> None:
        self.root, self.shown, self.compare = folder.resolve(), folder, compare
        self.scratch = tempfile.TemporaryDirectory(prefix="anchorscope-view-")
        try:
            super().__init__((_LOOPBACK[0], port), _Handler)
        except (OSError, OverflowError) as error:
            self.scratch.cleanup()
            reason = getattr(error, "strerror", None) or str(error)
            raise UserError(
                f"Cannot listen on port {port} ({reason}); choose another --port, or leave it out for a free one."
            ) from None

    def server_close(self) -> None:
        super().server_close()
        self.scratch.cleanup()

    @property
    def address(self) -> str:
        return f"http://{_LOOPBACK[0]}:{self.server_address[1]}/"


class _Handler(SimpleHTTPRequestHandler):
    """One request: the standard library sends files, this class decides which."""

    server: ViewServer
    server_version = "anchorscope"
    sys_version = ""
    extensions_map = dict.fromkeys((".md", ".toml"), "text/plain; charset=utf-8")
    """Shown, not saved, by the browser."""
    policy = _NOTHING

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal is the user's."""

    def handle(self) -> None:
        with suppress(ConnectionError):  # the browser went elsewhere
            super().handle()

    def send_head(self) -> BinaryIO | None:
        """Headers of a response; what it returns is the body of a GET."""
        host = self.headers.get("Host") or ""
        if host.rpartition(":")[0] not in _LOOPBACK and host not in _LOOPBACK:
            self.send_error(HTTPStatus.FORBIDDEN)
            return None
        try:
            parts = urlsplit(self.path)
            path = unquote(parts.path, errors="strict")
            query = parse_qs(parts.query, max_num_fields=100)
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return None
        if path == "/":
            return self._send_index(
                {name: values[-1] for name, values in query.items()}
            )
        if path == "/compare":
            self._send_comparison(sorted(set(query.get("run", ()))))
            return None
        if (
            path == "/favicon.ico"
        ):  # every browser asks for one, and reports on its console if there is none
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()
            return None
        file = None
        for prefix, root in (
            (_FILES, self.server.root),
            (_COMPARED, Path(self.server.scratch.name).resolve()),
        ):
            if path.startswith(prefix):
                file = _find_file(root, path.removeprefix(prefix))
        if file is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        self._file, self.policy = file, _PAGE if file.suffix == ".html" else _NOTHING
        return super().send_head()  # type: ignore[return-value]

    def translate_path(self, path: str) -> str:
        """The file that `send_head` has checked."""
        return str(self._file)

    def _send_index(self, asked: Mapping[str, str]) -> BinaryIO:
        page = index_page(
            list_results(self.server.root), self.server.shown, asked
        ).encode("utf-8")
        self.policy = _NOTHING.replace("form-action 'none'", "form-action 'self'")
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        return io.BytesIO(page)

    def _send_comparison(self, names: Sequence[str]) -> None:
        """Compare runs of the list, and go to the page; a page of another site may not ask for it."""
        runs = {
            result.name for result in list_results(self.server.root) if result.numbers
        }
        own_page = self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        if not own_page or self.server.compare is None:
            return self.send_error(
                HTTPStatus.FORBIDDEN, "Comparing is for the pages of this machine only"
            )
        if len(names) < 2 or not runs.issuperset(names):
            return self.send_error(
                HTTPStatus.BAD_REQUEST, "Tick at least two runs of the list"
            )
        key = hashlib.sha256("\0".join(names).encode()).hexdigest()[:16]
        paths = [self.server.root / name for name in names]
        try:
            self.server.compare(paths, out=Path(self.server.scratch.name) / key)
        except UserError as error:
            return self.send_error(
                HTTPStatus.CONFLICT, "These runs were not compared", str(error)
            )
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", f"{_COMPARED}{key}/report.html")
        self.end_headers()

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", self.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()


def _find_file(root: Path, name: str) -> Path | None:
    try:
        file = (root / name).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None
    if not file.is_file() or not file.is_relative_to(root):
        return None
    if any(part.startswith(".") for part in file.relative_to(root).parts):
        return None
    above = [folder for folder in file.parents if folder.is_relative_to(root)]
    return file if any(kind_of(folder) is not None for folder in above) else None
