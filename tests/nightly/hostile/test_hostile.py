"""A sample of hostile cases, the same every time, and a judge that can fail.

`python tools/hostile.py --cases 10000` runs as many as wanted.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile import GENERATORS, Case, find_faults, list_entries, run_case
from repo import ROOT


def test_no_hostile_case_gets_through() -> None:
    command = [sys.executable, str(ROOT / "tools" / "hostile.py")]
    environment = {
        **os.environ,
        "PYTHONWARNINGS": "ignore",
    }  # the libraries' own, as for every user
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment,
        timeout=900,
        check=False,
    )
    cases = sum(count for _, count in GENERATORS.values())
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == f"{cases} cases, every command; 0 failed"


def refuse() -> None:
    sys.stderr.write("a note\nerror: This is no question file; give another.\n")
    sys.exit(2)


def crash() -> None:
    {}["missing"]


def leave_folder() -> None:
    os.mkdir("left")
    refuse()


def remove_file() -> None:
    os.unlink("mine.txt")


def hang() -> None:
    time.sleep(60)


def write_outside() -> None:
    try:
        Path("../../elsewhere").mkdir()
    except OSError:
        refuse()


def call_network() -> None:
    import socket

    try:
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    except OSError:
        refuse()


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (refuse, ""),
        (crash, "exit code 1: KeyError"),
        (leave_folder, "left 1 new entries: ['user/left']"),
        (remove_file, "the user's 'user/mine.txt'"),
        (hang, "exit code -14 (hangs)"),
        (write_outside, "tried: outside"),
        (call_network, "tried: network"),
    ],
)
def test_the_judge_sees(
    command: Callable[[], None], fault: str, tmp_path: Path
) -> None:
    case = Case(tmp_path / "case", outs=["user/out"], seconds=2)
    case.user.mkdir(parents=True)
    (case.user / "mine.txt").write_text("mine")
    before = list_entries(case.folder)
    outcome = run_case(case, command, tmp_path / "home")
    faults = find_faults(case, before, list_entries(case.folder), outcome)
    assert len(faults) == bool(fault), faults
    assert not faults or fault in faults[0]
