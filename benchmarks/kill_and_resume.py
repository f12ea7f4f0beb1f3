"""Kills runs at random moments (SIGKILL, while they write, rename or remove a file), goes on, and compares the numbers.

    python benchmarks/kill_and_resume.py --model FOLDER --dataset QUESTIONS --moments 30 [--job fresh]

`--job fresh` kills `--fresh` on a finished run, whose results have to stay whole until new ones take their place;
`--job repair` kills a run that makes a lost step and a lost result again. One process imports all and forks a
child for every run, so that a moment costs a run and not an import. A third of the runs are killed a second time while
they go on. The exit code is 1 if anything differs: a table, a file that the index does not list, a file of ours moved
aside as if it were the user's, a lost note of theirs.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads do not survive a fork
os.environ.setdefault("POLARS_MAX_THREADS", "1")

from anchorscope.artefacts.run_folder import read_index
from anchorscope.errors import UserError
from anchorscope.finished import open_finished
from anchorscope.pipeline import run_recipe
from anchorscope.recipe import Recipe, make_recipe
from reporting import Parser, Report, at_least, machine, run_script

WRITES = ("replace", "fsync", "unlink", "rmdir", "mkdir")
"""Calls of `os` that change the disk, or bring a change to it."""
MINE = "notes.txt"
SAME = "the same"
"""What is left of a kill."""
JOBS: dict[str, Callable[[Recipe, Path], Any]] = {
    "run": lambda recipe, out: run_recipe(recipe, out),
    "fresh": lambda recipe, out: run_recipe(recipe, out, fresh=True),
    "repair": lambda recipe, out: run_recipe(recipe, out),
}
"""What is killed."""


def main() -> int:
    """The program."""
    parser = parser_of(str(__doc__))
    parser.add_argument("--moments", dest="times", type=at_least(1), default=30)
    return run_script(parser, partial(measured, kill_and_resume, "kills"))


def measured(
    end_runs: Callable[..., list[dict[str, Any]]],
    what: str,
    options: argparse.Namespace,
) -> Report:
    """Every time that a run is ended in some way, a row each."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        rows = end_runs(
            recipe_of(options),
            Path(folder),
            options.times,
            rng=random.Random(options.seed),
            job=options.job,
        )
    return report_of(what, rows, time.monotonic() - began)


def report_of(what: str, rows: list[dict[str, Any]], seconds: float) -> Report:
    """How many of what there were, and how many went wrong; a row says `the same` where nothing did."""
    wrong = sum(row["then"] != SAME for row in rows)
    facts = {what: len(rows), "wrong": wrong, "seconds": round(seconds)}
    columns = dict.fromkeys(rows[0] if rows else (), "{}")
    facts |= {"machine": machine()}
    return Report(facts, columns, rows, failed=wrong > 0)


def parser_of(about: str) -> Parser:
    """The options of a small run on a CPU."""
    parser = Parser(about)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dataset", default="atlas")
    parser.add_argument("--seed", type=at_least(0), default=0)
    parser.add_argument("--job", choices=list(JOBS), default="run")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="of the recipe",
    )
    return parser


def recipe_of(options: argparse.Namespace) -> Recipe:
    """The small recipe that the options mean."""
    chosen = {}
    for option in options.option:
        name, _, value = option.partition("=")
        chosen[name] = int(value)
    return make_recipe(
        {
            "model": options.model,
            "datasets": (options.dataset,),
            "device": "cpu",
            "bootstrap": 100,
            "folds": 3,
            "report": False,
            **chosen,
        }
    )


def undisturbed(
    recipe: Recipe, folder: Path, job: str
) -> tuple[Path, int, dict[str, bytes]]:
    """A run that nothing happens to, how often the job writes, and the numbers of the run."""
    counted = folder / "writes"
    whole = folder / "whole"
    assert forked(lambda: run(recipe, whole, counted=counted)) == 0, (
        "the run itself does not end well"
    )
    reference = numbers(whole)
    if job != "run":
        begin(job, whole, folder / "first")
        assert (
            forked(lambda: run(recipe, folder / "first", counted=counted, job=job)) == 0
        ), "the job does not end well"
    return whole, int(counted.read_text()), reference


def kill_and_resume(
    recipe: Recipe, folder: Path, moments: int, *, rng: random.Random, job: str = "run"
) -> list[dict[str, Any]]:
    """What came of every kill."""
    whole, n_writes, reference = undisturbed(recipe, folder, job)
    rows = []
    for number, moment in enumerate(
        sorted(rng.sample(range(n_writes), min(moments, n_writes)))
    ):
        out = folder / f"run-{number}"
        begin(job, whole, out)
        again = [moment]
        if number % 3 == 0:
            again.append(rng.randrange(max(1, n_writes - moment)))
        wrong: list[str] = []
        for die_at in again:
            left = forked(partial(run, recipe, out, die_at=die_at, job=job))
            if left not in (0, -signal.SIGKILL):
                wrong.append(f"went on with exit code {left}")
            if job == "fresh" and (lost := old_results_lost(out)):
                wrong.append(lost)
            # Before there is an index, a file of the user's makes the folder theirs.
            if (out / "index.json").exists():
                (out / MINE).write_text("mine")
        left = forked(partial(run, recipe, out))
        wrong.append(f"exit code {left}" if left else differences(out, reference))
        then = "; ".join(filter(None, wrong)) or SAME
        rows.append({"killed_at": again, "of": n_writes, "then": then})
        shutil.rmtree(out)
    return rows


def begin(job: str, whole: Path, out: Path) -> None:
    """The folder that a job begins with: none, a finished run, or one that lost a step and a result."""
    if job != "run":
        shutil.copytree(whole, out)
    if job == "repair":
        steps = json.loads((out / "index.json").read_text())["steps"]
        lost = next(
            names["files"] for name, names in steps.items() if name.endswith("/labels")
        )
        for name in (*lost, "curves.csv"):
            (out / name).unlink()


def old_results_lost(out: Path) -> str:
    """Until new results are on their way, a finished run that is started over is the finished run that it was."""
    if any(not name.startswith("work/") for name in read_index(out).arriving):
        return ""
    try:
        open_finished(out)
    except UserError as error:
        return f"the old results are not whole: {error}"
    return ""


def forked(work: Callable[[], None]) -> int:
    """The exit code of a child that does the work, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except UserError as error:
            sys.stderr.write(f"refused: {error}\n")
            os._exit(2)
        except BaseException as error:
            sys.stderr.write(f"failed: {error!r}\n")
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(
    recipe: Recipe,
    out: Path,
    die_at: int | None = None,
    counted: Path | None = None,
    job: str = "run",
) -> None:
    """A job without figures, which dies at its n-th write (just before or just after it) or counts its writes."""
    seen = [0]

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **named: Any) -> Any:
            seen[0] += 1
            if seen[0] - 1 == die_at and seen[0] % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return call(*arguments, **named)
            finally:  # also where the call fails: a folder that is not empty stays
                if seen[0] - 1 == die_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        return counting

    for name in WRITES:
        setattr(os, name, watched(getattr(os, name)))
    JOBS[job](recipe, out)
    if counted is not None:
        counted.write_text(str(seen[0]))


def numbers(out: Path) -> dict[str, bytes]:
    """All result files but the manifest, which has times in it, and the answer, which names the folder."""
    named = json.loads((out / "manifest.json").read_text())["sha256"]
    return {name: (out / name).read_bytes() for name in named if name != "answer.json"}


def differences(out: Path, reference: dict[str, bytes]) -> str:
    """What is not as after a run that was never killed."""
    found = numbers(out)
    index = json.loads((out / "index.json").read_text())
    listed = {
        *index["results"],
        *(name for one in index["steps"].values() for name in one["files"]),
    }
    there = {one.relative_to(out).as_posix() for one in out.rglob("*") if one.is_file()}
    changed = [
        name for name in {*found, *reference} if found.get(name) != reference.get(name)
    ]
    told = [f"other numbers in {', '.join(sorted(changed))}"] if changed else []
    odd = sorted(
        (there - listed)
        ^ ({"index.json", ".lock", MINE} & {*there, "index.json", ".lock"})
    )
    told += [f"files that nobody lists: {', '.join(odd)}"] if odd else []
    told += (
        [f"listed and not there: {', '.join(sorted(listed - there))}"]
        if listed - there
        else []
    )
    return "; ".join(told)


if __name__ == "__main__":
    sys.exit(main())
