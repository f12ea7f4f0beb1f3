"""A run that is killed at any moment goes on, and ends with the same numbers, its own files and no others."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

from anchorscope.recipe import Recipe
from repo import ROOT
from whole_runs import SmallRun

TOOL = ROOT / "tools" / "kill_and_resume.py"
MOMENTS = 1
"""One run that is killed twice; `test_pipeline.py` stops a run inside each of its steps."""
SMALL = ("--option", "random_cuts=1", "--option", "directions=2", "--option", "folds=2")
"""Fewer draws and directions: a kill needs every step and every write of a run, not much work in them."""


def kill(recipe: Recipe, *options: str) -> subprocess.CompletedProcess[str]:
    (dataset,) = recipe.datasets
    command = [sys.executable, str(TOOL), "--model", recipe.model, "--dataset", dataset, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_run_killed_at_any_moment_ends_with_the_same_numbers(small_recipe: Recipe) -> None:
    done = kill(small_recipe, "--moments", str(MOMENTS), "--seed", "1", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"{MOMENTS} kills, 0 wrong, ")


def test_the_tool_sees_what_is_not_as_it_should_be(small_run: SmallRun, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("kill_and_resume", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    out = small_run.copy("finished", tmp_path / "run")
    reference = tool.numbers(small_run.finished)
    assert tool.differences(out, reference) == ""
    (out / tool.MINE).write_text("mine")
    assert tool.differences(out, reference) == ""
    (out / "curves.csv.changed-1").write_text("ours")
    assert tool.differences(out, reference) == "files that nobody lists: curves.csv.changed-1"
    (out / "curves.csv").write_text("other")
    assert "other numbers in curves.csv; files that nobody" in tool.differences(out, reference)
    next((out / "work" / "facts").glob("labels-*/*")).unlink()
    assert "listed and not there: work/facts/labels-" in tool.differences(out, reference)
    assert tool.forked(lambda: os.kill(os.getpid(), signal.SIGKILL)) == -signal.SIGKILL
    assert tool.forked(lambda: 1 / 0) == 1
