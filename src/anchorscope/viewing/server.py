"""A small server on this machine: the list of results below a folder, and the files of those folders, nothing else.

It answers GET and HEAD, to names of this machine only, so that no page of another site can ask it through the user's
browser. A file is sent if it lies, links resolved, within a folder of ours below the one that is shown.
"""

import io
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote, urlsplit

from anchorscope.artefacts.sealed_folder import COMPARISON, DETECTORS, RUN, STUDY, VALIDATION, kind_of
from anchorscope.errors import UserError
from anchorscope.report.page_writer import fragment
from anchorscope.viewing.results import Result, ResultFolder

_FILES = "/files/"
_LOOPBACK = ("127.0.0.1", "localhost")
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'unsafe-inline'"
_PAGE = f"{_NOTHING}; img-src 'self' data:; script-src 'unsafe-inline'"  # a report's own policy allows less
_KINDS = {
    RUN: ("run", "runs"),
    COMPARISON: ("comparison", "comparisons"),
    DETECTORS: ("folder of detectors", "folders of detectors"),
    VALIDATION: ("validation", "validations"),
    STUDY: ("study", "studies"),
}


def index_page(results: Sequence[Result], folder: Path) -> str:
    """The list as HTML: the newest first, its answer card open, the others one line each."""
    entries = [
        {
            "one": result,
            "kind": _KINDS[result.kind][0],
            "when": time.strftime("%Y-%m-%d %H:%M", time.localtime(result.changed)),
            "place": str(folder / result.name),
            "address": _FILES + quote((Path(result.name) / result.page).as_posix()) if result.page else None,
        }
        for result in results
    ]
    first = next((number for number, result in enumerate(results) if result.card is not None), None)
    counts = Counter(result.kind for result in results)
    counted = ", ".join(f"{n} {_KINDS[kind][n > 1]}" for kind in _KINDS if (n := counts[kind])) or "nothing yet"
    return fragment("view", {"entries": entries, "folder": str(folder), "counted": counted, "first": first})


class ViewServer(ThreadingHTTPServer):
    """Serves one folder."""

    daemon_threads = True
    allow_reuse_address = False  # a port that another program listens on is refused, not shared

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self.results, self.shown = ResultFolder(folder.resolve()), folder
        self.is_public = host not in _LOOPBACK
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UserError(
                f"Cannot listen on {host}:{port} ({reason}); choose another --port, or leave it out for a free one."
            ) from None

    @property
    def address(self) -> str:
        """The address to open."""
        host = "127.0.0.1" if self.server_address[0] in ("0.0.0.0", "localhost") else self.server_address[0]
        return f"http://{host!s}:{self.server_address[1]}/"


class _Handler(SimpleHTTPRequestHandler):
    """One request: the standard library sends files, this class decides which."""

    server: ViewServer
    server_version = "anchorscope"
    sys_version = ""
    extensions_map = {  # noqa: RUF012
        "": "application/octet-stream",
        ".html": "text/html; charset=utf-8",
        ".md": "text/plain; charset=utf-8",
        ".csv": "text/csv; charset=utf-8",
        ".json": "application/json",
        ".toml": "text/plain; charset=utf-8",
        ".png": "image/png",
        ".svg": "image/svg+xml",
        ".pdf": "application/pdf",
    }
    policy = _NOTHING

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal is the user's."""

    def handle(self) -> None:
        with suppress(ConnectionError):  # the browser went elsewhere
            super().handle()

    def send_head(self) -> BinaryIO | None:
        """Headers of a response; what it returns is the body of a GET."""
        host = self.headers.get("Host") or ""
        names = (*_LOOPBACK, self.server.server_address[0])
        if not self.server.is_public and host.rpartition(":")[0] not in names and host not in names:
            self.send_error(HTTPStatus.FORBIDDEN)
            return None
        try:
            path = unquote(urlsplit(self.path).path, errors="strict")
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return None
        if path == "/":
            return self._send_index()
        if path == "/favicon.ico":  # every browser asks for one, and reports on its console if there is none
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()
            return None
        file = self._find_file(path.removeprefix(_FILES)) if path.startswith(_FILES) else None
        if file is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        self._file, self.policy = file, _PAGE if file.suffix == ".html" else _NOTHING
        return super().send_head()  # type: ignore[return-value]

    def translate_path(self, path: str) -> str:
        """The file that `send_head` has checked."""
        return str(self._file)

    def _send_index(self) -> BinaryIO:
        page = index_page(self.server.results.list(), self.server.shown).encode("utf-8")
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", self.extensions_map[".html"])
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        return io.BytesIO(page)

    def _find_file(self, name: str) -> Path | None:
        """The file of this name, if it may be sent."""
        root = self.server.results.root
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

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", self.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()
