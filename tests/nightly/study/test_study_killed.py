"""A study that is killed again and again: it resumes, and its status is true throughout."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anchorscope.study.grid import read_study
from anchorscope.study.study_folder import status_of
from anchorscope.verifying import verify
from study_fixtures import WriteStudy, invoke

STARTS = """
import os, sys
import anchorscope.pipeline, anchorscope.execute.worker, anchorscope.models.loading
from anchorscope.cli.main import main
sys.argv = ["anchorscope", "study", "run", *sys.argv[1:], "--quiet"]
for line in sys.stdin:
    if (child := os.fork()) == 0:
        main()
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A process that has imported everything and computed nothing: the command runs in a copy of it for every line."""


def wait_for(done: Callable[[], bool], pid: int) -> None:
    while not done():
        os.kill(pid, 0)  # it is still there
        time.sleep(0.3)


def test_a_study_killed_twice_goes_on_and_its_status_is_true_throughout(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    written, out = (
        write_study(seeds=[0, 1], defaults={"max_per_class": 30, "folds": 2}),
        tmp_path / "out",
    )
    study = read_study(written)

    def states() -> list[str]:
        return [run.state for run in status_of(study, out).runs]

    def at_work(place: int) -> Any:
        return lambda: (
            (run := status_of(study, out).runs[place]).state == "running"
            and run.steps > 1
        )

    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", STARTS, str(written), "--out", str(out)]
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        for place, then in ((0, ["stopped", "waiting"]), (1, ["done", "stopped"])):
            starter.stdin.write("once more\n")
            pid = int(starter.stdout.readline())
            wait_for(at_work(place), pid)
            assert status_of(study, out).running
            assert states()[place] == "running"
            os.kill(pid, signal.SIGKILL)
            assert int(starter.stdout.readline()) == -signal.SIGKILL
            assert states() == then
            assert not status_of(study, out).running
    assert (
        out / "comparison" / "report.html"
    ).is_file() is False  # it comes in the end
    result = invoke("run", written, "--out", out, "--json")
    assert result.exit_code == 0, result.stderr
    assert states() == ["done", "done"]
    assert (out / "comparison" / "report.html").is_file()
    assert verify(out).whole
