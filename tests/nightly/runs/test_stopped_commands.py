"""A command that is stopped, or whose disk is full, ends in one line; given again, it writes the same bytes."""

import json
import os
import subprocess
import sys

import pytest

from anchorscope.recipe import Recipe
from repo import ROOT

TOOL = ROOT / "benchmarks" / "stop_commands.py"
STOPS = os.environ.get("ANCHORSCOPE_STOPS", "1"), "1"
"""Of each kind of signal one, where there is more time; and a full disk."""


@pytest.mark.parametrize("command", ["run", "fit", "score"])
def test_a_stopped_command_ends_with_the_same_bytes(
    command: str, small_recipe: Recipe
) -> None:
    stops, full = STOPS
    named = ["--model", small_recipe.model, "--dataset", small_recipe.datasets[0]]
    named += ["--command", command, "--stops", stops, "--full", full, "--json"]
    done = subprocess.run(
        [sys.executable, str(TOOL), *named],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["stops"], told["wrong"]) == (int(stops) + int(full), 0)
