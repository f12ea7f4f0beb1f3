"""A small server on this machine: a table of the runs below a folder, other results, and the files of those folders.

Sorting and filtering are in the address (`/?sort=auc&down=1&q=popqa`), so that no script is needed. Runs that are
ticked are compared in a temporary folder. It answers GET and HEAD, to names of this machine only, so that no page of
another site can ask it through the user's browser. A file is sent if it lies, links resolved, within a folder of ours.
"""

import hashlib
import io
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, quote, unquote, urlsplit

from anchorscope.artefacts.sealed_folder import kind_of
from anchorscope.errors import UserError
from anchorscope.report.page import fragment
from anchorscope.viewing.results import Result, list_results

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


def index_page(results: Sequence[Result], folder: Path, asked: Mapping[str, str]) -> str:
    """The table of runs, sorted and filtered as asked, and a list of everything else, the newest first."""
    entries = [
        {
            **asdict(result),
            "when": time.strftime("%Y-%m-%d %H:%M", time.localtime(result.changed)),
            "place": str(folder / result.name),
            "address": _FILES + quote((Path(result.name) / result.page).as_posix()) if result.page else None,
        }
        for result in results
    ]
    rows = [entry | numbers for entry in entries for numbers in entry["numbers"]]
    words = asked.get("q", "").lower().split()
    shown = [row for row in rows if all(word in "{title} {dataset} {place}".format(**row).lower() for word in words)]
    key, down = asked.get("sort", ""), asked.get("down", "1") == "1"
    key = key if key in _COLUMNS else "changed"
    measured = sorted((row for row in shown if row[key] is not None), key=lambda row: row[key], reverse=down)
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
    """Serves one folder."""

    daemon_threads = True
    allow_reuse_address = False  # a port that another program listens on is refused, not shared

    def __init__(self, folder: Path, port: int = 0, compare: Callable[..., object] | None = None) -> None:
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
        """Stop listening; comparisons that were made on the way go."""
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
            return self._send_index({name: values[-1] for name, values in query.items()})
        if path == "/compare":
            self._send_comparison(sorted(set(query.get("run", ()))))
            return None
        if path == "/favicon.ico":  # every browser asks for one, and reports on its console if there is none
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()
            return None
        file = None
        for prefix, root in ((_FILES, self.server.root), (_COMPARED, Path(self.server.scratch.name).resolve())):
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
        page = index_page(list_results(self.server.root), self.server.shown, asked).encode("utf-8")
        self.policy = _NOTHING.replace("form-action 'none'", "form-action 'self'")
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        return io.BytesIO(page)

    def _send_comparison(self, names: Sequence[str]) -> None:
        """Compare runs of the list, and go to the page; a page of another site may not ask for it."""
        runs = {result.name for result in list_results(self.server.root) if result.numbers}
        own_page = self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        if not own_page or self.server.compare is None:
            return self.send_error(HTTPStatus.FORBIDDEN, "Comparing is for the pages of this machine only")
        if len(names) < 2 or not runs.issuperset(names):
            return self.send_error(HTTPStatus.BAD_REQUEST, "Tick at least two runs of the list")
        key = hashlib.sha256("\0".join(names).encode()).hexdigest()[:16]
        paths = [self.server.root / name for name in names]
        try:
            self.server.compare(paths, out=Path(self.server.scratch.name) / key)
        except UserError as error:
            return self.send_error(HTTPStatus.CONFLICT, "These runs were not compared", str(error))
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
    """The file of this name, if it may be sent."""
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
