"""Datasets from the hub: through the real library, on folders and on a small hub of this machine; never the network."""

import hashlib
import json
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
from anchorscope.datasets.catalog import SOURCES, by_hand, hub_rows, open_dataset, parse_spec
from anchorscope.errors import UserError
from anchorscope.recipe import Recipe

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
OWN = {"prompt": "Where is Oslo?", "gold": ["Norway"], "kind": "country", "key": "o1"}
MAPPING = {"question": "prompt", "answers": "gold", "relation": "kind", "id": "key"}


def publish(root: Path, name: str) -> Path:
    """A known repository as the hub has it: a card that names the configurations, and files per split."""
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


def publish_own(root: Path, *splits: str) -> None:
    """A repository with columns of its own."""
    folder = root / "someone" / "my-questions"
    folder.mkdir(parents=True)
    for split in splits:
        row = OWN | {"prompt": f"{OWN['prompt']} {split}"}
        (folder / f"{split}.jsonl").write_text(json.dumps(row) + "\n")


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
    rows = list(hub_rows(parse_spec(name)))
    kept = {column: value for column, value in ROWS[name].items() if column not in SOURCES[name].heavy}
    assert rows == [(1, kept), (2, kept)]
    assert capfd.readouterr() == ("", "")
    assert (local / "cache").is_dir()


def test_any_dataset_is_read_by_its_id_with_its_columns_mapped(local: Path) -> None:
    publish_own(local, "train", "test")
    for spec in ("hub:someone/my-questions:test", "hub:someone/my-questions:default/test"):
        reading = open_dataset(parse_spec(spec), columns=MAPPING)
        (question,) = reading
        assert (question.question, question.answers, question.item_id) == ("Where is Oslo? test", ("Norway",), "o1")
        assert (question.relation, question.metadata) == ("country", {})
        assert reading.format == "own columns, from the hub"
        assert question.dataset == parse_spec(spec).name
    Recipe(model="m", datasets=(spec,), columns=("question=prompt,answers=gold",))
    with pytest.raises(UserError, match=r"has the splits train, test; name one, like hub:someone/my-questions:test\."):
        open_dataset(parse_spec("hub:someone/my-questions"), columns=MAPPING)
    with pytest.raises(UserError, match=r"The hub's someone/my-questions has no column 'q', which --columns gives"):
        open_dataset(parse_spec(spec), columns={"question": "q", "answers": "gold"})
    with pytest.raises(UserError, match=r"columns found: \['prompt', 'gold', 'kind', 'key'\].*--columns question"):
        open_dataset(parse_spec(spec))


@pytest.mark.parametrize("name", [*SOURCES, "hub:someone/my-questions:test"])
def test_an_unreachable_hub(name: str, local: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """conftest switches the hub off: the library really tries and really fails."""
    spec = parse_spec(name)
    with pytest.raises(UserError) as failure:
        open_dataset(spec)
    message = str(failure.value)
    repository = (spec.hub or SOURCES[spec.name]).repository
    assert message.startswith(f"Dataset {spec.name!r} could not be loaded from the hub ({repository}): Couldn't")
    assert message.endswith(f"Switch offline mode off (HF_HUB_OFFLINE), or {by_hand(spec)}.")
    assert "\n" not in message
    assert capfd.readouterr() == ("", "")


def test_a_damaged_cache_is_told_and_not_thrown(local: Path) -> None:
    folder = publish(local, "nq")
    for file in folder.rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(UserError, match="'nq' could not be loaded from the hub"):
        list(hub_rows(parse_spec("nq")))


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
        if parts[:2] == ["api", "datasets"] and parts[4:5] in ([], ["revision"]):
            return self._answer(json.dumps({"id": "/".join(parts[2:4]), "sha": "a" * 40, "siblings": []}).encode())
        if parts[:2] == ["api", "datasets"] and parts[4:5] == ["tree"]:
            listed = folder.joinpath(*parts[6:])
            if not listed.is_dir():
                return self._answer(b"{}", 404, {"x-error-code": "EntryNotFound"})
            listing = [
                {
                    "type": "directory" if entry.is_dir() else "file",
                    "oid": "b" * 40,
                    "size": entry.stat().st_size,
                    "path": entry.relative_to(folder).as_posix(),
                }
                for entry in sorted(listed.iterdir())
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
    """A hub that holds NQ and a dataset with columns of its own."""
    publish(tmp_path / "published", "nq")
    publish_own(tmp_path / "published", "train", "test")
    handler = type("Handler", (SmallHub,), {"root": tmp_path / "published", "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("arguments", "question", "file"),
    [
        (["nq"], "who sang it first", "validation-00000-of-00001.parquet"),
        (
            ["hub:someone/my-questions:test", "--columns", "question=prompt,answers=gold"],
            "Where is Oslo? test",
            "test.jsonl",
        ),
    ],
    ids=["known", "by its id"],
)
def test_a_hub_is_asked_once_and_then_the_cache(
    small_hub: ThreadingHTTPServer, tmp_path: Path, arguments: list[str], question: str, file: str
) -> None:
    environment = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{small_hub.server_port}",
        "HF_HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(Path(anchorscope.__file__).parents[1]),
        "NO_PROXY": "127.0.0.1",
        "HF_HUB_DISABLE_XET": "1",
    }
    for offline in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-m", "anchorscope", "data", *arguments, "--json", "--quiet"],
            env=environment | {"HF_HUB_OFFLINE": offline},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert [example["question"] for example in json.loads(done.stdout)["examples"]] == [question]
        asked = small_hub.RequestHandlerClass.asked  # type: ignore[attr-defined]
        assert any(file in address for address in asked) == (offline == "0")
        asked.clear()
