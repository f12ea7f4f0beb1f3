"""A whole run on two Ray workers gives the same bytes as one process; lost workers: nightly/faults."""

import json
from pathlib import Path

import needs
from anchorscope.execute.choose import choose
from anchorscope.recipe import Recipe
from whole_runs import SmallRun, quick, tables_of


def test_two_workers_give_the_bytes_of_one_process(
    small_recipe: Recipe, small_run: SmallRun, tmp_path: Path
) -> None:
    needs.ray()
    quick(small_recipe, tmp_path / "run", choice=choose(workers=2))
    assert tables_of(tmp_path / "run") == small_run.tables
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["workers"] == {"executor": "ray", "workers": 2}
