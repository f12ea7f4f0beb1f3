"""A whole run on two Ray workers, one of which is killed half-way, gives the same bytes as one process."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import needs
from anchorscope.execute.choose import choose
from anchorscope.execute.ray_executor import RayWorkers
from anchorscope.recipe import Recipe
from whole_runs import SmallRun, quick, tables_of


def test_two_workers_give_the_same_bytes_as_one_process_and_so_does_one_that_was_lost(
    small_recipe: Recipe, small_run: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.ray()
    check, killed = RayWorkers.check, []

    def kill_at_the_fifth(self: RayWorkers, actor: Any, worker: str) -> None:
        check(self, actor, worker)
        if self.done == 5 and not killed:
            killed.append(next(iter(self.admitted.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(RayWorkers, "check", kill_at_the_fifth)
    told = quick(small_recipe, tmp_path / "run", choice=choose(workers=2))
    assert tables_of(tmp_path / "run") == small_run.tables
    assert any("a worker was lost and started again" in line for line in told)
    workers = json.loads((tmp_path / "run" / "manifest.json").read_text())["workers"]
    assert (workers["executor"], workers["workers"], workers["lost"]) == ("ray", 2, 1)
    assert workers["done"] > 5
