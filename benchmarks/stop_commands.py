"""Stops a command at random moments or fills the disk, gives the same command again, and compares every byte.

    python benchmarks/stop_commands.py --model FOLDER --dataset QUESTIONS --command fit --stops 10 --full 5

Stops are SIGINT, SIGTERM and SIGKILL in turn, half of them at a random write, half at a random time. A full disk is one
on which, from a random write on, no file can grow. Files of the user's whose names end as those of half-made files of
ours lie in the folder while the command goes on. The exit code is 1 if a stopped command shows a traceback or another
exit code than it should, or if afterwards a byte of a result or of the user's differs.
"""

import argparse
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads do not survive a fork
os.environ.setdefault("POLARS_MAX_THREADS", "1")

from anchorscope import __main__ as program
from anchorscope import pipeline  # noqa: F401 - imported once, for all children
from anchorscope.detecting import detect, score  # noqa: F401
from anchorscope.files import PARTIAL, partial_of
from kill_and_resume import SAME, WRITES, report_of
from reporting import Parser, Report, at_least, run_script, say

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
MINE = (f"mine.txt{PARTIAL}", f"figures{PARTIAL}/mine.txt", f"results{PARTIAL}")
"""Files of the user's, which look as if they were ours."""
SECONDS = re.compile(rb"\b[0-9][0-9.,]* s\b")
"""On a page: two undisturbed commands may take the same time by chance, and a third another one."""
QUICK = ("--device", "cpu", "--quiet")
FEW = ("--detectors", "confidence,probe", "--bundles", "probe", "--seeds", "1")
SMALL = ("--bootstrap", "100", "--folds", "2", "--random-cuts", "1", "--no-report")


@dataclass(frozen=True)
class Job:
    """A command, the folder that it writes to, and how that is before it begins."""

    words: list[str]
    out: Path
    before: Path | None = None

    def begin(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        if self.before is not None:
            shutil.copytree(self.before, self.out)


@dataclass(frozen=True)
class Ended:
    code: int
    """The exit code, or minus the signal that ended it."""
    told: str
    """What it wrote to standard error."""
    seconds: float
    writes: int


def main() -> int:
    """The program."""
    parser = Parser(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dataset", required=True)
    commands = ("run", "fit", "detect", "score")
    parser.add_argument("--command", choices=commands, required=True)
    parser.add_argument("--stops", type=at_least(0), default=10)
    parser.add_argument("--full", type=at_least(0), default=5, help="disks")
    parser.add_argument("--seed", type=at_least(0), default=0)
    return run_script(parser, measure)


def measure(options: argparse.Namespace) -> Report:
    """All stops and full disks, a row each."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        job = make_job(options, Path(folder))
        rows = try_all(job, options.stops, options.full, random.Random(options.seed))
    return report_of("stops", rows, time.monotonic() - began)


def make_job(given: argparse.Namespace, folder: Path) -> Job:
    """The command; what it needs is made first."""
    out = folder / "out"
    asked = ["--model", given.model, "--dataset", given.dataset, "--prompt"]
    asked += ["zero-shot", "--max-new-tokens", "4", *QUICK, "--out", str(out)]
    run = ["run", *SMALL, *asked]
    fit = ["fit", *FEW, "--tosses", "2", *asked]
    if given.command in ("run", "fit"):
        return Job(run if given.command == "run" else fit, out)
    first = run if given.command == "detect" else fit
    made = call(first)
    assert made.code == 0, made.told
    shutil.copytree(out, folder / "before")
    if given.command == "detect":
        few = [*FEW, "--tosses", "2", "--resamples", "100", *QUICK]
        return Job(["detect", str(out), *few], out, folder / "before")
    bundle = folder / "before" / "detectors" / "bundles" / "probe"
    (folder / "empty").mkdir()
    scores = [given.dataset, "--out", str(out / "scores.csv"), *QUICK]
    return Job(["score", "--detector", str(bundle), *scores], out, folder / "empty")


def try_all(
    job: Job, stops: int, full: int, rng: random.Random
) -> list[dict[str, Any]]:
    """What came of every stop and of every full disk."""
    usual, reference = undisturbed(job)
    rows = []
    for number in range(stops):
        sent = SIGNALS[number % len(SIGNALS)]
        moment = rng.randrange(usual.writes)
        seconds = rng.uniform(0, usual.seconds)
        job.begin()
        if number % 2 == 0:
            place = f"write {moment}"
            ended = call(job.words, moment, partial(_signal_myself, sent))
        else:
            place = f"{seconds:.2f} s"
            ended = call(job.words, stop_after=(seconds, sent))
        codes = {-sent if sent == signal.SIGKILL else 128 + sent}
        if number % 2:
            codes.add(0)
        wrong = wrongs(job, ended, codes, reference)
        rows.append(_row(f"{sent.name} at {place}", ended, wrong))
    for _ in range(full):
        moment = rng.randrange(usual.writes)
        job.begin()
        ended = call(job.words, moment, fill_disk)
        # What is only worth remembering (hashes of files) need not be written.
        wrong = wrongs(job, ended, {0, 2}, reference)
        rows.append(_row(f"full at write {moment}", ended, wrong))
    return rows


def _row(what: str, ended: Ended, wrong: list[str]) -> dict[str, Any]:
    then = "; ".join(wrong) or SAME
    say(f"{what}: exit code {ended.code}, then {then}")
    return {"stopped": what, "exit_code": ended.code, "then": then}


def undisturbed(job: Job) -> tuple[Ended, dict[str, bytes | None]]:
    """How the command ends by itself, and its files; None for those that hold times."""
    files = []
    for _ in range(2):
        job.begin()
        ended = call(job.words)
        assert ended.code == 0, ended.told
        files.append(files_of(job.out))
    first, second = files
    assert first.keys() == second.keys()
    same = {name: first[name] == second[name] for name in first}
    return ended, {name: first[name] if same[name] else None for name in first}


def wrongs(
    job: Job, ended: Ended, codes: set[int], reference: dict[str, bytes | None]
) -> list[str]:
    """What is not as it should be, now and after the same command."""
    wrong: list[str] = []
    errors = [line for line in ended.told.splitlines() if line.startswith("error: ")]
    if ended.code not in codes:
        wrong.append(f"exit code {ended.code}: {ended.told[-300:]}")
    elif "Traceback" in ended.told or len(errors) != (ended.code == 2):
        wrong.append(f"told {ended.told[-600:]}")
    may_have_more = job.before is not None or (job.out / "index.json").exists()
    mine = MINE if may_have_more else ()
    for name in mine:
        (job.out / name).parent.mkdir(exist_ok=True)
        (job.out / name).write_text("mine")
    again = call(job.words)
    if again.code:
        wrong.append(f"afterwards exit code {again.code}: {again.told[-300:]}")
    else:
        found = files_of(job.out)
        lost = [name for name in mine if found.pop(name, b"") != b"mine"]
        wrong += [f"lost {lost}"] if lost else []
        wrong += differences(found, reference)
    return wrong


def differences(
    found: dict[str, bytes], reference: dict[str, bytes | None]
) -> list[str]:
    odd = sorted(found.keys() ^ reference.keys())
    changed = [
        name
        for name in found.keys() & reference.keys()
        if reference[name] not in (None, found[name])
    ]
    wrong = [f"other files: {odd}"] if odd else []
    return wrong + ([f"other bytes: {sorted(changed)}"] if changed else [])


def files_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    content = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    assert not any(map(partial_of, content)), "something half made was left"
    content.pop(".lock", None)
    for name in content:
        if Path(name).stem == "report":
            content[name] = SECONDS.sub(b"0 s", content[name])
        if Path(name).name == "detection.json":
            # It holds times, and the hashes of pages that show them.
            content[name] = b""
    return content


def _signal_myself(sent: int) -> None:
    os.kill(os.getpid(), sent)


def fill_disk() -> None:
    """From now on no file of this process can grow; SIGXFSZ is ignored by Python."""
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    )


def call(
    words: list[str],
    moment: int = -1,
    then: Callable[[], None] = lambda: None,
    stop_after: tuple[float, int] | None = None,
) -> Ended:
    """The command in a child, which does something at its n-th write, or gets a signal after some seconds."""
    heard, tells = os.pipe()
    counts, counted = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.dup2(tells, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _in_child(words, moment, then, counted)
    os.close(tells)
    os.close(counted)
    timer = None
    if stop_after is not None:
        timer = threading.Timer(stop_after[0], os.kill, (child, stop_after[1]))
        timer.start()
    with os.fdopen(heard, "rb") as pipe:
        told = pipe.read().decode(errors="replace")
    if timer is not None:
        timer.cancel()
        timer.join()
    with os.fdopen(counts, "rb") as pipe:
        writes = int.from_bytes(pipe.read())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Ended(code, told, time.monotonic() - began, writes)


def _in_child(
    words: list[str], moment: int, then: Callable[[], None], counted: int
) -> None:
    # ignored in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seen = [0]
    code = 1

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **named: Any) -> Any:
            seen[0] += 1
            if seen[0] - 1 == moment:
                then()
            return function(*arguments, **named)

        return counting

    for name in WRITES:
        setattr(os, name, watched(getattr(os, name)))
    sys.argv = ["anchorscope", *words]
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", closefd=False)  # type: ignore[misc]
    try:
        program.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os.write(counted, seen[0].to_bytes(4))
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
