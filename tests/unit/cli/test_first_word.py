"""A first word at once: help and mistakes come without torch, and a command says that it loads torch before it does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anchorscope.cli.main import COMMANDS
from repo import ROOT

HEAVY = (
    "torch",
    "transformers",
    "polars",
    "numpy",
    "matplotlib",
    "scipy",
    "sklearn",
    "pandas",
    "accelerate",
)
DEMO = "src/anchorscope/serve/demo_detector"

CALLS = """
import contextlib, io, json, sys
from importlib.machinery import ModuleSpec

class Refused(ImportError):
    pass

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name in ("torch", "transformers") else None  # polars asks whether it is there

    def create_module(self, spec):
        raise Refused(f"{spec.name} is imported")

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, NoTorch())
from anchorscope.cli import terminal
from anchorscope.cli.main import app

results = []
for call in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    code = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            app(call, prog_name="anchorscope")
        except SystemExit as stop:
            code = stop.code
        except Refused as error:
            code = str(error)
    results.append([code, err.getvalue(), sorted(set(sys.modules))])
print(json.dumps(results))
"""
"""Commands in a process in which torch cannot be imported: exit code, or what was imported, and the messages."""


def call_all(
    calls: list[list[str]], folder: Path
) -> list[tuple[int | str, str, set[str]]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", CALLS, json.dumps(calls)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [
        (code, text, set(modules)) for code, text, modules in json.loads(done.stdout)
    ]


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    overview, *others = call_all(
        [["--help"], *([name, "--help"] for name in COMMANDS)], tmp_path
    )
    assert not overview[2] & {
        *HEAVY,
        "pydantic",
        *(f"anchorscope.cli.{file}" for file, _, _ in COMMANDS.values()),
    }
    for name, (code, text, modules) in zip(COMMANDS, others, strict=True):
        assert (code, text) == (0, ""), name
        assert not modules & set(HEAVY), name


MISTAKES = {
    "too few questions": (
        ["run", "--dataset", "file:few.csv", "--model", "folder"],
        "questions",
    ),
    "too few of a kind": (
        ["run", "--dataset", "file:labelled.csv", "--model", "folder"],
        "0 true",
    ),
    "missing column": (
        ["run", "--dataset", "file:other.csv", "--model", "folder"],
        "column",
    ),
    "unknown option": (["run", "--limits", "3"], "--limit"),
    "unknown model": (["run", "--model", "gtp2"], "Unknown model"),
    "random weights": (["run", "--model", "shape:qwen3-8b"], "--allow-random-weights"),
    "unknown dataset": (["run", "--dataset", "trivia"], "Unknown dataset"),
    "missing question file": (
        ["run", "--dataset", "file:none.csv", "--model", "folder"],
        "none.csv",
    ),
    "missing recipe": (["run", "none.toml"], "does not exist"),
    "detect: no such run": (["detect", "nowhere", "--out", "d"], "nowhere"),
    "detect: unknown detector": (
        ["detect", "nowhere", "--out", "d", "--detectors", "prob"],
        "Unknown detector",
    ),
    "fit: no such file": (["fit", "--dataset", "none.csv", "--out", "d"], "none.csv"),
    "score: broken bundle": (["score", "--detector", "broken", "Who?"], "no JSON"),
    "score: altered weights": (
        ["score", "--detector", "altered", "Who?"],
        "altered or cut off",
    ),
    "score: missing file": (["score", "--detector", "whole", "none.csv"], "none.csv"),
    "score: --out": (
        ["score", "--detector", "whole", "Who?", "--out", "rows.xls"],
        "ending",
    ),
    "detector card: no bundle": (["detector", "card", "nowhere"], "no such folder"),
}
"""A mistake, how it is made, and a word of the line that reports it."""


@pytest.fixture(scope="module")
def reported(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[int | str, str, set[str]]]:
    folder = tmp_path_factory.mktemp("mistakes")
    rows = [f"Who wrote book number {n}?,Author {n}" for n in range(20)]
    (folder / "few.csv").write_text("\n".join(["question,answer", *rows]) + "\n")
    (folder / "other.csv").write_text("prompt,gold\nWho?,Me\n")
    labelled = [
        f"Who wrote book number {n}?,Author {n},Someone,false" for n in range(200)
    ]
    (folder / "labelled.csv").write_text(
        "\n".join(["question,answer,model_answer,truthful", *labelled]) + "\n"
    )
    (folder / "folder").mkdir()
    (folder / "folder" / "config.json").write_text("{}")
    (folder / "folder" / "model.safetensors").touch()
    demo = {
        one.name: one.read_bytes() for one in (ROOT / DEMO).iterdir() if one.is_file()
    }
    for name, changed in (
        ("whole", {}),
        ("broken", {"detector.json": b"{"}),
        ("altered", {"weights.safetensors": demo["weights.safetensors"][:-1]}),
    ):
        (folder / name).mkdir()
        for file, content in {**demo, **changed}.items():
            (folder / name / file).write_bytes(content)
    found = call_all([call for call, _ in MISTAKES.values()], folder)
    return dict(zip(MISTAKES, found, strict=True))


def test_mistakes_are_reported_before_torch_is_imported(
    reported: dict[str, tuple[int | str, str, set[str]]],
) -> None:
    for mistake, (code, text, _) in reported.items():
        assert code == 2, (mistake, text)
        *before, line = text.splitlines()
        assert line.startswith("error: "), mistake
        assert MISTAKES[mistake][1] in line, mistake
        assert all(
            message.startswith(("anchorscope: ", "loading polars"))
            for message in before
        ), mistake


def test_a_command_says_that_it_loads_torch_before_it_does(tmp_path: Path) -> None:
    demo = str(ROOT / DEMO)
    calls = [
        ["score", "--detector", demo, "Who wrote Emma?"],
        ["score", "--detector", demo, "Who wrote Emma?", "--json"],
        [
            "run",
            "--model",
            "shape:qwen3-8b/8",
            "--dataset",
            str(tmp_path / "q.csv"),
            "--allow-random-weights",
        ],
        ["serve", demo],
    ]
    calls[2][4] = f"file:{tmp_path / 'q.csv'}"
    rows = [
        f"Who wrote book number {n}?,Author {n},Someone,{str(n % 2 == 0).lower()}"
        for n in range(200)
    ]
    (tmp_path / "q.csv").write_text(
        "\n".join(["question,answer,model_answer,truthful", *rows]) + "\n"
    )
    for call, (code, text, _) in zip(calls, call_all(calls, tmp_path), strict=True):
        assert code == "torch is imported", (call, text)
        assert text.splitlines()[-1] == "loading torch", call
    (quiet,) = call_all(
        [["score", "--detector", demo, "Who wrote Emma?", "--quiet"]], tmp_path
    )
    assert quiet[:2] == ("torch is imported", "")
