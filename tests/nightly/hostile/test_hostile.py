"""A sample of hostile cases, the same at every time: every generator, every command, one judge.

`python tools/hostile.py --cases 10000` takes as many as wanted.
"""

import os
import subprocess
import sys

from repo import ROOT

NAMES = ("question-files", "options", "folders", "model-folders", "step-damage")
MINUTES = 15
"""Against hanging; it takes about one."""


def test_no_hostile_case_gets_through() -> None:
    command = [sys.executable, str(ROOT / "tools" / "hostile.py")]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}  # the libraries' own, as for every user
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=MINUTES * 60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    *_, last = done.stdout.splitlines()
    assert "; every command; 0 failed; " in last
    assert all(f" {name}" in last for name in NAMES)
