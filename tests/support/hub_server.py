"""A hub of models on this machine: the few addresses that publishing and fetching a detector take, and no others."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_test"


class Hub(ThreadingHTTPServer):
    """Repositories in memory."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.asked: list[str] = []
        """What was asked for, in order."""
        self.sizes: dict[str, int] = {}
        """What the hub says of files' sizes, where that is not the truth."""

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

    def _known(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(f"POST {self.path}")
        parts = self.path.strip("/").split("/")
        if not self._known():
            return self._json({"error": "Invalid credentials"}, 401)
        if self.path == "/api/repos/create":
            return self._create(json.loads(body))
        if self.path == "/api/validate-yaml":
            text = json.loads(body)["content"]
            assert text.startswith("---\nlibrary_name: anchorscope\n")
            return self._json({"errors": [], "warnings": []})
        name = "/".join(parts[2:4])
        if name not in self.server.repositories:
            return self._json({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
        if parts[4] == "preupload":
            files = json.loads(body)["files"]
            told = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in files]
            return self._json({"files": told})
        return self._commit(name, body)

    def _create(self, given: dict[str, Any]) -> None:
        name = f"{given.get('organization') or 'me'}/{given['name']}"
        if given.get("organization") == "others":
            return self._json({"error": "You have no right to"}, 403)
        if name in self.server.repositories:
            return self._json(
                {"error": "You already created this model repo", "url": f"{self.server.address}/{name}"}, 409
            )
        self.server.repositories[name] = {}
        if given.get("private") or given.get("visibility") == "private":
            self.server.private.add(name)
        self._json({"url": f"{self.server.address}/{name}"})

    def _commit(self, name: str, body: bytes) -> None:
        for line in map(json.loads, body.decode().splitlines()):
            if line["key"] == "file":
                self.server.repositories[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        oid = self.server.commit_of(name)
        self._json({"commitUrl": f"{self.server.address}/{name}/commit/{oid}", "commitOid": oid, "hookOutput": ""})

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        parts = self.path.partition("?")[0].strip("/").split("/")
        name = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        files = self.server.repositories.get(name)
        if files is None or (name in self.server.private and not self._known()):
            return self._json({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
        commit = self.server.commit_of(name)
        if parts[0] == "api":
            asked = parts[5] if len(parts) > 5 else "main"
            if asked not in ("main", commit):
                return self._json({"error": "Invalid rev id"}, 404, X_Error_Code="RevisionNotFound")
            siblings = [
                {"rfilename": one, "size": self.server.sizes.get(one, len(content))} for one, content in files.items()
            ]
            return self._json(
                {
                    "id": name,
                    "sha": commit,
                    "siblings": siblings,
                    "tags": [],
                    "private": name in self.server.private,
                    "downloads": 0,
                    "likes": 0,
                }
            )
        content = files["/".join(parts[4:])]
        self._answer(200, content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=commit)

    do_HEAD = do_GET
