"""A hub of models on this machine: the few addresses that fetching a detector takes, and no others."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.asked: list[str] = []
        """What was asked for, in order."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit_of(self, name: str) -> str:
        return hashlib.sha1(repr(sorted(self.repositories[name].items())).encode()).hexdigest()


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, record: Any, code: int = 200, **headers: str) -> None:
        self._answer(code, json.dumps(record).encode(), **{"Content_Type": "application/json", **headers})

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        parts = self.path.partition("?")[0].strip("/").split("/")
        name = "/".join(parts[:2])
        files = self.server.repositories.get(name)
        if files is None:
            return self._json({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
        commit = self.server.commit_of(name)
        if parts[2:4] not in (["resolve", "main"], ["resolve", commit]) or parts[4] not in files:
            return self._json({"error": "Not found"}, 404, X_Error_Code="EntryNotFound")
        content = files["/".join(parts[4:])]
        self._answer(200, content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=commit)

    do_HEAD = do_GET
