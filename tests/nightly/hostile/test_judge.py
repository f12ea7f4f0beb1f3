"""The judge can fail: commands that do what none may do are caught, and one that keeps to the rules is not."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile.case import NAMES, Case, plant, seen
from hostile.child import keep_orphans, outcome_of
from hostile.judge import faults
from repo import SUPPORT


def refuses() -> None:
    sys.stderr.write("a note\nerror: This is no question file; give another.\n")
    sys.exit(2)


def says_nothing() -> None:
    sys.exit(2)


def goes_on_after_its_error() -> None:
    sys.stderr.write("error: one\nand more\n")
    sys.exit(2)


def breaks() -> None:
    {}["missing"]


def shows_a_traceback() -> None:
    sys.stderr.write("Traceback (most recent call last):\n")


def rings_the_bell() -> None:
    sys.stdout.write("done \x07\n")


def writes_half_an_object() -> None:
    sys.stdout.write('{"a": ')


def leaves_a_folder() -> None:
    os.mkdir("left")
    refuses()


def leaves_a_temporary_file() -> None:
    tempfile.mkstemp()


def writes_where_it_may() -> None:
    Path("out").mkdir()
    Path("out/result.csv").write_text("1")


def keeps_a_study_with(failed: dict[str, str]) -> None:
    Path("out").mkdir()
    Path("out/study.json").write_text(json.dumps({"failed": failed}))
    refuses()


def keeps_a_study_that_remembers() -> None:
    keeps_a_study_with({"run": "too few questions"})


def keeps_a_study_that_remembers_nothing() -> None:
    keeps_a_study_with({})


def touches_a_file() -> None:
    Path("mine.txt").write_text("theirs")


def removes_a_file() -> None:
    os.unlink("mine.txt")


def moves_a_file_aside() -> None:
    os.rename("mine.txt", "mine.txt.changed-1")


def changes_a_mode() -> None:
    os.chmod("mine.txt", 0o600)


def leaves_a_child() -> None:
    subprocess.Popen(["sleep", "60"], start_new_session=True)


def takes_too_much() -> None:
    bytearray(300 << 20)


def hangs() -> None:
    time.sleep(60)


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def writes_outside() -> None:
    try:
        Path(tempfile.gettempdir(), "../../elsewhere").mkdir()
    except OSError:
        refuses()


def calls_somebody() -> None:
    import socket

    try:
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    except OSError:
        refuses()


CAUGHT: dict[Callable[[], None], str] = {
    refuses: "",
    writes_where_it_may: "",
    moves_a_file_aside: "",
    keeps_a_study_that_remembers: "",
    keeps_a_study_that_remembers_nothing: "left 2 new entries: 'user/out'",
    says_nothing: "exit code 2 with 0 lines",
    goes_on_after_its_error: "the last line is: and more",
    breaks: "exit code 1: KeyError",
    shows_a_traceback: "a traceback",
    leaves_a_folder: "left 1 new entries: 'user/left'",
    rings_the_bell: "prints a control character",
    writes_half_an_object: "no JSON",
    leaves_a_temporary_file: "left 1 new entries: 'tmp/",
    touches_a_file: "the user's 'user/mine.txt'",
    removes_a_file: "is gone",
    changes_a_mode: "the user's 'user/mine.txt'",
    leaves_a_child: "left a process running: sleep",
    takes_too_much: "allowed are 200",
    hangs: "hangs (2 s)",
    dies: "exit code -9",
    writes_outside: "tried: outside",
    calls_somebody: "tried: network '192.0.2.1'",
}
"""What each command is caught at; those without words are innocent."""


def judged(command: Callable[[], None], place: Path) -> list[str]:
    case = Case(
        place / command.__name__,
        ["data", "--json"],
        outs=["user/out", "user/mine.txt.changed-1"],
        memory_mb=200,
        seconds=2,
    )
    case.user.mkdir(parents=True)
    plant(case.user, random.Random(0), 12)
    case.file("mine.txt", "mine")
    (place / "home").mkdir(exist_ok=True)
    before = seen(case.folder)
    outcome = outcome_of(case, command, place / "home")
    return faults(case, before, seen(case.folder), outcome)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """In a process of its own: it forks, and looks for children that were left."""
    place = tmp_path_factory.mktemp("judged")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, __file__, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", CAUGHT, ids=lambda command: command.__name__)
def test_the_judge_sees(command: Callable[[], None], verdicts: dict[str, list[str]]) -> None:
    found = verdicts[command.__name__]
    assert len(found) == bool(CAUGHT[command]), found
    assert not found or CAUGHT[command] in found[0]


def test_a_name_that_is_no_text_is_seen(tmp_path: Path) -> None:
    plant(tmp_path, random.Random(0), len(NAMES))
    before = seen(tmp_path)
    assert len(before) == len(NAMES)
    assert any("\udce9" in name for name in before)
    os.unlink(b"%s/caf\xe9.txt" % os.fsencode(tmp_path))
    assert len(seen(tmp_path)) == len(NAMES) - 1


if __name__ == "__main__":
    keep_orphans()
    sys.stdout.write(json.dumps({one.__name__: judged(one, Path(sys.argv[1])) for one in CAUGHT}))
