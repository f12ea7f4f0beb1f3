"""Datasets from the hub: through the real library, on folders and on a small hub of this machine; never the network."""

import hashlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import polars
import pytest

import anchorscope
from anchorscope.datasets.hub import SOURCES, by_hand, open_rows
from anchorscope.errors import UserError

POPQA = {
    "id": 7,
    "subj": "Bo Li",
    "prop": "occupation",
    "question": "What is Bo Li's occupation?",
    "possible_answers": '["poet", "writer"]',
    "s_pop": 12,
}
TRIVIAQA = {
    "question": "Which bird hums?",
    "question_id": "tc_1",
    "question_source": "made up",
    "entity_pages": {"title": ["x"]},
    "search_results": {"title": ["y"]},
    "answer": {"aliases": ["Hummer", "Hummingbird"], "value": "Hummingbird"},
}
HOTPOTQA = {
    "id": "5a",
    "question": "Who led both?",
    "answer": "Ana",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": {"title": ["t"], "sent_id": [0]},
    "context": {"title": ["t"], "sentences": [["long " * 50]]},
}
NQ = {"question": "who sang it first", "answer": ["Ana", "Ana Li"]}
ROWS = {"popqa": POPQA, "triviaqa": TRIVIAQA, "hotpotqa": HOTPOTQA, "nq": NQ}


def publish(root: Path, name: str) -> Path:
    """A repository as the hub has it: a card that names the configurations, and files per split."""
    source = SOURCES[name]
    folder = root / source.repository
    row = ROWS[name]
    if name == "popqa":
        folder.mkdir(parents=True)
        polars.DataFrame([row, row]).write_csv(folder / "test.tsv", separator="\t")
        return folder
    configuration = source.configuration or "nq_open"
    card = "---\nconfigs:\n"
    for config in (configuration, "another"):
        (folder / config).mkdir(parents=True)
        card += f"- config_name: {config}\n  default: {str(config == 'nq_open').lower()}\n  data_files:\n"
        for split, question in (("train", "wrong split"), (source.split, row["question"])):
            changed = row | {"question": question if config == configuration else "wrong configuration"}
            polars.DataFrame([changed, changed]).write_parquet(folder / config / f"{split}-00000-of-00001.parquet")
            card += f"  - split: {split}\n    path: {config}/{split}-*\n"
    (folder / "README.md").write_text(card + "---\n# A card\n")
    return folder


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory in which the library finds repositories as folders, and a cache that is thrown away."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", SOURCES)
def test_rows_come_through_the_library(name: str, local: Path, capfd: pytest.CaptureFixture[str]) -> None:
    publish(local, name)
    rows = list(open_rows(name))
    kept = {column: value for column, value in ROWS[name].items() if column not in SOURCES[name].heavy}
    assert rows == [(1, kept), (2, kept)]
    assert capfd.readouterr() == ("", "")
    assert (local / "cache").is_dir()


def test_the_library_talks_as_before(local: Path) -> None:
    import datasets

    before = datasets.logging.get_verbosity()
    datasets.enable_progress_bars()
    publish(local, "nq")
    list(open_rows("nq"))
    assert not datasets.are_progress_bars_disabled()
    assert datasets.logging.get_verbosity() == before < logging.CRITICAL


@pytest.mark.parametrize("name", SOURCES)
def test_an_unreachable_hub(name: str, local: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """conftest switches the hub off: the library really tries and really fails."""
    with pytest.raises(UserError) as failure:
        open_rows(name)
    message = str(failure.value)
    repository = SOURCES[name].repository
    assert message.startswith(f"Dataset {name!r} could not be loaded from the hub ({repository}): Couldn't reach")
    assert message.endswith(f"Switch offline mode off (HF_HUB_OFFLINE), or {by_hand(name)}.")
    assert "\n" not in message
    assert capfd.readouterr() == ("", "")


def test_a_missing_split_is_told_with_the_libraries_reason(local: Path) -> None:
    folder = publish(local, "hotpotqa")
    card = (folder / "README.md").read_text()
    (folder / "README.md").write_text(card.replace("split: validation", "split: other"))
    with pytest.raises(UserError, match=r"could not be loaded from the hub .*Unknown split \"validation\""):
        open_rows("hotpotqa")


def test_a_damaged_cache_is_told_and_not_thrown(local: Path) -> None:
    folder = publish(local, "nq")
    for file in folder.rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(UserError, match="'nq' could not be loaded from the hub"):
        list(open_rows("nq"))


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # what Python does with a module that must not be imported
    with pytest.raises(UserError) as failure:
        open_rows("popqa")
    message = str(failure.value)
    assert message.startswith("Dataset 'popqa' without a file needs the datasets library")
    assert "pip install 'anchorscope[hub]', or download popQA.tsv from https://github.com/" in message
    assert message.endswith("and write popqa=FILE.")


def test_an_unknown_name() -> None:
    with pytest.raises(UserError, match=r"Unknown dataset 'popqq'; allowed: hotpotqa, nq, popqa, triviaqa\. Did you"):
        open_rows("popqq")


class SmallHub(BaseHTTPRequestHandler):
    """As much of the hub as the library asks for: files, a repository's state, folder listings."""

    root: Path
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts[0] == "datasets" and parts[3] == "resolve":
            return self._file(self.root.joinpath(*parts[1:3], *parts[5:]))
        folder = self.root.joinpath(*parts[2:4])
        if parts[:2] == ["api", "datasets"] and parts[4:5] == ["revision"]:
            return self._answer(json.dumps({"id": "/".join(parts[2:4]), "sha": "a" * 40, "siblings": []}).encode())
        if parts[:2] == ["api", "datasets"] and parts[4:5] == ["tree"]:
            entries = sorted(folder.joinpath(*parts[6:]).iterdir())
            listing = [
                {
                    "type": "directory" if entry.is_dir() else "file",
                    "oid": "b" * 40,
                    "size": entry.stat().st_size,
                    "path": entry.relative_to(folder).as_posix(),
                }
                for entry in entries
            ]
            return self._answer(json.dumps(listing).encode())
        self._answer(b"{}", 404)

    do_HEAD = do_GET

    def _file(self, path: Path) -> None:
        if not path.is_file():
            return self._answer(b"", 404, {"x-error-code": "EntryNotFound"})
        content = path.read_bytes()
        self._answer(content, 200, {"etag": f'"{hashlib.sha1(content).hexdigest()}"', "x-repo-commit": "a" * 40})

    def _answer(self, content: bytes, code: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"content-length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def small_hub(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    """A hub that holds NQ."""
    publish(tmp_path / "published", "nq")
    handler = type("Handler", (SmallHub,), {"root": tmp_path / "published", "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_hub_is_asked_once_and_then_the_cache(small_hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    script = "import json, sys\nfrom anchorscope.datasets.hub import open_rows\nprint(json.dumps([*open_rows('nq')]))\n"
    environment = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{small_hub.server_port}",
        "HF_HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(Path(anchorscope.__file__).parents[1]),
        "NO_PROXY": "127.0.0.1",
        "HF_HUB_DISABLE_XET": "1",
    }
    for offline in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment | {"HF_HUB_OFFLINE": offline},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout) == [[1, NQ], [2, NQ]]
        asked = small_hub.RequestHandlerClass.asked  # type: ignore[attr-defined]
        assert any("validation-00000-of-00001.parquet" in one for one in asked) == (offline == "0")
        asked.clear()
