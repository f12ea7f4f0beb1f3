"""A run that is killed at any moment goes on, and ends with the same numbers, its own files and no others."""

import json
import os
import subprocess
import sys

from anchorscope.recipe import Recipe
from repo import ROOT

TOOL = ROOT / "benchmarks" / "kill_and_resume.py"
MOMENTS = 1
"""One run that is killed twice; `test_pipeline.py` stops a run inside each of its steps."""
SMALL = ("--option", "random_cuts=1", "--option", "directions=2", "--option", "folds=2")
"""Fewer draws and directions: a kill needs every step and every write of a run, not much work in them."""


def kill(recipe: Recipe, *options: str) -> subprocess.CompletedProcess[str]:
    (dataset,) = recipe.datasets
    command = [
        sys.executable,
        str(TOOL),
        "--model",
        recipe.model,
        "--dataset",
        dataset,
        *options,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment
    )


def test_a_run_killed_at_any_moment_ends_with_the_same_numbers(
    small_recipe: Recipe,
) -> None:
    moments = ("--moments", str(MOMENTS), "--seed", "1")
    done = kill(small_recipe, *moments, *SMALL, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["kills"], told["wrong"]) == (MOMENTS, 0)
