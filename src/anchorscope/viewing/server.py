"""A small server on this machine: the list of what was made, and the files of those folders, and nothing else.

It answers GET and HEAD, to names of this machine only, so that no page of another site can ask it through the user's
browser. A file is given out if it lies, links resolved, within a folder of ours below the one that is shown.
"""

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from anchorscope.errors import UserError
from anchorscope.viewing.found import Shelf, kind_of
from anchorscope.viewing.index_page import index_page

FILES = "/files/"
"""Below it lie the files of the folders that are shown."""
LOOPBACK = ("127.0.0.1", "localhost")
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'unsafe-inline'"
_PAGE = f"{_NOTHING}; img-src 'self' data:; script-src 'unsafe-inline'"  # a report's own policy allows less
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".toml": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".pdf": "application/pdf",
}
_DOWNLOAD = "application/octet-stream"
_PIECE = 1 << 20


class ViewServer(ThreadingHTTPServer):
    """Serves one folder."""

    daemon_threads = True
    allow_reuse_address = False  # a port that another program listens on is refused, not shared

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self.shelf = Shelf(folder.resolve())
        self.shown = folder
        self.is_public = host not in LOOPBACK
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UserError(
                f"Cannot listen on {host}:{port} ({reason}); choose another --port, or leave it out for a free one."
            ) from None

    @property
    def address(self) -> str:
        """What to open."""
        host = "127.0.0.1" if self.server_address[0] in ("0.0.0.0", "localhost") else self.server_address[0]
        return f"http://{host!s}:{self.server_address[1]}/"


def address_of(name: str, file: str) -> str:
    """The address of a file of a folder that is shown."""
    return FILES + quote(f"{name}/{file}" if name != "." else file)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: ViewServer
    server_version = "anchorscope"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal is the user's."""

    def _answer(self, with_body: bool) -> None:
        try:
            path = unquote(urlsplit(self.path).path, errors="strict")
        except (ValueError, UnicodeDecodeError):
            return self._refuse(HTTPStatus.BAD_REQUEST)
        if not self._is_asked_by_name():
            return self._refuse(HTTPStatus.FORBIDDEN)
        if path == "/":
            text = index_page(self.server.shelf.found(), self.server.shown, address_of)
            return self._send(text.encode("utf-8"), _TYPES[".html"], _NOTHING, with_body)
        if path == "/favicon.ico":  # every browser asks for one, and tells on its console if there is none
            self.send_response(HTTPStatus.NO_CONTENT)
            return self.end_headers()
        file = self._file(path.removeprefix(FILES)) if path.startswith(FILES) else None
        if file is None:
            return self._refuse(HTTPStatus.NOT_FOUND)
        self._send_file(file, with_body)

    def _is_asked_by_name(self) -> bool:
        """Whether the request names this machine: another site's name that leads here is not ours."""
        host = (self.headers.get("Host") or "").rpartition(":")[0] or (self.headers.get("Host") or "")
        return self.server.is_public or host in (*LOOPBACK, self.server.server_address[0])

    def _file(self, name: str) -> Path | None:
        """The file of this name, if it is one that may be given out."""
        root = self.server.shelf.root
        try:
            place = (root / name).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            return None
        if not place.is_file() or not place.is_relative_to(root):
            return None
        if any(part.startswith(".") for part in place.relative_to(root).parts):
            return None
        above = [folder for folder in place.parents if folder.is_relative_to(root)]
        return place if any(kind_of(folder) is not None for folder in above) else None

    def _send_file(self, file: Path, with_body: bool) -> None:
        kind = _TYPES.get(file.suffix, _DOWNLOAD)
        policy = _PAGE if file.suffix == ".html" else _NOTHING
        try:
            with file.open("rb") as content:
                self._head(kind, file.stat().st_size, policy)
                while with_body and (piece := content.read(_PIECE)):
                    self.wfile.write(piece)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the browser went elsewhere
        except OSError:
            self._refuse(HTTPStatus.NOT_FOUND)

    def _send(self, content: bytes, kind: str, policy: str, with_body: bool) -> None:
        try:
            self._head(kind, len(content), policy)
            if with_body:
                self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _head(self, kind: str, size: int, policy: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.send_header("Content-Security-Policy", policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def _refuse(self, status: HTTPStatus) -> None:
        try:
            self.send_error(status)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
