"""Cuts the power while a run writes: copies the disk as it is at random writes, mounts the copy, goes on, compares.

    python benchmarks/power_cut.py --model FOLDER --dataset QUESTIONS --cuts 12 [--job fresh]     (needs root)

The disk is an ext4 image that commits by itself only every five minutes and does not guess what should be flushed:
whatever was not brought to the disk is lost. The run waits at chosen writes, the image is copied, and the run goes on.
Every copy is what a power cut at that moment leaves: it is mounted, its journal replayed, and the same command goes on
with it. The exit code is 1 if a table, a file or a note of the user's differs.
"""

import contextlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from anchorscope.recipe import Recipe
from anchorscope.verifying import verify
from kill_and_resume import (
    JOBS,
    MINE,
    SAME,
    WRITES,
    begin,
    differences,
    forked,
    measured,
    parser_of,
    run,
    undisturbed,
)
from reporting import at_least, run_script

MEGABYTES = 256
OPTIONS = "loop,commit=300,noauto_da_alloc"


def main() -> int:
    """The program."""
    parser = parser_of(str(__doc__))
    parser.add_argument("--cuts", dest="times", type=at_least(1), default=12)
    return run_script(parser, partial(measured, cut_power, "power_cuts"))


def cut_power(
    recipe: Recipe, folder: Path, cuts: int, *, rng: random.Random, job: str
) -> list[dict[str, Any]]:
    """What was found after every cut, and what went wrong."""
    whole, n_writes, reference = undisturbed(recipe, folder, job)
    # A run that has less to remember writes a little less.
    n_writes = n_writes * 9 // 10
    moments = sorted(rng.sample(range(n_writes), cuts))
    image = folder / "disk.img"
    disk = folder / "disk"
    disk.mkdir()
    with image.open("wb") as empty:
        empty.truncate(MEGABYTES << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-J", "size=4", str(image)], check=True)
    copies = []
    with mounted(image, disk):
        begin(job, whole, disk / "run")
        os.sync()
        with stopped_at(partial(JOBS[job], recipe, disk / "run"), moments) as stops:
            for moment in stops:
                copies.append((moment, copied(image, folder / f"cut-{moment}.img")))
                out = disk / "run"
                if (out / "index.json").exists() and not (out / MINE).exists():
                    (out / MINE).write_text("mine")
                    os.sync()
    rows = []
    for moment, copy in copies:
        with mounted(copy, disk):
            found, problem = after_cut(recipe, disk / "run", reference)
        rows.append({"write": moment, "disk": found, "then": problem or SAME})
        copy.unlink()
    return rows


def after_cut(
    recipe: Recipe, out: Path, reference: dict[str, bytes]
) -> tuple[str, str]:
    """What the disk held, and what is not as it should be once the same command has gone on."""
    had_note = (out / MINE).exists()
    found = verify(out).answer if (out / "index.json").exists() else "no run yet"
    left = forked(partial(run, recipe, out))
    problem = f"exit code {left}" if left else differences(out, reference)
    if had_note and (out / MINE).read_text() != "mine":
        problem += "; the user's note was changed"
    return found, problem


@contextlib.contextmanager
def mounted(image: Path, place: Path) -> Iterator[None]:
    """A file system in a file."""
    subprocess.run(["mount", "-o", OPTIONS, str(image), str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextlib.contextmanager
def stopped_at(work: Callable[[], Any], moments: list[int]) -> Iterator[Iterator[int]]:
    """A child that does the work and waits at some of its writes, until the next moment is asked for."""
    heard, tells = os.pipe()
    waits, goes_on = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        _wait_at_writes(moments, tells, waits)
        try:
            work()
        except BaseException as error:
            sys.stderr.write(f"failed: {error!r}\n")
            os._exit(1)
        os._exit(0)
    os.close(tells)

    def stops() -> Iterator[int]:
        while told := os.read(heard, 8):
            yield int.from_bytes(told)
            os.write(goes_on, b"x")

    yield stops()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, (
        "the run does not end well"
    )


def _wait_at_writes(moments: list[int], tells: int, waits: int) -> None:
    seen = [0]
    chosen = set(moments)

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **named: Any) -> Any:
            number = seen[0]
            seen[0] += 1
            if number in chosen and number % 2:
                os.write(tells, number.to_bytes(8))
                os.read(waits, 1)
            try:
                return call(*arguments, **named)
            finally:  # also where the call fails: a folder that is not empty stays
                if number in chosen and not number % 2:
                    os.write(tells, number.to_bytes(8))
                    os.read(waits, 1)

        return counting

    for name in WRITES:
        setattr(os, name, watched(getattr(os, name)))


def copied(image: Path, to: Path) -> Path:
    """The disk as it is; nobody writes while it is copied."""
    for _ in range(5):
        shutil.copyfile(image, to)
        if (
            subprocess.run(["cmp", "-s", str(image), str(to)], check=False).returncode
            == 0
        ):
            return to
    raise RuntimeError("the disk does not come to rest")


if __name__ == "__main__":
    sys.exit(main())
