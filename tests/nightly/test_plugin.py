"""The package in examples/plugin adds one of each: installed, listed, held to the common laws, and used by a run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from repo import ROOT, SOURCES, SUPPORT

NAMES = {
    "families": "GLM-4",
    "datasets": "flash-cards",
    "interventions": "last-word",
    "experiments": "question-length",
    "detectors": "least-likely-token",
    "graders": "exact-match",
}
CHOSEN = f"{NAMES['detectors']} or {NAMES['interventions']} or (glm4 and not unlisted)"
LAWS = (
    "detectors/test_laws.py",
    "interventions/test_interventions.py",
    "models/test_families.py",
)
RUN = """
import json, sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anchorscope.cli.main import app
from anchorscope.finished import open_finished
from anchorscope.report.panel_figure import catalogued_sections
from small_facts import liven, unlabelled
from tiny_models import TINY, build_tiny

TINY["glm4"] = {"head_dim": 8}


def command(*words):
    done = CliRunner().invoke(app, [str(word) for word in words], prog_name="anchorscope", env={"COLUMNS": "400"})
    assert done.exit_code == 0, done.output
    return done.stdout


folder = Path(sys.argv[1])
lm = build_tiny("glm4")
liven(lm.model)
lm.model.model.layers = lm.model.model.layers[:2]
lm.model.config.num_hidden_layers = 2
lm.model.save_pretrained(folder / "model")
lm.tokenizer.save_pretrained(folder / "model")
cards = [  # every other reply is right, but for case
    {"front": row["question"], "back": [row["model_answer"].upper() if number % 2 else "Never"],
     "reply": row["model_answer"]}
    for number, row in enumerate(unlabelled(80))
]
(folder / "cards.jsonl").write_text("".join(json.dumps(card) + "\\n" for card in cards))
quick = "--bootstrap 100 --folds 2 --device cpu --dtype float32 --random-cuts 1 --directions 2 --no-report".split()
shown = {
    "plugins": json.loads(command("plugins", "--json")),
    "listed": command("plugins"),
    "run": command("run", "--help-all"),
    "detect": command("detect", "--help"),
}
command(
    "run", "--model", folder / "model", "--dataset", folder / "cards.jsonl", "--evidence", "last-word,question-length",
    "--grader", "exact-match", "--keep", "states", "--out", folder / "run", "--quiet", *quick,
)
command(
    "detect", folder / "run", "--bundles", "least-likely-token", "--detectors", "least-likely-token",
    "--folds", "2", "--seeds", "1", "--tosses", "0", "--resamples", "100", "--device", "cpu", "--quiet",
    "--out", folder / "detectors",
)
section = next(one for one in catalogued_sections() if one.slug == "question-length")
shown["section"] = section.section(open_finished(folder / "run").findings).answer
(folder / "shown.json").write_text(json.dumps(shown))
options = ["-q", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore:Module already"]
sys.exit(pytest.main([*options, "-k", *sys.argv[2:]]))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What a process with the package installed made, and what it printed; one for all, as its imports take longest."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(
        ROOT / "examples" / "plugin", folder / "source"
    )  # building it writes into it
    options = [
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--target",
        str(folder / "installed"),
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, str(source)], check=True
    )
    paths = os.pathsep.join(map(str, [SOURCES, SUPPORT, folder / "installed"]))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            RUN,
            str(folder),
            CHOSEN,
            *(str(ROOT / "tests" / "laws" / name) for name in LAWS),
        ],
        env={**os.environ, "PYTHONPATH": paths, "SHAPES_CHECKED": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_its_things_obey_the_common_laws(made: tuple[Path, str]) -> None:
    for name in (NAMES["detectors"], NAMES["interventions"], "glm4"):
        assert f"[{name}]" in made[1]


def test_they_are_listed_and_offered(made: tuple[Path, str]) -> None:
    shown = json.loads((made[0] / "shown.json").read_text())
    listed = shown["plugins"]["plugins"]
    assert {one["group"]: one["name"] for one in listed} == NAMES
    assert {(one["package"], one["version"], one["problem"]) for one in listed} == {
        ("anchorscope-example", "1.0", None)
    }
    assert all(name in shown["listed"] for name in NAMES.values())
    assert all(
        NAMES[group] in shown["run"]
        for group in ("interventions", "experiments", "graders")
    )
    assert NAMES["detectors"] in shown["detect"]


def test_a_run_uses_all_six(made: tuple[Path, str]) -> None:
    folder = made[0]
    items = pl.read_parquet(folder / "run" / "items.parquet")
    assert items["truthful"].to_list() == [number % 2 == 1 for number in range(80)]
    assert (
        "last-word"
        in pl.read_parquet(folder / "run" / "effects.parquet")["intervention"]
        .unique()
        .to_list()
    )
    assert (
        "auc_words"
        in pl.read_csv(folder / "run" / "experiments.csv")["quantity"].to_list()
    )
    assert (
        json.loads((folder / "run" / "manifest.json").read_text())["versions"][
            "anchorscope-example"
        ]
        == "1.0"
    )
    assert (folder / "detectors" / "bundles" / "least-likely-token").is_dir()
    assert (
        "longer questions" in json.loads((folder / "shown.json").read_text())["section"]
    )
