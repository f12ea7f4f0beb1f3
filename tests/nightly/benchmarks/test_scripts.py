"""Every script of benchmarks/ as a user calls it: help, a tiny run whose JSON is one object, mistakes in one line."""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from doc_pages import PAGES, blocks, commands
from repo import ROOT

Record = Callable[..., dict[str, Any]]
PARTS = ("reporting", "ways", "workload")
"""Modules that are no scripts."""
SCRIPTS = [
    path.name
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if path.stem not in (*PARTS, "gguf_load")
]
DEMO = ROOT / "src" / "anchorscope" / "serve" / "demo_detector"
BARE = """
import sys
for name in ("typer", "click", "polars", "pydantic", "rich", "jinja2", "matplotlib", "platformdirs",
             "tomli_w", "wordfreq", "gguf", "pandas", "ray"):
    sys.modules[name] = None  # importing it fails
"""
"""A machine with few libraries, as a rented one is."""
QUICK = "--device cpu --items 4 --repeats 1 --seconds 0.01 --shared 6 --own 13"


@pytest.fixture(scope="module")
def help_of(call) -> Callable[[str], str]:
    """What a script says of itself."""

    @cache
    def ask(script: str) -> str:
        told = call(script, "--help")
        assert told.returncode == 0, told.stderr
        return str(told.stdout)

    return ask


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_says_what_it_does_and_takes(script: str, help_of) -> None:
    told = help_of(script)
    assert f"python benchmarks/{script}" in told
    assert {"--json", "--out"} <= set(re.findall(r"--[\w-]+", told))


def test_the_docs_name_scripts_and_options_that_exist(help_of) -> None:
    found = 0
    for page in PAGES:
        for block in blocks(page):
            for place, words in commands(block) if block.language == "sh" else ():
                folder, _, script = words[1].rpartition("/") if words[1:] else ("",) * 3
                if folder == "benchmarks" and script in SCRIPTS:
                    options = {word for word in words if word.startswith("--")}
                    known = set(re.findall(r"--[\w-]+", help_of(script)))
                    assert options <= known, place
                    found += 1
                elif folder == "benchmarks":
                    assert (ROOT / words[1]).is_file(), place
    assert found > 10


def test_peers_on_a_machine_with_few_libraries(
    record: Record, save_tiny, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(BARE, encoding="utf-8")
    words = [*QUICK.split(), "--work", "knockout", "--ways", "anchorscope,plain"]
    out = tmp_path / "speeds.json"
    words += ["--model", str(save_tiny("llama")), "--out", str(out)]
    found = record("peers.py", *words, path=str(tmp_path))
    assert [row["way"] for row in found["rows"]] == ["anchorscope", "plain"]
    assert json.loads(out.read_text()) == found


def test_worlds(record: Record) -> None:
    words = "--worlds half,match --items 120 --replicas 1 --endless 2000 --jobs 1"
    found = record("worlds.py", *words.split())
    assert [row["world"] for row in found["rows"]] == ["half", "match"]
    assert all(isinstance(row["passes"], bool) for row in found["rows"])
    assert "120 items: the four parts pass in" in found["notes"][0]


def test_detection(record: Record) -> None:
    sizes = "--items 240 --layers 2 --width 16 --folds 2 --seeds 1 --tosses 1"
    words = [*sizes.split(), "--resamples", "100", "--detectors", "confidence,probe"]
    found = record("detection.py", *words, "--device", "cpu")
    named = {row["part"]: row for row in found["rows"]}
    assert 0.5 < named["probe"]["auroc"] <= 1
    assert named["total (states at hand)"]["seconds"] > 0


@pytest.mark.embedded
def test_scoring(record: Record) -> None:
    found = record("scoring.py", "--items", "2", "--repeats", "1", "--device", "cpu")
    assert found["rows"][0]["way"] == "clean pass"
    assert all(row["items_per_s"] > 0 for row in found["rows"])


@pytest.mark.embedded
def test_load_of_a_service(record: Record) -> None:
    words = "--requests 2 --items 4 --overload-seconds 0 --device cpu"
    found = record("load_service.py", DEMO, *words.split())
    assert found["rows"][0]["load"] == "no service"
    assert found["clients_32"]["statuses"] == {"200": 4}
    assert found["ratios"]["clients_8_over_in_process"] > 0


@pytest.mark.parametrize(
    ("script", "words", "message"),
    [
        ("peers.py", "--ways plane", "'plane' is not allowed; allowed: anchorscope"),
        ("peers.py", "--repeats 0", "whole numbers from 1"),
        ("peers.py", "--dtype int4", "Unknown dtype 'int4'"),
        ("peers.py", "--work probes --ways plain", "None of the ways plain can do"),
        ("peers.py", "--out no/such/x.json", "in a folder that does not exist"),
        ("worlds.py", "--worlds flat", "'flat' is not allowed; allowed: half"),
        ("worlds.py", "--items 60", "whole numbers from 120"),
        ("planted_model.py", "--items 9999", "cannot be drawn"),
        ("planted_model.py", "--evidence saliance", "'saliance' is not allowed"),
    ],
)
def test_mistakes_are_one_line(script: str, words: str, message: str, call) -> None:
    done = call(script, *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    *progress, line = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not any(one.startswith(("error", "Traceback")) for one in progress)


def test_an_output_file_is_never_replaced(call) -> None:
    done = call("worlds.py", "--out", __file__)
    assert done.returncode == 2
    assert "is there already; choose another name" in done.stderr
